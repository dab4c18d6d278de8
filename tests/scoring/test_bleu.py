"""Corpus BLEU."""

import pytest
import sacrebleu

from adafuse.scoring.bleu import corpus_bleu

HYPOTHESES = ["The young girl carries a cow.", "An old king sings on Monday.", "", "Hello, you!"]
REFERENCES = [
    ["The young girl carries a white cow."],
    ["An old king sings on Monday.", "On Monday an old king sings."],
    ["Nobody is here today."],
    ["Hello to you all!"],
]


def test_the_value_is_that_of_sacrebleu() -> None:
    streams = [[refs[0] for refs in REFERENCES], [(refs[1:] or [None])[0] for refs in REFERENCES]]
    whole = sacrebleu.corpus_bleu(HYPOTHESES, streams, tokenize="13a")
    value, low, high = corpus_bleu(HYPOTHESES, REFERENCES)
    assert value == pytest.approx(whole.score, abs=1e-9)
    assert low <= value <= high


def test_a_perfect_corpus_scores_100_and_an_empty_one_0() -> None:
    texts = [refs[0] for refs in REFERENCES]
    assert corpus_bleu(texts, REFERENCES) == pytest.approx((100, 100, 100))
    assert corpus_bleu([""] * 4, REFERENCES) == (0, 0, 0)


def test_an_empty_hypothesis_costs() -> None:
    texts = [refs[0] for refs in REFERENCES]
    assert corpus_bleu([*texts[:3], ""], REFERENCES)[0] < 95
