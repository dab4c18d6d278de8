"""What the workflow knows of Snakemake beyond its documented interface."""

import copy
import inspect
import logging
import re
import threading
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import snakemake
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from snakemake.cli import main, parse_config
from snakemake.exceptions import MissingRuleException
from snakemake.scheduling.job_scheduler import JobRateLimiter, JobScheduler
from snakemake.settings.types import ConfigSettings, MaxJobsPerTimespan

from adafuse.config.experiments import WHOLE_PAPER
from adafuse.config.reading import read_config, read_config_values
from adafuse.errors import UserError
from adafuse.workflow.plan import RULES, Plan
from adafuse.workflow.snakemake import (
    TESTED,
    CountedSteps,
    as_written,
    check_configfiles,
    failed_jobs,
    group_of,
    in_words,
    start_one_timer,
    take_signals_while_selecting,
)
from adafuse.workflow.steps import STEPS

from .conftest import ROOT


def configured(texts: dict[str, str], *arguments: str) -> tuple[dict[str, Any], Any]:
    """Write configurations; return what Snakemake makes of them and of `--config`, and itself."""
    for name, text in texts.items():
        Path(name).write_text(text)
    settings = ConfigSettings(parse_config(arguments), [*map(Path, texts)], arguments)
    workflow = SimpleNamespace(configfiles=settings.configfiles, config_settings=settings)
    return copy.deepcopy(settings.overwrite_config), workflow


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_names_and_numbers_of_files_are_those_that_are_written() -> None:
    first = "runs:\n  on: {tau: 1e-1, ids: [012, 1_000]}\n  012: {tau: 0.5}\nnote: 2024-01-01\n"
    second = "runs:\n  012: {tau: .7}\n  null: {}\n"
    config, workflow = configured({"a.yaml": first, "b.yaml": second})
    assert as_written(config, workflow) == {
        "runs": {"on": {"tau": 0.1, "ids": ["012", "1_000"]}, "012": {"tau": 0.7}, "null": {}},
        "note": "2024-01-01",
    }


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("decode={share: 0.5, gpu: 0, device: cpu}", {"share": 0.5, "gpu": 0, "device": "cpu"}),
        ("decode={a: {b: [1, 1e-1, true, null]}}", {"a": {"b": [1, 0.1, True, None]}}),
        ('decode={"a": "0.5"}', {"a": "0.5"}),
        *((f"decode={text}", text) for text in ("012", "on", "1_000", "True story", "@x", "{a")),
        *(("decode=1e-1", 0.1), ("decode=7", 7), ("decode=false", False), ("decode=", None)),
        ("decode=a=b", "a=b"),
    ],
)
def test_a_setting_of_the_command_line_is_what_it_is_in_a_file(argument: str, value: Any) -> None:
    config, workflow = configured({"a.yaml": "decode: {}\nnote: a\n"}, argument, "other=1")
    found = as_written(config, workflow)
    assert found == {"decode": value, "note": "a", "other": 1}
    assert isinstance(found["decode"], type(value))


@pytest.mark.parametrize(
    ("texts", "arguments", "told"),
    [
        (
            {"a.yaml": "runs:\n  a: {}\n  a: {}"},
            (),
            "'a.yaml' cannot be read: key 'a' is written tw",
        ),
        ({"a.yaml": "a: 1", "b.json": '{"a": 1,\n"a": 2}'}, (), "'b.json' cannot be read: key 'a'"),
        (
            {"a.yaml": "a: 1"},
            ("ab={c: 1, c: 2}",),
            "--config ab={c: 1, c: 2} cannot be read: key 'c",
        ),
        ({"a.yaml": "a: 1"}, ("ab=1", "ab=2"), "--config 'ab' is given twice; give it once"),
    ],
)
def test_what_is_written_twice_is_refused(
    texts: dict[str, str], arguments: Sequence[str], told: str
) -> None:
    with pytest.raises(UserError) as refused:
        as_written(*configured(texts, *arguments))
    assert told in str(refused.value)


