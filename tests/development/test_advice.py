"""Advice on whether to fuse: figures that other parts find, too, and what they come to."""

import json
from dataclasses import replace

import pytest

from adafuse import Ensemble, UserError
from adafuse.benchmarks.shards import PreparedRow
from adafuse.development.advice import _forms, _verdict, advise
from adafuse.development.certification import certify_methods
from adafuse.development.gate_fitting import Development, fit
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.score import evaluate
from tests.conftest import TOY_MODELS, toy_path

ROWS = TOY_MODELS.parent / "benchmarks/development/toy_qa.jsonl"
METRIC = SCORERS["triviaqa"].primary
SETTINGS = {"max_new_tokens": 16, "stop": ["\n"]}


@pytest.fixture(scope="module")
def rows():
    found = [json.loads(line) for line in ROWS.read_text().split("\n")[:24]]
    prompts = [f"Question: {row['question']}\nAnswer:" for row in found]
    answers = [
        [row["answer"]] if isinstance(row["answer"], str) else row["answer"] for row in found
    ]
    return Development("toy_qa", prompts, answers, "nq", SETTINGS)


@pytest.fixture(scope="module")
def advice(pair, rows):
    return advise(pair, rows, branching=2)


def outcomes(rows, results):
    prepared = [PreparedRow(str(n), "", "", tuple(a)) for n, a in enumerate(rows.answers)]
    texts = [{"id": str(n), "text": result.text} for n, result in enumerate(results)]
    found = evaluate(prepared, texts, "nq", benchmark="x", run="y")
    return [outcome.value for outcome in found.outcomes]


@pytest.mark.parametrize("progress", [True, False])
def test_a_bar_shows_how_many_texts_are_decoded(pair, rows, progress, capsys):
    few = replace(rows, prompts=rows.prompts[:2], answers=rows.answers[:2], progress=progress)
    advise(pair, few)
    certify_methods(pair, few, {"fused": ("adafuse", {})})
    fit(pair, [few], objective="likelihood")
    bars = [line.split("\r")[-1] for line in capsys.readouterr().err.split("\n")[:-1]]
    assert [bar for bar in bars if "| 2/2 [" not in bar] == []
    assert len(bars) == (7 if progress else 0)


def test_rows_that_all_end_in_an_error_are_no_advice_and_some_are_told(pair, rows):
    model = pair.models[1]
    few = Development("few", rows.prompts[:3], rows.answers[:3], "nq", SETTINGS)
    hook = model.network.lm_head.register_forward_hook(
        lambda *call: call[-1].clone().fill_(float("nan"))
    )
    try:
        with pytest.raises(UserError, match=f"few: 3 of 3 texts ended in an error.*{model.name}"):
            advise(pair, few)
        with pytest.raises(UserError, match=f"few: 3 of 3 texts ended in an error.*{model.name}"):
            fit(pair, [few])
    finally:
        hook.remove()
    long = Development(
        "long", [*rows.prompts[:2], "Who? " * 9000], rows.answers[:3], "nq", SETTINGS
    )
    verdict = advise(pair, long).verdict
    assert verdict.count("1 of 3 texts ended in an error, the first with: the prompt has") == 2
    assert "they count as wrong" in verdict


def test_the_figures_are_those_of_decoding_and_scoring(advice, pair, rows):
    right = [
        outcomes(rows, Ensemble([model]).generate(rows.prompts, method="single", **SETTINGS))
        for model in pair.models
    ]
    fused = pair.generate(rows.prompts, branching=2, **SETTINGS)
    n = len(rows.prompts)
    for number, member in enumerate(advice.members):
        assert member.score.value == pytest.approx(100 * sum(right[number]) / n)
        alone = sum(a > b for a, b in zip(right[number], right[1 - number], strict=True))
        assert member.alone == pytest.approx(100 * alone / n)
    assert advice.fused.value == pytest.approx(100 * sum(outcomes(rows, fused)) / n)
    either = sum(max(pair_) for pair_ in zip(*right, strict=True))
    assert advice.ceiling == pytest.approx(100 * either / n)
    rounds = [taken for result in fused for taken in result.rounds]
    agreed = sum(len(taken.candidates[taken.selected].proposers) == 2 for taken in rounds)
    assert advice.agreement == pytest.approx(100 * agreed / len(rounds))
    tokens = sum(sum(result.tokens) for result in fused)
    assert advice.forwards == pytest.approx(sum(sum(r.forwards) for r in fused) / tokens)
    better = max(member.score.value for member in advice.members)
    assert advice.against.difference == pytest.approx(advice.fused.value - better)


