"""Segments of Cool-Fusion, and the ranking at the end of Cool+R."""

import pytest

from adafuse.decoding.fusion import mean_perplexity
from adafuse.decoding.words import StopStrings, WordRules
from adafuse.engine.choice import engine_for
from adafuse.ensemble import Ensemble
from adafuse.methods.cool_fusion import shortest_segment
from tests.conftest import toy_path
from tests.methods.test_answers import singles
from tests.methods.test_engines_agree import PROMPTS
from tests.support.candidates import candidate

LIMITS = {"max_new_tokens": 24, "stop": ["\n"]}


def complete(program, engine):
    """Run a program of one model to its end."""
    try:
        while True:
            engine.evaluate(next(program))
    except StopIteration as done:
        return done.value


def test_aligned_segments_are_words(pair):
    one = pair.generate(PROMPTS, method="cool_fusion", **LIMITS)
    other = pair.generate(PROMPTS, method="fixed_length", words=1, max_rounds=1, **LIMITS)
    for cool, fixed in zip(one, other, strict=True):
        first, words = cool.rounds[0].candidates, fixed.rounds[0].candidates
        assert [(c.text, c.ends) for c in first] == [(c.text, c.ends) for c in words]


@pytest.mark.parametrize("name", ["mistral", "llama", "qwen3", "internlm3"])
def test_a_shortest_segment_is_the_fewest_ids_that_decode_to_text(name):
    model = Ensemble.from_pretrained([toy_path(name)], device="cpu").models[0]
    engine = engine_for(model, "tree", top=2, rows=1)
    lengths = []
    for prompt in PROMPTS:
        sequence = engine.open(model.prompt_ids(prompt))
        span = complete(shortest_segment(sequence, WordRules(StopStrings())), engine)
        ids = tuple(node.token for node in span.node.path())
        assert span.ends is (ids == ())
        anchor = model.anchor(sequence.ids)
        for count in range(1, len(ids)):
            part = anchor.added(ids[:count])
            whole = part.strip() and "\ufffd" not in part
            assert not (whole and model.encode_span(part) == ids[:count])
        lengths.append(len(ids))
        engine.close(sequence)
    assert any(lengths)


def test_shortest_segments_need_more_rounds_than_words(random_pair):
    rounds = [
        sum(
            len(result.rounds)
            for result in random_pair.generate(
                PROMPTS, method="cool_fusion", segments=segments, **LIMITS
            )
        )
        for segments in ("shortest", "aligned")
    ]
    assert rounds[0] > rounds[1]


def test_the_best_of_fused_and_own_answers_wins(pair):
    fused = pair.generate(PROMPTS, method="cool_fusion", **LIMITS)
    ranked = pair.generate(PROMPTS, method="cool_fusion", rerank=True, **LIMITS)
    alone = singles(pair, **LIMITS)
    for number, (plain, result) in enumerate(zip(fused, ranked, strict=True)):
        last = result.rounds[-1]
        first = last.candidates[0]
        answers = {model: results[number] for model, results in enumerate(alone)}
        assert first.text == plain.text
        for one in last.candidates:
            for model in one.proposers:
                assert one.text == answers[model].text
        assert sorted(m for c in last.candidates for m in c.proposers) == sorted(answers)
        values = [c.fused for c in last.candidates]
        assert last.selected == values.index(min(values))
        assert result.text == last.candidates[last.selected].text
        if last.selected:
            winner = answers[last.candidates[last.selected].proposers[0]]
            assert result.stop_reason == winner.stop_reason
        else:
            assert (result.stop_reason, last.words) == (plain.stop_reason, 0)
    assert {bool(result.rounds[-1].selected) for result in ranked} == {False, True}


def test_an_own_answer_that_is_the_fused_one_is_no_rival_and_is_scored_as_one_span(pair):
    """A model with itself: its own answer and the fused one are the same tokens."""
    twice = Ensemble(pair.models[:1] * 2, (1.0, 1.0))
    results = twice.generate(PROMPTS, method="cool_fusion", rerank=True, **LIMITS)
    whole = twice.generate(PROMPTS, method="rerank", score="mean_perplexity", **LIMITS)
    ended = [(r, w) for r, w in zip(results, whole, strict=True) if r.stop_reason == "eos"]
    assert ended
    for result, alone in ended:
        (fused,), (own,) = result.rounds[-1].candidates, alone.rounds[-1].candidates
        assert fused.proposers == own.proposers == (0, 1)
        assert fused.nll == pytest.approx(own.nll, abs=1e-4)
        scores = candidate(*((nll, 1) for nll in fused.nll))
        assert fused.fused == pytest.approx(mean_perplexity(scores, (1, 1)))


def test_ranking_changes_no_round_before_it(pair):
    fused = pair.generate(PROMPTS, method="cool_fusion", **LIMITS)
    ranked = pair.generate(PROMPTS, method="cool_fusion", rerank=True, **LIMITS)
    for plain, result in zip(fused, ranked, strict=True):
        assert len(result.rounds) == len(plain.rounds) + 1
        for one, other in zip(result.rounds, plain.rounds, strict=False):
            assert [c.text for c in one.candidates] == [c.text for c in other.candidates]
            assert one.selected == other.selected
