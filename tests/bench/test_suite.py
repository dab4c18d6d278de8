"""The benchmark measures what it says; no figure of it is tested."""

import json
from statistics import median

import pytest

from adafuse.bench import suite as measuring
from adafuse.bench.suite import (
    Suite,
    Usage,
    decode,
    generate,
    measure,
    median_margin,
    outcome,
    random_model,
    record,
    steps,
    to_markdown,
)
from adafuse.bench.workloads import chains, long_prompts, openings
from adafuse.engine.forward import Forward
from adafuse.errors import UserError
from adafuse.models.spec import ModelSpec
from tests.conftest import toy_path


class Ticking:
    """A case that takes the seconds it is told to."""

    def __init__(self, name, clock, *seconds):
        self.name, self.clock, self.seconds = name, clock, list(seconds)
        self.workload, self.batch_size = chains(1), 1
        self.order = clock.setdefault("order", [])

    def run(self):
        self.order.append(self.name)
        self.clock["now"] += self.seconds.pop(0)
        return Usage((10,), (5,))


def test_repeats_take_turns_and_the_first_pass_does_not_count(monkeypatch):
    clock = {"now": 0.0}
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: clock["now"])
    cases = [Ticking("a", clock, 99, 1, 2, 9), Ticking("b", clock, 99, 4, 4, 4)]
    one, other = measure(cases, repeats=3)
    assert clock["order"] == ["a", "b"] * 4
    assert one.seconds == median([1, 2, 9]) and (one.low, one.high) == (1.5, 5.5)
    assert other.seconds == other.low == other.high == 4
    assert one.tokens_per_second == 5


def test_generate_writes_as_many_tokens_as_it_is_told(pair):
    found = generate(pair.models[0], chains(3), 2, [4, 6, 5])
    assert found == Usage((15,), (6 * 2 + 5,))


def test_a_fused_case_tells_tokens_forwards_and_agreement(pair):
    results = decode(pair.models[:1] * 2, chains(2), 2)
    found = outcome(results)
    assert found.tokens == tuple(sum(r.tokens[k] for r in results) for k in range(2))
    assert found.agreement == 1.0
    assert 0 < found.forwards[1] < found.forwards[0]


def test_models_agree_where_all_propose_what_is_committed(pair):
    one = pair.models[:1] * 2
    assert outcome(decode(one, chains(2), 2, branching=3, tau=2.0)).agreement == 1.0
    assert outcome(decode(one, chains(2), 2, method="unite")).agreement == 1.0


def test_long_workloads_are_as_long_as_they_say(pair):
    model = pair.models[0]
    work = long_prompts(3, 400, model, 5)
    lengths = [len(model.prompt_ids(prompt)) for prompt in work.prompts]
    assert all(abs(length - 400) < 20 for length in lengths)
    assert len({prompt[:20] for prompt in work.prompts}) == 3
    lengths = [max(result.tokens) for result in decode(pair.models, openings(2, 40), 1)]
    assert all(40 <= length <= 50 for length in lengths), "no end token ends them"


def test_only_the_named_cases_run_and_only_their_ratios_are_given(pair):
    sizes = 2, (1, 2), 40, 8, {"tau": 0.7}, ["fixed_length"]
    suite = Suite(pair.models, *sizes, 4, ["B 1, batch 2", "unite, b", "forward: 4"])
    timings = measure(suite.cases(), repeats=1)
    names = ["adafuse B 1, batch 2", *(f"generate {k} for B 1, batch 2" for k in (1, 2))]
    assert [timing.case for timing in timings] == [*names, "unite, batch 1"]
    assert all(count <= 2 * 8 for timing in timings for count in timing.outcome.tokens)
    ratios = [*suite.ratios(timings), *steps(pair.models[0], 3, suite.wanted)]
    assert [ratio.name for ratio in ratios if ": reading the weights" not in ratio.name] == [
        "adafuse / generate of all, B 1, batch 2",
        "forwards / tokens of all models, unite, batch 1",
        f"ms, {pair.models[0].name}: tokens in a forward: 4",
    ]
    other = Suite(pair.models, *sizes, only=["B 9"])
    assert other.cases() == steps(pair.models[0], 3, other.wanted) == []


