"""Translations: corpus BLEU and chrF2++ with sacrebleu."""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adafuse.errors import UserError
from adafuse.metrics.intervals import Estimate
from adafuse.metrics.scorer import (
    PUBLISHED,
    Corpus,
    Details,
    Judgement,
    Metric,
    Outcome,
    Prediction,
    Scorer,
    shown_lines,
    trimmed,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    NgramCounts = NDArray[Any]

TOKENIZER = "flores101"
"""sacrebleu's name of the tokenizer of spBLEU, which needs a SentencePiece model."""

_SPM = "sacrebleu.tokenizers.tokenizer_spm"  # looks for the model, and knows where it is


def translations_strict(examples: Sequence[Prediction], *, tokenize: str, name: str) -> Judgement:
    """BLEU and chrF2++ of a corpus; an empty hypothesis stays in it and costs."""
    (bleu, details), chrf = _bleu(tokenize), _chrf()
    pairs = [_cleaned(example) for example in examples]
    counts = _counts(bleu, pairs)

    metrics = {
        name: bleu_corpus(tokenize).estimate(counts),
        "chrf2++": CHRF2.estimate(_counts(chrf, pairs)),
    }
    signatures = {"signature": bleu.get_signature(), "chrf_signature": chrf.get_signature()}
    details |= {key: str(signature) for key, signature in signatures.items()}
    return Judgement(_outcomes(pairs, counts), metrics, details)


def translations_published(
    examples: Sequence[Prediction], *, tokenize: str, name: str
) -> Judgement:
    """BLEU of the pairs whose two sides hold text; the others are dropped from the corpus."""
    bleu, details = _bleu(tokenize)
    pairs = [_cleaned(example) for example in examples]
    counts, dropped = _counts(bleu, pairs), _dropped(pairs)
    counts[dropped] = 0
    kept = counts[~dropped]
    details |= {"dropped": len(pairs) - len(kept), "signature": str(bleu.get_signature())}
    estimate = (
        bleu_corpus(tokenize).estimate(kept).of_rows(len(kept)) if len(kept) else Estimate(0.0)
    )
    return Judgement(_outcomes(pairs, counts), {name: estimate}, details)


def sacrebleu_corpus(make: Callable[[], Any]) -> Corpus:
    """Return how the score of a corpus follows for a metric of sacrebleu, such as `CHRF`."""

    def pooled(rows: "NgramCounts") -> float:
        return float(make()._compute_score_from_stats(rows.sum(axis=0).tolist()).score)

    return Corpus(lambda examples, protocol: _counts(make(), examples), pooled)


def bleu_corpus(tokenize: str) -> Corpus:
    """Return how corpus BLEU follows; `tokenize` is sacrebleu's name of a tokenizer.

    Segments with an empty hypothesis or reference have zeros under the protocol `published`, which
    drops them, so that rows stay paired.
    """

    def counts(examples: Sequence[Prediction], protocol: str) -> "NgramCounts":
        statistics = _counts(_bleu(tokenize)[0], examples)
        if protocol == PUBLISHED:
            statistics[_dropped(examples)] = 0
        return statistics

    return Corpus(counts, pooled_bleu)


def pooled_bleu(counts: "NgramCounts", *, effective_order: bool = False) -> float:
    """Return corpus BLEU, 0 to 100, of rows of both lengths and the matched and all n-grams."""
    from sacrebleu.metrics.bleu import BLEU

    system, reference, *grams = counts.sum(axis=0).tolist()
    orders = len(grams) // 2
    score = BLEU.compute_bleu(
        correct=grams[:orders],
        total=grams[orders:],
        sys_len=system,
        ref_len=reference,
        smooth_method="exp",
        effective_order=effective_order,
    )
    return float(score.score)


def _bleu(tokenize: str) -> tuple["BLEU", Details]:
    """Return the metric, and the bytes that it depends on besides the code."""
    from sacrebleu.metrics.bleu import BLEU

    details: Details = {"spm_sha256": require_model()} if tokenize == TOKENIZER else {}
    try:
        return BLEU(tokenize=tokenize, force=True), details
    except (OSError, RuntimeError):  # what SentencePiece raises for bytes that are not a model
        raise UserError(
            f"{str(model_file())!r} is not a SentencePiece model; remove it to fetch it again"
        ) from None


def _chrf() -> "CHRF":
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(word_order=2)


def _cleaned(example: Prediction) -> Prediction:
    return Prediction(example.id, _segment(example.text), tuple(map(_segment, example.answers)))


def _segment(text: str) -> str:
    """Return a text as one line in NFC: tokenizers differ in what they make of line breaks."""
    return unicodedata.normalize("NFC", " ".join(shown_lines(text)))


def _dropped(pairs: Sequence[Prediction]) -> "NDArray[Any]":
    import numpy as np

    return np.array([not (trimmed(p.text) and trimmed("".join(p.answers))) for p in pairs])


def _counts(metric: Any, pairs: Sequence[Prediction]) -> "NgramCounts":
    """Return sacrebleu's sufficient statistics, a row per sentence."""
    import numpy as np

    streams = list(zip_longest(*(pair.answers for pair in pairs)))
    return np.array(metric._extract_corpus_statistics([pair.text for pair in pairs], streams))


def _outcomes(pairs: Sequence[Prediction], counts: "NgramCounts") -> tuple[Outcome, ...]:
    """Give each sentence its BLEU, of effective order as sacrebleu advises."""
    return tuple(
        Outcome(pair.id, pair.text, pair.answers, pooled_bleu(row[None], effective_order=True))
        for pair, row in zip(pairs, counts, strict=True)
    )


class AbsentModelError(UserError):
    """What a metric needs, a model or a package, is not here and cannot be fetched."""


def model_file() -> Path:
    """Return the place where sacrebleu keeps the model: $SACREBLEU, or ~/.sacrebleu."""
    spm = import_module(_SPM)
    return Path(spm.SACREBLEU_DIR, "models", Path(spm.SPM_MODELS[TOKENIZER]["url"]).name)


def require_model(expected: str | None = None) -> str:
    """Return the sha256 of the model, which must be the expected one; fetch it if it is absent.

    It is part of every result: sacrebleu does not check the bytes that it fetches.
    """
    path = model_file()
    if not path.is_file():
        _fetch(path)
    data = path.read_bytes()
    if not data:
        raise UserError(f"SentencePiece model {str(path)!r} is empty; remove it or replace it")
    sha256 = hashlib.sha256(data).hexdigest()
    if expected not in (None, sha256):
        raise UserError(
            f"SentencePiece model {str(path)!r} has sha256 {sha256}, not {expected}; put back the"
            " model with the configured sha256"
        )
    return sha256


def _fetch(path: Path) -> None:
    spm = import_module(_SPM)
    try:
        spm.download_file(spm.SPM_MODELS[TOKENIZER]["url"], str(path))
    except (OSError, SystemExit) as error:  # sacrebleu exits on a TLS error
        raise AbsentModelError(
            f"spBLEU needs the SentencePiece model {path.name}, which cannot be fetched"
            f" ({' '.join(str(error).split())}); put it at {str(path)!r} or use the scorer"
            " translation_13a"
        ) from None


# Of Thai, Lao, Tibetan, Burmese, Khmer, Japanese and Chinese.
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
)


