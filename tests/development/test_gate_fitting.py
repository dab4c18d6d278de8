"""Fitting a gate: what choices are worth, and what is refused."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import sacrebleu

from adafuse.decoding.candidates import Span
from adafuse.decoding.fusion import FusionOptions, mean_nll
from adafuse.development.gate_file import write_gate
from adafuse.development.gate_fitting import Development, Fitter, Kept, _following, fit
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.tokenization.thoughts import Thoughts
from tests.conftest import toy_path
from tests.support.interrupted import Interrupted
from tests.support.stand_in import ensemble, standing

SENTENCES = [
    ("The old queen loves the new garden today.", "Die alte Königin liebt den neuen Garten heute."),
    ("The cat draws a letter.", "Die Katze zeichnet einen Brief."),
    (
        "A teacher sells a black child every day.",
        "Ein Lehrer verkauft ein schwarzes Kind jeden Tag.",
    ),
    ("The friend reads the white book.", "Der Freund liest das weiße Buch."),
    ("The king buys the small house.", "Der König kauft das kleine Haus."),
    ("A dog sees the tree.", "Ein Hund sieht den Baum."),
]


def development(pairs=SENTENCES, **changes):
    given = {
        "name": "toy",
        "prompts": [f"Translate English to German.\nQuestion: {q}\nAnswer:" for q, _ in pairs],
        "answers": [(answer,) for _, answer in pairs],
        "scorer": "translation_13a",
        "settings": {"max_new_tokens": 48, "stop": ("\n",)},
    }
    return Development(**given | changes)


def test_what_a_choice_is_worth_is_the_score_of_the_text_that_follows_it(pair, monkeypatch):
    """The same choice is forced here by a fusion rule that counts rounds."""
    rows = development(SENTENCES[:1])
    (prompt,), (answer,) = rows.prompts, rows.answers[0]

    def decode(number, text):
        rounds = itertools.count()

        def fuse(pool, weights):
            forced = next(rounds) == number
            scores = [mean_nll(s, weights) - 99 * (forced and s.text == text) for s in pool]
            return scores, weights

        monkeypatch.setattr(FusionOptions, "rule", lambda options, models: fuse)
        (result,) = pair.generate([prompt], max_new_tokens=48, stop=["\n"])
        return result

    def bleu(text):
        return sacrebleu.sentence_bleu(text.strip(), [answer], use_effective_order=True).score

    plain = decode(None, None)
    tried = {
        (number, other.text): bleu(decode(number, other.text).text)
        for number, taken in enumerate(plain.rounds)
        for other in taken.candidates
    }
    monkeypatch.undo()
    cases, points = Fitter(pair, "adafuse", {}).cases(rows, "reward")
    assert points == pytest.approx(max(tried.values()))
    disagreed = [n for n, taken in enumerate(plain.rounds) if len(taken.candidates) > 1]
    assert len(cases) == len(disagreed) > 1
    for number, case in zip(disagreed, cases, strict=True):
        taken = plain.rounds[number]
        values = [tried[number, each.text] for each in taken.candidates]
        assert case.worth * max(tried.values()) == pytest.approx(values)
        assert case.taken == taken.selected
        assert case.nll == pytest.approx(np.array([each.nll for each in taken.candidates]))


def test_likelihood_follows_the_reference_as_long_as_a_candidate_does(pair):
    cases, _ = Fitter(pair, "adafuse", {}).cases(development(), "likelihood")
    assert cases
    assert all(case.worth.sum() == 1 for case in cases)


def test_the_reference_is_followed_after_thoughts():
    def span(text):
        return Span(text, fused=0.0)

    marks = Thoughts("<think>", "</think>")
    pool = [span("Rustan "), span("Paila")]
    assert _following(["Paila Firmble"], "<think>Who? ", pool, marks) is None
    assert _following(["Paila Firmble"], "<think>Who?</think>\n", pool, marks) is pool[1]
    assert _following(["Paila Firmble"], "", pool, marks) is pool[1]
    both = [span("Who?</think>Rustan"), span("Who?</think>\nPaila")]
    assert _following(["Paila Firmble"], "<think>", both, marks) is both[1]


def test_a_fitted_gate_is_the_same_each_time_and_decodes(pair, tmp_path):
    first, second = (fit(pair, [development()]) for _ in range(2))
    assert first == second
    assert (first.fitted.rows, first.fitted.benchmarks) == (len(SENTENCES), ("toy",))
    write_gate(tmp_path / "gate.json", first)
    gate = str(tmp_path / "gate.json")
    results = pair.generate(development().prompts, fusion="learned", gate=gate, stop=["\n"])
    assert all(result.text.strip() for result in results)


def test_fitting_says_how_far_it_is(pair, caplog):
    with caplog.at_level("INFO", "adafuse"):
        fit(pair, [development(SENTENCES[:2])])
    said = caplog.messages
    assert said[:2] == ["toy: 1 of 2 texts decoded", "toy: 2 of 2 texts decoded"]
    tried = int(said[2].removeprefix("toy: ").removesuffix(" other choices are tried"))
    assert said[-1] == f"toy: {tried} of {tried} texts decoded"
    assert len(said) <= 3 + 10


@pytest.mark.parametrize(("objective", "stops"), [("reward", [2, 8]), ("likelihood", [1])])
def test_an_interrupted_fit_goes_on_where_it_was(pair, tmp_path, monkeypatch, objective, stops):
    """It stops while rows are decoded, then while choices are tried."""
    rows = development(SENTENCES[:3])
    kept = Kept(tmp_path / "gate.journal", "these models")
    decoding = Interrupted(monkeypatch, *stops)

    def learned(kept):
        """Return what is learned from how many rounds, and how many texts that took."""
        decoding.texts = 0
        gate = fit(pair, [rows], objective=objective, kept=kept)
        gain = [round(points, 6) for points in gate.fitted.gain.values()]
        return gate.fitted.rounds, gain, decoding.texts

    for _ in stops:
        with pytest.raises(KeyboardInterrupt):
            fit(pair, [rows], objective=objective, kept=kept)
    before = decoding.texts
    *found, after = learned(kept)
    assert not decoding.stops
    assert [*found, before + after] == [*learned(None)]
    assert [*found, 0] == [*learned(kept)]
    assert [*found, before + after] == [*learned(replace(kept, same="other models"))]


@pytest.mark.usefixtures("no_pauses")
def test_a_server_that_fails_while_choices_are_tried_ends_the_fitting(distributions):
    rows = development(SENTENCES[:1])
    with standing(distributions[0]) as one, standing(distributions[1]) as other:
        fitter = Fitter(ensemble(one, other), "adafuse", {})
        before = len(other.asked)
        fitter._decode_rows(rows)
        left = iter([None] * (len(other.asked) - before + 1))  # enough for the rows themselves
        other.fault = lambda body: next(left, "broken")
        with pytest.raises(UserError, match=rf"^the server {other.url} failed 9 .* run again"):
            fitter.cases(rows, "reward")


def test_gains_are_in_points_only_where_they_are_scores(pair):
    rows = development()
    _, points = Fitter(pair, "adafuse", {}).cases(rows, "reward")
    assert points == pytest.approx(100)  # a sentence is translated as the reference has it
    assert fit(pair, [rows]).fitted.unit == "points"
    assert "points" not in fit(pair, [rows], objective="likelihood").fitted.unit
    other = development(scorer="squad", name="other")
    assert "points" not in fit(pair, [rows, other]).fitted.unit


@pytest.mark.parametrize(
    ("rows", "options", "says"),
    [
        (development(answers=[("",)] * 6), {}, "toy: row 0 has no answer"),
        (development([]), {}, "there are no development rows"),
        (development(), {"method": "unite"}, "method unite cannot be fitted"),
        (development(), {"fusion": "mixture"}, "fusion='mixture' cannot be fitted"),
        (development(), {"weighting": "prompt"}, "has its own weights; remove weighting 'prompt'"),
        (development(), {"objective": "rewards"}, "unknown objective 'rewards'"),
        (development(scorer="bleu"), {}, "unknown scorer 'bleu'"),
    ],
)
def test_what_cannot_be_fitted_is_refused_in_a_sentence(pair, rows, options, says):
    with pytest.raises(UserError, match=says) as refused:
        fit(pair, [rows], **options)
    assert "\n" not in str(refused.value)


def test_models_that_never_differ_leave_the_rule_of_the_paper():
    path = toy_path("mistral")
    twice = Ensemble.from_pretrained([path, path], device="cpu")
    gate = fit(twice, [development(SENTENCES[:2])])
    assert (gate.fitted.rounds, gate.fitted.penalty) == (0, None)
    assert not any([*gate.bias, *gate.weights.values(), *gate.span.values()])


def test_one_model_has_nothing_to_weigh():
    alone = Ensemble.from_pretrained([toy_path("mistral")], device="cpu")
    with pytest.raises(UserError, match="only one was given; give two"):
        fit(alone, [development()])
