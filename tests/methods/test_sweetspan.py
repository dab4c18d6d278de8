"""SweetSpan: spans of four words, chosen by filtered perplexity."""

import math

import pytest

from adafuse.decoding.fusion import filtered_perplexity, mean_perplexity
from tests.methods.test_engines_agree import PROMPTS
from tests.support.candidates import candidate as scored_candidate

LIMITS = {"method": "sweetspan", "max_new_tokens": 24}


@pytest.mark.parametrize("ratio", [10.0, 1.5, None])
def test_every_candidate_has_the_filtered_perplexity_of_its_models(random_pair, ratio):
    rule = mean_perplexity if ratio is None else filtered_perplexity(ratio)
    for result in random_pair.generate(PROMPTS, filter_ratio=ratio, **LIMITS):
        for taken in result.rounds:
            for each in taken.candidates:
                scored = scored_candidate(*((nll, 1) for nll in each.nll))
                assert each.fused == pytest.approx(rule(scored, (1.0, 1.0)))
            values = [each.fused for each in taken.candidates]
            assert taken.selected == values.index(min(values))


def test_the_filter_believes_the_more_optimistic_of_two_models(random_pair):
    fired = 0
    for result in random_pair.generate(PROMPTS, **LIMITS):
        for candidate in (c for taken in result.rounds for c in taken.candidates):
            if max(candidate.nll) - min(candidate.nll) > math.log(10):
                assert candidate.fused == pytest.approx(math.exp(min(candidate.nll)))
                fired += 1
    assert fired


def test_spans_have_four_words_unless_the_text_ends_or_a_word_is_cut(pair):
    spans = [
        candidate
        for result in pair.generate(PROMPTS, **LIMITS)
        for taken in result.rounds
        for candidate in taken.candidates
    ]
    lengths = [len(span.text.split()) for span in spans if not span.ends]
    assert lengths.count(4) > len(lengths) / 2
    assert max(lengths) == 4  # a word that is cut at its cap makes a span shorter
    assert any(span.ends for span in spans)
