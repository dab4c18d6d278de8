"""All tasks by name: what `metric` of a benchmark may say, and how both protocols score it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from adafuse.errors import UserError, known
from adafuse.scoring import exact_match, judged, translation
from adafuse.scoring.judged import Judgement
from adafuse.scoring.outcomes import Example
from adafuse.scoring.spm import TOKENIZER

STRICT, PUBLISHED = "strict", "published"
PROTOCOLS = (STRICT, PUBLISHED)

Protocol = Callable[[Sequence[Example]], Judgement]


@dataclass(frozen=True, slots=True)
class Task:
    """Both protocols of a task; `primary` is the metric that stands in the main table."""

    primary: str
    strict: Protocol
    published: Protocol

    @property
    def accuracy(self) -> bool:
        """Whether an answer is right or wrong; the value of a translation is its BLEU."""
        return self.primary in ("exact_match", "accuracy")

    def protocol(self, name: str) -> Protocol:
        """Return one of the two protocols.

        Raises:
            UserError: there is none of that name.
        """
        check_protocol(name)
        return self.strict if name == STRICT else self.published


def check_protocol(name: str) -> None:
    """Refuse a protocol that does not exist.

    Raises:
        UserError: there is none of that name.
    """
    if name not in PROTOCOLS:
        raise UserError(known("protocol", name, list(PROTOCOLS)))


def task_named(name: str, owner: str) -> Task:
    """Return a task.

    Raises:
        UserError: there is none of that name.
    """
    if name not in TASKS:
        raise UserError(f"{owner}: {known('metric', name, list(TASKS))}")
    return TASKS[name]


def _answers(name: str, normalise: exact_match.Normaliser) -> Task:
    strict = partial(judged.answers_strict, normalise=normalise)
    metric = "exact_match"
    return Task(metric, strict, partial(judged.published, task=name, metric=metric))


def _translation(name: str, tokenize: str) -> Task:
    both = (translation.translations_strict, translation.translations_published)
    strict, published = (partial(each, tokenize=tokenize, name=name) for each in both)
    return Task(name, strict, published)


TASKS: dict[str, Task] = {
    "nq": _answers("nq", exact_match.nq_open),
    "squad": _answers("squad", exact_match.squad),
    "triviaqa": _answers("triviaqa", exact_match.triviaqa),
    "gsm8k": Task(
        "accuracy",
        judged.numbers_strict,
        partial(judged.published, task="gsm8k", metric="accuracy"),
    ),
    "translation": _translation("spbleu", TOKENIZER),
    "translation_13a": _translation("bleu_13a", "13a"),
}

# The six benchmarks of the paper by name.
BENCHMARKS = {
    "natural_questions": "nq",
    "triviaqa": "triviaqa",
    "squad": "squad",
    "gsm8k": "gsm8k",
    "flores_en_de": "translation",
    "flores_de_en": "translation",
}
