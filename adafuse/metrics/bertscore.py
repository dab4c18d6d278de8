"""BERTScore, an extra: the model that it uses for a language, and the F1 of scored texts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from adafuse.errors import UserError, install
from adafuse.metrics.intervals import Estimate, mean
from adafuse.metrics.scorer import Judgement, Metric, Outcome
from adafuse.metrics.translation import AbsentModelError
from adafuse.version import installed_version

F1 = Metric("bertscore_f1", "BERTScore F1")


def wrong_language(language: str) -> str | None:
    """Return what is wrong with the code of a language, such as "en" or "en-sci", if anything."""
    known = re.fullmatch(r"[a-z]{2,3}(-[a-z]+)?", language)
    return None if known else f"{language!r} is not the code of a language, such as en or de"


@dataclass(frozen=True, slots=True)
class BertModel:
    """The model with which bert-score of a `version` reads texts, and the `layer` that it takes.

    The `folder` of its files has the name of a commit; the version names that of transformers, too.
    """

    name: str
    folder: Path
    layer: int
    version: str

    def __str__(self) -> str:
        commit = self.folder.name
        return f"bert-score {self.version}, {self.name} ({commit}), layer {self.layer}"

    def f1(self, outcomes: Sequence[Outcome]) -> Estimate:
        """Return the mean F1 in percent, best over the gold answers; an empty text has 0.

        Raises:
            UserError: the tokenizer names no greatest length, which bert-score needs.
        """
        from bert_score import score

        filled = [outcome for outcome in outcomes if outcome.text.strip()]
        texts, answers = [o.text for o in filled], [list(o.answers) for o in filled]
        how = {"model_type": str(self.folder), "num_layers": self.layer}
        try:
            values = iter(score(texts, answers, **how)[2].tolist() if filled else [])
        except OverflowError:  # bert-score cuts texts at the length that the tokenizer names
            raise UserError(
                f"BERTScore cannot use {self.name}, whose tokenizer names no greatest length; add"
                f" model_max_length to {str(self.folder / 'tokenizer_config.json')!r}"
            ) from None
        return mean([next(values) if outcome.text.strip() else 0.0 for outcome in outcomes])


def require_bertscore(language: str) -> BertModel:
    """Return what scores texts of a language; download the model if it is not on this machine.

    Raises:
        AbsentModelError: the package is not installed, or the model is not here and cannot be had.
    """
    from adafuse.models.files import cached_folder, safe_files
    from adafuse.models.hub import download
    from adafuse.models.spec import ModelEntry

    if wrong := wrong_language(language):
        raise UserError(f"BERTScore: {wrong}")
    try:
        from bert_score import __version__, utils
    except ImportError:
        sentence = f"BERTScore needs the package bert-score; {install('bertscore')}"
        raise AbsentModelError(sentence) from None
    name = utils.lang2model[language]
    folder = cached_folder(name, None)
    if folder is None or not safe_files(folder):
        try:
            folder = download(ModelEntry(path=name))
        except UserError as error:
            raise AbsentModelError(f"BERTScore for {language!r}: {error}") from None
    version = f"{__version__} (transformers {installed_version('transformers')})"
    return BertModel(name, folder, utils.model2layers[name], version)


def with_bertscore(judgement: Judgement, language: str) -> Judgement:
    """Return a judgement that also has BERTScore F1, and says by which model."""
    model = require_bertscore(language)
    metrics = judgement.metrics | {F1.name: model.f1(judgement.outcomes)}
    return replace(
        judgement, metrics=metrics, details=judgement.details | {"bertscore": str(model)}
    )
