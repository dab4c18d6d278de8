"""All that the workflow knows of Snakemake beyond its documented interface.

That interface may change with any version, so this is the only file that touches it.
"""

import itertools
import logging
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from adafuse.config.experiments import WHOLE_PAPER
from adafuse.config.reading import no_file, read_config_values
from adafuse.errors import UserError, nearest
from adafuse.storage.journal import text_digest
from adafuse.storage.yaml_files import TwiceError, parse_yaml
from adafuse.workflow.plan import Plan, check_writable
from adafuse.workflow.reasons import reason_to_repeat
from adafuse.workflow.serving import EXECUTOR
from adafuse.workflow.stamps import is_ready
from adafuse.workflow.steps import STEPS, Job
from adafuse.workflow.together import shared_models, tell

PLANS: list[Plan] = []
"""The plans of this process, of which there are several where modules use the workflow."""

TESTED = ("9.27", "10")
"""The versions of Snakemake that were tested: from the first, up to but without the second."""

# A message may have further lines of any kind; those that are not indented are shown.
_FAILED_JOB = re.compile(
    r"^Error in rule (?P<rule>\w+):\n    message: (?P<message>.*(?:\n(?! ).*)*)\n(?:.*\n)*?"
    r"    jobid: .*\n(?:    input: .*\n)?    output: (?P<outputs>.*)\n"
    r"(?:    log: (?P<log>.*?)(?: \(check log file.*)?\n)?",
    re.MULTILINE,
)
_CANCELLED = "Terminating processes on user request"


def as_written(config: Mapping[str, Any], workflow: Any) -> Mapping[str, Any]:
    """Return the configuration of a Snakemake workflow as its files and `--config` say it.

    Snakemake reads YAML 1.1, where `on` is true, 012 is 10 and 1e-1 is a text, and forgets a key
    that is written twice. A module's configuration may be a section of the files; one of other
    origin stays as it is, and so do templates, which Snakemake has filled in.
    """
    from snakemake.common.configfile import load_configfile
    from snakemake.utils import update_config

    settings = workflow.config_settings
    files = [Path(os.path.relpath(f)) for f in (*workflow.configfiles, *settings.configfiles)]
    found: dict[str, Any] = {}
    read = {file: load_configfile(file) for file in files}
    for values in (*read.values(), settings.config):
        update_config(found, values)
    section = next((key for key, value in found.items() if value == config), None)
    if found != config and section is None:
        return config
    written: dict[str, Any] = {}
    for file in files:
        values = read_config_values(file)
        template = values.pop("__use_yte__", False)
        update_config(written, read[file] if template else values)
    update_config(written, _arguments(settings.config_args))
    return written if section is None else written.get(str(section), config)


PREFETCH = "prefetch"
"""The rule that fetches what is missing, so that planning for it alone need not."""


def check_configfiles() -> None:
    """End Snakemake with a sentence if its configuration does not exist, or cannot be read.

    The default profile calls this; Snakemake itself would show a traceback.
    """
    words, named = sys.argv[1:], list[str]()
    for place, word in enumerate(words):
        if re.fullmatch(r"--configfiles?(=.*)?", word):
            after = itertools.takewhile(lambda each: each[:1] != "-", words[place + 1 :])
            named = [word.partition("=")[2]] if "=" in word else [*after]  # the last one counts
    if wrong := no_file("configuration", named):
        sys.exit(
            f"error: {wrong}; --configfile takes all names that follow it, so targets go before it:"
            " snakemake figure_6 --configfile my.yaml"
        )
    try:
        check_readable(named or filter(os.path.isfile, ["config/config.yaml"]))
    except UserError as error:
        sys.exit(f"error: {error}")


def check_readable(names: Iterable[str]) -> None:
    """Refuse what is not YAML, with its place, and what only YAML 1.2 takes, as Snakemake does."""
    from snakemake.common.configfile import load_configfile
    from snakemake.exceptions import WorkflowError

    for name in names:
        try:
            if "__use_yte__" not in read_config_values(Path(name)):
                load_configfile(name)
        except (ValueError, WorkflowError) as error:
            said = " ".join(str(error).split())
            raise UserError(
                f"configuration {name!r} cannot be read by Snakemake ({said}); put dates and signs"
                " such as = in quotes, and save it as UTF-8, not gzipped"
            ) from None


