"""A throwaway Slurm cluster on this machine: two nodes with one fake GPU each.

It needs root and Debian's packages `slurm-wlm` and `munge`. The configuration has to lie in
/etc/slurm, because Snakemake's jobs do not hand on a variable that points elsewhere; all else is
in a folder of its own. Nothing stays behind, and where there is a configuration of somebody
else's, nothing starts.
"""

import os
import secrets
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

ETC = Path("/etc/slurm")
NODES = ("node1", "node2")
OURS = "# Throwaway cluster of process "
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "setpriv")
PATIENCE = 90

# MinJobAge: finished jobs must stay visible for squeue, which tells Snakemake how they ended.
SLURM_CONF = """\
ClusterName=throwaway
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=1
MinJobAge=300
KillWait=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} {hardware}
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} {hardware}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=other Nodes=ALL MaxTime=INFINITE State=UP
"""
HARDWARE = "CPUs=2 RealMemory=64000 Gres=gpu:1"
GRES_CONF = "".join(f"NodeName={node} Name=gpu File=/dev/null\n" for node in NODES)


class CannotStartError(Exception):
    """There can be no cluster on this machine; the message says why."""


@dataclass
class Cluster:
    """A running cluster; `folder` holds its logs until it ends."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def jobs(self, state: str) -> dict[int, str]:
        """Return the nodes of the jobs in a state, by job id; "" for those without one."""
        listed = command("squeue", "--noheader", f"--states={state}", "-o", "%A|%N")
        pairs = (line.split("|") for line in listed.splitlines())
        return {int(job): node for job, node in pairs}

    def job(self, number: int) -> dict[str, str]:
        """Return what Slurm knows of a job."""
        # One task of an array has the number of the array, which shows all of them.
        lines = command("scontrol", "--oneliner", "show", "job", str(number)).splitlines()
        (line,) = (line for line in lines if line.startswith(f"JobId={number} "))
        return dict(word.split("=", 1) for word in line.split() if "=" in word)

    def cancel(self, job: int) -> None:
        """Cancel a job as a user does."""
        command("scancel", str(job))

    def end_time_limit(self, job: int) -> None:
        """Let the time limit of a job run out; Slurm looks at the limits every half minute.

        Not `now`: the controller refuses a time that has passed when it reads the request.
        """
        command("scontrol", "update", f"JobId={job}", "EndTime=now+10")

    def lose_node(self, name: str) -> None:
        """Let a node die with everything on it, as in a power failure, and have Slurm notice."""
        lost = self.jobs("RUNNING")
        self.daemons.pop(name).kill()
        for daemon in step_daemons():
            if any(f"[{job}." in " ".join(daemon.cmdline()) for job in lost if lost[job] == name):
                kill_tree(daemon)
        command("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=test")

    def return_node(self, name: str) -> None:
        """Let a lost node come back."""
        self.start_node(name)
        command("scontrol", "update", f"NodeName={name}", "State=RESUME")
        wait_for(lambda: self.states()[name] in ("idle", "mixed"), f"{name} is back")

    @contextmanager
    def without_controller(self) -> Iterator[None]:
        """Let nobody answer for a while; jobs go on, and end, on their nodes."""
        controller = self.daemons.pop("slurmctld")
        controller.kill()
        controller.wait()
        yield
        self.daemons["slurmctld"] = start("slurmctld", "-D")
        wait_for(self.answers, "slurmctld answers")

    def clear(self) -> None:
        """Cancel all jobs, and have both nodes again."""
        for job in (*self.jobs("PENDING"), *self.jobs("RUNNING")):
            self.cancel(job)
        for name in NODES:
            if name not in self.daemons:
                self.return_node(name)
        wait_for(lambda: set(self.states().values()) == {"idle"}, "both nodes are idle")

    def start_soon(self, job: int) -> None:
        """Spare a job that was put back into the queue the two minutes that Slurm lets it wait."""
        command("scontrol", "update", f"JobId={job}", "StartTime=now")

    def start_node(self, name: str) -> None:
        """Start the daemon of a node."""
        (self.folder / name).mkdir(exist_ok=True)
        self.daemons[name] = start("slurmd", "-D", "-N", name)

    def states(self) -> dict[str, str]:
        """Return the state of each node."""
        lines = command("sinfo", "--noheader", "--Node", "-o", "%N %T").splitlines()
        return dict(line.split() for line in lines)

    def answers(self) -> bool:
        """Say whether the controller runs."""
        return subprocess.run(["scontrol", "ping"], capture_output=True).returncode == 0


@contextmanager
def slurm_cluster() -> Iterator[Cluster]:
    """Start a cluster and stop it at the end, with all its jobs.

    Raises:
        CannotStartError: not root, programs are missing, or this machine has a cluster already.
    """
    check_startable()
    before = {daemon.pid for daemon in step_daemons()}
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="slurm-"))
        stack.callback(shutil.rmtree, folder)
        stack.callback(remove_configuration)
        cluster = Cluster(folder)
        stack.callback(stop, cluster, before)
        write_configuration(folder)
        start_daemons(cluster)
        yield cluster


@contextmanager
def needed_cluster() -> Iterator[Cluster]:
    """Start a cluster; where none can be, the test is skipped, but in CI it fails."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(slurm_cluster())
        except CannotStartError as reason:
            if os.environ.get("CI"):
                pytest.fail(f"CI needs a Slurm cluster, but {reason}")
            pytest.skip(f"no Slurm cluster here: {reason}")
        yield cluster


