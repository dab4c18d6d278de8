"""Stamps: an output is fresh as long as it is what the plan makes, and holds what was written."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.storage.files import file_state
from adafuse.workflow.stamps import (
    intact,
    is_fresh,
    is_unchanged,
    renew,
    stamp_path,
    write_stamp,
)


@pytest.fixture(params=["file", "folder"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An output that was just made and stamped."""
    path = tmp_path / "made"
    if request.param == "folder":
        (path / "in").mkdir(parents=True)
        (path / "in/deep").write_text("content")
    else:
        path.write_text("content")
    write_stamp(path, "digest")
    return path


def content(output: Path) -> Path:
    return output / "in/deep" if output.is_dir() else output


def test_a_made_output_is_fresh_until_something_else_is_planned(output: Path) -> None:
    assert is_fresh(output, "digest")
    assert not is_fresh(output, "another digest")
    intact(output)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_text("CONTENT"),
        lambda path: path.write_text("content and more"),
        lambda path: path.write_text(""),
    ],
)
def test_an_output_that_was_changed_is_not(output: Path, change: Callable[[Path], None]) -> None:
    change(content(output))
    assert not is_fresh(output, "digest")
    with pytest.raises(UserError, match="it was changed or damaged since; run again, which makes"):
        intact(output)


def test_a_change_that_keeps_size_and_time_is_found_where_the_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "made"
    path.write_text("content")
    write_stamp(path, "digest")
    before = path.stat()
    path.write_text("CONTENT")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(UserError, match="changed or damaged"):
        intact(path)


@pytest.mark.parametrize("size", [7, 3 << 20])
def test_another_content_of_the_same_size_and_time_is_not_fresh(tmp_path: Path, size: int) -> None:
    path, other = tmp_path / "made", tmp_path / "other"
    path.write_bytes(bytes(size))
    write_stamp(path, "digest")
    other.write_bytes(bytes(size // 3) + b"x" + bytes(size - size // 3 - 1))
    shutil.copystat(path, other)
    shutil.copy2(other, path)
    assert not is_fresh(path, "digest") and not is_unchanged(path)


def test_an_output_in_another_folder_is_fresh(output: Path, tmp_path: Path) -> None:
    os.link(content(output), tmp_path / "backup")
    moved = shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-moved")) / "made"
    assert is_fresh(moved, "digest") and is_fresh(output, "digest")


def test_a_touched_output_is_fresh_and_noted_once(output: Path) -> None:
    for path in (output, content(output)):
        os.utime(path)
    assert is_fresh(output, "digest")
    renew(output)
    assert is_fresh(output, "digest")
    content(output).write_text("CONTENT")
    renew(output)
    assert not is_fresh(output, "digest"), "what was changed is not stamped again"


def test_what_snakemake_puts_into_a_folder_is_not_its_content(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    write_stamp(tmp_path / "made", "digest")
    (tmp_path / "made/.snakemake_timestamp").touch()
    assert is_fresh(tmp_path / "made", "digest")
    (tmp_path / "made/new").touch()
    assert not is_fresh(tmp_path / "made", "digest")


def test_another_output_of_the_same_workflow_is_not_this_one(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)
        write_stamp(tmp_path / name, f"digest of {name}")
    shutil.copy2(tmp_path / "other", tmp_path / "one")
    assert not is_fresh(tmp_path / "one", "digest of one")


def test_what_was_refused_once_is_made_again_and_read_by_no_step_before(output: Path) -> None:
    large = content(output)
    large.write_bytes(bytes(3 << 20))
    write_stamp(output, "digest")
    # A disk that fails leaves size, times and most parts as they were.
    stamp = json.loads(stamp_path(output).read_text())
    damaged = bytes(100_000) + b"x" + bytes((3 << 20) - 100_001)
    large.write_bytes(damaged)
    state = file_state(output) if output.is_file() else ""
    stamp_path(output).write_text(json.dumps({**stamp, "state": state}))
    for _ in range(2):  # jobs that read it at the same time
        with pytest.raises(UserError, match="which makes it again"):
            intact(output)
    assert not is_fresh(output, "digest") and not is_unchanged(output)
    renew(output)
    assert not is_fresh(output, "digest")
    large.write_bytes(bytes(3 << 20))
    write_stamp(output, "digest")
    assert is_fresh(output, "digest")
    intact(output)


@given(st.binary(max_size=100))
def test_a_damaged_stamp_is_none(tmp_path_factory: pytest.TempPathFactory, rubbish: bytes) -> None:
    path = tmp_path_factory.mktemp("stamps") / "made"
    path.write_text("content")
    write_stamp(path, "digest")
    whole = stamp_path(path).read_bytes()
    stamp_path(path).write_bytes(rubbish)
    assert not is_fresh(path, "digest")
    intact(path)
    stamp_path(path).write_bytes(whole)
    assert is_fresh(path, "digest")


def test_a_file_without_a_stamp_may_be_read_and_is_not_fresh(tmp_path: Path) -> None:
    (tmp_path / "made").write_text("content")
    intact(tmp_path / "made")
    assert not is_fresh(tmp_path / "made", "digest")