def _arguments(given: Sequence[str]) -> dict[str, Any]:
    """Read `--config NAME=VALUE ...`; a value that is not valid YAML is a text."""
    values: dict[str, Any] = {}
    for name, _, text in (each.partition("=") for each in given):
        if name in values:
            raise UserError(f"--config {name!r} is given twice; give it once")
        try:
            values[name] = parse_yaml(text, f"--config {name}={text}")
        except TwiceError as error:
            raise UserError(f"--config {name}={text} cannot be read: {error}") from None
        except yaml.YAMLError:
            values[name] = text
    return values


def shell_prefix(workflow: Any, plan: Plan) -> str:
    """Return what comes before the command of every job.

    It takes the place of Snakemake's own, which makes a step fail where any of its commands does.
    Jobs use the `adafuse` of the environment that runs Snakemake, activated or not, unless they
    have one of their own.
    """
    from snakemake.settings.types import DeploymentMethod

    deployed = workflow.deployment_settings.deployment_method
    if DeploymentMethod.APPTAINER in deployed and plan.config.container is None:
        raise UserError("--sdm apptainer needs an image; name it as `container` (docs/hpc.md)")
    exports = getattr(workflow, "adafuse_exports", {}) | plan.exported
    workflow.adafuse_exports = exports  # of all modules that use this workflow
    words = [f"export {name}={value}; " for name, value in exports.items()]
    if not deployed & {DeploymentMethod.CONDA, DeploymentMethod.APPTAINER}:
        folder = shlex.quote(str(Path(sys.executable).parent))
        words.append(f'export PATH={folder}:"$PATH"; ')
    return "set -euo pipefail; " + "".join(words)


_told_later: ContextVar[bool] = ContextVar("_told_later", default=False)
"""Whether `planned_jobs` runs, whose caller says what is missing."""


def print_warnings(workflow: Any, plan: Plan) -> None:
    """Print what a plan lacks, a line for each reason, and what is odd about its benchmarks."""
    missing = [f"planned without what is missing: {reason}" for reason in plan.missing.values()]
    said = [*plan.warnings] if workflow.is_main_process else []
    if PREFETCH not in sys.argv and not _told_later.get():
        said = [*dict.fromkeys(missing), *said]
    for warning in said:
        sys.stderr.write(f"warning: {warning}\n")


def print_summary(workflow: Any) -> None:
    """Print the summary that Snakemake promises for -n --quiet; 9.27 hides that, too."""
    from snakemake.settings.enums import Quietness

    if workflow.output_settings.dryrun and workflow.output_settings.quiet:
        workflow.output_settings.quiet.discard(Quietness.PROGRESS)


FORCED = "Forced execution"
"""What Snakemake says of a job that `inputs_of` has run again."""


_NO_RULE = re.compile(r"No rule to produce (.*) \(if you use input functions .*\)\.")


def _known_targets(named: re.Match[str]) -> str:
    tables = [name for name, step in STEPS.items() if not step.wildcards]
    names = ["all", *tables, *(name for plan in PLANS for name in plan.config.experiments)]
    names += [*(WHOLE_PAPER if len(names) > 1 + len(tables) else ()), PREFETCH]
    near = nearest(named[1], [*names, *(str(path) for plan in PLANS for path in plan.made())])
    known = f"known are: {', '.join(names)}, and the files that they make"
    return f"unknown target {named[1]!r}; {known}{near}"


