"""Reading scores with their outcomes."""

import pytest

from adafuse.errors import UserError
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.score import read_scored

from .conftest import accuracy, translation

SCORED = accuracy("a.b", [1, 0, 1])


def test_what_was_stored_is_read(store) -> None:
    assert read_scored(store(SCORED)) == SCORED


def test_the_tokenizer_of_bleu_is_that_of_its_metric() -> None:
    found = translation("m", ["a, b c d"], ["a, b c d"])
    corpus = found.metric.corpus
    assert corpus is not None
    assert corpus.counts(found.outcomes, "strict")[0, 0] == 5  # the comma is a token of 13a
    assert {s.name for s in SCORERS.values() if s.needs_spm} == {"translation"}


def test_missing_and_broken_files_are_one_sentence(store, tmp_path) -> None:
    with pytest.raises(UserError, match="is not a score"):
        read_scored(tmp_path / "none.json")
    path = store(SCORED)
    path.with_suffix(".outcomes.parquet").unlink()
    with pytest.raises(UserError, match=r"a.b.outcomes.parquet' does not exist"):
        read_scored(path)
    path.write_text('{"run": "a"}')
    with pytest.raises(UserError, match="is not a score"):
        read_scored(path)
    path.write_text("[]")
    with pytest.raises(UserError, match="is not a score"):
        read_scored(path)