def _without_spaces(answer: str) -> str | None:
    """Say so of an answer in a script in which the tokenizer 13a makes a sentence one word."""
    letters = sum(map(str.isalpha, answer))
    if 2 * sum(map(str.isalpha, _UNSPACED.findall(answer))) <= letters:
        return None
    return "has no spaces between words, without which tokenizer 13a takes all for one word"


def _scorer(name: str, doc: str, metric: str, label: str, tokenize: str) -> Scorer:
    bleu = Metric(metric, label, corpus=bleu_corpus(tokenize))
    chrf = Metric("chrf2++", "chrF2++", corpus=CHRF2)
    protocols = (translations_strict, translations_published)
    strict, published = (partial(rules, tokenize=tokenize, name=metric) for rules in protocols)
    how: Any = {"needs_spm": True} if tokenize == TOKENIZER else {"unreadable": _without_spaces}
    return Scorer(name, doc, (bleu, chrf), strict, published, **how)


CHRF2 = sacrebleu_corpus(_chrf)
SCORERS = (
    _scorer(
        "translation", "spBLEU (FLORES-101 tokenizer) and chrF2++", "spbleu", "spBLEU", TOKENIZER
    ),
    _scorer("translation_13a", "BLEU (tokenizer 13a) and chrF2++", "bleu_13a", "BLEU", "13a"),
)
