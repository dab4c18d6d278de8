"""Parts of a benchmark."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.benchmarks.rows import Row, read_ids, sample, with_ids
from adafuse.errors import UserError

ROWS = tuple(Row(f"r{n}", f"q{n}", ("a",)) for n in range(40))


def ids(rows: tuple[Row, ...]) -> list[str]:
    return [row.id for row in rows]


@given(st.integers(1, 40), st.integers(0, 9))
def test_a_sample_has_its_size_and_the_order_of_the_file(size: int, seed: int) -> None:
    chosen = ids(sample(ROWS, size, seed, "qa"))
    assert len(chosen) == size
    assert chosen == [each for each in ids(ROWS) if each in set(chosen)]


def test_a_sample_is_the_same_everywhere_and_another_for_another_seed() -> None:
    assert ids(sample(ROWS, 5, 0, "qa")) == ids(sample(ROWS, 5, 0, "qa"))
    assert ids(sample(ROWS, 5, 0, "qa")) != ids(sample(ROWS, 5, 1, "qa"))
    assert ids(sample(ROWS, 4, 3, "qa")) == ["r7", "r12", "r17", "r37"]


def test_a_sample_that_skips_another_one_shares_no_row_with_it() -> None:
    first, second = sample(ROWS, 25, 0, "qa"), sample(ROWS, 15, 0, "qa", skip=25)
    assert sorted(ids(first) + ids(second)) == sorted(ids(ROWS))
    with pytest.raises(UserError, match="16 after 25 skipped ones is more than its 40 rows"):
        sample(ROWS, 16, 0, "qa", skip=25)


def test_a_new_row_changes_a_sample_by_one_row_at_most() -> None:
    before = set(ids(sample(ROWS, 10, 0, "qa")))
    for number in range(20):
        more = (*ROWS, Row(f"new{number}", "q", ("a",)))
        assert len(before - set(ids(sample(more, 10, 0, "qa")))) <= 1


def test_rows_by_id_keep_the_order_of_the_file() -> None:
    assert ids(with_ids(ROWS, ["r7", "r2", "r7"], "qa")) == ["r2", "r7"]


def test_what_cannot_be_chosen_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="qa: no row has the id 'x'"):
        with_ids(ROWS, ["r1", "x"], "qa")
    with pytest.raises(UserError, match=r"qa: sample\.size 41 is more than its 40 rows"):
        sample(ROWS, 41, 0, "qa")
    with pytest.raises(UserError, match="cannot be read"):
        read_ids(tmp_path / "none.txt")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(UserError, match="has no ids"):
        read_ids(tmp_path / "empty.txt")


def test_ids_are_read_a_line_each(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("r1\r\n\n r 2 \n")
    assert read_ids(tmp_path / "ids.txt") == ("r1", "r 2")
