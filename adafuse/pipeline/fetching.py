"""From a `source` section to the rows of its dataset."""

from pathlib import Path

from pydantic import ValidationError

from adafuse.benchmarks.fetch import DatasetSource, fetch
from adafuse.benchmarks.fields import Fields
from adafuse.errors import UserError
from adafuse.pipeline.config import SourceConfig


def fetch_source(text: str, out: Path) -> int:
    """Write the rows of a source that is given as JSON; return their number.

    Raises:
        UserError: it is not the source of a dataset, or cannot be loaded.
    """
    try:
        source = SourceConfig.model_validate_json(text)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UserError(f"--source {text!r} is no `source` section ({reason})") from None
    if source.dataset is None or source.split is None:
        raise UserError(f"--source {text!r} names no `dataset` and `split`; add them")
    named = {key: getattr(source, key) for key in ("config", "answer_config", "revision")}
    fields = Fields(**source.fields.model_dump())
    return fetch(DatasetSource(source.dataset, source.split, fields, **named), out)
