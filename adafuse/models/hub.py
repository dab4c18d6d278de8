"""Reading models from a folder or the Hugging Face hub, and downloading them whole."""

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from safetensors import SafetensorError

from adafuse.errors import UserError, install
from adafuse.models.files import (
    PICKLED,
    REFUSED,
    SAFE,
    check_adapter,
    pickled_files,
    safe_files,
)
from adafuse.models.gguf_file import check_gguf
from adafuse.models.spec import GGUF, ModelEntry
from adafuse.storage.yaml_files import parse_json

logger = logging.getLogger(__name__)


def from_hub(factory: Any, model: ModelEntry, **settings: Any) -> Any:
    """Load something of a model, running code of its own only if that is trusted."""
    # Otherwise transformers looks for converted weights in pull requests of the hub's bot.
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    source, gguf_file = model.source
    if gguf_file is not None:
        settings["gguf_file"] = gguf_file
    with explaining_failure(model), _parsing_gguf_once() if gguf_file else nullcontext():
        return factory.from_pretrained(
            source,
            revision=model.revision,
            trust_remote_code=model.trust_remote_code,
            **settings,
        )


@contextmanager
def _parsing_gguf_once() -> Iterator[None]:
    """Let transformers have a GGUF file parsed that it reads again for its next part.

    The package gguf takes many seconds for a vocabulary, and transformers lets it read the file for
    the config, the tokenizer and the weights.
    """
    package: Any = import_module("gguf")
    own = package.GGUFReader
    package.GGUFReader = lambda path: parsed_gguf(path, os.stat(path).st_mtime_ns)
    try:
        yield
    finally:
        package.GGUFReader = own


@lru_cache(maxsize=4)
def parsed_gguf(path: str, _changed: int) -> Any:
    """Return the reader of a GGUF file; it takes memory until `parsed_gguf.cache_clear()`."""
    from gguf.gguf_reader import GGUFReader
    from numpy import ndarray

    class Reader(GGUFReader):
        def _get(self, *place: Any, **how: Any) -> Any:
            self.data: Any = self.data.view(ndarray)  # slices of a memmap take twice as long
            return super()._get(*place, **how)

    logger.warning(
        "reading %s, which can take a minute; a copy in a folder loads faster"
        " (docs/large-models.md#gguf-files)",
        Path(path).name,
    )
    return Reader(path)


@contextmanager
def explaining_failure(model: ModelEntry) -> Iterator[None]:
    """Turn what libraries raise for a model that they cannot load into a `UserError`."""
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, AssertionError, SafetensorError) as error:
        reason = f"unknown name {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(_sentence(reason, model)) from error
    except RuntimeError as error:
        if "ignore_mismatched_sizes" not in str(error):
            raise
        raise UserError(
            f"model {model.path!r} has weights of other shapes than its config names; download"
            " it again"
        ) from error


@contextmanager
def checking_values(model: ModelEntry, part: str = "config") -> Iterator[None]:
    """Turn what libraries raise for values that a part should not have into a `UserError`."""
    from huggingface_hub.errors import StrictDataclassError

    try:
        yield
    except (StrictDataclassError, AttributeError, TypeError, ArithmeticError) as error:
        reason = f"its {part} has a value that does not fit: {' '.join(str(error).split())}"
        raise UserError(_sentence(reason, model)) from error


def check_path(path: str, revision: str | None = None) -> None:
    """Refuse what is neither a model folder nor a hub id, so that nobody waits for a download."""
    folder = Path(path)
    if revision is not None and folder.exists():
        raise UserError(f"revision {revision!r} is for hub models, but {path!r} is here; remove it")
    if folder.is_dir():
        check_adapter(path, folder)
        if not (folder / "config.json").is_file():
            raise UserError(f"model {path!r} has no config.json; give a Hugging Face model folder")
        return
    if path.endswith(GGUF) and find_spec("gguf") is None:
        raise UserError(
            f"model {path!r} needs the package gguf, which is not installed; {install('gguf')}"
        )
    if folder.is_file() and path.endswith(GGUF):
        check_gguf(path, None)
        return
    slashes = 2 if path.endswith(GGUF) else 1
    if path.startswith((".", "/", "~")) or path.count("/") != slashes or folder.exists():
        raise UserError(
            f"model {path!r} is not a folder; give a model folder, a .gguf file or a hub id"
            " org/name"
        )


def check_hub_adapter(model: ModelEntry) -> None:
    """Refuse a hub model with an adapter: transformers would load it only if peft is installed."""
    from transformers.utils.peft_utils import find_adapter_config_file

    check_gguf(model.path, model.revision)
    if not Path(model.path).exists() and not model.path.endswith(GGUF):
        with explaining_failure(model):
            adapter = find_adapter_config_file(model.path, revision=model.revision)
        if adapter is not None:
            check_adapter(model.path, Path(adapter).parent)


