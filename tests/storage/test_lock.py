"""One writer at a time, whatever becomes of the one before."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import filelock
import pytest

from adafuse.errors import UserError
from adafuse.storage import journal as lock
from adafuse.storage.journal import only_writer, writer

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from adafuse.storage.journal import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen]:
    """A process that writes x.journal."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "x.journal")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_writer_is_told_who_the_first_one_is(tmp_path: Path, holder) -> None:
    path = tmp_path / "x.journal"
    who = f"process {holder.pid} on {socket.gethostname()}"
    assert writer(path) == who
    with pytest.raises(UserError) as error, only_writer(path, patience=0.1):
        pass
    assert str(error.value) == (
        f"'{path}' is being written by {who}; wait for that job or stop it, then run again (if it"
        f" is gone, delete '{path}.lock')"
    )


def test_a_writer_that_is_about_to_go_is_waited_for(tmp_path: Path, holder) -> None:
    holder.stdin.close()
    with only_writer(tmp_path / "x.journal"):
        assert writer(tmp_path / "x.journal") == f"process {os.getpid()} on {socket.gethostname()}"


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path: Path, holder) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "x.journal.lock").exists()
    assert writer(tmp_path / "x.journal") is None
    with only_writer(tmp_path / "x.journal"):
        pass
    assert not list(tmp_path.iterdir())


def test_where_there_is_no_flock_a_marker_stands_for_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(lock, "FileLock", filelock.SoftFileLock)
    path = tmp_path / "x.journal"
    with only_writer(path):
        assert writer(path) == f"process {os.getpid()} on {socket.gethostname()}"
        with (
            pytest.raises(UserError, match="is being written by process"),
            only_writer(path, patience=0.1),
        ):
            pass
    assert writer(path) is None
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    (tmp_path / "x.journal.lock").write_text(f"{int(gone.stdout)}\n{socket.gethostname()}\n")
    with only_writer(path):
        pass
    (tmp_path / "x.journal.lock").write_text(f"{os.getpid()}\nanother-machine\n")
    with pytest.raises(UserError, match="on another-machine"), only_writer(path, patience=0.1):
        pass