def test_a_section_is_read_alike_and_what_is_of_other_origin_or_a_template_stays() -> None:
    _, workflow = configured({"a.yaml": "a: {b: 1}"})
    given = {"models": {"of": "a module"}}
    assert as_written(given, workflow) is given
    config, workflow = configured({"a.yaml": "mine: {on: 012}\nothers: {b: 1}"})
    assert as_written(config["mine"], workflow) == {"on": "012"}
    template = "__use_yte__: true\na: ?1 + 1\n?if True:\n  b: 2\n"
    assert as_written(*configured({"a.yaml": template, "c.yaml": "c: 012"})) == {
        "a": 2,
        "b": 2,
        "c": "012",
    }


def test_a_benchmark_s_file_is_read_alike() -> None:
    Path("task.yaml").write_text("source: {file: rows.jsonl}\nprompt: a\nprompt: b\n")
    Path("a.yaml").write_text("benchmarks: {qa: {use: task.yaml}}\n")
    told = "file 'task.yaml' cannot be read: key 'prompt' is written twice, in line 2 and in line 3"
    with pytest.raises(UserError, match=told):
        read_config(Path("a.yaml"))


def test_the_tested_versions_are_those_that_are_installed_and_asked_for() -> None:
    first, before = TESTED
    assert f'min_version("{first}")' in (ROOT / "workflow/Snakefile").read_text()
    for name in ("pyproject.toml", "environment.yml"):
        assert f"snakemake>={first},<{before}" in (ROOT / name).read_text()
    assert Version(snakemake.__version__) in SpecifierSet(f">={first},<{before}")


def test_what_is_not_documented_of_snakemake_is_touched_in_one_file() -> None:
    places = [*(ROOT / "adafuse").rglob("*.py"), *(ROOT / "workflow").rglob("*.smk")]
    inner = re.compile(r"_onstart|forcefiles|_settings\b.*workflow|from snakemake\.(?!utils)")
    touching = [path.name for path in places if inner.search(path.read_text())]
    assert touching == ["snakemake.py"]


@pytest.mark.parametrize(("jobs", "looks"), [(2, 1), (100, 0)])
def test_snakemake_looks_again_once_where_its_rate_limit_kept_jobs_back(
    jobs: int, looks: int
) -> None:
    limiter = JobRateLimiter(MaxJobsPerTimespan.parse_choice(f"{jobs}/1h"))
    limiter.register_jobs(2)
    places = SimpleNamespace(dag=SimpleNamespace(has_unfinished_queue_input_jobs=lambda: False))
    scheduler = SimpleNamespace(
        job_rate_limiter=limiter, workflow=places, _open_jobs=threading.Semaphore(0)
    )
    assert hasattr(JobScheduler, "_schedule_reevalutation")
    start_one_timer(scheduler)
    for _ in range(5):
        scheduler._schedule_reevalutation(0.05)
    looked = [
        scheduler._open_jobs.acquire(timeout=5 if number < looks else 0.2) for number in range(2)
    ]
    assert sum(looked) == looks


@pytest.mark.timeout(20)
def test_a_signal_while_jobs_are_selected_ends_snakemake() -> None:
    assert "with self._lock:" in inspect.getsource(JobScheduler.job_selector)
    scheduler = SimpleNamespace(_open_jobs=threading.Semaphore(0))
    take_signals_while_selecting(scheduler)
    with scheduler._lock:  # as the selection, in the thread that the handler interrupts
        JobScheduler.exit_gracefully(scheduler)
    assert scheduler._user_kill == "graceful" and scheduler._open_jobs.acquire(timeout=1)