def _sentence(error: str, model: ModelEntry) -> str:
    # transformers has no classes of errors for these two.
    if "trust_remote_code=True" in error and not model.trust_remote_code:
        return (
            f"model {model.path!r} needs code of its own to run, and has not been trusted with"
            " that; read the code, then set trust_remote_code for this model"
        )
    if "use_safetensors=True" in error and not model.allow_pickle:
        return f"model {model.path!r} {REFUSED}"
    if "backend tokenizer" in error:
        return (
            f"model {model.path!r} has no tokenizer that can be read (tokenizer.json, or"
            " tokenizer.model with its package); download it again"
        )
    if "Padding_idx" in error:  # which torch asserts, without the value
        return (
            f"model {model.path!r} has a pad_token_id in its config.json that its vocabulary has no"
            " row for; make it null there (AdaFuse pads with no token)"
        )
    reason = error.strip().split("\n")[0]
    if model.path.endswith(GGUF) and "reshape" in reason:  # of fewer bytes than its header says
        return f"model {model.path!r} is cut off; download it again"
    here = Path(model.path).exists()
    where = "" if here else ", which is not a folder here,"
    offline = " (HF_HUB_OFFLINE is set)" if not here and os.environ.get("HF_HUB_OFFLINE") else ""
    return f"model {model.path!r}{where} cannot be loaded{offline}: {reason}"


SETTING_FILES = ("*.json", "*.jinja", "*.model", "*.txt")  # configuration and tokenizer
CODE = ("*.py",)
DUPLICATES = (
    "consolidated*",
    "model.*.safetensors",
    "*/*",
)  # the same weights once more, as some publishers add them


def file_patterns(model: ModelEntry) -> tuple[str, ...]:
    """Return patterns of what loading may read, if there are safetensors weights."""
    weights = (SAFE,) if model.server is None else ()
    return (*SETTING_FILES, *weights, *(CODE if model.trust_remote_code else ()))


@dataclass(frozen=True, slots=True)
class OnHub:
    """What the hub says of a model or dataset: its bytes, and how it can be had, for people."""

    bytes: int | None
    access: str


def model_on_hub(model: ModelEntry) -> OnHub:
    """Ask the hub what `download` would bring; where it does not answer, a sentence says why."""
    source, gguf_file = model.source

    def loaded(names: Sequence[str]) -> list[str]:
        if gguf_file is not None:
            return [gguf_file]
        own = [name for name in names if not _matches(name, DUPLICATES)]
        pickled = model.allow_pickle and not any(_matches(name, [SAFE]) for name in own)
        patterns = (*file_patterns(model), *(PICKLED if pickled else ()))
        return [name for name in own if _matches(name, patterns)]

    return _ask(source, model.revision, "model", loaded)


def dataset_on_hub(path: str, revision: str | None) -> OnHub:
    """Ask the hub for a dataset; its bytes are those of all its files, whatever is read of them."""
    return _ask(path, revision, "dataset", list)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _ask(
    path: str, revision: str | None, kind: str, chosen: Callable[[Sequence[str]], list[str]]
) -> OnHub:
    wanted = {"revision": revision, "files_metadata": True, "timeout": 10}
    try:
        found = ask_hub(lambda hub: hub.repo_info(path, repo_type=kind, **wanted), kind, path)
    except HubRefusesError as error:
        return OnHub(None, str(error))
    except OSError as error:
        return OnHub(None, f"not known, as the hub cannot be asked ({error})")
    files = {file.rfilename: file.size or 0 for file in found.siblings or ()}
    access = "gated, and open to your token" if found.gated else "open to all"
    refusal = hub_refusal(kind, path) if found.gated else None
    return OnHub(sum(files.get(name, 0) for name in chosen([*files])), refusal or access)


def download(model: ModelEntry) -> Path:
    """Bring a hub model into the cache of this machine, as far as it is not there.

    Its code comes along only if it is trusted, pickled weights only if they are allowed and there
    are no others, and no weights of a model on a server. The folder of its files is returned, which
    has the name of the commit.
    """
    source, gguf_file = model.source
    if gguf_file is not None:
        folder = _snapshot(source, model.revision, (gguf_file,))
        check_gguf(model.path, folder.name)
        return folder
    folder = _snapshot(source, model.revision, file_patterns(model))
    check_adapter(model.path, folder)
    if model.server is None and not safe_files(folder):
        named = f"model {model.path!r} (commit {folder.name})"
        if not model.allow_pickle:
            raise UserError(f"{named} {REFUSED}, or name a revision that has safetensors")
        folder = _snapshot(model.path, folder.name, PICKLED)
        if not pickled_files(folder):
            raise UserError(f"{named} has no weights that can be loaded; name another revision")
    if model.trust_remote_code:
        for path in code_elsewhere(folder) - {model.path}:
            _snapshot(path, None, CODE)
    return folder