def test_of_a_text_that_no_model_holds_nothing_is_said_per_token(pair, rows):
    ranked = {"ranker": toy_path("pair_ranker"), "rank_only": True}
    found = advise(pair, rows, method="llm_blender", **ranked)
    alone = [row.texts[0] == row.texts[1] for row in found.answers]
    assert 0 < sum(alone) < len(alone)
    assert (found.forwards, found.agreement) == (None, pytest.approx(100 * sum(alone) / len(alone)))


def valued(advice, *values):
    """The members, with other scores."""
    pairs = zip(advice.members, values, strict=True)
    return tuple(
        replace(m, score=replace(m.score, value=value, low=value - 9, high=value + 9))
        for m, value in pairs
    )


@pytest.mark.parametrize(
    ("difference", "low", "p", "ceiling", "count", "says"),
    [
        (12.0, 5.0, 0.001, 90.0, 200, "Fuse them."),
        (-12.0, -20.0, 0.001, 90.0, 200, "Do not fuse them in this way."),
        (1.0, -4.0, 0.7, 90.0, 200, "There is more to gain, 20.0 points"),
        (0.2, -4.0, 0.9, 71.0, 200, "There is little to gain: always choosing the better of"),
        (1.0, -4.0, 0.7, 90.0, 20, "So few rows (20) show only large differences; use more."),
    ],
)
def test_the_verdict_follows_the_figures(advice, difference, low, p, ceiling, count, says):
    members = valued(advice, *(70.0, 66.0))
    high = difference + abs(difference - low)
    against = replace(advice.against, difference=difference, low=low, high=high, p_holm=p)
    found = replace(advice, members=members, against=against, ceiling=ceiling, rows=count)
    assert says in _verdict(found, 0, METRIC)


@pytest.mark.parametrize(
    ("p", "detectable", "says"),
    [
        (0.3, 6.2, "Nor do they show that fused texts are as good: that takes more rows. The"
         " smallest difference that 24 such rows show in 80 of 100 cases: 6.2 points; one of 2"
         " points takes 2,059 rows."),
        (0.01, None, "They show that fused texts are less than 1 point worse. The smallest"
         " difference that 24 such rows show in 80 of 100 cases: none; one of 2"),
    ],
)  # fmt: skip
def test_rows_that_show_no_difference_say_how_many_would(advice, p, detectable, says):
    against = replace(
        advice.against, difference=1.0, low=-4.0, high=6.0, p_holm=0.7, p_noninferior=p,
        detectable=detectable, rows_needed=2059,
    )  # fmt: skip
    found = replace(advice, members=valued(advice, 70.0, 66.0), against=against)
    assert "These rows do not show which is better. " + says in _verdict(found, 0, METRIC)


def test_co_failure_is_that_of_the_models_alone(advice, pair, rows):
    right = [
        outcomes(rows, Ensemble([model]).generate(rows.prompts, method="single", **SETTINGS))
        for model in pair.models
    ]
    fused = outcomes(rows, pair.generate(rows.prompts, branching=2, **SETTINGS))
    wrong = [got for *own, got in zip(*right, fused, strict=True) if not any(own)]
    found = advice.co_failure
    assert (found.all_wrong, found.gained) == (len(wrong), sum(wrong))
    assert found.bound == pytest.approx(advice.ceiling)


