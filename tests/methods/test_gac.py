import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from adafuse.decoding.round import Example
from adafuse.decoding.words import Limits
from adafuse.engine.node import NextToken, TokenSequence
from adafuse.ensemble import Ensemble
from adafuse.methods import resolve
from tests.conftest import toy_path
from tests.methods.test_engines_agree import PROMPTS
from tests.support.next_token import logprobs, mass


def decode(ensemble, **options):
    return ensemble.generate(PROMPTS, method="gac", max_new_tokens=16, **options)


def rounds(results):
    return [taken for result in results for taken in result.rounds]


def spellings(candidate):
    """The bytes of a candidate of whole characters; none for END."""
    return {candidate.text.encode()} if candidate.text else set()


def test_every_step_is_the_default():
    assert resolve("gac", {}).options.model_dump() == {
        "threshold": None,
        "primary": 0,
        "mean": "arithmetic",
        "positions": "all",
        "weighting": "given",
    }


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
def test_the_first_round_takes_the_likeliest_bytes_of_both_models(ensemble, request):
    models = request.getfixturevalue(ensemble).models
    for prompt, result in zip(PROMPTS, decode(Ensemble(models, (1.0, 3.0))), strict=True):
        vectors = [logprobs(model, prompt) for model in models]
        for candidate in result.rounds[0].candidates:
            if "\ufffd" not in candidate.text:
                expected = [
                    mass(model, vector, spellings(candidate))
                    for model, vector in zip(models, vectors, strict=True)
                ]
                assert candidate.nll == pytest.approx(expected, abs=1e-4)
                p = 0.25 * math.exp(-expected[0]) + 0.75 * math.exp(-expected[1])
                assert candidate.fused == pytest.approx(-math.log(p), abs=1e-4)
        fused = [candidate.fused for candidate in result.rounds[0].candidates]
        assert fused == sorted(fused)


def test_a_confident_gate_decides_alone_and_the_other_model_is_not_asked(pair):
    for gate in (0, 1):
        results = decode(pair, threshold=0.6, primary=gate)
        alone = [taken for taken in rounds(results) if not taken.margins[1 - gate]]
        assert alone
        for taken in alone:
            winner = taken.candidates[0]
            assert math.exp(-winner.nll[gate]) > 0.6
            assert winner.fused == winner.nll[gate]
            assert math.isnan(winner.nll[1 - gate])
        together = [taken for taken in rounds(results) if taken.margins[1 - gate]]
        assert together
        for taken in together:
            assert not any(math.isnan(value) for c in taken.candidates for value in c.nll)


def test_the_gate_must_be_above_the_threshold(pair):
    for threshold in (None, 1.0):
        assert all(all(taken.margins) for taken in rounds(decode(pair, threshold=threshold)))
    assert all(result.forwards[1] == 0 for result in decode(pair, threshold=0.0))


@pytest.mark.parametrize("chat", [(True, True), (True, False)])
def test_behind_a_chat_template_words_meet_with_and_without_their_space(chat):
    paths = [toy_path("mistral"), toy_path("llama")]
    ensemble = Ensemble.from_pretrained(paths, device="cpu", chat=chat)
    results = decode(ensemble)
    for prompt, result in zip(PROMPTS, results, strict=True):
        vectors = [logprobs(model, prompt) for model in ensemble.models]
        chosen, *others = result.rounds[0].candidates
        # What is written is a token of some model as it is; the others are shown as they met.
        met = chosen.text[1:] if chosen.text.strip() and chosen.text[0] == " " else chosen.text
        for candidate in (replace(chosen, text=met), *others):
            text = candidate.text
            assert not text.startswith(" ") or text.startswith("  ") or not text.strip()
            both = {text.encode(), b" " + text.encode()} if text.strip() else spellings(candidate)
            expected = [
                mass(model, vector, both)
                for model, vector in zip(ensemble.models, vectors, strict=True)
            ]
            assert candidate.nll == pytest.approx(expected, abs=1e-4)
        assert result.text.startswith(result.rounds[0].candidates[0].text)
    later = [c.text for result in results for taken in result.rounds[1:] for c in taken.candidates]
    assert any(len(text) > 1 and text.startswith(" ") for text in later)


@pytest.mark.parametrize(("threshold", "asked"), [(0.3, [0]), (0.5, [0, 1]), (None, [0, 1])])
def test_the_gate_of_the_worked_example(threshold, asked):
    """Its likeliest token has 0.40: above 0.3 it decides alone, below 0.5 both are asked."""
    token_bytes = [[b"the", b"a", b"\n", b"b", None], [b"the", b"an", b"\n", b"b", None]]
    p = [[0.25, 0.10, 0.15, 0.10, 0.40], [0.25, 0.15, 0.15, 0.05, 0.40]]
    models = [
        SimpleNamespace(
            token_bytes=SimpleNamespace(of=of), end_ids={4}, chat=False, device=torch.device("cpu")
        )
        for of in token_bytes
    ]
    engines = [
        SimpleNamespace(model=model, context=9, commit=lambda node: None) for model in models
    ]
    example = Example((1.0, 1.0), Limits())
    example.sequences.extend(TokenSequence(engine, [0]) for engine in engines)
    method = resolve("gac", {"threshold": threshold})
    method.prepare(models)
    evaluated = []
    for nodes in method.decode(example):
        for node in nodes:
            number = engines.index(node.engine)
            vector = torch.tensor(p[number]).log()
            node.next = NextToken((4,), (math.log(0.4),), 0.15, math.log(0.4), vector)
            evaluated.append(number)
    assert evaluated == asked
    (taken,) = example.rounds
    assert taken.candidates[0].ends
    assert taken.candidates[0].fused == pytest.approx(-math.log(0.4), abs=5e-5)
