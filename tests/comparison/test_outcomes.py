"""Reading scores with their outcomes."""

from dataclasses import replace

import pytest

from adafuse.comparison.outcomes import read_scored
from adafuse.errors import UserError

from .conftest import accuracy, translation

SCORED = accuracy("a.b", [1, 0, 1])


def test_what_was_stored_is_read(store) -> None:
    assert read_scored(store(SCORED)) == SCORED


def test_the_tokenizer_comes_from_the_signature_or_the_metric(store) -> None:
    scored = translation("m", ["a b c d"], ["a b c d"])
    assert read_scored(store(scored)).tokenize == "13a"
    assert read_scored(store(replace(scored, metric="spbleu"))).tokenize == "flores101"
    details = {"signature": "nrefs:1|case:mixed|eff:no|tok:flores101|smooth:exp|version:2.6.0"}
    assert read_scored(store(scored, details=details)).tokenize == "flores101"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"n": 4}, "has 3 rows, but .* says n = 4"),
        (
            {"metrics": {"exact_match": {"value": 50}}},
            "score is 50.000000, but its outcomes give 66.666667",
        ),
    ],
)
def test_a_score_that_does_not_follow_from_its_rows_is_refused(store, changes, sentence) -> None:
    with pytest.raises(UserError, match=sentence):
        read_scored(store(SCORED, **changes))


def test_other_outcomes_than_right_and_wrong_are_refused() -> None:
    with pytest.raises(UserError, match=r"has an outcome 0.5, neither right"):
        accuracy("m", [1, 0.5])


def test_a_repeated_id_is_refused() -> None:
    with pytest.raises(UserError, match="two outcomes for one row"):
        accuracy("m", [1, 1], ids=("a", "a"))


def test_missing_and_broken_files_are_one_sentence(store, tmp_path) -> None:
    with pytest.raises(UserError, match="is no score"):
        read_scored(tmp_path / "none.json")
    path = store(SCORED)
    path.with_suffix(".outcomes.parquet").unlink()
    with pytest.raises(UserError, match=r"a.b.outcomes.parquet' does not exist"):
        read_scored(path)
    path.write_text('{"run": "a"}')
    with pytest.raises(UserError, match="no 'primary'"):
        read_scored(path)
    path.write_text("[]")
    with pytest.raises(UserError, match="is no score"):
        read_scored(path)