def check_startable() -> None:
    """Say why no cluster can be started, if so."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise CannotStartError(f"{missing[0]} is missing: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        raise CannotStartError("only root can start a Slurm cluster")
    for path in (ETC / "slurm.conf", ETC / "gres.conf"):
        if path.exists() and not abandoned(path):
            raise CannotStartError(f"{path} is there already: this machine has a Slurm cluster")


def abandoned(path: Path) -> bool:
    """Say whether a configuration is that of a throwaway cluster whose process has ended."""
    first = path.read_text().split("\n", 1)[0]
    return first.startswith(OURS) and not psutil.pid_exists(int(first.removeprefix(OURS)))


def write_configuration(folder: Path) -> None:
    """Write what all of Slurm reads, and the key by which its parts trust each other."""
    (folder / "state").mkdir()
    (folder / "munge.key").touch(mode=0o600)
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))
    values = {"folder": folder, "host": socket.gethostname(), "hardware": HARDWARE}
    text = SLURM_CONF.format(ports=free_ports(3), **values)
    ETC.mkdir(exist_ok=True)
    for name, content in (("slurm.conf", text), ("gres.conf", GRES_CONF)):
        (ETC / name).write_text(f"{OURS}{os.getpid()}\n{content}")


def remove_configuration() -> None:
    """Remove what `write_configuration` has put into /etc."""
    for name in ("slurm.conf", "gres.conf"):
        (ETC / name).unlink(missing_ok=True)


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def start_daemons(cluster: Cluster) -> None:
    """Start everything, and wait until jobs can run."""
    folder = cluster.folder
    names = ("key-file", "socket", "pid-file", "log-file", "seed-file")
    files = [f"--{name}={folder}/munge.{name.removesuffix('-file')}" for name in names]
    cluster.daemons["munged"] = start("munged", "--foreground", "--force", *files)
    wait_for((folder / "munge.socket").exists, "munged answers")
    cluster.daemons["slurmctld"] = start("slurmctld", "-D")
    wait_for(cluster.answers, "slurmctld answers")
    for node in NODES:
        cluster.start_node(node)
    cluster.clear()


def start(*words: str) -> subprocess.Popen[bytes]:
    """Start a daemon that ends with this process, however that ends."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    return subprocess.Popen(
        ["setpriv", "--pdeathsig=KILL", "--", *words], stderr=subprocess.DEVNULL, **quiet
    )


def stop(cluster: Cluster, before: set[int]) -> None:
    """End all jobs of a cluster, then its daemons."""
    for daemon in reversed(cluster.daemons.values()):
        daemon.terminate()
    for daemon in cluster.daemons.values():
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
    for left in step_daemons():
        if left.pid not in before:
            kill_tree(left)


def step_daemons() -> list[psutil.Process]:
    """Return the processes that hold the jobs; they outlive the daemon of their node."""
    return [each for each in psutil.process_iter(["name"]) if each.info["name"] == "slurmstepd"]


def kill_tree(process: psutil.Process) -> None:
    """Kill a process and all that it has started."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for each in family:
        try:
            each.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=10)


def wait_for(holds: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait until something holds.

    Raises:
        AssertionError: it does not in time.
    """
    until = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < until, f"after {patience} seconds it is still not so that {what}"
        time.sleep(0.2)


def command(*words: str) -> str:
    """Run a command of Slurm and return what it prints."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{shlex.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout
