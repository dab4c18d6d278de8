"""Who is compared with whom."""

from collections.abc import Sequence

from adafuse.metrics.compare import Pairing, all_pairs, is_baseline, models_without_single, pairings

RUNS = {
    "mistral": ("single", ["m"]),
    "llama": ("single", ["l"]),
    "adafuse": ("adafuse", ["m", "l"]),
    "adafuse_b3": ("adafuse", ["m", "l"]),
    "fixed": ("fixed_length", ["m", "l"]),
}
VALUES = {"mistral": 40.0, "llama": 50.0, "adafuse": 70.0, "adafuse_b3": 80.0, "fixed": 60.0}


def test_a_run_of_any_method_is_a_baseline_but_a_choice_between_runs() -> None:
    assert not any(map(is_baseline, ("best_of", "best_pair", "development_pair")))
    assert all(map(is_baseline, ("adafuse", "single", "fixed_length", "unite", "somebody_s")))


def best_baselines(study: Sequence[str] = ()) -> dict[str, str]:
    found = pairings(RUNS, VALUES, study)
    return {pair.run: pair.against for pair in found if pair.role == "best baseline"}


def test_the_best_baseline_is_the_best_of_all_other_runs() -> None:
    assert best_baselines() == {
        "adafuse": "adafuse_b3", "adafuse_b3": "adafuse", "fixed": "adafuse_b3",
    }  # fmt: skip


def test_runs_under_study_are_no_baselines_of_each_other_whatever_their_methods() -> None:
    ours = best_baselines(["adafuse", "adafuse_b3"])
    assert ours == {"adafuse": "fixed", "adafuse_b3": "fixed", "fixed": "adafuse_b3"}
    assert best_baselines(["fixed", "adafuse_b3"])["fixed"] == "adafuse"


def test_a_new_method_meets_a_run_of_adafuse_with_its_own_score() -> None:
    runs = {**RUNS, "new": ("somebody_s", ["m", "l"])}
    found = pairings(runs, {**VALUES, "new": VALUES["adafuse_b3"]})
    assert Pairing("new", "adafuse_b3", "best baseline") in found


def test_every_ensemble_meets_its_members_and_the_best_baseline() -> None:
    found = pairings(RUNS, VALUES, study=["adafuse", "adafuse_b3"])
    assert [(p.run, p.against, p.role) for p in found] == [
        ("adafuse", "mistral", "member"),
        ("adafuse", "llama", "member"),
        ("adafuse", "fixed", "best baseline"),
        ("adafuse_b3", "mistral", "member"),
        ("adafuse_b3", "llama", "member"),
        ("adafuse_b3", "fixed", "best baseline"),
        ("fixed", "mistral", "member"),
        ("fixed", "llama", "member"),
        ("fixed", "adafuse_b3", "best baseline"),
    ]


def test_an_oracle_is_compared_with_nothing() -> None:
    runs = {**RUNS, "best": ("best_of", ["m", "l"]), "fair": ("development_pair", ["m", "l"])}
    found = pairings(runs, {**VALUES, "best": 99.0, "fair": 90.0})
    assert "best" not in {run for pair in found for run in (pair.run, pair.against)}
    assert [p.against for p in found if p.run == "fair"] == ["mistral", "llama", "adafuse_b3"]


def test_a_run_without_a_score_takes_no_part() -> None:
    found = pairings(RUNS, {name: VALUES[name] for name in ("llama", "adafuse")})
    assert found == [
        Pairing("adafuse", "llama", "member, others missing"),
        Pairing("adafuse", "llama", "best baseline"),
    ]
    assert pairings(RUNS, {"adafuse": 1.0, "adafuse_b3": 2.0}, ["adafuse", "adafuse_b3"]) == []
    assert pairings(RUNS, {"mistral": 1.0, "llama": 2.0}) == []


def test_of_equal_baselines_the_first_is_taken() -> None:
    found = pairings(RUNS, dict.fromkeys(RUNS, 5.0))
    assert {p.against for p in found if p.role == "best baseline"} == {"mistral"}


def test_a_model_that_is_in_the_ensemble_twice_is_one_member() -> None:
    runs = {"m": ("single", ["m"]), "twice": ("adafuse", ["m", "m"])}
    assert [p.role for p in pairings(runs, {"m": 1.0, "twice": 2.0})] == ["member", "best baseline"]


def test_models_that_no_run_uses_alone_are_named() -> None:
    runs = {"llama": ("single", ["l"]), "adafuse": ("adafuse", ["m", "l"])}
    assert models_without_single(runs) == {"adafuse": ["m"]}
    assert models_without_single(RUNS) == {}


def test_a_model_that_is_cut_elsewhere_is_no_member() -> None:
    runs = {**RUNS, "short": ("single", ["m"], 1), "brief": ("adafuse", ["m", "l"], 1)}
    found = pairings(runs, dict.fromkeys(runs, 5.0))
    members = [(p.run, p.against) for p in found if p.role == "member"]
    assert ("adafuse", "mistral") in members and ("adafuse", "short") not in members
    assert ("brief", "short") in members and ("brief", "mistral") not in members
    assert ("brief", "llama") in members
    del runs["mistral"]
    assert models_without_single(runs)["adafuse"] == ["m"]
    assert "brief" not in models_without_single(runs)


def test_all_pairs_are_each_run_with_every_later_one() -> None:
    assert [(p.run, p.against) for p in all_pairs({"a": 1.0, "b": 3.0, "c": 2.0})] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    assert all_pairs({"a": 1.0}) == []
