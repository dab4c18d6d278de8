"""What the doctor finds."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence with the fix; a `problem` stops decoding, anything else is a warning."""

    problem: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class Device:
    """Where models can go, and the bytes that are free there."""

    name: str
    kind: str
    free: int


@dataclass(frozen=True, slots=True)
class Installation:
    """Versions of packages, devices, and the commands of the workflow; None: not found."""

    python: str
    adafuse: str
    packages: Mapping[str, str | None]
    cuda: str | None
    devices: tuple[Device, ...]
    snakemake: str | None
    sbatch: str | None


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A model by its config and tokenizer.

    `start` and `ends` are tokens; `context` is None where the config names no limit. `token_bytes`
    says whether each token stands for certain bytes, `odd_spans` holds texts that come back
    otherwise when this tokenizer encodes them. `rows` are those of the output layer. Bytes are
    estimates: `weights` (None: the files are not here), `cache` of a token over all layers (None:
    no transformer as the engines know it).
    """

    name: str
    architecture: str
    start: str | None
    ends: tuple[str, ...]
    context: int | None
    chat_template: bool
    vocabulary: int
    rows: int
    token_bytes: bool
    odd_spans: tuple[str, ...]
    dtype: str
    device: str
    weights: int | None
    cache: int | None


@dataclass(frozen=True, slots=True)
class Overlap:
    """Tokens that two models write with the same bytes, and their percentage of each vocabulary."""

    models: tuple[str, str]
    shared: int
    percent: tuple[float, float]


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """Bytes that models and a batch take on a device; `fits` is how many examples have room."""

    device: str
    free: int
    weights: int
    per_row: int
    rows: int
    fits: int


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was looked at, and what is wrong."""

    installation: Installation
    models: tuple[ModelFacts, ...]
    overlaps: tuple[Overlap, ...]
    loads: tuple[DeviceLoad, ...]
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing stops decoding."""
        return not any(finding.problem for finding in self.findings)