def in_words(record: logging.LogRecord) -> bool:
    """Say in Snakemake's messages why a job runs again, and what to correct: a filter."""
    if getattr(record, "exception", None) == "ProtectedOutputException":
        for plan in PLANS:
            try:
                check_writable(plan.config)
            except UserError as error:
                record.msg = f"error: {error}"
    if getattr(record, "exception", None) == "MissingRuleException":
        record.msg = _NO_RULE.sub(_known_targets, record.msg)
    if FORCED in (reason := getattr(record, "reason", None) or ""):
        files: Sequence[str] = getattr(record, "output", ())
        made = ((plan, _jobs_by_output(plan).get(file)) for plan in PLANS for file in files)
        with suppress(UserError, OSError, ValueError):  # a message ends no workflow
            for plan, job in made:
                if job is not None and not plan.is_fresh(job):
                    record.reason = reason.replace(FORCED, reason_to_repeat(plan, job))
                    break
    return True


@cache
def _jobs_by_output(plan: Plan) -> dict[str, Job]:
    return {str(path): job for job in plan.all_jobs() for path in plan.outputs(job)}


class CountedSteps:
    """A filter of Snakemake's messages: in place of several lines per job, one counts the steps.

    Only a terminal is spared them: Snakemake's log has all, and so has the terminal with `-p` or
    `--verbose`.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._begun = False

    @classmethod
    def begin(cls, workflow: Any) -> None:
        """Have the messages of a workflow filtered from now on, if they go to a terminal."""
        from snakemake.logging import ColorizingTextHandler, logger

        settings = workflow.output_settings
        if settings.verbose or settings.printshellcmds or settings.quiet:
            return
        for handler in logger.handlers:
            if isinstance(handler, ColorizingTextHandler) and handler.stream.isatty():
                handler.addFilter(cls(handler.stream))

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message is shown as it is."""
        event = getattr(getattr(record, "event", None), "name", None)
        if event == "PROGRESS":
            done, total = (getattr(record, name) for name in ("done", "total"))
            self._stream.write(f"\r{done} of {total} steps ({done / total:.0%}) done")
            self._stream.flush()
            self._begun = True
        if event in _OF_EACH_JOB or record.msg == "Select jobs to execute...":
            return False
        if self._begun:
            self._stream.write("\n")
            self._begun = False
        return True


_OF_EACH_JOB = {"PROGRESS", "JOB_INFO", "JOB_STARTED", "JOB_FINISHED", "SHELLCMD", "GROUP_INFO"}


def inputs_of(workflow: Any, plan: Plan, step: str) -> Callable[[Mapping[str, str]], list[str]]:
    """Return the input function of a rule: the files that its jobs read.

    A job whose outputs were made from something else than is planned is run again; Snakemake's own
    records may be lost, or of other files.
    """

    def inputs(wildcards: Mapping[str, str]) -> list[str]:
        job = plan.job(step, wildcards)
        if workflow.is_main_process and not plan.is_fresh(job):
            workflow.dag.forcefiles.update(map(str, plan.outputs(job)))
        reads = plan.reads(job)
        started = any(each.step == "server" for each in reads)
        if started and workflow.is_main_process and plan.is_done(job):
            reads = _without_servers(workflow, reads)
        return [*map(str, plan.files(reads))]

    return inputs


def _without_servers(workflow: Any, reads: Sequence[Job]) -> list[Job]:
    """Return what a job that is done reads: no servers, unless a user asks for jobs to run again.

    Snakemake would run all jobs that read a temporary file once any of them does. That a job has
    other inputs than before is no reason to run it, as all that counts is in its key.
    """
    from snakemake.settings.enums import RerunTrigger

    settings = workflow.dag_settings
    if settings.forceall or settings.forcetargets or settings.forcerun:
        return [*reads]
    settings.rerun_triggers = frozenset(settings.rerun_triggers) - {RerunTrigger.INPUT}
    return [each for each in reads if each.step != "server"]


ONE_AT_A_TIME = "one_at_a_time"
"""A resource of decode jobs, of which there is one within a job of a cluster."""


