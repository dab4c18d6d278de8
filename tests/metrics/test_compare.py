"""Comparing runs: numbers, families, and what is refused."""

import pytest

from adafuse.errors import UserError
from adafuse.metrics.compare import compare_all, compare_runs
from adafuse.metrics.paired import PairedCounts, mcnemar_exact, newcombe
from adafuse.metrics.scorer import Outcome

from .conftest import accuracy, scored, translation, values

RUNS = {
    "m": ("single", ["m"]),
    "l": ("single", ["l"]),
    "both": ("adafuse", ["m", "l"]),
}
M = accuracy("m", [1, 1, 0, 0] * 10)
L = accuracy("l", [1, 0, 1, 0] * 10)
BOTH = accuracy("both", [1, 1, 1, 0] * 9 + [1, 0, 0, 0])

REFERENCES = [f"the {a} girl carries a {b} cow" for a in ("old", "young") for b in "abcde"]
WORSE = [text.replace("carries a", "sees the") for text in REFERENCES]


def test_the_numbers_are_those_of_the_tests_on_the_counted_pairs() -> None:
    first = compare_runs(RUNS, [M, L, BOTH])[0]
    counts = PairedCounts(both=19, wins=9, losses=1, neither=11)
    assert (first.run, first.against, first.role) == ("both", "m", "member")
    assert (first.n, first.wins, first.losses) == (40, 9, 1)
    assert (first.value, first.other, first.difference) == pytest.approx((70, 50, 20))
    assert (first.low, first.high) == pytest.approx([100 * end for end in newcombe(counts)])
    assert first.p == mcnemar_exact(9, 1)


def test_a_pair_with_two_roles_is_one_test_of_the_family() -> None:
    """Two different pairs and one of them twice: Holm multiplies by 2, not by 3."""
    member, other, best = compare_runs(RUNS, [M, L, BOTH])
    assert (best.role, best.against) == ("best baseline", "m")
    assert (best.p, best.p_holm) == (member.p, member.p_holm)
    assert sorted([member.p_holm, other.p_holm])[0] == 2 * min(member.p, other.p)


def test_all_runs_can_be_compared_with_each_other() -> None:
    """A pair is the same test whoever chose it; the family is that of all three pairs."""
    found = compare_all([BOTH, M, L])
    assert [(each.run, each.against, each.role) for each in found] == [
        ("both", "m", "other run"),
        ("both", "l", "other run"),
        ("m", "l", "other run"),
    ]
    chosen = compare_runs(RUNS, [BOTH, M, L])
    assert [each.p for each in found[:2]] == [each.p for each in chosen[:2]]
    assert min(each.p_holm for each in found) == 3 * min(each.p for each in found)


def test_each_benchmark_and_protocol_is_a_family_of_its_own() -> None:
    strict = [M, L, BOTH]
    lenient = [accuracy(each.score.run, values(each), protocol="published") for each in strict]
    second = [accuracy(each.score.run, values(each), benchmark="qa2") for each in strict]
    together = compare_runs(RUNS, [*strict, *lenient, *second])
    alone = compare_runs(RUNS, strict)
    assert [c.p_holm for c in together] == [c.p_holm for c in alone] * 3
    assert {(c.benchmark, c.protocol) for c in together} == {
        ("qa", "strict"), ("qa", "published"), ("qa2", "strict"),
    }  # fmt: skip


def test_rows_are_paired_by_id_not_by_place() -> None:
    turned = accuracy("both", values(BOTH)[::-1], [outcome.id for outcome in BOTH.outcomes][::-1])
    assert compare_runs(RUNS, [M, L, turned]) == compare_runs(RUNS, [M, L, BOTH])


def test_bleu_is_compared_by_the_paired_bootstrap() -> None:
    scores = [
        translation("m", 5 * WORSE, 5 * REFERENCES),
        translation("l", 5 * [*WORSE[:5], *REFERENCES[5:]], 5 * REFERENCES),
        translation("both", 5 * REFERENCES, 5 * REFERENCES),
    ]
    first, second, best = compare_runs(RUNS, scores)
    assert (first.test, first.wins, first.losses) == ("paired bootstrap", None, None)
    assert first.difference == pytest.approx(first.value - first.other)
    assert 0 < second.low <= second.difference <= second.high
    assert best.against == "l" and best.p == second.p


def test_means_of_other_values_are_compared_by_the_paired_bootstrap() -> None:
    """A metric that no scorer here reports, neither binary nor BLEU."""
    found = []
    for run, given in (("m", [10.0, 20.0, 30.0] * 20), ("both", [15.0, 22.0, 33.0] * 20)):
        outcomes = [Outcome(f"r{at}", "x", ("x",), value) for at, value in enumerate(given)]
        found.append(scored(run, outcomes, "closeness", sum(given) / len(given)))
    (member, best) = compare_runs(RUNS, found)
    assert (member.test, member.wins) == ("paired bootstrap", None)
    assert member.difference == pytest.approx(10 / 3)
    assert 2 < member.low <= member.difference <= member.high < 5
    assert best.p == member.p < 0.05


def test_published_bleu_leaves_out_empty_pairs_as_its_score_does() -> None:
    texts = ["", *REFERENCES[1:]]
    scores = [
        translation("m", WORSE, REFERENCES, protocol="published"),
        translation("both", texts, REFERENCES, protocol="published"),
    ]
    assert compare_runs(RUNS, scores)[0].value == pytest.approx(100)


def test_a_mark_needs_both_the_adjusted_p_and_the_interval() -> None:
    clear = compare_runs(RUNS, [accuracy("m", [0] * 30), accuracy("both", [1] * 30)])[0]
    even = compare_runs(RUNS, [M, accuracy("both", values(M))])[0]
    assert clear.significant
    assert not even.significant and even.p == 1


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ([M, accuracy("both", [1.0] * 39)], r"run 'both' on 'qa' \(strict\) .* row 'r39'"),
        ([M, accuracy("both", [1.0] * 40, metric="accuracy")], "'accuracy', others by 'exact"),
        (
            [translation("m", WORSE, REFERENCES), translation("both", WORSE, WORSE)],
            "other references than the rest",
        ),
        (
            [translation("m", WORSE, REFERENCES), translation("both", WORSE, REFERENCES, value=9)],
            r"score is 9.000000 \(n = 10\), but its outcomes give",
        ),
        ([M, accuracy("both", [1, 0.5] * 20)], "score is 75.000000 .* outcomes give 50.000000"),
        ([M, accuracy("both", [1.0] * 40, n=41)], r"\(n = 41\), but .* \(n = 40\); score the run"),
    ],
)
def test_scores_that_cannot_be_paired_are_refused(scores, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        compare_runs(RUNS, scores)
