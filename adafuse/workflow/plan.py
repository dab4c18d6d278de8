"""What the rules of the workflow ask: rows, digests, dependencies and resources of every job."""

import atexit
import hashlib
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

from adafuse.benchmarks.shards import Prepared
from adafuse.config.config import Config
from adafuse.config.reading import parse_config, read_config, to_json
from adafuse.errors import UserError
from adafuse.methods import METHODS, resolve
from adafuse.methods.selections import SELECTIONS
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import PUBLISHED, STRICT
from adafuse.metrics.translation import AbsentModelError, require_model
from adafuse.models.files import DIGESTS, content_digest
from adafuse.storage.files import write_text
from adafuse.storage.journal import journal_path, only_writer, too_many
from adafuse.storage.parquet import read_metadata
from adafuse.version import CODE_VERSION, REPORT_VERSION, SCORING_VERSION
from adafuse.workflow import digest
from adafuse.workflow.benchmarks import UnavailableSourceError, prepare_benchmark
from adafuse.workflow.choose import ballot
from adafuse.workflow.jobs import (
    Resources,
    estimate,
    fit_job,
    gate_rows,
)
from adafuse.workflow.layout import ResultsLayout, config_variable
from adafuse.workflow.prefetch import with_commits
from adafuse.workflow.stamps import is_fresh, renew

TRACE_KINDS = ("runtime", "words_per_round", "frontier")  # experiments that read traces
SCORE_KINDS = ("scores", "sweep", "paired", "frontier")  # and those that read scores
TRIED = 8  # times that a row is decoded to fit a gate; MOST_CHOICES is the most
PLANNED_BY = "ADAFUSE_PLANNED_BY"
Cell = tuple[str, str]
"""A benchmark and a run."""


def one_of(names: Iterable[str]) -> str:
    """Return a pattern for exactly these names, which may be none."""
    return "|".join(map(re.escape, names)) or "(?!)"


