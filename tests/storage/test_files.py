"""Text files of a user, in whatever form an editor left them, and paths."""

import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.storage.files import check_writable, located, read_text, write_text

INSIDE = st.text(st.sampled_from("aé \u00a0\u200b\u2028\u2029\x0b\x0c\x1c\x85\t"), max_size=6)
BOM = b"\xef\xbb\xbf"


@given(lines=st.lists(INSIDE, max_size=5))
def test_only_line_feeds_end_lines_and_marks_of_editors_are_no_text(tmp_path_factory, lines):
    path, text = tmp_path_factory.mktemp("text") / "t.txt", "\n".join(lines)
    plain = text.encode()
    windows = text.replace("\n", "\r\n").encode()
    joined = BOM + b"\n".join([BOM + line for line in plain.split(b"\n")])
    for data in (plain, windows, BOM + windows, gzip.compress(BOM + windows), joined[3:]):
        path.write_bytes(data)
        assert read_text(path, "text file").split("\n") == lines or (not lines and not text)


@pytest.mark.parametrize(
    ("name", "data", "sentence"),
    [
        ("t", "a\nb".encode("utf-16"), "line 1, is not UTF-8 (byte 0xff)"),
        ("t", "a\nb".encode("utf-16-be"), r"line 1, has the character '\x00'"),
        ("t", "a\nä".encode("latin-1"), "line 2, is not UTF-8 (byte 0xe4)"),
        ("t", b"a\nb\rc", r"line 2, has the character '\r'"),
        ("t", b"a\nb\0", r"line 2, has the character '\x00'"),
        ("t.gz", gzip.compress(b"a" * 99, mtime=0)[:-9], "its gzip data is cut off or damaged"),
        ("t.zip", b"PK", "is packed; unpack it"),
        ("t.xlsx", b"PK\x03\x04", "is a spreadsheet; save it as CSV in UTF-8"),
        ("t", None, "cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_text_is_one_sentence_with_its_line(tmp_path, name, data, sentence):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError) as error:
        read_text(tmp_path / name, "ids file")
    assert sentence in str(error.value) and str(error.value).startswith("ids file '")
    assert "\n" not in str(error.value)


def test_home_and_variables_are_filled_in(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DATA", "set")
    monkeypatch.chdir(tmp_path)
    for name in ("~", "~old", "$old", "a$", "a$1"):
        Path(name).mkdir()
    assert located("~/x y") == f"{tmp_path}/x y"
    assert located("~") == str(tmp_path)
    assert located("$DATA/ä/${DATA}.csv") == "set/ä/set.csv"
    assert located("org/name") == "org/name"
    for name in ("~old", "$old", "a$", "a$1", "b$", "b$1"):  # these exist, or are no variables
        assert located(name) == name


@pytest.mark.parametrize("path", ["$NOT_SET/x", "${NOT_SET}", "$EMPTY/x", "~nobody-here/x"])
def test_what_cannot_be_filled_in_is_refused(monkeypatch, path):
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(UserError, match="write it out"):
        located(path)


def test_devices_and_pipes_are_not_replaced_by_files(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="pipe' is a device or a pipe; give the name of a file"):
        write_text(pipe, "{}")
    assert pipe.is_fifo()
    for name in ("null", "stdout"):
        with pytest.raises(UserError, match=f"'/dev/{name}' is a device or a pipe"):
            check_writable(Path("/dev", name))


def test_links_are_not_replaced_by_files(tmp_path):
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(file)
    for _ in range(2):
        with pytest.raises(UserError, match=f"link, which a file would replace; .* {str(file)!r}"):
            check_writable(link)
        file.touch()
    check_writable(file)
