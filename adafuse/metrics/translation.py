"""Translations: corpus BLEU and chrF2++ with sacrebleu, and BERTScore.

spBLEU needs a SentencePiece model, which sacrebleu fetches without checking its bytes, so every
result carries its sha256.
"""

import hashlib
import unicodedata
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adafuse.errors import UserError
from adafuse.metrics.intervals import Estimate, bootstrap, mean
from adafuse.metrics.scorer import Details, Example, Judgement, Metric, Outcome, Scorer

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

TOKENIZER = "flores101"
"""sacrebleu's name of the tokenizer of spBLEU."""

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


class AbsentModelError(UserError):
    """The model is not here and cannot be fetched."""


def model_file() -> Path:
    """Return the place where sacrebleu keeps the model: $SACREBLEU, or ~/.sacrebleu."""
    spm = _sacrebleu()
    name = Path(spm.SPM_MODELS[TOKENIZER]["url"]).name
    return Path(spm.SACREBLEU_DIR, "models", name)


def require_model(expected: str | None = None) -> str:
    """Return the sha256 of the model, after fetching it if it is absent.

    Args:
        expected: the sha256 that it must have.

    Raises:
        UserError: absent and not to be fetched, empty, or other bytes than expected.
    """
    path = model_file()
    if not path.is_file():
        _fetch(path)
    data = path.read_bytes()
    if not data:
        raise UserError(f"SentencePiece model {str(path)!r} is empty; remove it or put it there")
    found = hashlib.sha256(data).hexdigest()
    if expected is not None and found != expected:
        raise UserError(
            f"SentencePiece model {str(path)!r} has sha256 {found}, not {expected}; put back the"
            " model that was named"
        )
    return found


def _sacrebleu() -> Any:
    """Import the module that looks for the file, so that both always mean the same place."""
    return import_module("sacrebleu.tokenizers.tokenizer_spm")


def _fetch(path: Path) -> None:
    spm = _sacrebleu()
    try:
        spm.download_file(spm.SPM_MODELS[TOKENIZER]["url"], str(path))
    except (OSError, SystemExit) as error:  # sacrebleu exits on a TLS error
        raise AbsentModelError(
            f"spBLEU needs the SentencePiece model {path.name}, which cannot be fetched"
            f" ({' '.join(str(error).split())}); put it at {str(path)!r} or use the scorer"
            " translation_13a"
        ) from None


def bertscore_f1(outcomes: Sequence[Outcome], language: str) -> Estimate:
    """Return the mean BERTScore F1 in percent, best over the gold answers; an empty text has 0.

    Args:
        outcomes: the scored texts with their answers.
        language: of the answers, such as "en" or "de"; it chooses the model.

    Raises:
        UserError: bert-score is not installed.
    """
    try:
        from bert_score import score
    except ImportError:
        raise UserError(
            "BERTScore needs the package bert-score; run pip install 'adafuse[bertscore]'"
        ) from None
    filled = [outcome for outcome in outcomes if outcome.text.strip()]
    texts, answers = [o.text for o in filled], [list(o.answers) for o in filled]
    values = iter(score(texts, answers, lang=language)[2].tolist() if filled else [])
    return mean([next(values) if outcome.text.strip() else 0.0 for outcome in outcomes])


def _scorer(name: str, doc: str, metric: str, label: str, tokenize: str) -> Scorer:
    metrics = (Metric(metric, label, tokenize=tokenize), Metric("chrf2++", "chrF2++"))
    both = (translations_strict, translations_published)
    strict, published = (partial(each, tokenize=tokenize, name=metric) for each in both)
    return Scorer(name, doc, metrics, strict, published)


SCORERS = (
    _scorer(
        "translation", "spBLEU (FLORES-101 tokenizer) and chrF2++", "spbleu", "spBLEU", TOKENIZER
    ),
    _scorer("translation_13a", "BLEU (tokenizer 13a) and chrF2++", "bleu_13a", "BLEU", "13a"),
)
