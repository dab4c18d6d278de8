"""Drafts of SpecFuse: where they are cut, and that sampled ones can be drawn again."""

import itertools
import math
from types import SimpleNamespace

import pytest
import torch

from adafuse.decoding.candidates import Span
from adafuse.engine.node import NextToken
from adafuse.methods.specfuse import last_complete_word, nucleus
from tests.methods.test_engines_agree import PROMPTS
from tests.support.results import assert_same

LIMITS = {"method": "specfuse", "max_new_tokens": 24}


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        ([" The", " answer", " is", " 4", "2"], " The answer is"),
        ([" Gru", "ß", " Fu", "ß"], " Gruß"),
        ([" Pari", "s"], " Paris"),  # one word stays, finished or not
        (["\n", " Pari", "s"], "\n Paris"),
        ([" one", ".\n"], " one.\n"),
        ([" one", ".\n", "tw"], " one.\n"),
        ([" one", " ", "tw"], " one "),
        (["\n", "\n"], "\n\n"),
    ],
)
def test_a_full_draft_is_cut_back_to_its_last_complete_word(pieces, kept):
    texts = ["".join(pieces[:count]) for count in range(len(pieces) + 1)]
    steps = [Span(text) for text in texts]
    assert last_complete_word(steps).text == kept


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
def test_a_window_bounds_what_a_round_adds(ensemble, request):
    ensemble = request.getfixturevalue(ensemble)
    for result in ensemble.generate(PROMPTS, window=4, max_rounds=1, **LIMITS):
        [taken] = result.rounds
        written = taken.candidates[taken.selected].proposers
        # A character of several byte tokens may be finished behind the window.
        assert all(result.tokens[number] <= 4 + 3 for number in written)


def test_a_draft_that_ends_keeps_its_last_word(pair):
    whole = pair.generate(PROMPTS, window=200, max_rounds=1, **LIMITS)
    ended = [c for result in whole for c in result.rounds[0].candidates if c.ends]
    assert any(candidate.text and not candidate.text[-1].isspace() for candidate in ended)


def test_a_draft_stops_at_a_stop_string(pair):
    results = pair.generate(PROMPTS, window=200, stop=["\n"], **LIMITS)
    assert any(result.stop_reason == "stop" for result in results)
    for result in results:
        for taken in result.rounds:
            for candidate in taken.candidates:
                assert "\n" not in candidate.text.rstrip("\n")


@pytest.mark.parametrize("ensemble", ["pair", "random_pair"])
def test_sampled_drafts_depend_on_seed_and_prompt_only(ensemble, request):
    ensemble = request.getfixturevalue(ensemble)
    sampled = {**LIMITS, "sampling": True, "temperature": 1.5, "top_p": 1.0}
    one = ensemble.generate(PROMPTS, batch_size=8, **sampled)
    other = ensemble.generate(PROMPTS[::-1], batch_size=2, **sampled)[::-1]
    assert_same(one, other)
    third = ensemble.generate(PROMPTS, seed=1, **sampled)
    assert [r.text for r in one] != [r.text for r in third]


def test_a_cold_sample_is_greedy(pair):
    greedy = pair.generate(PROMPTS, **LIMITS)
    assert_same(pair.generate(PROMPTS, sampling=True, temperature=1e-3, **LIMITS), greedy)
    assert_same(pair.generate(PROMPTS, sampling=True, top_p=1e-6, **LIMITS), greedy)


def test_the_nucleus_is_the_fewest_ids_of_the_wanted_mass():
    vector = torch.tensor([0.1, 0.5, 0.05, 0.35]).log()
    following = NextToken((1, 3), tuple(vector[[1, 3]].tolist()), 0.15, -1.0, vector)
    draws = iter([0.999, 0.42, 0.4, 0.0])
    pick = nucleus(1.0, 0.8, SimpleNamespace(random=lambda: next(draws)))
    # 0.5 / 0.85 = 0.588 of what is kept is id 1, the rest is id 3.
    assert [pick(following) for _ in range(4)] == [1, 1, 3, 3]


def test_all_drafts_are_verified_in_one_forward(random_pair):
    for result in random_pair.generate(PROMPTS, window=6, **LIMITS):
        assert max(result.forwards) <= len(result.rounds) * (6 + 1)


@pytest.mark.parametrize("budget", [1, 3, 10])
def test_drafts_keep_to_the_token_budget(pair, budget):
    results = pair.generate(PROMPTS, method="specfuse", max_new_tokens=budget)
    assert any(result.stop_reason == "length" for result in results) or budget == 10
    for result in results:
        # The winner's ids may be a few more in the other model, whose tokens are shorter.
        assert min(result.tokens) <= budget


def test_a_temperature_near_0_takes_the_likeliest_token(pair):
    cold = {"sampling": True, "temperature": 1e-60, "top_p": 1.0}
    sampled = pair.generate(PROMPTS, method="specfuse", max_new_tokens=8, **cold)
    greedy = pair.generate(PROMPTS, method="specfuse", max_new_tokens=8)
    assert [result.text for result in sampled] == [result.text for result in greedy]
    assert any(result.text for result in greedy)


def test_a_model_that_left_is_asked_no_more(random_pair):
    exits = {"window": 4, "exit_temperature": 0.02, **LIMITS}
    some_left = False
    for result, everybody in zip(
        random_pair.generate(PROMPTS, **exits),
        random_pair.generate(PROMPTS, window=4, **LIMITS),
        strict=True,
    ):
        in_round = [
            {k for s in taken.candidates for k, nll in enumerate(s.nll) if not math.isnan(nll)}
            for taken in result.rounds
        ]
        assert all(after <= before for before, after in itertools.pairwise(in_round))
        for taken, present in zip(result.rounds, in_round, strict=True):
            assert {k for s in taken.candidates for k in s.proposers} <= present
        if len(in_round[-1]) == 1:
            some_left = True
            [stays] = in_round[-1]
            assert result.forwards[1 - stays] < everybody.forwards[1 - stays]
    assert some_left