class Plan:
    """Answers the rules' questions; everything is computed at most once.

    Benchmarks are read while the workflow is planned, so that a job's digest changes with the rows
    of its own shard and with nothing else. What is not here, a hub dataset or the SentencePiece
    model of spBLEU, is planned as if it were new; `missing` says why, and nothing may run.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.layout = ResultsLayout(config.results)
        DIGESTS.load(self.layout.model_files)
        content_digest.cache_clear()
        self.missing: dict[str, str] = {}
        self.warnings: list[str] = []
        self._fresh: dict[Path, str] = {}
        self._started = False
        self._held = ExitStack()
        self._prepared = cache(partial(prepare_benchmark, config))
        self._job = cache(partial(digest.planned_job, config, rows_of=self.prepared))
        self.shard = cache(lambda benchmark, shard: self.prepared(benchmark).shard(shard))
        self.shard_digest = cache(lambda *shard: digest.shard_digest(self.shard(*shard)))
        self._key = cache(self._make_key)
        self._estimate = cache(
            lambda *cell, shard: estimate(self._job(*cell), len(self.shard(cell[0], shard)), config)
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Plan":
        """Check a configuration and all benchmark files that it names."""
        plan = cls(with_commits(parse_config(values)))
        plan._check_places()
        for benchmark in plan.config.benchmarks:
            try:
                rows = {row.id: row.answers for row in plan.prepared(benchmark).rows}
                scorer = SCORERS[plan.config.benchmarks[benchmark].scorer]
                plan.warnings += filter(None, [scorer.hopeless(rows, f"benchmarks.{benchmark}")])
            except UnavailableSourceError as error:
                plan.missing[benchmark] = str(error)
        if any(SCORERS[task.scorer].needs_spm for task in plan.config.benchmarks.values()):
            try:
                require_model(plan.config.spm_sha256)
            except AbsentModelError as error:
                plan.missing["spBLEU"] = str(error)
        plan._check_gates()
        return plan

    def _check_places(self) -> None:
        """Refuse files where folders belong, and folders where files do: Snakemake breaks there."""
        results = Path(self.config.results)
        files = {*self.made(), self.layout.report / "index.html", self.layout.log("all")}
        files.add(self.layout.config)
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
        """Refuse a gate that cannot be used, or that would be tested on what it is fitted on."""
        for chosen in self.config.runs.values():
            if chosen.method in METHODS:
                paths = [self.config.models[name].path for name in chosen.models]
                resolve(chosen.method, chosen.options).check_files(paths)
        for benchmark, run in product(self.config.benchmarks, self.config.runs):
            if (other := gate_rows(self.config, benchmark, run)) is None:
                continue
            known = {row.question: row.id for row in self.prepared(other).rows}
            if shared := [row for row in self.prepared(benchmark).rows if row.question in known]:
                raise UserError(
                    f"runs.{run}: row {known[shared[0].question]!r} of {other!r}, on which its gate"
                    f" is fitted, is row {shared[0].id!r} of {benchmark!r}; fit on other rows"
                )

    def made(self) -> set[Path]:
        """Return all files that the configuration's steps write, whatever the targets."""
        config, layout = self.config, self.layout
        files = {layout.card}
        for name in config.benchmarks:
            files.add(layout.rows(name))
            files |= {layout.shard_rows(name, shard) for shard in self.shards(name)}
            for run in config.runs:
                files.add(layout.trace(name, run))
                files |= {layout.gate(on, run) for on in [gate_rows(config, name, run)] if on}
                shards = [layout.shard_trace(name, run, shard) for shard in self.shards(name)]
                files |= {*shards, *map(journal_path, shards)}
                for path in (layout.score, layout.outcomes):
                    files |= {path(protocol, name, run) for protocol in config.protocols}
        both = ["main", "comparison", "datasets"] + ["audit"] * (PUBLISHED in config.protocols)
        published = ["main_published.csv"] * (PUBLISHED in config.protocols)
        files |= {layout.table(f"{name}.{end}") for name in both for end in ("csv", "md")}
        files |= {layout.table(name) for name in ("words_per_round.csv", *published)}
        ends = ("csv", "svg", "png")
        return files | {layout.experiment(n, end) for n in config.experiments for end in ends}

    def orphans(self) -> list[Path]:
        """Return what lies among the results that no step of this configuration writes."""
        made = self.made()
        folders = ("tables", "experiments", "scores", "traces", "benchmarks", "gates")
        found = [path for name in folders for path in Path(self.config.results, name).rglob("*")]
        hidden = [path for path in found if any(part.startswith(".") for part in path.parts[-2:])]
        return sorted(path for path in {*found} - {*hidden} - made if path.is_file())

    @property
    def decoded_runs(self) -> list[str]:
        return [name for name, run in self.config.runs.items() if run.method in METHODS]

    @property
    def chosen_runs(self) -> list[str]:
        return [name for name, run in self.config.runs.items() if run.method in SELECTIONS]

    @property
    def fused_runs(self) -> list[str]:
        """Runs of the main table that decode with several models."""
        names = self.config.main_runs
        return [r for r in names if r in self.decoded_runs and len(self.config.runs[r].models) > 1]

    def start(self, wanted: Collection[Path] = ()) -> None:
        """Keep the results folder to this process until it ends, and store the configuration.

        Tables, figures and pages that it does not ask for are moved to `orphans/`, but for those
        that are `wanted`; a reader would take them for those of this configuration. Traces and
        scores of other runs stay.

        Raises:
            UserError: another Snakemake is at work there, or nothing can be written.
        """
        if self._started:
            return
        if self.missing:
            raise UserError(next(iter(self.missing.values())))
        _check_writable(Path(self.config.results))
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
        for path in (*self.orphans(), *self._unasked(wanted)):
            if path.relative_to(self.config.results).parts[0] in (
                "tables",
                "experiments",
                "report",
            ):
                self.layout.put_aside(path)
        DIGESTS.save(self.layout.model_files)
        self.store_config()
        self._started = True

    def _unasked(self, wanted: Collection[Path]) -> list[Path]:
        """Return figures and the folder of pages that targets do not name, and earlier ones did.

        Others stay while they are what would be made: a user may have asked for one by its name.
        """
        earlier: tuple[str, ...] = ()
        with suppress(UserError):
            earlier = read_config(self.layout.config).targets
        names = {} if "experiments" in self.config.targets else self.config.experiments
        ends, pages = ("csv", "svg", "png"), [self.layout.report / "index.html"]
        figures = {n: [self.layout.experiment(n, end) for end in ends] for n in names}
        files = [
            file
            for name, files in figures.items()
            if "experiments" in earlier or not self.is_fresh("experiment", files, experiment=name)
            for file in files
        ]
        shown = "report" in self.config.targets or any(map(self._is_page, wanted))
        if not shown and ("report" in earlier or not self.is_fresh("report", pages)):
            files.append(self.layout.report)
        return [file for file in files if file.exists() and file not in wanted]

    def _is_page(self, path: Path) -> bool:
        return path.is_relative_to(self.layout.report)

    def store_config(self) -> None:
        write_text(self.layout.config, self._config_text())

    def _config_text(self) -> str:
        return to_json(self.config) + "\n"

    @property
    def exported(self) -> dict[str, str]:
        """Variables by which a step knows that it runs what was planned."""
        digest_of = hashlib.sha256(self._config_text().encode()).hexdigest()
        return {PLANNED_BY: CODE_VERSION, config_variable(self.layout.config): digest_of}

    def key(self, step: str, **cell: str) -> str:
        """Return the digest of everything that a step's outputs are made from.

        `cell` has the wildcards of the step's rule. What a step makes of results of others is told
        by the keys of these.
        """
        return self._key(step, tuple(sorted(cell.items())))

    def is_fresh(self, step: str, outputs: Iterable[Path], **cell: str) -> bool:
        """Whether those of a step's outputs that exist are what the plan makes.

        The main table is not without the configuration, which is stored when a job runs.
        """
        if step == "compare" and not self.layout.config.is_file():
            return False
        key = self.key(step, **cell)
        present = [path for path in outputs if path.exists()]
        fresh = [path for path in present if is_fresh(path, key)]
        self._fresh |= dict.fromkeys(fresh, key)
        decoded = step in ("decode", "merge")
        return fresh == present and not (decoded and any(map(self.failed_too_often, present)))

    def failed_too_often(self, trace: Path) -> bool:
        """Whether more rows of a shard failed than `decode.max_error_share` now allows."""
        share, metadata = self.config.decode.max_error_share, read_metadata(trace)
        shards = metadata.get("shards", [metadata])
        return any(too_many(s.get("failed", 0), s.get("rows", 0), share) for s in shards)

    def _make_key(self, step: str, cell: tuple[tuple[str, str], ...]) -> str:
        if step == "decode":  # whose digest also stands in the trace
            (_, benchmark), (_, run), (_, shard) = cell
            return self.digest(benchmark, run, int(shard))
        parts: list[Any] = getattr(self, f"_{step}")(**dict(cell))
        return digest.step_key(step, *parts)

    def _prepare(self, benchmark: str) -> list[Any]:
        return [digest.prepared_digest(self.prepared(benchmark))]

    def _shard(self, benchmark: str, shard: str) -> list[Any]:
        return [self.shard_digest(benchmark, int(shard))]

    def _fit(self, benchmark: str, run: str) -> list[Any]:
        return [digest.fit_digest(self.config, benchmark, run, self.prepared)]

    def _merge(self, benchmark: str, run: str) -> list[Any]:
        return self.digests(benchmark, run)

    def _choose(self, benchmark: str, run: str) -> list[Any]:
        choices = ballot(self.config, benchmark, run)
        traces = [self._trace_key(benchmark, name) for name in choices.candidates]
        evidence = [self._score_key(STRICT, *cell) for cell in choices.evidence]
        return [SCORING_VERSION, digest.choice_settings(self.config, run), traces, evidence]

    def _score(self, protocol: str, benchmark: str, run: str) -> list[Any]:
        task = self.config.benchmarks[benchmark]
        scorer = task.scorer
        needs_spm = SCORERS[scorer].needs_spm and "spBLEU" not in self.missing
        spm = require_model(self.config.spm_sha256) if needs_spm else None
        rows, trace = self.key("prepare", benchmark=benchmark), self._trace_key(benchmark, run)
        version = digest.scoring_version(scorer)
        return [rows, trace, scorer, task.within_budget, spm, protocol, benchmark, run, version]

    def _compare(self) -> list[Any]:
        names = [self.config.main_benchmarks, self.config.protocols]
        return [REPORT_VERSION, digest.table_settings(self.config), names, self._main_scores()]

    def _audit(self) -> list[Any]:
        return [REPORT_VERSION, self.config.main_benchmarks, self._main_scores()]

    def _compare_runs(self) -> list[Any]:
        return [REPORT_VERSION, digest.runs_settings(self.config), self._main_scores()]

    def _words_per_round(self) -> list[Any]:
        cells = product(self.config.main_benchmarks, self.fused_runs)
        return [REPORT_VERSION, [self._trace_key(*cell) for cell in cells]]

    def _datasets(self) -> list[Any]:
        tasks = [(name, self.config.benchmarks[name]) for name in self.config.main_benchmarks]
        papers = [[name, task.paper.model_dump()] for name, task in tasks]
        rows = [self.key("prepare", benchmark=name) for name, _ in tasks]
        duplicates = [self.prepared(name).duplicates for name, _ in tasks]
        return [REPORT_VERSION, papers, rows, duplicates]

    def _experiment(self, experiment: str) -> list[Any]:
        traces, scored = self._read_by(experiment)
        inputs = [self._trace_key(*cell) for cell in traces]
        inputs += [self._score_key(*cell) for cell in scored]
        inputs += [self.key("fit", benchmark=on, run=run) for on, run in self._gates_of(experiment)]
        return [REPORT_VERSION, digest.experiment_settings(self.config, experiment), inputs]

    def _examples(self, benchmark: str) -> list[Any]:
        rows = self.key("prepare", benchmark=benchmark)
        traces = [self._trace_key(benchmark, run) for run in self.config.main_runs]
        cells = product(self.config.protocols, [benchmark], self.config.main_runs)
        scores = [self._score_key(*cell) for cell in cells]
        return [REPORT_VERSION, rows, self.config.main_runs, traces, scores]

    def _report(self) -> list[Any]:
        config = self.config
        audit = ["audit"] if PUBLISHED in config.protocols else []
        steps = ["compare", "compare_runs", "words_per_round", "datasets", *audit]
        tables = [self.key(step) for step in steps]
        pages = [self.key("examples", benchmark=name) for name in config.main_benchmarks]
        figures = [self.key("experiment", experiment=name) for name in config.shown_experiments]
        return [REPORT_VERSION, digest.reported_config(config), tables, pages, figures]

    def _trace_key(self, benchmark: str, run: str) -> str:
        step = "choose" if run in self.chosen_runs else "merge"
        return self.key(step, benchmark=benchmark, run=run)

    def _score_key(self, protocol: str, benchmark: str, run: str) -> str:
        return self.key("score", protocol=protocol, benchmark=benchmark, run=run)

    def _main_scores(self) -> list[str]:
        config = self.config
        cells = product(config.protocols, config.main_benchmarks, config.main_runs)
        return [self._score_key(*cell) for cell in cells]

    def experiment_inputs(self, name: str) -> list[Path]:
        traces, scored = self._read_by(name)
        paths = [self.layout.trace(*cell) for cell in traces]
        for path in (self.layout.score, self.layout.outcomes):
            paths += [path(*score) for score in scored]
        return paths + [self.layout.gate(*cell) for cell in self._gates_of(name)]

    def _read_by(self, experiment: str) -> tuple[list[Cell], list[tuple[str, str, str]]]:
        """Return the cells whose traces an experiment reads, and whose scores, with protocols."""
        section, runs = self.config.experiments[experiment], self.config.runs
        cells = list(product(section.benchmarks, section.runs))
        traces = [cell for cell in cells if runs[cell[1]].method in METHODS]
        protocols: tuple[str, ...] = self.config.protocols
        scored = [(protocol, *cell) for protocol in protocols for cell in cells]
        kind = section.kind
        return traces * (kind in TRACE_KINDS), scored * (kind in SCORE_KINDS)

    def _gates_of(self, experiment: str) -> list[Cell]:
        """Return the gates that an experiment reads: the rows of each, and its run."""
        section = self.config.experiments[experiment]
        cells = product(section.benchmarks, section.runs) if section.kind == "gates" else ()
        found = [(gate_rows(self.config, *cell), cell[1]) for cell in cells]
        return [(rows, run) for rows, run in found if rows is not None]

    def answer_runs(self, run: str) -> list[str]:
        """Return the runs whose texts a run starts from, one per model; mostly none."""
        spec = self.config.runs[run]
        if spec.method not in METHODS or not METHODS[spec.method].reads_answers:
            return []
        return self.config.single_model_runs(spec)

    def gates(self, benchmark: str, run: str) -> list[Path]:
        """Return the gate that a run on a benchmark needs, if it needs one of the workflow."""
        on = gate_rows(self.config, benchmark, run)
        return [] if on is None else [self.layout.gate(on, run)]

    def all_cells(self) -> list[Cell]:
        return list(product(self.config.benchmarks, self.decoded_runs))

    def requested_cells(self) -> list[Cell]:
        """Return what plain `snakemake` decodes: its targets, and what they start from."""
        waiting = list(product(self.config.main_benchmarks, self.config.main_runs))
        for experiment in self.config.shown_experiments.values():
            waiting += product(experiment.benchmarks, experiment.runs)
        found: set[Cell] = set()
        while waiting:
            cell = waiting.pop()
            if cell not in found:
                found.add(cell)
                waiting += self._dependencies(*cell)
        return [cell for cell in self.all_cells() if cell in found]

    def _dependencies(self, benchmark: str, run: str) -> list[Cell]:
        if run in self.chosen_runs:
            choices = ballot(self.config, benchmark, run)
            return [*product([benchmark], choices.candidates), *choices.evidence]
        return [(benchmark, name) for name in self.answer_runs(run)]

    def shards(self, benchmark: str) -> list[int]:
        return list(range(self.config.benchmarks[benchmark].shards))

    def prepared(self, benchmark: str) -> Prepared:
        """Return a benchmark's rows; none while it is missing."""
        return Prepared(()) if benchmark in self.missing else self._prepared(benchmark)

    def digest(self, benchmark: str, run: str, shard: int) -> str:
        answers = [self.digest(benchmark, name, shard) for name in self.answer_runs(run)]
        rows = self.shard_digest(benchmark, shard)
        return digest.decode_digest(self._job(benchmark, run), rows, answers)

    def row_digests(self, benchmark: str, run: str, shard: int) -> dict[str, str]:
        answers = [self.row_digests(benchmark, name, shard) for name in self.answer_runs(run)]
        return digest.row_digests(self._job(benchmark, run), self.shard(benchmark, shard), answers)

    def digests(self, benchmark: str, run: str) -> list[str]:
        return [self.digest(benchmark, run, shard) for shard in self.shards(benchmark)]

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

    @cached_property
    def _largest(self) -> Resources:
        jobs = (
            self._estimate(*cell, shard=shard)
            for cell in self.all_cells()
            for shard in self.shards(cell[0])
        )
        return Resources(*map(max, zip(*jobs, strict=True)))


def _check_writable(folder: Path) -> None:
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
