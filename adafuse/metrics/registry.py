"""All scorers by name: those of the entry points `adafuse.scorers`, too."""

from dataclasses import replace
from itertools import chain

from adafuse.errors import UserError, unknown
from adafuse.metrics import bertscore, gsm8k, short_answers, translation
from adafuse.metrics.scorer import PROTOCOLS, Metric, Scorer
from adafuse.plugins import add_installed, is_outside, not_there, note, twice

SCORERS: dict[str, Scorer] = {}

BENCHMARKS = {
    "natural_questions": "nq",
    "triviaqa": "triviaqa",
    "squad": "squad",
    "gsm8k": "gsm8k",
    "flores_en_de": "translation",
    "flores_de_en": "translation",
}
"""The scorers of the paper's six benchmarks."""


def register_scorer(scorer: Scorer) -> Scorer:
    """Register a scorer under its name.

    Raises:
        UserError: it is not a `Scorer`, another scorer has that name, or another kind of metric has
            the name of one of its metrics: files identify metrics by their names.
    """
    if not isinstance(scorer, Scorer):
        raise UserError(f"{scorer!r} is not a scorer; make it a Scorer")
    if not scorer.metrics:
        raise UserError(f"scorer {scorer.name!r} has no metric; give it one")
    for metric in scorer.metrics:
        if metric.binary and metric.corpus:
            raise UserError(f"metric {metric.name!r} is binary and of a corpus; choose one")
        named = metric_named(metric.name, metric)
        if replace(named, label="") != replace(metric, label=""):
            raise UserError(
                f"scorer {scorer.name!r} has a metric {metric.name!r} of another kind than the"
                " metric of that name that is known already; rename it"
            )
    note(scorer)
    if (known := SCORERS.setdefault(scorer.name, scorer)) is not scorer:
        raise UserError(twice("scorer", scorer.name, known, scorer))
    return scorer


def metric_named(name: str, otherwise: Metric | None = None) -> Metric:
    """Return a metric by its name in files; that is the label of one that no scorer here has."""
    known = chain([bertscore.F1], *(scorer.metrics for scorer in SCORERS.values()))
    named = (metric for metric in known if metric.name == name)
    return next(named, otherwise or Metric(name, name.replace("_", " ")))


def unit(name: str) -> str:
    """Return the unit of a metric; that of a mean of somebody else's is not known."""
    own = (scorer for scorer in SCORERS.values() if not is_outside(scorer))
    known = {bertscore.F1.name, *(metric.name for scorer in own for metric in scorer.metrics)}
    return "percent" if metric_named(name).in_percent or name in known else "that of the scorer"


# A new scorer is one file, its import here and its name in this line.
for _scorer in (*short_answers.SCORERS, gsm8k.GSM8K, *translation.SCORERS):
    register_scorer(_scorer)
add_installed("scorer", register_scorer)


def scorer_named(name: str, owner: str) -> Scorer:
    """Return a scorer, or raise a `UserError` that begins with `owner`."""
    if name not in SCORERS:
        raise UserError(f"{owner}: {not_there('scorer', name, list(SCORERS))}")
    return SCORERS[name]


def check_protocol(name: str) -> None:
    """Refuse a protocol that does not exist."""
    if name not in PROTOCOLS:
        raise UserError(unknown("protocol", name, list(PROTOCOLS)))
