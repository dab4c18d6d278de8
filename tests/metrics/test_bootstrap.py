"""The paired bootstrap against sacrebleu's own."""

import random

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from adafuse.metrics.paired import SEED, Difference, PerRow, _p_value, paired_bootstrap
from adafuse.metrics.translation import pooled_bleu

from .conftest import counts

WORDS = ["the", "a", "young", "old", "king", "carries", "sings", "cow", ",", ".", "on", "Monday"]


def corpus(seed: int, size: int = 60) -> tuple[list[str], list[str], list[list[str]]]:
    """Two noisy copies of a random text, the second noisier, and the text."""
    draw = random.Random(seed)
    texts = [draw.choices(WORDS, k=draw.randint(4, 14)) for _ in range(size)]

    def noisy(share: float) -> list[str]:
        return [
            " ".join(draw.choice(WORDS) if draw.random() < share else word for word in text)
            for text in texts
        ]

    return noisy(0.2), noisy(0.3), [[" ".join(text)] for text in texts]


def bootstrap(first: PerRow, second: PerRow) -> Difference:
    return paired_bootstrap(first, second, pooled_bleu)


def theirs(first: list[str], second: list[str], references: list[list[str]], tokenize: str):
    streams = [list(stream) for stream in zip(*references, strict=True)]
    metrics = {"BLEU": BLEU(tokenize=tokenize)}
    named = [("second", second), ("first", first)]
    _, scores = PairedTest(named, metrics, streams, test_type="bs", n_samples=1000)()
    return scores["BLEU"]


@pytest.mark.parametrize("seed", range(6))
def test_scores_and_p_are_those_of_sacrebleu(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    first, second, references = corpus(seed)
    second = first[: 10 * seed] + second[10 * seed :]  # from far apart to nearly the same
    second[0] = ""
    base, system = theirs(first, second, references, "13a")
    one, two = (counts(texts, references) for texts in (first, second))
    ours = bootstrap(one, two)
    assert pooled_bleu(one) == pytest.approx(system.score, abs=1e-6)
    assert pooled_bleu(two) == pytest.approx(base.score, abs=1e-6)
    assert ours.p == pytest.approx(system.p_value, abs=1e-6)


def test_the_seed_is_sacrebleu_s_default() -> None:
    first, second, references = corpus(1)
    assert (
        PairedTest(
            [("a", first), ("b", second)], {"BLEU": BLEU()}, [[r[0] for r in references]], "bs", 2
        )._seed
        == SEED
    )


def test_the_environment_cannot_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, references = corpus(2)
    one, two = (counts(texts, references) for texts in (first, second))
    before = bootstrap(one, two)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert bootstrap(one, two) == before


def test_with_several_references_as_sacrebleu_has_it() -> None:
    first, second, references = corpus(3)
    both = [[reference[0], other] for reference, other in zip(references, second, strict=True)]
    streams = [list(stream) for stream in zip(*both, strict=True)]
    whole = sacrebleu.corpus_bleu(first, streams, tokenize="13a").score
    assert pooled_bleu(counts(first, both)) == pytest.approx(whole, abs=1e-9)


def test_swapping_the_runs_mirrors_the_interval_and_keeps_p() -> None:
    first, second, references = corpus(4)
    one, two = (counts(texts, references) for texts in (first, second))
    there, back = bootstrap(one, two), bootstrap(two, one)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low), abs=1e-9)
    assert back.p == there.p
    assert there.low <= there.value <= there.high


def test_the_interval_is_the_middle_of_the_resampled_differences() -> None:
    first, second, references = corpus(5, size=12)
    one, two = (counts(texts, references) for texts in (first, second))
    draws = np.random.default_rng(SEED).choice(12, size=(1000, 12), replace=True)
    differences = []
    for chosen in draws:
        picked = [[texts[i] for i in chosen] for texts in (first, second)]
        refs = [[references[i][0] for i in chosen]]
        scores = [sacrebleu.corpus_bleu(texts, refs, tokenize="13a").score for texts in picked]
        differences.append(scores[0] - scores[1])
    result = bootstrap(one, two)
    expected = np.percentile(differences, [2.5, 97.5])
    assert (result.low, result.high) == pytest.approx(tuple(expected), abs=1e-6)


def test_the_same_texts_are_no_evidence_though_sacrebleu_s_formula_says_so() -> None:
    first, _, references = corpus(6)
    same = counts(first, references)
    assert theirs(first, first, references, "13a")[1].p_value == pytest.approx(1 / 1001)
    assert bootstrap(same, same.copy()) == Difference(value=0, low=0, high=0, p=1)


def test_published_drops_pairs_with_an_empty_side() -> None:
    first, _, references = corpus(7)
    kept = pooled_bleu(counts(first[1:], references[1:]))
    emptied = ["", *first[1:]]
    dropped = pooled_bleu(counts(emptied, references, drop_empty=True))
    assert dropped == pytest.approx(kept, abs=1e-9)
    assert pooled_bleu(counts(emptied, references)) < kept


def test_sacrebleu_s_p_is_below_5_percent_one_time_in_ten_between_equal_systems() -> None:
    """What the table's legend says: the formula on differences of equal systems, normal ones."""
    draw = np.random.default_rng(0)
    below = 0
    for observed in draw.normal(size=1000):
        sizes = np.abs(draw.normal(observed, 1, 1000))
        below += _p_value(sizes, abs(observed)) < 0.05
    assert 0.08 <= below / 1000 <= 0.14
