"""What a model is."""

import shutil
from pathlib import Path

from adafuse.models import files as identity
from adafuse.models.files import file_digest, model_key


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


def test_hidden_files_say_nothing_of_a_model(tmp_path: Path) -> None:
    plain, cached = folder(tmp_path / "a"), folder(tmp_path / "b")
    (cached / ".cache").mkdir()
    (cached / ".cache" / "lock").write_text("x")
    keys = [model_key(str(path), None) for path in (plain, cached)]
    assert keys[0] == keys[1]


def test_a_hub_model_is_its_id_and_revision() -> None:
    assert model_key("org/name", "abc") == ["org/name", "abc"]


def test_a_large_file_is_known_by_its_size_and_ends(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(identity, "_WHOLE", 64)
    monkeypatch.setattr(identity, "_EDGE", 16)
    path = tmp_path / "large"

    def digest(data: bytes) -> str:
        path.write_bytes(data)
        return file_digest(path)

    plain = digest(bytes(100))
    assert digest(bytes(50) + b"x" + bytes(49)) == plain  # the middle is not read
    assert digest(b"x" + bytes(99)) != plain
    assert digest(bytes(99) + b"x") != plain
    assert digest(bytes(101)) != plain
