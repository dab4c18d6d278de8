"""Servers of models that the workflow starts: for the jobs that need them, and no longer.

Snakemake's job that starts a server ends when that is ready. It leaves a process, the keeper, which
ends the server when the file with its URL is gone (Snakemake deletes it after the last job that
needs it), and when the workflow ends, in whatever way.
"""

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from adafuse.config.config import Config
from adafuse.errors import UserError
from adafuse.storage.files import write_text
from adafuse.storage.journal import only_writer
from adafuse.workflow import host
from adafuse.workflow.jobs import DecodeJob
from adafuse.workflow.layout import ResultsLayout

logger = logging.getLogger(__name__)

RESTARTS = 3
"""How often a server that ended by itself is started again."""
EXECUTOR = "ADAFUSE_EXECUTOR"
"""The variable that says which executor Snakemake uses."""
SLURM_CONF = "SLURM_CONF"
_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class Started:
    """What the file of a server says: its `url` while it runs, or why it `ended`.

    It says neither while the server is started again.
    """

    url: str | None = None
    ended: str | None = None

    @classmethod
    def read(cls, file: Path) -> "Started":
        """Read the file of a server; without one, there is none."""
        try:
            return cls(**json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls(ended="does not run")

    def write(self, file: Path) -> None:
        write_text(file, json.dumps(asdict(self)) + "\n")


@dataclass(frozen=True, slots=True)
class Launch:
    """A server's command and environment; it listens at `address`, after `prefix` on a node."""

    command: Sequence[str]
    environment: Mapping[str, str]
    address: str = host.LOCAL
    prefix: Sequence[str] = ()

    def start(self) -> "subprocess.Popen[str]":
        words = [*self.prefix, sys.executable, "-I", host.__file__, self.address, *self.command]
        pipe, environment = subprocess.PIPE, dict(self.environment)
        return subprocess.Popen(
            words, stdin=pipe, stdout=pipe, env=environment, text=True, start_new_session=True
        )


def executor() -> str:
    """Return where Snakemake runs its jobs: `local` or `slurm`.

    Raises:
        UserError: it runs them in another way.
    """
    name = os.environ.get(EXECUTOR, "local")
    if name not in ("local", "slurm"):
        raise UserError(
            f"the workflow cannot start servers with the executor {name!r} of Snakemake; start them"
            " yourself, and name their URLs as `server` (docs/served.md)"
        )
    return name


def launch(config: Config, model: str, file: Path, srun: Sequence[str] | None) -> Launch:
    """Return how the server of a model is started: here, or on a node by `srun` and its options.

    The environment is that of the workflow without its PYTHONPATH: vLLM has packages of its own,
    and finds only the logits processor there.
    """
    from adafuse.servers.vllm import PROCESSOR

    entry = config.models[model]
    assert entry.serve is not None
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file.with_name(PROCESSOR.name), PROCESSOR.read_text(encoding="utf-8"))
    environment = os.environ | {"PYTHONPATH": str(file.parent.resolve())}
    if srun is not None:
        # Within a job, srun would take the resources of that.
        inside = [name for name in environment if name.startswith("SLURM_") and name != SLURM_CONF]
        environment = {key: value for key, value in environment.items() if key not in inside}
    elif entry.serve.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(_cards(config, model))
    address = host.LOCAL if srun is None else host.EVERYWHERE
    words = entry.serve.words(entry, address, host.PORT)
    return Launch(words, environment, address, srun or ())


def _cards(config: Config, model: str) -> list[str]:
    """Return the GPUs of this machine for the server of a model: those after other servers'."""
    first, names = 0, os.environ.get("CUDA_VISIBLE_DEVICES")
    for name, entry in config.models.items():
        gpus = entry.serve.gpus if entry.serve else 0
        if name == model:
            break
        first += gpus
    known = names.split(",") if names else [*map(str, range(first + gpus))]
    if len(known) < first + gpus:
        raise UserError(
            f"the servers up to that of {model!r} need {first + gpus} GPUs, but"
            f" CUDA_VISIBLE_DEVICES is {names!r}; lower `serve.gpus`"
        )
    return known[first : first + gpus]


def start(launch: Launch, file: Path, alive: Callable[[], bool]) -> None:
    """Start a server, and return when `file` holds its URL; its keeper stays.

    The server ends when the file is gone, or the workflow is not `alive`.

    Raises:
        UserError: the server does not become ready.
    """
    file.unlink(missing_ok=True)
    keeper = os.fork()
    if not keeper:
        status = 1
        try:
            _detach()
            status = _keep(launch, file, alive)
        except Exception:  # the border of a process
            logger.exception("the server is not kept any more")
        finally:
            os._exit(status)
    while os.waitpid(keeper, os.WNOHANG)[0] == 0:
        if file.exists() and Started.read(file).url is not None:
            return
        time.sleep(_PAUSE)
    raise UserError(f"{Started.read(file).ended}; what it said is above")


