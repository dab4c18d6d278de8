"""AdaFuse against a second implementation of its algorithm, and against laws it must keep."""

import math
import re
from operator import or_

import pytest

from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from tests.conftest import toy_path
from tests.methods.test_engines_agree import PROMPTS
from tests.support import oracle
from tests.support.results import assert_same


def oracle_models(ensemble):
    """The members of an ensemble as the oracle wants them."""
    return [oracle.OracleModel(m.network, m.tokenizer, set(m.end_ids)) for m in ensemble.models]


@pytest.mark.parametrize(
    ("ensemble", "tau", "branching", "margin"),
    [
        ("random_pair", 0.7, 1, "start"),
        ("random_pair", 0.3, 3, "start"),
        ("random_pair", 0.0, 1, "start"),
        ("random_pair", 1.0, 2, "start"),
        ("random_pair", 0.2, 3, "word"),
        ("pair", 0.7, 1, "start"),
        ("pair", 1.0, 2, "start"),
        ("pair", 0.7, 2, "word"),
    ],
)
def test_adafuse_is_algorithm_1(ensemble, tau, branching, margin, request):
    ensemble = request.getfixturevalue(ensemble)
    settings = {"tau": tau, "max_words": 3, "branching": branching, "margin": margin}
    results = ensemble.generate(PROMPTS[1:5], max_new_tokens=14, stop=["\n\n"], **settings)
    for prompt, result in zip(PROMPTS[1:5], results, strict=True):
        text, reason, rounds = oracle.adafuse(
            oracle_models(ensemble), prompt, stops=["\n\n"], max_new_tokens=14, **settings
        )
        assert (result.text, result.stop_reason) == (text, reason)
        assert len(result.rounds) == len(rounds)
        for taken, (pool, nlls, selected) in zip(result.rounds, rounds, strict=True):
            assert [(c.text, c.ends) for c in taken.candidates] == pool
            assert taken.selected == selected
            for candidate, row in zip(taken.candidates, nlls, strict=True):
                assert candidate.nll == pytest.approx(row, abs=1e-4)


def decode(ensemble, method, **options):
    """Decode the shared prompts."""
    return ensemble.generate(PROMPTS, method=method, max_new_tokens=24, **options)


def test_threshold_0_is_fixed_length_m(pair):
    assert_same(
        decode(pair, "adafuse", tau=0.0, max_words=3), decode(pair, "fixed_length", words=3)
    )


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
def test_a_threshold_above_every_margin_is_fixed_length_1(ensemble, request):
    ensemble = request.getfixturevalue(ensemble)
    assert_same(decode(ensemble, "adafuse", tau=1.1), decode(ensemble, "fixed_length", words=1))


def test_a_model_with_itself_gives_its_own_greedy_text():
    path = toy_path("llama")
    alone = Ensemble.from_pretrained([path], device="cpu")
    twice = Ensemble.from_pretrained([path, path], device="cpu")
    greedy = alone.generate(PROMPTS, method="single", max_new_tokens=40)
    for result, single in zip(decode(twice, "adafuse"), greedy, strict=True):
        assert single.text.startswith(result.text)
        assert all(len(taken.candidates) == 1 for taken in result.rounds)


def test_a_model_of_overwhelming_weight_decides(random_pair):
    heavy = Ensemble(random_pair.models, (1.0, 1e9))
    for result in decode(heavy, "fixed_length"):
        for taken in result.rounds:
            chosen = taken.candidates[taken.selected]
            assert chosen.nll[1] == min(candidate.nll[1] for candidate in taken.candidates)


def test_confident_models_commit_several_words_in_a_round(pair):
    rounds = [taken for result in decode(pair, "adafuse") for taken in result.rounds]
    assert {taken.words for taken in rounds} & {2, 3}


@pytest.mark.parametrize("tau", [0.0, 0.7])
def test_an_adaptive_maximum_is_the_end_of_a_sentence(pair, tau):
    """Otherwise it is a maximum like any other: as large a one where no sentence ends before."""
    adaptive = decode(pair, "adafuse", tau=tau, max_words="adaptive")
    spans = [r.candidates[r.selected].text for result in adaptive for r in result.rounds]
    inner = [re.search(r"[.!?]\s|\S\n", text.rstrip()) for text in spans]
    assert not any(inner), "a span ends where its sentence does"
    assert max(len(text.split()) for text in spans) > 3
    if tau == 0.0:  # then nothing else ends one
        ends = [r.candidates[r.selected].ends for result in adaptive for r in result.rounds]
        last = {len(result.rounds) for result in adaptive if result.stop_reason == "length"}
        assert last
        whole = [text.rstrip()[-1:] in ".?!" or "\n" in text for text in spans]
        assert sum(map(or_, whole, ends)) >= len(spans) - len(adaptive)


def test_an_adaptive_span_without_an_end_stops_at_the_limit(random_pair):
    for result in decode(random_pair, "adafuse", tau=0.0, max_words="adaptive"):
        assert result.stop_reason != "error"
        for taken in result.rounds:
            assert taken.words <= 24, "a word has a token, and no span is longer than the rest"


def test_a_pool_of_one_costs_no_scoring_forward():
    path = toy_path("mistral")
    twice = Ensemble.from_pretrained([path, path], device="cpu")
    result = twice.generate(PROMPTS[:1], max_new_tokens=12)[0]
    assert all(taken.candidates[0].proposers == (0, 1) for taken in result.rounds)
    # One forward reads the prompt, and no token is fed more than once.
    assert all(
        forwards <= tokens + 1
        for forwards, tokens in zip(result.forwards, result.tokens, strict=True)
    )


@pytest.mark.parametrize("method", ["adafuse", "fixed_length"])
def test_a_leader_that_is_always_sure_writes_its_greedy_text_and_nobody_else_is_asked(pair, method):
    greedy = Ensemble(pair.models[1:], (1.0,)).generate(PROMPTS, method="single", max_new_tokens=40)
    results = decode(pair, method, ask="unsure", sure=0.0, leader=1)
    for result, single in zip(results, greedy, strict=True):
        assert single.text.startswith(result.text)
        assert result.forwards[0] == 0 < result.forwards[1]
        for taken in result.rounds:
            (span,) = taken.candidates
            assert math.isnan(span.nll[0])
            assert span.fused == span.nll[1]
            assert taken.margins[0] == ()


def test_where_the_leader_is_not_sure_all_models_decide(pair):
    """Each of its rounds is either the leader's own, or the one that follows with everybody."""
    rounds = [
        taken
        for result in decode(pair, "adafuse", ask="unsure", sure=0.9)
        for taken in result.rounds
    ]
    alone = [taken for taken in rounds if math.isnan(taken.candidates[0].nll[1])]
    assert 0 < len(alone) < len(rounds)
    for taken in alone:
        assert min(taken.margins[0]) >= 0.9
        assert taken.candidates[0].proposers == (0,)


def test_a_leader_without_weight_decides_nothing(pair):
    light = Ensemble(pair.models, (0.0, 1.0))
    assert_same(decode(light, "adafuse", ask="unsure", sure=0.0), decode(light, "adafuse"))


def test_a_leader_that_does_not_exist_is_refused(pair):
    with pytest.raises(UserError, match="leader is 2, but the models are numbered from 0 to 1"):
        decode(pair, "adafuse", ask="unsure", leader=2)