@pytest.mark.parametrize("name", ["all", "paper", "paper_toy", "words_per_round"])
def test_an_experiment_named_like_a_rule_is_refused(values: dict[str, Any], name: str) -> None:
    figure = {"title": "t", "kind": "scores", "benchmarks": ["qa"], "runs": ["both"]}
    with pytest.raises(UserError, match=f"experiments: '{name}' is another rule .*; rename it"):
        Plan.of({**values, "experiments": {name: figure}})


def test_every_step_is_a_rule_and_no_other_rule_has_an_experiment_s_name() -> None:
    files = [ROOT / "workflow/Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]
    named = re.findall(r"^rule (\w+):", "\n".join(map(Path.read_text, files)), re.MULTILINE)
    assert {*named} | {*STEPS} | {*WHOLE_PAPER} == RULES


class Terminal(StringIO):
    """What a terminal was sent."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def snakemake_logger() -> Any:
    """Snakemake's logger, without the handlers of a test."""
    logger, handlers, level = (log := snakemake.logging.logger), log.handlers[:], log.level
    logger.handlers[:] = []
    logger.setLevel(logging.INFO)
    yield logger
    logger.handlers[:] = handlers
    logger.setLevel(level)


def shown(logger: logging.Logger, stream: StringIO, **settings: Any) -> str:
    """What Snakemake shows on a stream of two steps and a message."""
    logger.addHandler(snakemake.logging.ColorizingTextHandler(nocolor=True, stream=stream))
    quiet = {"verbose": False, "printshellcmds": False, "quiet": set()}
    CountedSteps.begin(SimpleNamespace(output_settings=SimpleNamespace(**quiet | settings)))
    event = snakemake.logging.LogEvent
    for done in (1, 2):
        logger.info("Select jobs to execute...")
        logger.info("Execute 1 jobs...", extra={"event": event.JOB_STARTED})
        logger.info("rule decode:", extra={"event": event.JOB_INFO})
        logger.info("Finished jobid: 1", extra={"event": event.JOB_FINISHED})
        logger.info("steps", extra={"event": event.PROGRESS, "done": done, "total": 2})
    logger.info("Complete log(s): here")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("target", "near"),
    [("figur_6", "figure_6"), ("repotr", "report"), ("{}/tables/mian.csv", "{}/tables/main.csv")],
)
def test_a_target_that_does_not_exist_is_told_what_there_is(
    monkeypatch: pytest.MonkeyPatch, target: str, near: str
) -> None:
    monkeypatch.chdir(ROOT)
    plan = Plan.of(read_config_values(ROOT / "config/toy.yaml"))
    monkeypatch.setattr("adafuse.workflow.snakemake.PLANS", [plan])
    target, near = (name.format(plan.config.results) for name in (target, near))
    said = str(MissingRuleException(target))
    record = logging.makeLogRecord({"msg": said, "exception": "MissingRuleException"})
    assert in_words(record)
    assert record.msg.startswith(f"unknown target {target!r}; known are: all, ")
    assert record.msg.endswith(f"; did you mean {near!r}?")


def test_a_write_protected_output_is_told_as_the_results_folder_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    plan = Plan.of(read_config_values(ROOT / "config/toy.yaml"))
    monkeypatch.setattr("adafuse.workflow.snakemake.PLANS", [plan])
    said = {"msg": "Write-protected output files", "exception": "ProtectedOutputException"}
    for writable, begin in ((True, "Write-protected"), (False, "error: results folder 'results")):
        monkeypatch.setattr("os.access", lambda *_, writable=writable: writable)
        assert in_words(record := logging.makeLogRecord(said))
        assert record.msg.startswith(begin)


def test_jobs_that_control_c_ended_have_not_failed(tmp_path: Path) -> None:
    failed = "Error in rule {0}:\n    message: None\n    jobid: 1\n    output: {0}.csv\n"
    ended = "Terminating processes on user request, this might take some time.\n"
    log = tmp_path / "1.snakemake.log"
    log.write_text(failed.format("compare") + ended + failed.format("decode"))
    assert [*failed_jobs(tmp_path)] == ["compare.csv"]