def test_unequal_models_are_told_to_be_weighed(advice):
    members = valued(advice, *(70.0, 30.0))
    against = replace(advice.against, difference=-5.0, low=-9.0, high=1.0, p_holm=0.1)
    found = replace(advice, members=members, against=against, ceiling=75.0)
    said = _verdict(found, 0, METRIC)
    assert "The models are unequal: fit a gate, or give the better one" in said
    near = replace(found, members=valued(advice, *(70.0, 55.0)))  # within their intervals
    assert "unequal" not in _verdict(near, 0, METRIC)


def test_what_cannot_be_advised_on_is_one_sentence(pair, rows):
    with pytest.raises(
        UserError, match="only one model was given, so there is nothing to fuse; give two"
    ):
        advise(Ensemble(pair.models[:1]), rows)
    with pytest.raises(UserError, match="there are no development rows; give some with answers"):
        advise(pair, replace(rows, prompts=[], answers=[]))


def test_answers_that_were_mostly_cut_give_no_verdict(pair, rows):
    short = replace(rows, settings={"max_new_tokens": 2})
    found = advise(pair, short)
    assert found.cut == 100.0
    assert found.verdict.startswith("No verdict: limits cut 100 % of the answers")
    assert "Raise max_new_tokens" in found.verdict and "best" not in found.verdict


@pytest.mark.parametrize("who", ["a member", "the other member", "fused"])
def test_one_that_was_mostly_cut_is_enough(advice, who):
    assert not _verdict(advice, 0, METRIC).startswith("No verdict")
    first, second = advice.members
    found = {
        "a member": replace(advice, members=(replace(first, cut=51.0), second)),
        "the other member": replace(advice, members=(first, replace(second, cut=51.0))),
        "fused": replace(advice, cut=51.0),
    }[who]
    assert _verdict(found, 0, METRIC).startswith("No verdict: limits cut 51 %")


def test_zero_against_zero_has_no_best_model_and_no_verdict(pair, rows):
    never = replace(rows, answers=[["xyzzy"]] * len(rows.answers))
    verdict = advise(pair, never).verdict
    assert verdict.startswith("No verdict: neither the models nor the ensemble score a point.")
    assert "best" not in verdict


def test_equal_models_are_not_called_the_best(advice):
    found = replace(advice, members=valued(advice, 70.0, 70.0))
    names = [member.name for member in advice.members]
    assert f"{names[0]} alone, which scores as {names[1]}." in _verdict(found, 0, METRIC)
    assert "the best" in _verdict(replace(advice, members=valued(advice, 70.0, 60.0)), 0, METRIC)


def test_a_few_answers_are_there_to_be_looked_at(advice, pair, rows):
    assert len(advice.samples) == 3
    for sample in advice.samples:
        row = rows.prompts.index(sample.prompt)
        assert sample.accepted == tuple(rows.answers[row])
        own = [
            Ensemble([m]).generate([sample.prompt], method="single", **SETTINGS)
            for m in pair.models
        ]
        fused = pair.generate([sample.prompt], branching=2, **SETTINGS)
        assert sample.texts == tuple(found[0].text for found in (*own, fused))
    different = [len(set(sample.texts)) > 1 for sample in advice.samples]
    assert different == sorted(different, reverse=True)


def test_answers_that_are_empty_or_right_in_another_form_are_told(advice):
    row = advice.answers[0]
    told = replace(row, accepted=("Rome",), texts=("It is rome.", "", "Rome"), values=(0, 0, 1))
    other = replace(told, texts=("Romeo", "Rome", "Rome"), values=(0, 1, 1))
    changed = replace(advice, rows=4, answers=(told, told, other, other))
    empty, form = _forms(changed, METRIC)
    first, second = (member.name for member in advice.members)
    assert empty.startswith(f"Empty answers of 4: 2 of {second};")
    assert f"accepted one: 2 of {first}, 0 of {second}, 0 of the ensemble." in form
    assert not [*_forms(replace(changed, answers=(other,) * 4), METRIC)]
