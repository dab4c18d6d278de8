"""Corpus BLEU and chrF2++ with sacrebleu: counts per sentence are made once, then only summed."""

import unicodedata
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from adafuse.errors import UserError
from adafuse.scoring.intervals import Estimate, bootstrap
from adafuse.scoring.judged import Details, Judgement
from adafuse.scoring.outcomes import Example, Outcome
from adafuse.scoring.spm import TOKENIZER, model_file, require_model

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

_NONE = Estimate(0.0, 0.0, 0.0)


def translations_strict(examples: Sequence[Example], *, tokenize: str, name: str) -> Judgement:
    """BLEU and chrF2++ of a corpus; an empty hypothesis stays in it and costs."""
    from sacrebleu.metrics.chrf import CHRF

    metric, details = _bleu(tokenize)
    pairs = [_cleaned(example) for example in examples]
    counts = _counts(metric, pairs)
    chrf = CHRF(word_order=2)
    metrics = {name: _estimate(metric, counts), "chrf2++": _estimate(chrf, _counts(chrf, pairs))}
    details |= {
        "signature": str(metric.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
    }
    return Judgement(_outcomes(pairs, counts), metrics, details)


def translations_published(examples: Sequence[Example], *, tokenize: str, name: str) -> Judgement:
    """BLEU of the pairs whose two sides hold text; the others are dropped from the corpus."""
    metric, details = _bleu(tokenize)
    pairs = [_cleaned(example) for example in examples]
    kept = [pair for pair in pairs if pair.text and any(pair.answers)]
    details["dropped"] = len(pairs) - len(kept)
    if not kept:
        wrong = tuple(Outcome(p.id, p.text, p.answers, 0.0) for p in pairs)
        return Judgement(wrong, {name: _NONE}, details)
    counts = _counts(metric, kept)
    scored = {outcome.id: outcome for outcome in _outcomes(kept, counts)}
    outcomes = tuple(scored.get(p.id, Outcome(p.id, p.text, p.answers, 0.0)) for p in pairs)
    details["signature"] = str(metric.get_signature())
    return Judgement(outcomes, {name: _estimate(metric, counts)}, details)


def _bleu(tokenize: str) -> tuple["BLEU", Details]:
    """Return the metric, and the bytes that it depends on besides the code."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize != TOKENIZER:
        return BLEU(tokenize=tokenize, force=True), {}
    details: Details = {"spm_sha256": require_model()}
    try:
        return BLEU(tokenize=tokenize, force=True), details
    except (OSError, RuntimeError):  # what SentencePiece raises for bytes that are no model
        raise UserError(
            f"{str(model_file())!r} is no SentencePiece model; remove it to have it fetched again"
        ) from None


def _cleaned(example: Example) -> Example:
    answers = tuple(unicodedata.normalize("NFC", answer.strip()) for answer in example.answers)
    return Example(example.id, unicodedata.normalize("NFC", example.text.strip()), answers)


def _counts(metric: Any, pairs: Sequence[Example]) -> Any:
    """Return sacrebleu's sufficient statistics, a row per sentence."""
    import numpy as np

    streams = list(zip_longest(*(pair.answers for pair in pairs)))
    texts = [pair.text for pair in pairs]
    return np.asarray(metric._extract_corpus_statistics(texts, streams))


def _estimate(metric: Any, counts: Any) -> Estimate:
    def score(chosen: Any) -> float:
        return float(metric._compute_score_from_stats(counts[chosen].sum(axis=0).tolist()).score)

    low, high = bootstrap(len(counts), score)
    return Estimate(score(slice(None)), low, high)


def _outcomes(pairs: Sequence[Example], counts: Any) -> tuple[Outcome, ...]:
    return tuple(
        Outcome(pair.id, pair.text, pair.answers, _sentence(row.tolist()))
        for pair, row in zip(pairs, counts, strict=True)
    )


def _sentence(row: list[int]) -> float:
    """Return the BLEU of one sentence: effective order, as sacrebleu advises."""
    from sacrebleu.metrics.bleu import BLEU

    system, reference, *grams = row
    orders = len(grams) // 2
    score = BLEU.compute_bleu(
        correct=grams[:orders],
        total=grams[orders:],
        sys_len=system,
        ref_len=reference,
        smooth_method="exp",
        effective_order=True,
    )
    return float(score.score)