def test_a_terminal_shows_one_line_that_counts_the_steps(snakemake_logger: Any) -> None:
    counted = "\r1 of 2 steps (50%) done\r2 of 2 steps (100%) done\nComplete log(s): here\n"
    assert shown(snakemake_logger, Terminal()) == counted


@pytest.mark.parametrize(
    ("stream", "settings"),
    [(StringIO, {}), (Terminal, {"printshellcmds": True}), (Terminal, {"verbose": True})],
)
def test_what_is_no_terminal_or_asks_for_all_shows_all(
    snakemake_logger: Any, stream: type[StringIO], settings: dict[str, Any]
) -> None:
    told = shown(snakemake_logger, stream(), **settings)
    assert told.count("rule decode:") == 2 and "\r" not in told


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--configfile", "nowhere.yaml", "--cores", "1"], "'nowhere.yaml' does not exist"),
        (["--configfile", "config/toy.yaml", "figure_6", "-n"], "'figure_6' does not exist"),
        (["figure_6", "--configfile=nowhere.yaml", "-n"], "'nowhere.yaml' does not exist"),
        (["--configfile", "config", "-n"], "'config' is a folder"),
    ],
)
def test_a_configuration_that_is_no_file_is_one_sentence_of_the_default_profile(
    monkeypatch: pytest.MonkeyPatch, words: list[str], wrong: str
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["snakemake", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value) == (
        f"error: configuration {wrong}; --configfile takes all names that follow it, so targets go"
        " before it: snakemake figure_6 --configfile my.yaml"
    )


@pytest.mark.parametrize(
    "words",
    [
        ["-n", "--configfile", "a.yaml", "b.yaml", "--", "figure_6"],
        ["--configfile", "absent.yaml", "-n", "--configfile", "a.yaml"],  # the last one counts
        ["figure_6"],
    ],
)
def test_configurations_that_exist_are_not_refused(
    monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    for name in ("a.yaml", "b.yaml"):
        Path(name).write_text("note: x")
    monkeypatch.setattr("sys.argv", ["snakemake", *words])
    check_configfiles()


@pytest.mark.parametrize("words", [["--configfile", "config/config.yaml"], []])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("note: [a\n", "'config/config.yaml' cannot be read: line 2: expected ',' or ']'"),
        (
            "day: 2026-02-30",
            "cannot be read by Snakemake (day is out of range for month); put dates",
        ),
        ("stop: [=]", "and signs such as = in quotes"),
    ],
)
def test_a_configuration_that_cannot_be_read_is_one_sentence_before_snakemake_reads_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], text: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config").mkdir()
    Path("config/config.yaml").write_text(text)
    monkeypatch.setattr("sys.argv", ["snakemake", *words])
    with pytest.raises(SystemExit) as ended:
        check_configfiles()
    assert sentence in str(ended.value) and "\n" not in str(ended.value)


def test_decode_jobs_with_the_same_models_are_a_group_but_for_those_that_are_ready(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    values["cluster"] = {"group": 3}
    plan, limits = Plan.of(values), dict[str, int]()
    workflow = SimpleNamespace(
        local_exec=False,
        is_main_process=True,
        group_settings=SimpleNamespace(group_components={}),
        register_resource=limits.__setitem__,
    )
    group = group_of(workflow, plan)
    both, other = ({"benchmark": "qa", "run": "both", "shard": n} for n in "01")
    left = {"benchmark": "qa", "run": "left", "shard": "0"}
    assert group(both) == group(other) != group(left)
    assert {*workflow.group_settings.group_components.values()} == {3}
    assert limits == {"one_at_a_time": 1}
    monkeypatch.setattr("adafuse.workflow.snakemake.is_ready", lambda out, key: out.stem == "0")
    assert (group(both), group(other) is None) == (None, False)
    workflow.local_exec = True
    assert group(other) is None