@pytest.mark.soak
def test_a_run_gives_every_ratio_as_json_and_as_a_table(pair):
    suite = Suite(pair.models, 2, (1, 2), 40, 8, {"tau": 0.7}, ["fixed_length"])
    timings = measure(suite.cases(), repeats=1)
    ratios = [*suite.ratios(timings), *steps(pair.models[0], repeats=3)]
    stored = json.loads(json.dumps(record(pair.models[0], "adafuse bench", timings, ratios)))
    assert len(stored["ratios"]) == len(ratios) == 4 + 1 + 1 + 5 + 1 + 4 + 3 + 7
    assert len(stored["timings"]) == len(timings) == 2 * 2 * 3 + 3 + 5 + 4 + 4 + 1
    seconds = {each["case"]: each["seconds"] for each in stored["timings"]}
    alone = sum(seconds[f"generate {k} for B 1, batch 1"] for k in (1, 2))
    assert ratios[0].value == pytest.approx(seconds["adafuse B 1, batch 1"] / alone)
    assert stored["peak_mib"]["host"] > 100
    text = to_markdown({**stored, "peak_mib": {"host": 1.0, "device": 2.0}})
    assert all(f"| {ratio.name} |" in text for ratio in ratios)
    assert "1 MiB and 2 MiB on the device" in text


def test_forwards_are_told_beside_the_time_to_read_the_weights_once(pair, monkeypatch):
    copy, rest = 0.5, [0.001, 0.002, 0.003, 0.004, 0.48, 0.96]
    taken = iter([copy, *rest])
    monkeypatch.setattr(measuring, "_median_seconds", lambda *_: next(taken))
    least, *found = steps(pair.models[0])
    weights = 4 * sum(p.numel() for p in pair.models[0].network.parameters())
    assert least.value == pytest.approx(1000 * copy * weights / (2 * measuring.COPIED["cpu"]))
    assert [ratio.value for ratio in found] == pytest.approx([1, 2, 3, 4, 10, 20])
    assert found[0].target == f"on a GPU at most {1.35 * least.value:.2f}"


def test_a_forward_of_some_tokens_runs_them_each_time(pair, monkeypatch):
    seen = []
    monkeypatch.setattr(measuring, "_median_seconds", lambda run, *_: [run(), run()] and 1.0)
    monkeypatch.setattr(
        "adafuse.engine.forward.Forward.__call__",
        lambda self, batch, own=Forward.__call__: (
            seen.append(batch.shape.tokens) or own(self, batch)
        ),
    )
    measuring._step(pair.models[0], 4, 2)
    assert seen == [32] + [4] * 2


def test_rounds_of_one_two_and_three_words_occur_at_the_median_margin(pair):
    tau = median_margin(pair.models)
    results = decode(pair.models, chains(8), 8, tau=tau)
    words = {taken.words for result in results for taken in result.rounds}
    assert words >= {1, 2, 3}


def test_random_weights_of_a_shape_can_be_timed(monkeypatch):
    spec = ModelSpec(path=toy_path("llama"), device="cpu")
    monkeypatch.setenv("SHAPE", toy_path("llama"))
    made = random_model("$SHAPE/config.json", spec, 1)
    assert made.vocabulary == len(made.tokenizer)
    with pytest.raises(UserError, match=r"'nowhere' does not exist; give a config\.json"):
        random_model("nowhere", spec, 1)
    with pytest.raises(UserError, match=r"not a valid JSON file.; give a config.json or its fold"):
        random_model(__file__, spec, 1)
    with pytest.raises(UserError, match="has a vocabulary smaller than the tokenizer"):
        random_model(f"{toy_path('qwen3')}/config.json", spec, 1)
