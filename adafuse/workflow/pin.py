"""Commits for what a configuration names of the hub without one, written into its files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adafuse.config.config import Config
from adafuse.config.reading import parse_config, read_config_values
from adafuse.errors import UserError
from adafuse.models.hub import hub_commit
from adafuse.models.spec import ModelEntry
from adafuse.storage.files import located, write_bytes
from adafuse.storage.yaml_files import with_key
from adafuse.workflow.benchmarks import unpinned_source
from adafuse.workflow.prefetch import checkpoints, read_commits


@dataclass(frozen=True, slots=True)
class Unpinned:
    """A model or dataset without a commit, and where it is named.

    In `file`, the keys `above` lead to a mapping, whose key `named` has its path, and whose key
    `key` is to have the commit. `repository` is its id on the hub.
    """

    kind: str
    path: str
    repository: str
    file: Path
    above: tuple[str, ...]
    named: str
    key: str = "revision"

    @property
    def place(self) -> str:
        return f"{self.file}: {'.'.join([*self.above, self.key])}"


@dataclass(frozen=True, slots=True)
class Pinned:
    """A commit that was written, where, and what it was read from."""

    place: str
    path: str
    commit: str
    source: str


def pin(file: Path) -> list[Pinned]:
    """Write the missing commits of a configuration into its files; return what was written.

    A model gets the commit that `snakemake prefetch` has recorded, so that nothing is decoded
    again, else that of the hub's default branch. What has a revision keeps it. Either all that is
    missing is written or nothing.

    Raises:
        UserError: a commit cannot be found or written.
    """
    values = read_config_values(file)
    config = parse_config(values)
    recorded, texts, pinned = read_commits(config), dict[Path, str](), []
    for item in dict.fromkeys(_unpinned(file, values, config)):
        if (item.path, None) in recorded:
            commit, source = recorded[item.path, None], "results of `snakemake prefetch`"
        else:
            commit, source = hub_commit(item.kind, item.repository)
        try:
            path = item.file.resolve()  # not a link, which a file would replace
            text = texts.get(path) or path.read_bytes().decode()  # not if it is gzipped
            texts[path] = with_key(text, item.above, item.named, item.key, commit)
        except ValueError:
            raise UserError(
                f"{item.place} cannot be written without changing more of the file; write it"
                f" there yourself: {commit} for {item.path}"
            ) from None
        pinned.append(Pinned(item.place, item.path, commit, source))
    for path, text in texts.items():
        write_bytes(path, text.encode())
    return pinned


def _unpinned(file: Path, values: Mapping[str, Any], config: Config) -> Iterator[Unpinned]:
    for name, model in config.models.items():
        if _of_hub(model):
            repository = model.source[0]
            yield Unpinned("model", model.path, repository, file, ("models", name), "path")
    for name, run in config.runs.items():
        for option, entry in checkpoints(run).items():
            if _of_hub(entry):
                repository, place = entry.source[0], ("runs", name, "options")
                key = f"{option}_revision"
                yield Unpinned("model", entry.path, repository, file, place, option, key)
    for name, task in config.benchmarks.items():
        if unpinned_source(config, name) is not None:
            dataset, written = str(task.source.dataset), values["benchmarks"][name]
            here = "dataset" in (written.get("source") or {})
            used = file if here else Path(located(written["use"]))
            above = ("benchmarks", name, "source") if here else ("source",)
            yield Unpinned("dataset", dataset, dataset, used, above, "dataset")


def _of_hub(model: ModelEntry) -> bool:
    return model.revision is None and not Path(model.path).exists()
