"""Methods that choose between the models' own answers."""

from dataclasses import replace

import pytest
import torch

from adafuse.decoding.answers import own_answers
from adafuse.decoding.round import Example
from adafuse.decoding.words import Limits
from adafuse.engine.choice import engine_for
from adafuse.engine.scheduler import Finished, Scheduler
from adafuse.ensemble import Ensemble
from adafuse.methods.rerank import Rerank, RerankOptions
from adafuse.records.result import Answer
from tests.conftest import toy_path
from tests.methods.test_engines_agree import PROMPTS
from tests.support.results import assert_same
from tests.support.tiny import random_model

LIMITS = [
    {"max_new_tokens": 24, "stop": ("\n",)},
    {"max_new_tokens": 5},
    {"max_new_tokens": 60, "stop": ("the", "ar")},
    {"max_new_tokens": 60, "max_rounds": 2},
]


def run(ensemble, decode, prompts=PROMPTS, answers=None, **limits):
    """Run a program on an example of each prompt; (example, what the program returned)."""
    examples = [Example(ensemble.weights, Limits(**limits), p, answers=answers) for p in prompts]
    engines = [engine_for(m, "tree", top=2, rows=len(prompts)) for m in ensemble.models]

    returned = {}

    def program(example):
        for engine in engines:
            example.sequences.append(engine.open(engine.model.prompt_ids(example.prompt)))
        returned[example] = yield from decode(example)

    source = ((example, program(example)) for example in examples)
    ended = [e for e in Scheduler(len(prompts)).run(source) if isinstance(e, Finished)]
    errors = {event.example: event.error for event in ended}
    return [(example, errors[example] or returned[example]) for example in examples]


def singles(ensemble, prompts=PROMPTS, **limits):
    """The answers that method `single` gives, one list per model."""
    alone = [Ensemble((model,), (1.0,)) for model in ensemble.models]
    return [one.generate(prompts, method="single", **limits) for one in alone]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
def test_own_answers_are_those_of_single(ensemble, limits, request):
    ensemble = request.getfixturevalue(ensemble)
    expected = singles(ensemble, **limits)
    for number, (example, answers) in enumerate(run(ensemble, own_answers, **limits)):
        assert [(a.text, a.stop_reason) for a in answers] == [
            (results[number].text, results[number].stop_reason) for results in expected
        ]
        assert example.rounds == []
        assert all(sequence.generated == 0 for sequence in example.sequences)


def test_own_answers_of_a_full_context_and_of_odd_numbers_are_those_of_single(tmp_path):
    paths = [
        random_model(toy_path(name), tmp_path / name, seed=seed, context=40)
        for seed, name in enumerate(("mistral", "llama"))
    ]
    ensemble = Ensemble.from_pretrained(paths, device="cpu")
    with torch.no_grad():
        ensemble.models[1].network.lm_head.weight.fill_(float("nan"))
    expected = [results[0] for results in singles(ensemble, ["word"], max_new_tokens=500)]
    [(_, answers)] = run(ensemble, own_answers, ["word"], max_new_tokens=500)
    assert [a.stop_reason for a in answers] == ["length", "error"]
    assert [a.text for a in answers] == [result.text for result in expected]


def test_given_answers_are_taken_and_equal_ones_are_one_candidate(pair):
    given = (Answer(" Paris", "eos"), Answer(" Paris", "eos"))
    [(_, answers)] = run(pair, own_answers, PROMPTS[:1], given)
    assert answers == list(given)
    example = rerank(pair, given)
    [(candidate,)] = [one.candidates for one in example.rounds]
    assert (candidate.text, candidate.ends, candidate.proposers) == (" Paris", True, (0, 1))
    example = rerank(pair, (Answer("", "error"), Answer(" Paris", "length")))
    [(candidate,)] = [one.candidates for one in example.rounds]
    assert (candidate.text, candidate.ends, candidate.proposers) == (" Paris", False, (1,))


def rerank(ensemble, answers, score="mean_nll"):
    """Rerank given answers to the first prompt."""
    method = Rerank(RerankOptions(score=score))
    [(example, _)] = run(ensemble, method.decode, PROMPTS[:1], answers)
    return example


@pytest.mark.parametrize("score", ["mean_nll", "mean_perplexity"])
def test_answers_that_are_given_are_ranked_like_those_that_are_written(pair, score):
    limits = {"max_new_tokens": 24, "stop": ("\n",)}
    alone = singles(pair, PROMPTS, **limits)
    written = pair.generate(PROMPTS, method="rerank", score=score, **limits)
    for number, result in enumerate(written):
        given = tuple(Answer(r[number].text, r[number].stop_reason) for r in alone)
        method = Rerank(RerankOptions(score=score))
        [(example, _)] = run(pair, method.decode, [PROMPTS[number]], given, **limits)
        same = replace(result, text=example.text, rounds=tuple(example.rounds))
        assert_same([same], [result])
        assert (example.text, example.reason) == (result.text, result.stop_reason)


