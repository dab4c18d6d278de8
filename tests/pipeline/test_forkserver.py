"""The fork server: a job in a forked child is as good as one in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adafuse.pipeline.forkclient import KILLED, VARIABLE
from adafuse.pipeline.forkserver import Request

SERVER = """
import os, sys, time
from pathlib import Path
from adafuse.pipeline.forkserver import listen, next_job, run_job

def command():
    what = sys.argv[1]
    if what == "tell":
        print(os.getcwd(), os.environ["ADAFUSE_TEST"], sys.argv[1:], sys.stdin.read())
        print("also here", file=sys.stderr)
        return 3
    if what == "raise":
        raise ZeroDivisionError
    if what == "crash":
        os.kill(os.getpid(), 9)
    Path("child.pid").write_text(str(os.getpid()))
    time.sleep(60)
    return 0

connection = next_job(listen(Path(sys.argv[1])), os.getppid())
if connection:
    run_job(connection, command)
"""
CLIENT = """
import sys
from adafuse.pipeline.forkclient import delegate
status = delegate(sys.argv[1:])
sys.exit(99 if status is None else status)
"""


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{process}/stat").read_text().split(")")[1].split()[0] == "Z"


def wait_until(condition) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[subprocess.Popen, Path]]:
    path = tmp_path / "socket"
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(path)])
    wait_until(path.exists)
    yield process, path
    process.kill()
    process.wait()


def client(path: Path, *arguments: str, folder: Path, **settings) -> subprocess.Popen:
    environment = {**os.environ, VARIABLE: str(path), "ADAFUSE_TEST": "caf\u00e9"}
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, *arguments],
        cwd=folder, env=environment, text=True, **settings,
    )  # fmt: skip


def test_the_child_has_the_job_s_arguments_folder_environment_and_streams(server, tmp_path) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    job = client(server[1], "tell", "a b", folder=tmp_path, **pipes)
    out, err = job.communicate("from stdin")
    assert out == f"{tmp_path} caf\u00e9 ['tell', 'a b'] from stdin\n"
    assert err == "also here\n"
    assert job.returncode == 3


@pytest.mark.parametrize("end", ["crash", "raise"])
def test_a_child_that_is_killed_or_raises_is_a_failed_job(server, tmp_path, end: str) -> None:
    job = client(server[1], end, folder=tmp_path, stderr=subprocess.PIPE)
    assert ("ZeroDivisionError" in job.communicate()[1]) is (end == "raise")
    assert job.returncode == (KILLED if end == "crash" else 1)


def test_the_child_ends_when_its_job_is_stopped(server, tmp_path) -> None:
    job = client(server[1], "sleep", folder=tmp_path)
    wait_until(lambda: (tmp_path / "child.pid").exists() and (tmp_path / "child.pid").read_text())
    child = int((tmp_path / "child.pid").read_text())
    job.send_signal(signal.SIGKILL)
    job.wait()
    wait_until(lambda: gone(child))


def test_several_jobs_run_side_by_side(server, tmp_path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    jobs = [client(server[1], "sleep", folder=folder) for folder in folders]
    wait_until(lambda: all((folder / "child.pid").exists() for folder in folders))
    for job in jobs:
        job.kill()
        job.wait()


def test_without_a_server_the_job_is_left_to_its_own_process(tmp_path) -> None:
    assert client(tmp_path / "none", "tell", folder=tmp_path).wait() == 99


def test_a_server_that_has_gone_leaves_jobs_to_their_own_processes(server, tmp_path) -> None:
    server[0].kill()
    server[0].wait()
    assert client(server[1], "tell", folder=tmp_path).wait() == 99


def test_the_server_ends_with_the_process_that_started_it(tmp_path) -> None:
    starter = (
        "import os, sys, time; from pathlib import Path;"
        "from adafuse.pipeline.forkclient import start;"
        f"start([], os.environ, Path({str(tmp_path / 'server.log')!r}));"
        f"print(os.environ[{VARIABLE!r}], flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", starter], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    path = Path(process.stdout.readline().strip())
    wait_until(path.exists)
    assert path.parent.stat().st_mode & 0o077 == 0
    process.kill()
    process.wait()
    wait_until(lambda: not path.parent.exists())


def test_requests_survive_the_socket_with_odd_bytes() -> None:
    request = Request(["a\udcff"], "/tmp/\udcfe", {"K": "v\n"})
    assert Request.decoded(request.encoded()) == request


@pytest.mark.soak
def test_the_command_line_runs_in_the_server_as_on_its_own(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    module = [sys.executable, "-m", "adafuse.pipeline.forkserver", str(path)]
    with subprocess.Popen(module) as server:
        wait_until(path.exists)
        command = "from adafuse.cli.main import main; main()"
        names = ("config", "benchmark", "run", "rows", "digest", "out")
        options = ["--shard", "0", *(word for name in names for word in (f"--{name}", name))]
        answers = [
            subprocess.run(
                [sys.executable, "-c", command, "step", "decode", *options],
                cwd=tmp_path, env={**os.environ, **extra}, capture_output=True, text=True,
            )
            for extra in ({VARIABLE: str(path)}, {})
        ]  # fmt: skip
        server.kill()
    assert answers[0].returncode == answers[1].returncode == 2
    assert answers[0].stderr == answers[1].stderr
    assert "configuration 'config' cannot be read" in answers[0].stderr