def group_of(workflow: Any, plan: Plan) -> Callable[[Mapping[str, str]], str | None]:
    """Return the function that groups decode jobs which share models, as far as this is wanted."""

    def group(wildcards: Mapping[str, str]) -> str | None:
        models = shared_models(plan, wildcards["benchmark"], wildcards["run"])
        local, most = workflow.local_exec, plan.config.cluster.group
        if local or models is None or most == 1:
            return None
        job = plan.job("decode", wildcards)
        if workflow.is_main_process and is_ready(plan.outputs(job)[0], plan.key(job)):
            return None  # else one that fails would keep it from being done
        workflow.register_resource(ONE_AT_A_TIME, 1)  # for what a group asks for
        name = "_".join(plan.config.runs[wildcards["run"]].models)
        name += f"_{text_digest(f'{models} {plan.config.results}')[:6]}"
        groups = workflow.group_settings
        groups.group_components = {**groups.group_components, name: most}
        return name

    return group


def set_up_group(workflow: Any, plan: Plan) -> None:
    """Have the decode jobs of a group, within a job of a cluster, know of each other.

    They run one after the other: the group has the memory and the GPUs of one.
    """
    from snakemake.target_jobs import parse_target_jobs_cli_args

    if not workflow.is_main_process:
        workflow.register_resource(ONE_AT_A_TIME, 1)
    if workflow.remote_exec and "--target-jobs" in sys.argv:
        words = sys.argv[sys.argv.index("--target-jobs") + 1 :]
        jobs = parse_target_jobs_cli_args([*itertools.takewhile(lambda w: w[:1] != "-", words)])
        names = STEPS["decode"].wildcards
        cells = [job.wildcards_dict for job in jobs if {*job.wildcards_dict} == {*names}]
        tell(plan, [tuple(cell[name] for name in names) for cell in cells], limited=False)


def srun(model: str, resources: Any) -> str:
    """Return what starts a server on a node, with the resources of its job, as sbatch gets them."""
    card = f"{resources.get('gpu_model')}:" if resources.get("gpu_model") else ""
    options = {
        "job-name": f"server-{model}",
        "account": resources.get("slurm_account"),
        "partition": resources.get("slurm_partition"),
        "clusters": resources.get("clusters"),
        "constraint": resources.get("constraint"),
        "qos": resources.get("qos"),
        "cpus-per-task": resources.get("cpus_per_task"),
        "gpus": f"{card}{resources.get('gpu')}" if resources.get("gpu") else None,
        "mem": resources.get("mem_mb"),
        "time": resources.get("runtime"),
    }
    given = [f"--{name}={value}" for name, value in options.items() if value is not None]
    extra = shlex.split(resources.get("slurm_extra") or "")
    return shlex.join(["srun", "--nodes=1", "--ntasks=1", *given, *extra])


def start_with(workflow: Any, plan: Plan) -> None:
    """Have the plan started, which stores the configuration for the jobs, before the first job.

    The configuration is not the output of a rule: a job that depended on the file would be rerun
    when it changes, not when the digest of what the job reads from it does. `onstart:` would not
    do: Snakemake ignores it in a module, as which this workflow may be used, and a later one would
    replace it, so the plan is started before that.
    """
    from snakemake.logging import logger

    def start(log: str, others: Callable[[str], None] = workflow._onstart) -> None:
        others(log)
        os.environ[EXECUTOR] = workflow.executor_plugin.name
        jobs = [*workflow.dag.jobs]
        wanted = {Path(file) for job in jobs for file in job.output}
        try:
            plan.start(wanted, prefetches={job.rule.name for job in jobs} == {PREFETCH})
        except UserError as error:
            sys.exit(f"error: {error}")
        if workflow.local_exec:
            files = {Path(file) for job in workflow.dag.needrun_jobs() for file in job.output}
            shards = [each for each in plan.all_jobs() if each.step == "decode"]
            waiting = [each.values for each in shards if plan.outputs(each)[0] in files]
            tell(plan, waiting, limited=True)
        if workflow.scheduler is not None:
            start_one_timer(workflow.scheduler)
            take_signals_while_selecting(workflow.scheduler)
        CountedSteps.begin(workflow)

    def onstart(
        handler: Callable[[str], None],
        register: Callable[[Callable[[str], None]], None] = workflow.onstart,
    ) -> None:
        def both(log: str) -> None:
            start(log)
            handler(log)

        register(both)

    workflow._onstart, workflow.onstart = start, onstart
    PLANS.append(plan)
    if workflow.is_main_process:
        logger.addFilter(in_words)  # once, however often


