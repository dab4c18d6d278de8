"""Samples of one model: what they depend on, and which of them is taken."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from adafuse import Ensemble
from adafuse.decoding.sampling import drawn, key_of, nucleus_weights, waiting_times
from adafuse.engine.node import NextToken
from adafuse.errors import UserError
from adafuse.methods import resolve
from adafuse.methods.self_consistency import fused_scores
from adafuse.metrics.registry import SCORERS
from tests.methods.test_engines_agree import PROMPTS
from tests.support.results import assert_same

SAMPLED = {"method": "self_consistency", "k": 4, "temperature": 1.2, "max_new_tokens": 10}


@pytest.fixture(scope="module")
def one(pair):
    return Ensemble(pair.models[:1])


@pytest.fixture(scope="module")
def unsure(random_pair):
    return Ensemble(random_pair.models[:1])


def samples(result):
    [taken] = result.rounds
    return [candidate.text for candidate in taken.candidates]


@pytest.mark.parametrize("ensemble", ["one", "unsure"])
def test_a_sample_depends_on_seed_prompt_and_its_number_only(ensemble, request):
    ensemble = request.getfixturevalue(ensemble)
    eight = ensemble.generate(PROMPTS, batch_size=8, **SAMPLED)
    alone = ensemble.generate(PROMPTS[::-1], batch_size=1, **SAMPLED)[::-1]
    plain = ensemble.generate(PROMPTS[2:4], engine="reference", **SAMPLED)
    assert_same(alone, eight)
    assert_same(plain, eight[2:4])
    fewer = ensemble.generate(PROMPTS, **(SAMPLED | {"k": 2}))
    assert [samples(result)[:2] for result in eight] == [samples(result) for result in fewer]
    other = ensemble.generate(PROMPTS, seed=1, **SAMPLED)
    assert [samples(result) for result in other] != [samples(result) for result in eight]


@pytest.mark.parametrize("limits", [{}, {"stop": ["\n"]}, {"max_new_tokens": 3}, {"stop": ["e"]}])
def test_one_cold_sample_is_what_the_model_writes_alone(one, limits):
    limits = {"max_new_tokens": 24, **limits}
    cold = {"k": 1, "temperature": 1e-60}
    drawn = one.generate(PROMPTS, method="self_consistency", **cold, **limits)
    greedy = one.generate(PROMPTS, method="single", **limits)
    assert [(r.text, r.stop_reason, r.tokens) for r in drawn] == [
        (r.text, r.stop_reason, r.tokens) for r in greedy
    ]


def test_a_nucleus_of_the_likeliest_token_is_greedy(one):
    narrow = one.generate(PROMPTS, method="self_consistency", k=2, top_p=1e-6, max_new_tokens=12)
    greedy = one.generate(PROMPTS, method="single", max_new_tokens=12)
    assert [result.text for result in narrow] == [result.text for result in greedy]


def test_samples_of_a_prompt_share_its_forwards(unsure):
    for result in unsure.generate(PROMPTS, **(SAMPLED | {"k": 8})):
        assert result.forwards[0] <= SAMPLED["max_new_tokens"]


def test_the_trace_has_each_sample_with_its_votes_and_its_likelihood(one):
    prompt = "Question: Mira has 7 apples and buys 5 more.\nLet's think step by step\n"
    settings = {**SAMPLED, "k": 9, "max_new_tokens": 40, "scorer": "gsm8k"}
    (result,) = one.generate([prompt], **settings)
    [taken] = result.rounds
    read = SCORERS["gsm8k"].answer
    votes = Counter(read(candidate.text) for candidate in taken.candidates)
    assert len(taken.candidates) == 9
    assert len(votes) > 1
    for candidate in taken.candidates:
        answer = read(candidate.text)
        assert candidate.fused == (-votes[answer] if answer else 0)
    assert taken.candidates[taken.selected].fused == min(c.fused for c in taken.candidates)


def test_a_sample_is_scored_as_it_is_read(one):
    drawn = one.generate(PROMPTS[:3], **(SAMPLED | {"temperature": 0.7, "max_new_tokens": 6}))
    compared = 0
    for prompt, result in zip(PROMPTS, drawn, strict=False):
        cut = [c for c in result.rounds[0].candidates if not c.ends]
        for number, read in one.loglikelihoods([(prompt, c.text) for c in cut]):
            if read.tokens == (6,):  # the ids that were drawn may spell a text in another way
                assert cut[number].nll[0] == pytest.approx(-read.logprobs[0] / 6, abs=1e-4)
                compared += 1
    assert compared > 3


def test_the_likeliest_sample_can_be_taken(unsure):
    drawn = unsure.generate(PROMPTS, select="likelihood", **SAMPLED)
    for result in drawn:
        [taken] = result.rounds
        chosen = taken.candidates[taken.selected]
        assert chosen.fused == chosen.nll[0] == min(c.nll[0] for c in taken.candidates)
    voted = unsure.generate(PROMPTS, scorer="translation", **SAMPLED)
    assert [result.text for result in voted] == [result.text for result in drawn]


ANSWERS = st.sampled_from(["", "a", "b", "c"])


@given(st.lists(st.tuples(ANSWERS, st.floats(0, 9)), min_size=1, max_size=9))
def test_the_most_frequent_answer_wins_and_ties_go_to_the_likeliest(drawn):
    answers, nll = map(list, zip(*drawn, strict=True))
    fused = fused_scores(answers, nll)
    best = min(range(len(drawn)), key=lambda n: (fused[n], nll[n]))
    votes = Counter(filter(None, answers))
    most = max(votes.values(), default=0)
    assert votes[answers[best]] == most
    rivals = [n for n, answer in enumerate(answers) if votes[answer] == most]
    assert nll[best] == min(nll[n] for n in rivals)
    assert best == min(n for n in rivals if nll[n] == nll[best])
    assert fused_scores(None, nll) == nll


@pytest.mark.parametrize(
    ("scorer", "same", "different"),
    [
        ("nq", (" The  Eiffel Tower!\nQuestion", "eiffel tower"), "Eiffel"),
        ("triviaqa", ("the\u2018Beatles\u2019", "Beatles"), "Beatle"),
        ("gsm8k", ("So the answer is 1,000.", "He has 1000.00 left."), "It is 1001."),
    ],
)
def test_a_vote_counts_answers_as_the_benchmark_compares_them(scorer, same, different):
    read = SCORERS[scorer].answer
    assert read(same[0]) == read(same[1]) != read(different)
    assert read("\n \n") == ""


@given(
    st.integers(0, 2**128 - 1),
    st.integers(0, 1000),
    st.lists(st.integers(0, 500), min_size=1, unique=True),
)
def test_random_numbers_are_of_key_position_and_id_alone(key, position, ids):
    everybody = waiting_times(key, position, np.arange(501))
    assert waiting_times(key, position, np.array(sorted(ids))).tolist() == [
        everybody[n] for n in sorted(ids)
    ]
    assert np.isfinite(everybody).all()


def test_random_numbers_are_the_same_on_every_machine():
    noise = waiting_times(7, 3, np.array([0, 1, 1000]))
    assert noise == pytest.approx([0.8232507841420879, 1.7978257022090403, 0.041743541163249326])


def following(probabilities):
    vector = torch.tensor(probabilities).log()
    order = vector.argsort(descending=True)[:2].tolist()
    return NextToken(tuple(order), tuple(vector[order].tolist()), 0.1, -math.inf, vector)


def counted(temperature, top_p, draws):
    weights = nucleus_weights(following([0.1, 0.5, 0.05, 0.35]), temperature, top_p).numpy()
    ids, key = np.flatnonzero(weights), key_of("some", "names")
    taken = [drawn((ids, weights[ids]), key, n) for n in range(draws)]
    return np.bincount(taken, minlength=4)


def test_ids_are_drawn_with_their_probabilities():
    expected = 4000 * np.array([0.1, 0.5, 0.05, 0.35])
    counts = counted(1.0, 1.0, 4000)
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # chi-squared, 3 degrees, p = 0.001
    assert (counted(1.0, 0.8, 100) > 0).tolist() == [False, True, False, True]
    assert counted(0.1, 1.0, 400)[1] > 380


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"k": 0}, r"k must be greater than or equal to 1, not 0"),
        ({"temperature": 0.0}, r"temperature must be greater than 0, not 0.0"),
        ({"scorer": "gsm"}, r"scorer: unknown scorer 'gsm'; known are: nq, .*did you mean 'gsm8k'"),
        (
            {"scorer": "nq", "select": "likelihood"},
            r"method self_consistency: scorer 'nq' is for select majority; remove it",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(options, sentence):
    with pytest.raises(UserError, match=sentence):
        resolve("self_consistency", options)


def test_two_models_are_refused(pair):
    with pytest.raises(UserError, match="self_consistency needs exactly 1 model, not 2"):
        pair.generate(PROMPTS, **SAMPLED)


def test_a_benchmark_decides_whose_rules_count():
    method = resolve("self_consistency", {})
    assert method.for_scorer("nq").options.scorer == "nq"
    named = resolve("self_consistency", {"scorer": "gsm8k"})
    assert named.for_scorer("nq").options.scorer == "gsm8k"
    assert (
        resolve("self_consistency", {"select": "likelihood"}).for_scorer("nq").options.scorer
        is None
    )