def _detach() -> None:
    """Leave the terminal, whose Ctrl-C is for Snakemake; what is printed goes to the log."""
    os.setsid()
    os.dup2(2, 1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)


def _keep(launch: Launch, file: Path, alive: Callable[[], bool]) -> int:
    """Run a server until it is not needed, again if it ends by itself; return 0 if it is ended."""
    with only_writer(file, "server"):
        for attempt in range(1 + RESTARTS):
            reason = _run(launch, file, alive)
            if reason is None:
                file.unlink(missing_ok=True)
                return 0
            again = file.exists() and attempt < RESTARTS
            logger.error("%s%s", reason, "; it is started again" if again else "")
            Started(ended=None if again else reason).write(file)
            if not again:
                break
    return 1


def _run(launch: Launch, file: Path, alive: Callable[[], bool]) -> str | None:
    """Run a server until it is not needed; return why it ended if that was before."""
    process, said = launch.start(), list[str]()
    listener = threading.Thread(target=_listen, args=(process, said), daemon=True)
    listener.start()
    begun, ready = file.exists(), False
    while process.poll() is None:
        if not alive() or (begun and not file.exists()):
            _end(process)
            return None
        if not ready and said and said[0].startswith("http"):
            Started(url=said[0]).write(file)
            logger.info("the server is ready at %s", said[0])
            begun = ready = True
        time.sleep(_PAUSE)
    listener.join(host.GRACE)
    reasons = [line for line in said if not line.startswith("http")]
    program = (*launch.prefix, "the server")[0]
    return reasons[0] if reasons else f"{program} ended with exit status {process.returncode}"


def _listen(process: "subprocess.Popen[str]", said: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        said.append(line.strip())


def _end(process: "subprocess.Popen[str]") -> None:
    """Have a server ended where it runs; if nothing answers there, end what started it."""
    assert process.stdin is not None
    process.stdin.close()
    for end in (process.terminate, process.kill):
        with suppress(subprocess.TimeoutExpired):
            process.wait(2 * host.GRACE)
            return
        end()


@dataclass(frozen=True, slots=True)
class Needed:
    """A server that a job needs: whose it is, its file, and its log."""

    model: str
    file: Path
    log: Path

    def url(self) -> str:
        """Return its URL, once it is there.

        Raises:
            UserError: it has ended, or was not started.
        """
        until = time.monotonic() + host.LONGEST_START
        while (now := Started.read(self.file)).ended is None and time.monotonic() < until:
            if now.url is not None:
                return now.url
            time.sleep(_PAUSE)
        raise self._gone(now.ended or "is not ready")

    def has_left(self, url: str) -> bool:
        """Whether there is no server at a URL any more."""
        return Started.read(self.file).url != url

    def check(self, url: str) -> None:
        """Refuse to go on without the server at a URL.

        Raises:
            UserError: it has ended.
        """
        now = Started.read(self.file)
        if now.url != url:
            raise self._gone(now.ended or "ended and was started again")

    def _gone(self, reason: str) -> UserError:
        reason = reason.removeprefix("the server ")
        return UserError(
            f"the server of model {self.model!r} {reason} (its log: {str(self.log)!r}); run again:"
            " finished rows are kept"
        )


@contextmanager
def on_servers(config: Config, job: DecodeJob) -> Iterator[DecodeJob]:
    """Give a job with its models on the servers that the workflow has started.

    Raises:
        UserError: a server is not there, or has ended when the job fails.
    """
    from adafuse.servers.http import ENDED

    layout = ResultsLayout(config.results)
    names = enumerate(zip(config.runs[job.run].models, job.serve, strict=True))
    needed = {
        place: Needed(name, layout.server(name), layout.log("server", name))
        for place, (name, serve) in names
        if serve is not None and job.served
    }
    urls = {place: each.url() for place, each in needed.items()}
    models = [
        model.model_copy(update={"server": urls.get(place, model.server)})
        for place, model in enumerate(job.models)
    ]
    ENDED.update({url: partial(needed[place].has_left, url) for place, url in urls.items()})
    try:
        yield replace(job, models=tuple(models))
    except UserError:
        for place, each in needed.items():
            each.check(urls[place])
        raise