def code_elsewhere(folder: Path) -> set[str]:
    """Return the hub ids of other models whose code a model's files name as theirs."""
    sources: set[str] = set()
    for file in (folder / "config.json", folder / "tokenizer_config.json"):
        try:
            settings = parse_json(file.read_text(encoding="utf-8")) if file.is_file() else {}
            classes = json.dumps(settings.get("auto_map"))
        except (ValueError, AttributeError):
            raise UserError(f"{str(file)!r} is not a JSON object; download it again") from None
        # A class is named file.Class, or org/name--file.Class.
        sources.update(re.findall(r'"([^"]+)--', classes))
    return sources


def _snapshot(path: str, revision: str | None, patterns: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        folder = snapshot_download(
            path, revision=revision, allow_patterns=list(patterns), ignore_patterns=list(DUPLICATES)
        )
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        reason = reason if hub_answers() else why_unreached()
        raise UserError(
            f"model {path!r} (revision {revision}) cannot be downloaded ({reason}); check its name"
            " and the network, and HF_TOKEN for a gated one"
        ) from None
    return Path(folder)


def hub_answers() -> bool:
    """Ask once whether the hub can be reached; if not, each request would wait for its timeout."""
    from huggingface_hub import constants

    return not constants.HF_HUB_OFFLINE and _answers(constants.ENDPOINT)


@cache
def _answers(endpoint: str) -> bool:
    try:
        urlopen(endpoint, timeout=5).close()
    except OSError as error:
        return isinstance(error, HTTPError)
    return True


def why_unreached() -> str:
    """Return why the hub cannot be asked, where `hub_answers` says so."""
    from huggingface_hub import constants

    offline = constants.HF_HUB_OFFLINE
    return "HF_HUB_OFFLINE is set" if offline else f"{constants.ENDPOINT} does not answer"


class HubRefusesError(Exception):
    """The hub does not give something to this machine's token; the text says so, for people."""


def ask_hub(question: Callable[[Any], Any], kind: str = "", name: str = "") -> Any:
    """Ask the hub's API, an `HfApi`, with this machine's token if it has one.

    Args:
        question: what to call on it.
        kind, name: what it is about: "model" or "dataset", and its id.

    Raises:
        HubRefusesError: the hub knows no such thing, or not for this token.
        OSError: it was not reached, or must not be (HF_HUB_OFFLINE).
    """
    from huggingface_hub import HfApi, constants, get_token
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    if not hub_answers():
        raise OSError(why_unreached())
    unreached: tuple[type[Exception], ...] = (*HfHubHTTPError.__bases__, ValueError)
    try:
        return question(HfApi())
    except GatedRepoError:
        page = f"{constants.ENDPOINT}/{'datasets/' if kind == 'dataset' else ''}{name}"
        token = "with the account of HF_TOKEN" if get_token() else "and set HF_TOKEN"
        raise HubRefusesError(
            f"{kind} {name!r} is gated; accept its terms at {page} {token}"
        ) from None
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403, 404):
            raise HubRefusesError(
                f"{kind} {name!r} is not on the hub, or is private; check its name and HF_TOKEN"
            ) from None
        raise OSError(f"HTTP {error.response.status_code}; try again later") from None
    except unreached as error:
        raise OSError(" ".join(str(error).split()) or type(error).__name__) from None


def hub_commit(kind: str, name: str) -> tuple[str, str]:
    """Return the commit of the default branch of a hub model or dataset, and where that was read.

    The hub is asked; if it cannot be reached, this machine's cache.
    """
    try:
        found = ask_hub(lambda hub: hub.repo_info(name, repo_type=kind, timeout=10), kind, name)
        return str(found.sha), "the hub"
    except HubRefusesError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        from huggingface_hub.constants import HF_HUB_CACHE

        cached = Path(HF_HUB_CACHE, "--".join([f"{kind}s", *name.split("/")]), "refs", "main")
        if cached.is_file():
            return cached.read_text(encoding="utf-8").strip(), "this machine's cache"
        raise UserError(
            f"the hub cannot be asked for {kind} {name!r} ({error}), and it is not in the cache"
        ) from None


def hub_refusal(kind: str, name: str) -> str | None:
    """Return why the hub does not give a model or dataset to this machine's token.

    None: it does, or it was not reached.
    """
    try:
        ask_hub(lambda hub: hub.auth_check(name, repo_type=kind), kind, name)
    except HubRefusesError as error:
        return str(error)
    except OSError:
        return None
    return None
