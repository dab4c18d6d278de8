"""What a model is."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from adafuse.models import files
from adafuse.models.files import KnownDigests, model_key


def folder(path: Path, weights: bytes = b"weights") -> Path:
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "model.safetensors").write_bytes(weights)
    return path


def test_a_folder_is_its_content_wherever_it_lies(tmp_path: Path) -> None:
    first = folder(tmp_path / "a")
    second = shutil.copytree(first, tmp_path / "b")
    (second / "model.safetensors").touch()
    keys = [model_key(str(path), None) for path in (first, second)]
    assert keys[0] == keys[1]


def test_another_byte_name_or_file_is_another_model(tmp_path: Path) -> None:
    folders = [folder(tmp_path / "a"), folder(tmp_path / "b", b"Weights")]
    folders += [folder(tmp_path / "c"), folder(tmp_path / "d")]
    (folders[2] / "extra.json").write_text("{}")
    (folders[3] / "config.json").rename(folders[3] / "settings.json")
    keys = {tuple(model_key(str(path), None)) for path in folders}
    assert len(keys) == 4


def test_hidden_files_and_model_cards_say_nothing_of_a_model(tmp_path: Path) -> None:
    plain, cached = folder(tmp_path / "a"), folder(tmp_path / "b")
    (cached / ".cache").mkdir()
    (cached / ".cache" / "lock").write_text("x")
    (cached / "README.md").write_text("# Model card")
    keys = [model_key(str(path), None) for path in (plain, cached)]
    assert keys[0] == keys[1]


def test_a_hub_model_is_its_id_and_revision() -> None:
    assert model_key("org/name", "abc") == ["org/name", "abc"]


def test_every_byte_of_a_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "large"

    def digest(data: bytes) -> str:
        path.write_bytes(data)
        return KnownDigests().of([path])[0]

    large = bytes(70 << 20)
    plain = digest(large)
    middle = len(large) // 2
    assert digest(large[:middle] + b"x" + large[middle + 1 :]) != plain
    assert digest(large + b"x") != plain
    assert digest(large) == plain


def test_a_file_is_read_again_only_when_it_was_written(tmp_path: Path, monkeypatch) -> None:
    read: list[Path] = []
    sha256 = files._sha256

    def counted(file: Path, done: Callable[[int], object]) -> str:
        read.append(file)
        return sha256(file, done)

    monkeypatch.setattr(files, "_sha256", counted)
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    known, record = KnownDigests(), tmp_path / "record.json"
    digests = known.of([first, second])
    assert known.of([first, second]) == digests and len(read) == 2
    known.save(record)
    later = KnownDigests()
    later.load(record)
    assert later.of([second, first]) == digests[::-1] and len(read) == 2
    status = first.stat()
    first.write_bytes(b"3")  # of the same size
    os.utime(first, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert later.of([first]) != digests[:1] and read[2:] == [first]


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, '{"a": ', "7"])
def test_a_damaged_record_of_digests_is_none(tmp_path: Path, content: str) -> None:
    record, file = tmp_path / "record.json", tmp_path / "file"
    record.write_text(content)
    file.write_bytes(b"1")
    known = KnownDigests()
    known.load(record)
    assert known.of([file]) == KnownDigests().of([file])
