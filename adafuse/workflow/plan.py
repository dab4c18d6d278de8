"""What the rules of the workflow ask: rows, digests, dependencies and resources of every job."""

import atexit
import hashlib
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Any

from adafuse.benchmarks.prompts import unbroken, unfilled
from adafuse.benchmarks.rows import copied, joined
from adafuse.config.config import Config
from adafuse.config.experiments import WHOLE_PAPER
from adafuse.config.reading import parse_config, read_config, to_json
from adafuse.decoding.gate import DEVELOPMENT
from adafuse.development.gate_file import check_unseen
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.methods.selections import SELECTIONS, Certified
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.translation import AbsentModelError, require_model
from adafuse.models.files import DIGESTS, content_digest
from adafuse.models.spec import ModelSpec
from adafuse.storage.files import write_text
from adafuse.storage.journal import digest_of, journal_path, only_writer, too_many
from adafuse.storage.parquet import read_metadata
from adafuse.version import CODE_VERSION
from adafuse.workflow.benchmarks import UnavailableSourceError, benchmark_rows
from adafuse.workflow.digest import BERTSCORE, SPBLEU, Digests
from adafuse.workflow.jobs import Resources, estimate, fit_job, gate_rows, memory_mb, model_bytes
from adafuse.workflow.layout import ResultsLayout, config_variable
from adafuse.workflow.prefetch import checkpoints, needs_of, with_commits
from adafuse.workflow.stamps import is_fresh, renew
from adafuse.workflow.steps import STEPS, Job, table_jobs

SERVER_MINUTES = 24 * 60
TRIED = 8  # times that a row is decoded to fit a gate; MOST_CHOICES is the most
RULES = {*STEPS, *WHOLE_PAPER, "all", "prefetch"}
"""The rules of the workflow, whose names no experiment can have: it is a rule itself."""
PLANNED_BY = "ADAFUSE_PLANNED_BY"
_SHOWN = ("tables", "experiments", "report")
Cell = tuple[str, str]
"""A benchmark and a run."""