def test_the_winner_has_the_smallest_mean_nll_and_keeps_its_stop_reason(pair):
    answers = (Answer(" the big dog", "stop"), Answer(" zzz qqq xxx", "length"))
    example = rerank(pair, answers)
    [taken] = example.rounds
    assert taken.selected == min((0, 1), key=lambda n: sum(taken.candidates[n].nll))
    assert example.reason == answers[taken.selected].stop_reason
    assert example.text == answers[taken.selected].text
    assert [c.proposers for c in taken.candidates] == [(0,), (1,)]
    assert all(sequence.generated for sequence in example.sequences)


THOUGHT = "<think> zzz qqq xxx vvv </think>\n"


def nll_of_answer(model, prompt, answer):
    """Minus the mean log-probability of an answer's tokens, by one forward pass over it all."""
    ids = [*model.prompt_ids(prompt), *model.encode_span(answer.text)]
    logprobs = model.network(torch.tensor([ids])).logits[0].float().log_softmax(-1)
    rest = model.encode_span(answer.answer)
    assert ids[-len(rest) :] == list(rest)
    places = range(len(ids) - len(rest), len(ids))
    return -sum(float(logprobs[place - 1, ids[place]]) for place in places) / len(rest)


def test_thoughts_are_read_and_not_ranked(pair):
    thinks = Answer(f"{THOUGHT} the big dog", "length", thoughts=len(THOUGHT))
    plain = Answer(" zzz qqq", "length")
    example = rerank(pair, (thinks, plain))
    assert (example.text, example.thought_length) == (thinks.text, len(THOUGHT))
    [taken] = example.rounds
    with torch.no_grad():
        for candidate, answer in zip(taken.candidates, (thinks, plain), strict=True):
            own = [nll_of_answer(model, PROMPTS[0], answer) for model in pair.models]
            assert candidate.nll == pytest.approx(own, abs=1e-4)
    [whole] = rerank(pair, (replace(thinks, thoughts=None), plain)).rounds
    assert whole.candidates[0].nll != pytest.approx(taken.candidates[0].nll, rel=0.01)


def test_nothing_but_thoughts_wins_only_alone(pair):
    cut = Answer("<think> the big", "length", thoughts=15)
    ended = Answer(THOUGHT, "eos", thoughts=len(THOUGHT))
    for thought in (cut, ended):
        assert rerank(pair, (thought, Answer(" zzz qqq", "length"))).text == " zzz qqq"
    example = rerank(pair, (cut, ended))
    assert (example.text, example.reason, example.thought_length) == (cut.text, "length", 15)


def test_errors_are_out_and_nothing_but_errors_is_one():
    ensemble = Ensemble.from_pretrained([toy_path("llama"), toy_path("qwen3")], device="cpu")
    failed = Answer("", "error")
    assert rerank(ensemble, (failed, Answer(" yes", "eos"))).text == " yes"
    [(_, failure)] = run(ensemble, Rerank(RerankOptions()).decode, PROMPTS[:1], (failed, failed))
    assert failure == "the own answers of all models are errors"


def test_an_answer_without_tokens_wins_only_alone(pair):
    empty = Answer("", "stop")
    assert rerank(pair, (empty, Answer(" yes", "eos"))).text == " yes"
    example = rerank(pair, (empty, empty))
    assert (example.text, example.reason, example.rounds) == ("", "stop", [])


def test_an_answer_longer_than_a_context_has_no_score(tmp_path):
    small = random_model(toy_path("llama"), tmp_path / "small", seed=0, context=60)
    ensemble = Ensemble.from_pretrained([toy_path("mistral"), small], device="cpu")
    long = Answer(" one two three" * 40, "length")
    assert rerank(ensemble, (long, Answer(" yes", "eos"))).text == " yes"
    assert rerank(ensemble, (long, long)).text == long.text


def test_ranking_costs_one_forward_more_than_the_answers(pair):
    limits = {"max_new_tokens": 24, "stop": ("\n",)}
    alone = singles(pair, **limits)
    for number, result in enumerate(pair.generate(PROMPTS, method="rerank", **limits)):
        for forwards, own in zip(result.forwards, alone, strict=True):
            assert forwards <= own[number].forwards[0] + 1