class PlannedJob(NamedTuple):
    """A job that Snakemake would run; `resources` are what its first attempt requests."""

    plan: Plan
    job: Job
    resources: Mapping[str, Any]


def planned_jobs(options: Sequence[str], targets: Sequence[str]) -> list[PlannedJob]:
    """Return the jobs that Snakemake with these options would run now, by its own dry run.

    They are in the order of the steps and of the configuration. Rules of others, such as those of
    a module's user, are left out.

    Raises:
        UserError: the workflow refuses its configuration or its files.
        SystemExit: Snakemake has said why it has no plan.
    """
    from snakemake.cli import main
    from snakemake.logging import LogEvent, logger

    records: list[Any] = []

    def keep(record: logging.LogRecord) -> bool:
        if getattr(record, "event", None) == LogEvent.JOB_INFO:
            records.append(record)
        return record.levelno >= logging.WARNING

    PLANS.clear()
    logger.addFilter(keep)  # handlers are removed when Snakemake sets up its own
    logger.propagate = False
    later = _told_later.set(True)
    try:
        main([*options, "--dry-run", "--", *targets])
    except SystemExit as ended:
        if isinstance(ended.code, str):
            raise UserError(ended.code.removeprefix("error: ")) from None
        if ended.code:
            raise
    finally:
        _told_later.reset(later)
        logger.propagate = True
        logger.removeFilter(keep)
    wanted = {path: r.resources for r in records for path in map(str, r.output)}
    made = {(plan, job): p for plan in PLANS for p, job in _jobs_by_output(plan).items()}
    return [PlannedJob(*key, dict(wanted[p])) for key, p in made.items() if p in wanted]


def start_one_timer(scheduler: Any) -> None:
    """Have a scheduler look for jobs once more only where its rate limit kept some back.

    Snakemake 9.27 sets a timer each time it looks and looks when one ends, so every job that ends
    makes it look once more per second, at all that ready jobs read: hundreds of jobs keep a core of
    the login node busy (its pull request 3744).
    """
    pending = threading.Event()

    def look() -> None:
        pending.clear()
        scheduler._open_jobs.release()

    def look_later(delay: float) -> None:
        limited = scheduler.job_rate_limiter and not scheduler.job_rate_limiter.get_free_jobs()
        queued = scheduler.workflow.dag.has_unfinished_queue_input_jobs()
        if (limited or queued) and not pending.is_set():
            pending.set()
            threading.Timer(delay, look).start()

    scheduler._schedule_reevalutation = look_later


def take_signals_while_selecting(scheduler: Any) -> None:
    """Let a signal that comes while jobs are selected end Snakemake.

    The handler of Snakemake 9.27 takes a lock that the interrupted selection holds in the same
    thread, and waits for it for ever.
    """
    scheduler._lock = threading.RLock()


def failed_jobs(snakemake_logs: Path = Path(".snakemake/log")) -> dict[str, dict[str, str]]:
    """Return the jobs that failed in the last Snakemake, by output: `error`, `log` and `rule`.

    Some leave no error of their own, as a job that Slurm refuses. A job that was retried with
    success is among them, too, but its output exists. Those that Ctrl-C ended are not.
    """
    latest = max(snakemake_logs.glob("*.snakemake.log"), default=None)
    text = latest.read_text(encoding="utf-8", errors="replace") if latest else ""
    found: dict[str, dict[str, str]] = {}
    for job in _FAILED_JOB.finditer(text.partition(_CANCELLED)[0]):
        rule, message = job["rule"], " ".join(job["message"].split())
        error = f"rule {rule} failed" if message == "None" else message
        log = Path(job["log"] or ".")
        place = log if log.is_file() and log.stat().st_size else latest
        known = {"error": error, "log": str(place), "rule": rule}
        found |= dict.fromkeys(job["outputs"].split(", "), known)
    return found
