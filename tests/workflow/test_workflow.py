"""The workflow as a whole: its frame, its profiles, how it fails and how it resumes."""

import json
import re
from pathlib import Path

import pytest
import yaml

from adafuse.config.reading import read_config
from adafuse.errors import UserError
from adafuse.storage.parquet import read_metadata
from adafuse.workflow.plan import Plan
from tools.docs.schema import SCHEMA_FILE, schema_text

from .conftest import ROOT, Workplace, unfinished

PROFILES = ("default", "local", "slurm")


def profile(name: str) -> dict[str, object]:
    return yaml.safe_load((ROOT / f"workflow/profiles/{name}/config.yaml").read_text())


def test_the_schema_is_made_from_the_types() -> None:
    assert (ROOT / SCHEMA_FILE).read_text() == schema_text()


def test_the_schema_refuses_unknown_keys_everywhere() -> None:
    schema = json.loads(schema_text())
    named = [schema["properties"][kind] for kind in ("models", "benchmarks", "runs")]
    for section in (schema, *schema["$defs"].values(), *named):
        assert section["additionalProperties"] is False


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_compares_content_and_repeats_torn_jobs(name: str) -> None:
    settings = profile(name)
    assert settings["rerun-incomplete"] is True
    assert settings["max-checksum-file-size"] == 104857600
    assert "keep-incomplete" not in settings


def test_the_default_profile_leaves_place_and_size_to_the_others() -> None:
    taken = {"executor", "jobs", "cores", "resources", "default-resources", "set-resources"}
    assert not taken & profile("default").keys()


def test_the_profiles_are_found_from_a_checkout() -> None:
    assert (ROOT / "slurm").resolve() == ROOT / "workflow/profiles/slurm"
    assert (ROOT / "profiles").resolve() == ROOT / "workflow/profiles"


def test_only_jobs_that_load_models_leave_the_machine_that_runs_snakemake() -> None:
    elsewhere = []
    for path in sorted((ROOT / "workflow/rules").glob("*.smk")):
        rules = re.split(r"^ *rule *(\w*):$", path.read_text(), flags=re.MULTILINE)[1:]
        pairs = zip(rules[::2], rules[1::2], strict=True)
        elsewhere += [name for name, text in pairs if "localrule: True" not in text]
    assert elsewhere == ["decode", "fit"]


def test_the_slurm_profile_sends_decode_jobs_to_the_cluster(place: Workplace) -> None:
    place.configure(lambda config: config["decode"].update(gpu=2, device="auto"))
    place.configure(lambda config: config["benchmarks"]["qa"].update(timed=True))
    place.configure(lambda config: config.update(cluster={"runtime": 45}))
    chosen = ["--profile", str(ROOT / "slurm"), "--forceall", "--dry-run"]
    done = place.snakemake(*chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    for decode in re.findall(
        r"rule decode:.*?resources:.*?\n", done.stdout + done.stderr, re.DOTALL
    ):
        assert "runtime=45, " in decode and "mem_mb=7000, " in decode
        assert f"gpu={2 if 'run=adafuse' in decode else 1}, " in decode
        assert ("slurm_extra=--exclusive" in decode) == ("benchmark=qa" in decode)


def test_the_slurm_profile_leaves_the_size_of_jobs_to_the_configuration() -> None:
    assert "set-resources" not in profile("slurm")


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("results_folder", "config: unknown key 'results_folder'; known are: plugins, results"),
        ("note", "config: note must be a valid string, not 3"),
    ],
)
def test_a_bad_configuration_is_one_sentence(key: str, sentence: str) -> None:
    values = yaml.safe_load((ROOT / "config/toy.yaml").read_text())
    with pytest.raises(UserError, match=f"^{sentence}"):
        Plan.of(values | {key: 3})


def test_snakemake_says_that_sentence_and_nothing_else(finished: Workplace, tmp_path: Path) -> None:
    place = unfinished(tmp_path, finished.python)
    place.configure(lambda config: config.update(note=3))
    done = place.snakemake()
    assert done.returncode != 0
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert error.startswith("error: config: note must be a valid string, not 3")
    assert "Traceback" not in done.stderr


def test_the_stored_configuration_and_metadata_say_how_a_result_came_about(
    finished: Workplace,
) -> None:
    results = finished.folder / "results"
    assert read_config(results / "config.json").runs["adafuse"].options == {"tau": 0.7}
    metadata = read_metadata(results / "traces/qa/adafuse/0.parquet")
    assert metadata["job"]["options"]["max_words"] == 3
    assert {"adafuse", "torch", "transformers", "python", "engine"} <= metadata["versions"].keys()
    assert set(metadata["git"]) == {"commit", "dirty"}
    assert metadata["job"]["models"][0]["content"]
    assert metadata["resumed"] == 0


def test_every_step_has_its_log(finished: Workplace) -> None:
    logs = {
        path.relative_to(finished.folder / "results/logs").parts[0]
        for path in (finished.folder / "results/logs").rglob("*.log")
    }
    assert logs >= {"prepare", "shard", "decode", "merge", "score", "compare.log"}


def test_snakemake_hands_over_what_files_and_the_command_line_say(
    finished: Workplace, tmp_path: Path
) -> None:
    place = unfinished(tmp_path, finished.python)
    text = (tmp_path / "config.yaml").read_text()
    assert "  llama:\n    method" in text
    (tmp_path / "config.yaml").write_text(
        text.replace("  llama:\n    method", "  012:\n    method")
    )
    planned = place.snakemake("-n", "--config", "decode={max_error_share: 1e-1, gpu: 0}")
    assert planned.returncode == 0 and "run=012" in planned.stdout
    (tmp_path / "config.yaml").write_text(text.replace("  llama:\n    m", "  adafuse:\n    m"))
    refused = place.snakemake("-n")
    assert refused.returncode and "key 'adafuse' is written twice, in line" in refused.stderr


def test_paths_in_commands_are_quoted_whatever_they_hold() -> None:
    for file in sorted((ROOT / "workflow/rules").glob("*.smk")):
        commands = "\n".join(re.findall(r"^ +shell:\n((?: {8,}.*\n)+)", file.read_text(), re.M))
        assert not re.findall(r"\{(?:input|output|log|params\.config)[\w.]*\}|'\{", commands), file
    assert "shlex.join(plan.command(" in (ROOT / "workflow/rules/common.smk").read_text()
