"""Results in the forms of others: records of Every Eval Ever, and the card of a data set.

Every Eval Ever is a shared schema of evaluation results (arXiv 2606.14516). Its package needs
Python 3.12 and libraries older than ours, so the records are written here, by its schema 0.3.0.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from adafuse.benchmarks.shards import read_prepared
from adafuse.config.benchmarks import BenchmarkConfig
from adafuse.config.config import Config
from adafuse.config.runs import ModelConfig
from adafuse.errors import UserError
from adafuse.methods.selections import SELECTIONS, BestOf
from adafuse.metrics.registry import metric_named, unit
from adafuse.metrics.score import ScoredRun, read_scored
from adafuse.metrics.scorer import STRICT
from adafuse.models.spec import GGUF, public_name, with_adapter
from adafuse.report.failures import is_right
from adafuse.report.stored import StoredResults
from adafuse.report.tables import escape, markdown_table
from adafuse.storage.files import without_folders, write_text
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.version import __version__
from adafuse.workflow.plan import Plan

SCHEMA_VERSION = "0.3.0"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.json$")
_PROMPTED = {"chat", "chat_date", "chat_template_kwargs", "thoughts"}
_CHANGED = {"adapter", "quantization"}
_SERVED_AS = {"server_model", "server_args"}
_OUTER_COLUMNS = ["id", "text", "stop_reason", "error", "seconds", "tokens", "prompt_tokens"]


def fresh_results(plan: Plan) -> StoredResults:
    """Return the merged and scored runs, all as the configuration makes them.

    Raises:
        UserError: something is stale, so that texts, scores and references may not belong together.
    """
    results = StoredResults.in_folder(plan.config)
    if stale := results.stale(plan):
        raise UserError(f"{str(stale[0])!r} is not up to date; run snakemake, then export")
    return results


def export_records(results: StoredResults, out: Path, organization: str) -> list[Path]:
    """Write a record and its samples for each scored run on each benchmark; return the records.

    They lie as the data store has them: data/BENCHMARK/DEVELOPER/MODEL/UUID.json, with the samples
    in UUID_samples.jsonl, in place of earlier ones of that run. UUIDs depend on the results only.
    """
    written = []
    for benchmark, runs in results.runs.items():
        for run in runs:
            if results.layout.score(STRICT, benchmark, run).is_file():
                written.append(_export_record(results, out, organization, benchmark, run))
    return written


def _export_record(
    results: StoredResults, out: Path, organization: str, benchmark: str, run: str
) -> Path:
    config = results.config
    protocols = [p for p in config.protocols if results.layout.score(p, benchmark, run).is_file()]
    scored: dict[str, ScoredRun] = {
        p: read_scored(results.layout.score(p, benchmark, run)) for p in protocols
    }
    finished = _finished(results, benchmark, run)
    model = model_info(config, run)
    evaluation = f"{benchmark}/{model['id']}/{int(finished.timestamp())}"
    identity = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": evaluation,
        "evaluation_timestamp": finished.isoformat(),
        "retrieved_timestamp": str(int(finished.timestamp())),
        "source_metadata": {
            "source_name": "AdaFuse",
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": "third_party",
        },
        "eval_library": {"name": "adafuse", "version": __version__},
        "model_info": model,
        "evaluation_results": [
            result
            for protocol in protocols
            for result in _metrics(config, benchmark, run, scored[protocol])
        ],
    }
    samples = list(_samples(results, benchmark, run, scored[STRICT], evaluation))
    text = "".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples)
    checksum = hashlib.sha256(text.encode()).hexdigest()
    name = _uuid(json.dumps([identity, checksum]))
    folder = Path("data", benchmark, *model["id"].split("/"))
    details = {
        "format": "jsonl",
        "file_path": (folder / f"{name}_samples.jsonl").as_posix(),
        "hash_algorithm": "sha256",
        "checksum": checksum,
        "total_rows": len(samples),
    }
    for earlier in (out / folder).glob("*.json"):
        if _UUID.match(earlier.name) and _run_of(earlier) == run:
            earlier.with_name(f"{earlier.stem}_samples.jsonl").unlink(missing_ok=True)
            earlier.unlink()
    write_text(out / folder / f"{name}_samples.jsonl", text)
    record = {**identity, "detailed_evaluation_results": details}
    write_text(out / folder / f"{name}.json", json.dumps(record, indent=2, ensure_ascii=False))
    return out / folder / f"{name}.json"


def _finished(results: StoredResults, benchmark: str, run: str) -> datetime:
    """Return when the last shard of a run was put together."""
    metadata = read_metadata(results.trace(benchmark, run))
    if chosen_from := metadata.get("of"):
        return max(_finished(results, benchmark, name) for name in chosen_from)
    return max(datetime.fromisoformat(shard["finished"]) for shard in metadata["shards"])


def _run_of(file: Path) -> object:
    """Return the run that an earlier record is of; None for a file that is none of ours."""
    try:
        record = json.loads(file.read_bytes())
        ours = record["eval_library"]["name"] == "adafuse"
        return record["model_info"]["name"] if ours else None
    except (ValueError, KeyError, TypeError):
        return None


def model_info(config: Config, run: str) -> dict[str, Any]:
    """Return `model_info`: a single model as it is by its hub id, anything else as adafuse/RUN."""
    spec = config.runs[run]
    models = [_public_name(config, name) for name in spec.models]
    settings = [_settings(config.models[name], served=spec.served) for name in spec.models]
    changed = spec.max_rounds or (_CHANGED | _SERVED_AS) & settings[0].keys()
    return {
        "name": run,
        "id": models[0] if spec.method == "single" and not changed else f"adafuse/{run}",
        "inference_engine": {"name": "adafuse", "version": __version__},
        "additional_details": {
            "deployment_type": "self_deployed",
            "model_availability": "open_weights",
            "method": spec.method,
            "models": json.dumps(models),
            "model_settings": without_folders(json.dumps(settings)),
            "max_rounds": json.dumps(spec.max_rounds),
        },
    }


def _settings(model: ModelConfig, *, served: bool) -> dict[str, Any]:
    """Return what a model's answers depend on besides its weights on the hub.

    What a server has under another name, or with arguments, may be an adapter, or quantized.
    """
    chosen = model.model_dump(include=_CHANGED | _PROMPTED, exclude_defaults=True)
    if served and model.server is not None:
        chosen["on_server"] = True
        if model.server_model not in (None, model.path):
            chosen["server_model"] = model.server_model
        if model.serve is not None and model.serve.args:
            chosen["server_args"] = True
    return chosen | ({"file": Path(model.path).name} if model.path.endswith(GGUF) else {})


def _public_name(config: Config, name: str) -> str:
    """Return the hub id of a model; one of this machine is local/NAME, wherever it lies."""
    path = config.models[name].path
    if Path(path).is_absolute() or Path(path).exists():
        return f"local/{name}"
    return path.rpartition("/")[0] if path.endswith(GGUF) else path


def _with_adapter(config: Config, name: str) -> str:
    adapter = config.models[name].adapter
    return with_adapter(_public_name(config, name), adapter and Path(adapter).name)


def _metrics(
    config: Config, benchmark: str, run: str, scored: ScoredRun
) -> Iterator[dict[str, Any]]:
    score, task = scored.score, config.benchmarks[benchmark]
    for name, estimate in score.metrics.items():
        metric = metric_named(name)
        uncertainty: dict[str, Any] = {"num_samples": score.n}
        if estimate.low is not None:
            uncertainty["confidence_interval"] = {
                "lower": estimate.low,
                "upper": estimate.high,
                "confidence_level": 0.95,
                "method": "wilson" if metric.binary else "bootstrap",
            }
        yield {
            "evaluation_result_id": f"{score.protocol}.{name}",
            "evaluation_name": benchmark,
            "source_data": _source(benchmark, task, score.n),
            "metric_config": {
                "evaluation_description": f"{metric.label}, {score.protocol} scoring",
                "metric_id": name,
                "metric_name": metric.label,
                "metric_unit": unit(name),
                "lower_is_better": not metric.higher_is_better,
                "score_type": "continuous",
                "min_score": 0,
                "max_score": 100
                if unit(name) == "percent" and metric.higher_is_better
                else "Infinity",
            },
            "score_details": {
                "score": estimate.value,
                "details": {
                    "protocol": score.protocol,
                    "excluded": str(score.excluded),
                    "empty": str(score.empty),
                    "failed": str(score.failed),
                    "cut": str(score.cut),
                    "within_budget": str(score.within_budget),
                },
                "uncertainty": uncertainty,
            },
            "generation_config": {
                "generation_args": {
                    "max_tokens": task.max_new_tokens,
                    "prompt_template": task.prompt,
                },
                "additional_details": {
                    "options": without_folders(json.dumps(config.runs[run].options)),
                    "stop": json.dumps(task.model_dump(mode="json")["stop"]),
                    "prompt_layout": task.prompt_layout,
                },
            },
        }


def _source(benchmark: str, task: BenchmarkConfig, rows: int) -> dict[str, Any]:
    source = task.source
    if source.dataset is None or public_name(source.dataset) != source.dataset:
        return {"dataset_name": benchmark, "source_type": "other"}
    return {
        "dataset_name": benchmark,
        "source_type": "hf_dataset",
        "hf_repo": source.dataset,
        "hf_split": source.split,
        "samples_number": rows,
        "additional_details": {"revision": source.revision or "unknown"},
    }


def _samples(
    results: StoredResults, benchmark: str, run: str, scored: ScoredRun, evaluation: str
) -> Iterator[dict[str, Any]]:
    """Yield the scored rows. One of a metric that is not binary is correct where it is full."""
    rows = {row.id: row for row in read_prepared(results.layout.rows(benchmark))}
    decoded_rows = {
        row["id"]: row for row in read_rows(results.trace(benchmark, run), _OUTER_COLUMNS)
    }
    model, primary = model_info(results.config, run)["id"], scored.score.primary
    metric = scored.metric
    several = results.config.runs[run].method == BestOf.name  # whose answers each row needed
    started = bool(results.answers(benchmark, run))
    for outcome in scored.outcomes:
        row, decoded = rows[outcome.id], decoded_rows.get(outcome.id, {})
        raw = row.question or row.prompt
        sample = json.dumps([raw, *row.answers], ensure_ascii=False)
        yield {
            "schema_version": SCHEMA_VERSION,
            "evaluation_id": evaluation,
            "model_id": model,
            "evaluation_name": benchmark,
            "evaluation_result_id": f"{STRICT}.{primary}",
            "sample_id": outcome.id,
            "sample_hash": hashlib.sha256(sample.encode()).hexdigest(),
            "interaction_type": "single_turn",
            "input": {"raw": raw, "formatted": row.prompt, "reference": list(row.answers)},
            "output": {"raw": [decoded.get("text") or ""]},
            "answer_attribution": [
                {
                    "turn_idx": 0,
                    "source": "output.raw",
                    "extracted_value": outcome.text,
                    "extraction_method": results.config.benchmarks[benchmark].scorer,
                    "is_terminal": True,
                }
            ],
            "evaluation": {
                "score": outcome.value,
                "is_correct": is_right(metric, outcome.value),
            },
            **({} if several else _cost(decoded, started=started)),
            "error": _public_error(decoded),
        }


def _public_error(row: Mapping[str, Any]) -> str | None:
    error: str | None = row["error"] if row else "there is no answer"
    return error and without_folders(error)


def _cost(row: Mapping[str, Any], *, started: bool) -> dict[str, Any]:
    """Return tokens and time of a decoded row; those of all models together.

    Where a row `started` from the models' own answers, its time includes theirs; its tokens do not,
    so they are left out.
    """
    if not row:
        return {}
    performance = {"performance": {"generation_time_ms": 1000 * (row["seconds"] or 0.0)}}
    if started:
        return performance
    read, new = (sum(row[key] or ()) for key in ("prompt_tokens", "tokens"))
    usage = {"input_tokens": read, "output_tokens": new, "total_tokens": read + new}
    return {"token_usage": usage, **performance}


def _uuid(text: str) -> str:
    """Return a version 4 UUID that a text decides."""
    digits = list(hashlib.sha256(text.encode()).hexdigest()[:32])
    digits[12] = "4"
    digits[16] = "89ab"[int(digits[16], 16) % 4]
    whole = "".join(digits)
    return "-".join((whole[:8], whole[8:12], whole[12:16], whole[16:20], whole[20:]))


def _untaken(name: str, taken: Collection[str]) -> str:
    """Return a name, with as many `_` behind it as make it another one than those taken."""
    while name in taken:
        name += "_"
    return name


def dataset_card(results: StoredResults) -> str:
    """Return the card that makes the folder `traces` a data set of the Hugging Face hub.

    A benchmark is a configuration of it, a run a split. A run that chooses between others has a
    column of its own, so it is a configuration.
    """
    configs: dict[str, list[dict[str, str]]] = {}
    for benchmark, runs in results.runs.items():
        for run in runs:
            chooses = results.config.runs[run].method in SELECTIONS
            name = _untaken(f"{benchmark}_{run}", results.runs) if chooses else benchmark
            splits = configs.setdefault(name, [])
            split = _untaken(re.sub(r"\W", "_", run), [each["split"] for each in splits])
            splits.append({"split": split, "path": f"{benchmark}/{run}.parquet"})
    front = {
        "pretty_name": "Traces of fused decoding",
        "tags": ["adafuse", "ensemble-decoding", "evaluation"],
        "configs": [{"config_name": n, "data_files": files} for n, files in configs.items()],
    }
    lines = [
        "---",
        yaml.safe_dump(front, sort_keys=False).rstrip(),
        "---",
        "",
        "# Traces of fused decoding",
        "",
        escape(results.config.note or "") or "Texts, and every round in which they were decoded.",
        "",
        "A configuration is a benchmark, a split a run, a row an answer with its rounds:"
        " candidates, scores, and what was committed.",
        "",
    ]
    shown = {run for runs in results.runs.values() for run in runs}
    rows = [
        (
            escape(name),
            spec.method,
            ", ".join(_with_adapter(results.config, m) for m in spec.models),
        )
        for name, spec in results.config.runs.items()
        if name in shown
    ]
    lines += [markdown_table(["run", "method", "models"], rows, text=3)]
    lines += [f"Written by AdaFuse {__version__}. Benchmarks and models have their own terms."]
    return "\n".join(lines) + "\n"
