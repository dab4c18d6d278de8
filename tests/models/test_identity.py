"""What a model is."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import adafuse.storage.files
from adafuse.errors import UserError
from adafuse.models import files
from adafuse.models.files import KnownDigests, check_unchanged, keys_now, model_key
from adafuse.storage.files import file_state


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


def in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def by_rename(path: Path, content: bytes) -> None:
    path.with_suffix(".new").write_bytes(content)
    path.with_suffix(".new").replace(path)


def by_link(path: Path, content: bytes) -> None:
    other = path.with_suffix(".other")
    other.write_bytes(content)
    path.unlink()
    path.symlink_to(other)


@pytest.mark.parametrize("size", [1000, 3 << 20])
@pytest.mark.parametrize("replace", [in_place, by_rename, by_link])
def test_weights_replaced_by_others_of_the_same_size_and_time_are_other_weights(
    tmp_path: Path, size: int, replace: Callable[[Path, bytes], None]
) -> None:
    model = folder(tmp_path / "model", bytes(size))
    weights, record = model / "model.safetensors", tmp_path / "record.json"
    os.utime(weights, ns=(0, 0))
    known = KnownDigests()
    before, key = known.of([weights]), keys_now([str(model)])
    known.save(record)
    replace(weights, bytes(size // 3) + b"x" + bytes(size - size // 3 - 1))
    os.utime(weights, ns=(0, 0))
    later = KnownDigests()
    later.load(record)
    assert later.of([weights]) == known.of([weights]) != before
    assert keys_now([str(model)]) != key


def test_without_change_times_and_inodes_parts_of_the_content_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adafuse.storage.files, "file_times", lambda status: (status.st_size,))
    monkeypatch.setattr(adafuse.storage.files, "_CLOCK", 0)
    megabytes = [bytes(1 << 20)] * 10
    states = set()
    for number in range(10):
        changed = [b"x" * (1 << 20) if n == number else zeros for n, zeros in enumerate(megabytes)]
        (tmp_path / "weights").write_bytes(b"".join(changed))
        states.add(file_state(tmp_path / "weights"))
    assert len(states) == 10


def test_new_times_or_another_place_cost_a_reading_and_change_nothing(tmp_path: Path) -> None:
    model = folder(tmp_path / "model", bytes(3 << 20))
    states, keys = [file_state(model / "model.safetensors")], keys_now([str(model)])
    (model / "model.safetensors").chmod(0o600)
    os.link(model / "model.safetensors", tmp_path / "backup")
    moved = model.rename(tmp_path / "moved")
    states.append(file_state(moved / "model.safetensors"))
    assert states[0] != states[1]
    assert keys_now([str(moved)]) == keys


def test_a_file_that_is_written_while_it_is_read_is_read_again_and_then_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"half")
    changes = [b"whole"]

    def change(_: int) -> None:
        if changes:
            path.write_bytes(changes.pop())

    assert files._sha256(path, change) == hashlib.sha256(b"whole").hexdigest()
    changes += [b"1", b"22", b"333", b"4444"]
    with pytest.raises(UserError, match="changes while it is read; run again when it is complete"):
        files._sha256(path, change)


def test_files_behind_links_to_folders_count_and_loops_end(tmp_path: Path) -> None:
    model, disk = folder(tmp_path / "model"), folder(tmp_path / "disk")
    (model / "more").symlink_to(disk)
    (disk / "loop").symlink_to(disk)
    (model / "up").symlink_to(tmp_path)
    (model / "gone").symlink_to(tmp_path / "nowhere")
    before = keys_now([str(model)])
    (disk / "model.safetensors").write_bytes(b"WEIGHTS")
    assert keys_now([str(model)]) != before


def test_models_that_changed_while_they_were_loaded_are_refused(tmp_path: Path) -> None:
    model = folder(tmp_path / "model")
    keys_now([str(model)])
    check_unchanged(str(model))
    (model / "model.safetensors").write_bytes(b"WEIGHTS")
    with pytest.raises(UserError, match="was changed while it was loaded; run again"):
        check_unchanged(str(model))


def test_the_record_has_each_file_once(tmp_path: Path) -> None:
    known, record = KnownDigests(), tmp_path / "record.json"
    for content in (b"1", b"2", bytes(3 << 20)):
        (tmp_path / "a b").write_bytes(content)
        digests = known.of([tmp_path / "a b"])
    known.save(record)
    assert list(json.loads(record.read_text()).values()) == digests


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, '{"a": ', "7"])
def test_a_damaged_record_of_digests_is_none(tmp_path: Path, content: str) -> None:
    record, file = tmp_path / "record.json", tmp_path / "file"
    record.write_text(content)
    file.write_bytes(b"1")
    known = KnownDigests()
    known.load(record)
    assert known.of([file]) == KnownDigests().of([file])