class Plan(Digests):
    """Answers the rules' questions; everything is computed at most once.

    Benchmarks are read while the workflow is planned, so that a job's digest changes with the rows
    of its own shard and with nothing else. What is not here, a hub dataset or the model of spBLEU
    or BERTScore, is planned as if it were new; `missing` says why, and nothing may run.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.layout = ResultsLayout(config.results)
        DIGESTS.load(self.layout.model_files)
        content_digest.cache_clear()
        self.warnings: list[str] = []
        self._fresh: dict[Path, str] = {}
        self._started = False
        self._held = ExitStack()
        self.key = cache(self._make_key)
        self._estimate = cache(
            lambda *cell, shard: estimate(
                self.decode_job(*cell), len(self.shard(cell[0], shard)), config
            )
        )

    @classmethod
    def of(cls, values: Mapping[str, Any], *, fetches: bool = True) -> "Plan":
        """Check a configuration and all benchmark files that it names.

        Unless it `fetches`, what is not here is missing.
        """
        plan = cls(with_commits(parse_config(values)))
        if taken := RULES & plan.config.experiments.keys():
            raise UserError(
                f"config: experiments: {min(taken)!r} is another rule of the workflow; rename it"
            )
        plan._check_places()
        for need in () if fetches else needs_of(plan.config):
            if isinstance(need.subject, str) and not need.here:
                plan.missing[need.subject] = (
                    f"{need.name} is missing; run `snakemake prefetch` alone"
                )
        for name, task in plan.config.benchmarks.items():
            template = "source.fields.question", task.source.fields.question
            texts = [("prompt", task.prompt), template]
            for stop in task.stop:
                parts = [stop] if isinstance(stop, str) else [stop.string, stop.after]
                texts += [("stop", part) for part in parts]
            odd = [unbroken(f"benchmarks.{name}.{key}", text) for key, text in texts]
            odd.insert(1, unfilled(f"benchmarks.{name}.prompt", task.prompt))
            plan.warnings += filter(None, odd)
        for benchmark in [name for name in plan.config.benchmarks if name not in plan.missing]:
            try:
                rows = {row.id: row.answers for row in plan.prepared(benchmark).rows}
                scorer = SCORERS[plan.config.benchmarks[benchmark].scorer]
                at = f"benchmarks.{benchmark}"
                plan.warnings += filter(None, [scorer.hopeless(rows, at), joined(rows, at)])
            except UnavailableSourceError as error:
                plan.missing[benchmark] = str(error)
        needs_spm = any(SCORERS[task.scorer].needs_spm for task in plan.config.benchmarks.values())
        if needs_spm and SPBLEU not in plan.missing:
            try:
                require_model(plan.config.spm_sha256)
            except AbsentModelError as error:
                plan.missing[SPBLEU] = str(error)
        languages = [task.bertscore for task in plan.config.benchmarks.values()]
        try:
            for language in dict.fromkeys(filter(None, languages)):
                plan.bert_model(language)
        except AbsentModelError as error:
            plan.missing[BERTSCORE] = str(error)
        for name in plan.config.main_benchmarks:
            asked = [(row.prompt, row.answers) for row in plan.prepared(name).rows]
            plan.warnings += filter(None, [copied(asked, f"benchmarks.{name}")])
        plan._check_gates()
        return plan

    def _check_places(self) -> None:
        """Refuse files where folders belong, and folders where files do: Snakemake breaks there.

        Results within a folder that is read would change it whenever a step writes one.
        """
        results, models = Path(self.config.results), self.config.models.values()
        own = [each for run in self.config.runs.values() for each in checkpoints(run).values()]
        read = [path for model in (*models, *own) for path in (model.path, model.adapter)]
        read += [task.source.dataset for task in self.config.benchmarks.values()]
        for folder in filter(os.path.isdir, filter(None, read)):
            if results.resolve().is_relative_to(Path(folder).resolve()):
                raise UserError(
                    f"results folder {self.config.results!r} lies within {folder!r}, which is read"
                    " as a model or data set; name another one as `results`"
                )
        files = {*self.made(), self.layout.log("all"), self.layout.config}
        inside = {folder for file in files for folder in file.parents if results in folder.parents}
        for path in sorted({_nearest(results), *filter(os.path.lexists, inside)}):
            if path.is_file() or not path.exists():
                raise UserError(
                    f"{str(path)!r} is not a folder, but results folder {self.config.results!r}"
                    " needs one there; move it away, or name another one as `results`"
                )
        for path in sorted(files):
            if path.is_dir():
                raise UserError(
                    f"{str(path)!r} is a folder, but the workflow writes a file there; move it away"
                )

    def _check_gates(self) -> None:
        """Refuse a gate that cannot be used, and rows that are tested on and were used before."""
        for chosen in self.config.runs.values():
            if chosen.method in METHODS:
                paths = [self.config.models[name].path for name in chosen.models]
                resolve(chosen.method, chosen.options).check_files(paths)
        for run, benchmark in self.config.tested_cells():
            chosen = self.config.runs[run]
            gate = resolve(chosen.method, chosen.options).files.get("gate")
            if gate not in (None, DEVELOPMENT):
                rows = self.prepared(benchmark).rows
                asked = benchmark_rows(self.config, benchmark) if rows else ()
                pairs = zip(rows, asked, strict=True)
                forms = [(row.prompt, row.question, plain.question) for row, plain in pairs]
                check_unseen(gate, benchmark, forms, f"runs.{run}", "test")
        for benchmark, run in product(self.config.benchmarks, self.config.runs):
            if (other := gate_rows(self.config, benchmark, run)) is not None:
                self._check_apart(run, benchmark, other, "its gate is fitted", "fit")
            method = SELECTIONS.get(self.config.runs[run].method)
            task = self.config.benchmarks[benchmark]
            other = task.certified_on if method is Certified else task.development
            if method is not None and method.development and other is not None:
                self._check_apart(run, benchmark, other, "it is chosen", "choose")

    def _check_apart(self, run: str, benchmark: str, other: str, used: str, use: str) -> None:
        """Compare questions, not prompts, which the two benchmarks may write in other words."""
        known, tested = self.questions(other), self.questions(benchmark)
        if (key := next(filter(known.__contains__, tested), None)) is not None:
            raise UserError(
                f"runs.{run}: row {known[key]!r} of {other!r}, on which {used}, is row"
                f" {tested[key]!r} of {benchmark!r}; {use} on other rows"
            )
        if copies := len(rows := self.prepared(other).rows) - len(known):
            warning = (
                f"benchmarks.{other}: {copies} of {len(rows)} rows have the question of an earlier"
                " one, but a choice, a certificate and a fitted gate take rows for independent;"
                " remove them"
            )
            self.warnings += [warning] * (warning not in self.warnings)

    def all_jobs(self) -> list[Job]:
        """Return the jobs of all steps of the configuration, whatever the targets."""
        return [
            Job.of(name, *cell) for name, step in STEPS.items() for cell in step.cells(self.config)
        ]

    def made(self) -> set[Path]:
        """Return all files that the configuration's steps write, whatever the targets."""
        jobs = [each for each in self.all_jobs() if each.step != "examples"]  # of a folder
        decoded = self.files(each for each in jobs if each.step in ("decode", "fit"))
        return {*self.files(jobs), *map(journal_path, decoded), self.layout.card}

    def orphans(self) -> list[Path]:
        """Return what lies among the results that no step of this configuration writes."""
        made = self.made()
        folders = ("tables", "experiments", "scores", "traces", "benchmarks", "gates")
        found = [path for name in folders for path in Path(self.config.results, name).rglob("*")]
        hidden = [path for path in found if any(part.startswith(".") for part in path.parts[-2:])]
        hidden += [path for path in found if path.suffix == ".lock"]
        return sorted(path for path in {*found} - {*hidden} - made if path.is_file())

    def start(self, wanted: Collection[Path] = (), *, prefetches: bool = False) -> None:
        """Keep the results folder to this process until it ends, and store the configuration.

        Tables, figures and pages that it does not ask for are moved to `orphans/`, but for those
        that are `wanted`; a reader would take them for those of this configuration. Traces and
        scores of other runs stay. If only what is missing is fetched, all stay.

        Raises:
            UserError: another Snakemake is at work there, or nothing can be written.
        """
        if self._started:
            return
        if self.missing and not prefetches:
            raise UserError(next(iter(self.missing.values())))
        check_writable(self.config)
        try:
            atexit.register(self._held.close)
            self.layout.config.parent.mkdir(parents=True, exist_ok=True)
            self._held.enter_context(only_writer(self.layout.config, "Snakemake"))
        except OSError as error:
            raise UserError(
                f"results folder {self.config.results!r} cannot be written ({error.strerror}); name"
                " another one as `results`"
            ) from None
        for path, key in self._fresh.items():
            if not is_fresh(path, key):
                raise UserError(f"{str(path)!r} changed while this was planned; run again")
            with suppress(OSError):
                if path.stat().st_mtime > time.time():  # which Snakemake takes for a wrong clock
                    os.utime(path)
            renew(path)
        for path in () if prefetches else (*self.orphans(), *self._unasked(wanted)):
            if path.relative_to(self.config.results).parts[0] in _SHOWN:
                self.layout.put_aside(path)
        DIGESTS.save(self.layout.model_files)
        self.store_config()
        self._started = True

    def _unasked(self, wanted: Collection[Path]) -> list[Path]:
        """Return what is made on demand and that targets do not name, and earlier ones did.

        Others stay while they are what would be made: a user may have asked for one by its name.
        """
        earlier: tuple[str, ...] = ()
        with suppress(UserError):
            earlier = read_config(self.layout.config).targets
        names = {} if "experiments" in self.config.targets else self.config.experiments
        figures = [Job.of("experiment", name) for name in names]
        asked = "experiments" in earlier
        files = self.files(each for each in figures if asked or not self.is_fresh(each))
        if not self.is_fresh(study := Job.of("case_study")):
            files += self.outputs(study)
        pages = any(path.is_relative_to(self.layout.report) for path in wanted)
        shown = "report" in self.config.targets or pages
        if not shown and ("report" in earlier or not self.is_fresh(Job.of("report"))):
            files.append(self.layout.report)
        return [file for file in files if file.exists() and file not in wanted]

    def store_config(self) -> None:
        write_text(self.layout.config, self._config_text())

    def _config_text(self) -> str:
        return to_json(self.config) + "\n"

    @property
    def exported(self) -> dict[str, str]:
        """Variables by which a step knows that it runs what was planned."""
        config = hashlib.sha256(self._config_text().encode()).hexdigest()
        code = {_code_variable(user): digest for user, digest in self.code.items()}
        return {PLANNED_BY: CODE_VERSION, config_variable(self.layout.config): config, **code}

    def check_code(self, job: Job) -> None:
        """Refuse code of plug-ins that was changed since Snakemake planned with it, if it says so.

        A decode job uses that of its run; other steps that of the scorers.
        """
        run = f"run {job.values[1]!r}" if job.step in ("decode", "fit") else ""
        for user, digest in self.code.items():
            used = user == run or (job.step != "decode" and user.startswith("scorer"))
            if used and os.environ.get(_code_variable(user), digest) != digest:
                raise UserError(
                    f"the plug-in of {user} was changed after Snakemake planned; run again"
                )

    def job(self, step: str, cell: Mapping[str, str]) -> Job:
        """Return the job of a step by the values of its wildcards."""
        return Job.of(step, *(cell[name] for name in STEPS[step].wildcards))

    def wildcards(self, step: str) -> dict[str, str]:
        """Return a pattern for exactly the values of each wildcard of a step, which may be none."""
        cells = [*STEPS[step].cells(self.config)]
        names = enumerate(STEPS[step].wildcards)
        values = {name: sorted({cell[place] for cell in cells}) for place, name in names}
        return {name: "|".join(map(re.escape, each)) or "(?!)" for name, each in values.items()}

    def named_outputs(self, job: Job) -> dict[str, Path]:
        return STEPS[job.step].outputs(self.layout, *job.values)

    def outputs(self, job: Job) -> list[Path]:
        return [*self.named_outputs(job).values()]

    def reads(self, job: Job) -> list[Job]:
        return STEPS[job.step].reads(self.config, *job.values)

    def files(self, jobs: Iterable[Job]) -> list[Path]:
        return [path for each in jobs for path in self.outputs(each)]

    def inputs(self, job: Job) -> list[Path]:
        """Return the files that a job reads of what other jobs write."""
        return self.files(self.reads(job))

    def command(self, job: Job) -> list[str]:
        """Return the command of a job."""
        wildcards = zip(STEPS[job.step].wildcards, job.values, strict=True)
        options = {"config": self.layout.config, **dict(wildcards), "digest": self.key(job)}
        words = [f"--{name}={value}" for name, value in options.items()]
        return ["adafuse", "step", job.step.replace("_", "-"), *words]

    def _make_key(self, job: Job) -> str:
        """Return the digest of everything that a job's outputs are made from."""
        if job.step == "decode":  # whose digest also stands in the trace
            benchmark, run, shard = job.values
            return self.digest(benchmark, run, int(shard))
        step = STEPS[job.step]
        inputs = [self.key(each) for each in self.reads(job)]
        return digest_of(job.step, *step.depends(self, *job.values), inputs)

    def is_fresh(self, job: Job) -> bool:
        """Whether those of a job's outputs that exist are what the plan makes."""
        return not self.stale(job)

    def outdated(self) -> list[Path]:
        """Return the tables and figures that stand there from an earlier start."""
        figures = [Job.of("experiment", name) for name in self.config.shown_experiments]
        jobs = [*table_jobs(self.config), *figures]
        return [path for job in jobs for path in self.stale(job)]

    def stale(self, job: Job) -> list[Path]:
        """Return those of a job's outputs that exist and are not what the plan makes.

        The main table is not without the configuration, which is stored when a job runs.
        """
        key = self.key(job)
        present = [path for path in self.outputs(job) if path.exists()]
        if job.step == "compare" and not self.layout.config.is_file():
            return present
        fresh = [path for path in present if is_fresh(path, key)]
        self._fresh |= dict.fromkeys(fresh, key)
        if job.step in ("decode", "merge"):
            fresh = [path for path in fresh if not self.failed_too_often(path)]
        return [path for path in present if path not in fresh]

    def is_done(self, job: Job) -> bool:
        """Whether all outputs of a job are there, and what the plan makes."""
        return all(path.exists() for path in self.outputs(job)) and self.is_fresh(job)

    def failed_too_often(self, trace: Path) -> bool:
        """Whether more rows of a shard failed than `decode.max_error_share` now allows."""
        share, metadata = self.config.decode.max_error_share, read_metadata(trace)
        shards = metadata.get("shards", [metadata])
        return any(too_many(s.get("failed", 0), s.get("rows", 0), share) for s in shards)

    @property
    def targets(self) -> list[Job]:
        """The jobs that plain `snakemake` is asked for."""
        figures = [Job.of("experiment", name) for name in self.config.shown_experiments]
        report = [Job.of("report")] * ("report" in self.config.targets)
        return [*table_jobs(self.config), *figures, *report]

    @property
    def paper(self) -> list[Job]:
        """The tables and all experiments, with the pages if these show the experiments."""
        shown = self.targets if self.config.shown_experiments else table_jobs(self.config)
        figures = [Job.of("experiment", name) for name in self.config.experiments]
        return [*dict.fromkeys([*shown, *figures])]

    def all_cells(self) -> list[Cell]:
        return list(product(self.config.benchmarks, self.config.decoded_runs))

    def requested_cells(self) -> list[Cell]:
        """Return what plain `snakemake` decodes: what its targets need."""
        waiting, needed = self.targets, set[Job]()
        while waiting:
            if (each := waiting.pop()) not in needed:
                needed.add(each)
                waiting += self.reads(each)
        return [cell for cell in self.all_cells() if Job.of("decode", *cell, 0) in needed]

    def resources(self, benchmark: str, run: str, shard: int, attempt: int = 1) -> Resources:
        """Return what an attempt of a decode job asks a cluster for, counted from 1."""
        uniform = self.config.cluster.uniform
        first = self._largest if uniform else self._estimate(benchmark, run, shard=shard)
        return first.for_attempt(attempt, self.config.cluster)

    def fit_resources(self, benchmark: str, run: str, attempt: int) -> Resources:
        """Return what fitting a gate asks for: it decodes a row once for each choice."""
        rows = TRIED * len(self.prepared(benchmark).rows)
        first = estimate(fit_job(self.config, benchmark, run), rows, self.config)
        return first.for_attempt(attempt, self.config.cluster)

    def server_resources(self, model: str) -> Resources:
        """Return what the server of a model asks for: as much time as there may be."""
        entry = self.config.models[model]
        gpus = entry.serve.gpus if entry.serve else 0
        dtype = self.config.decode.dtype
        weights = model_bytes(ModelSpec(path=entry.path, revision=entry.revision, dtype=dtype))
        minutes = self.config.cluster.max_runtime or SERVER_MINUTES
        return Resources(gpus, memory_mb([weights], gpus), minutes)

    @cached_property
    def _largest(self) -> Resources:
        jobs = (
            self._estimate(*cell, shard=shard)
            for cell in self.all_cells()
            for shard in self.shards(cell[0])
        )
        return Resources(*map(max, zip(*jobs, strict=True)))


def _code_variable(user: str) -> str:
    """Return the variable that holds the digest of the plug-ins that a run or scorer uses."""
    return f"ADAFUSE_CODE_{hashlib.sha256(user.encode()).hexdigest()[:8]}"


def check_writable(config: Config) -> None:
    """Refuse a results folder that cannot be written."""
    folder = Path(config.results)
    existing = _nearest(folder)
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(
            f"results folder {str(folder)!r} cannot be written because of {str(existing)!r};"
            " name another one as `results`"
        )


def _nearest(folder: Path) -> Path:
    """Return the nearest path that exists: the folder, or one that it is to be made in."""
    whole = folder.absolute()
    return next(filter(os.path.lexists, (whole, *whole.parents)))
