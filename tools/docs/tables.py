"""Tables of the pages: fields of the configuration, options of methods, and what a trace holds."""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from adafuse.decoding.method import Method
from adafuse.methods import METHODS
from adafuse.methods.selections import SELECTIONS, Selection
from adafuse.metrics.registry import SCORERS
from adafuse.metrics.scorer import Metric
from adafuse.models.spec import SERVER, WHERE_SET, ModelSpec
from adafuse.options import CHANGE_WHEN
from adafuse.workflow.decode import TRACE_FIELDS

Schema = Mapping[str, Any]

COLUMNS = {
    "id": "id of the row, unique within the benchmark, or of the prompt (`generate`)",
    "benchmark": "name in the configuration",
    "run": "name in the configuration; for a choice between runs, that of the choosing run",
    "shard": "number of the shard, from 0",
    "prompt_sha256": "SHA-256 of the prompt, in hexadecimal digits",
    "digest": "identity of the row: prompt, models, method, options, version of the decoder; rows"
    " of one digest are decoded once",
    "text": "generated text, cut before the first stop string, otherwise unchanged",
    "fits": "number of characters of the text that fit into `max_new_tokens` tokens of at least one"
    " model; null if the whole text fits, that is, unless its last span exceeds the limit",
    "thoughts": "number of characters of the text before the answer of models that think, which are"
    " not scored; all of them if the thoughts did not end; null without thoughts",
    "stop_reason": "`eos` (the chosen candidate ended the text), `stop` (a stop string), `length`"
    " (`max_new_tokens` or `max_rounds`) or `error`",
    "error": "one sentence; null unless `stop_reason` is `error`",
    "traceback": "Python traceback of the error; null unless `stop_reason` is `error`",
    "seconds": "wall time from the example's admission to its end, including the models' own"
    " answers if the method starts from these; examples of a batch share their time",
    "tokens[]": "per model: number of tokens of the text",
    "prompt_tokens[]": "per model: number of tokens of the prompt",
    "forwards[]": "per model: forward passes with this example",
    "evaluated[]": "per model: tokens after the prompt that these ran: those of the text, and of"
    " candidates, samples and drafts that are not in it; null in traces of earlier versions",
    "rounds[]": "one entry per round, in order",
    "rounds[].candidates[]": (
        "the pool of the round, in order of model, then alternative; of a method that fuses tokens"
        " (`unite`, `gac`, `deepen`, `bytewise`, a plug-in on `fuse_tokens`), its five best"
        " entries, the best first"
    ),
    "rounds[].candidates[].text": "the span",
    "rounds[].candidates[].ends": "whether the text ends after the span",
    "rounds[].candidates[].nll[]": "per model: negative log-likelihood of the span, in nats per"
    " token (equation 4); of a whole answer that is ranked, without its thoughts; NaN for a model"
    " that did not score it",
    "rounds[].candidates[].fused": "F(s), the fused score (equation 5); the smallest wins",
    "rounds[].candidates[].proposers[]": "numbers of the models that proposed the span, from 0",
    "rounds[].selected": "index of the committed candidate, from 0; null if none has a finite NLL",
    "rounds[].words": "number of committed words, separated by whitespace",
    "rounds[].margins[]": "per model: its margins",
    "rounds[].margins[][]": "p(1) - p(2) of the next token at the start of each word, or the"
    " smallest within it (option `margin`), up to the first below τ; empty for methods without"
    " margins, and for a model that did not propose",
    "rounds[].weights[]": "per model: its weight in this round; empty if it is the run's weight",
}
"""What every column means; lists are marked by []."""

_PER_MODEL = {
    name: f"per model: {field['description']}"
    for name, field in ModelSpec.model_json_schema()["properties"].items()
    if name not in ("path", "adapter", "revision", "device", "dtype", *SERVER)
}
JOB = {
    "benchmark": "name in the configuration",
    "run": "name in the configuration",
    "models": "per model: `path`, `revision`, for a folder `content`, a digest of its files, for a"
    " model on a server `on_server` and `server_model`, and `adapter` if it has one",
    "devices": "per model: its device, or `server`",
    **_PER_MODEL,
    **{name: f"{_PER_MODEL[name]}; absent if no model has any" for name in WHERE_SET},
    "weights": "per model: its weight in the fusion; null where all are 1",
    "method": "name of the method",
    "options": "all its options, including defaults",
    "checkpoints": "models named in options, by option",
    "stop": "stop strings",
    "max_new_tokens": "of the benchmark",
    "max_rounds": "of the run",
    "engine": "`tree` or `reference`",
    "batch_size": "examples decoded at a time, or `auto`",
    "dtype": "data type of weights and activations; null where all models are on servers",
    "timed": "true: nothing else ran on the machine, for seconds to compare; otherwise absent",
    "fitted_on": "the benchmark whose rows the gate was fitted on; absent without such a gate",
    "plugins": "digest of the code of each plug-in that the job uses; absent without plug-ins",
}
"""What every key of `job` means."""

SHARD = {
    "digest": "identity of the result: rows, prompts, models, method, options, version of the"
    " decoder, and the names of benchmark and run",
    "job": "models, method and settings, see below",
    "shard": "number of the shard",
    "failed": "number of rows that failed",
    "rows": "number of rows",
    "versions": "of adafuse, its decoder (`engine`), Python and relevant packages",
    "git": "`commit` that the package runs from, and whether tracked files were changed (`dirty`)",
    "place": "`host`, `cuda_visible_devices`, `slurm_job`, and `gpus`, their names;"
    " the report shows no host",
    "served": "per model: what its [server](served.md#when-a-server-fails) said of itself, null for"
    " a model that was loaded; absent where no model is on a server",
    "resumed": "number of rows from earlier attempts",
    "reused": "number of rows from other files of the results folder",
    "reused_from": "these files, the number of their rows, and the versions, machines and times of"
    " their decoding; the other keys are about this job",
    "started": "start of the last attempt, UTC",
    "finished": "end of the last attempt, UTC",
}
MERGED = {
    "digest": "digest of all shards",
    "benchmark": "name in the configuration",
    "run": "name in the configuration",
    "shards": "list of the shards' metadata",
}
CHOSEN = {
    "method": "the choice: `best_of`, `best_pair`, `development_pair` or `certified`",
    "benchmark": "name in the configuration",
    "run": "name in the configuration",
    "rows_from": "number of rows from each run",
    "of": "digests of these runs",
}
CERTIFIED = {
    "certificate": "only with method `certified`: the `chosen` run, whether it is `certified`, the"
    " benchmark whose rows it was chosen `on`, their number `n`, `margin`, `alpha`, `order`, the"
    " test of each candidate, whether these are `exact`, and a `sentence` that says all of it",
}
GENERATED = {
    "settings": "`models`, `chat_date`, `method`, and its options and limits as given; a server's"
    " options are in its column `options`",
    "versions": "as above",
    "git": "as above",
    "place": "as above",
}
METADATA = {
    "shard": SHARD,
    "merged": MERGED,
    "chosen": CHOSEN | CERTIFIED,
    "generated": GENERATED,
    "job": JOB,
}
"""What every key of the metadata means, by kind of file."""

_TYPES = {"string": "text", "bool": "true or false", "double": "number", "int32": "whole number"}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table without a final line end; `|` within cells is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_FIELDS_HEAD = ("field", "value", "without it", "meaning", "change it when")


def fields_table(section: Schema, required: Collection[str]) -> str:
    """Return a table of the fields of a section, in the order in which they are declared."""
    rows = [_row(name, field, name in required) for name, field in section["properties"].items()]
    columns = [
        number for number, _ in enumerate(_FIELDS_HEAD) if number < 4 or any(r[4] for r in rows)
    ]
    return table([_FIELDS_HEAD[c] for c in columns], [[row[c] for c in columns] for row in rows])


def _row(name: str, field: Schema, required: bool) -> tuple[str, ...]:
    missing = "required" if required else default(field)
    return (f"`{name}`", value(field), missing, field["description"], field.get(CHANGE_WHEN, ""))


def default(field: Schema) -> str:
    """Return the value of a field that is not given; nothing for sections and absent values."""
    found = field.get("default")
    if found is None or isinstance(found, dict):
        return ""
    return f"`{json.dumps(found, ensure_ascii=False) if not isinstance(found, str) else found}`"


def value(field: Schema) -> str:
    """Say in words which values a field takes."""
    *kinds, last = dict.fromkeys(_kinds(field))
    return f"{', '.join(kinds)} or {last}" if kinds else last


def _kinds(field: Schema) -> Iterator[str]:
    for each in field.get("anyOf", ()):
        yield from _kinds(each)
    if "$ref" in field:
        yield "section"
    elif "const" in field or "enum" in field:
        yield from (f"`{each}`" for each in field.get("enum", [field.get("const")]))
    elif field.get("type") not in (None, "null"):
        yield _kind(field)


def _kind(field: Schema) -> str:
    match field["type"]:
        case "boolean":
            return "`true` or `false`"
        case "integer" | "number":
            return ("whole number" if field["type"] == "integer" else "number") + _limits(field)
        case "array":
            inner = value(field["items"]) if field.get("items") else "values"
            return "list of " + re.sub(r"\b(text|number)\b", r"\1s", inner)
        case "object" if "patternProperties" in field:
            return "a section for each name"
        case "object":
            return "values by name"
    return "text"


def _limits(field: Schema) -> str:
    names = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
    names["exclusiveMaximum"] = "below"
    return "".join(f" {word} {field[name]:g}" for name, word in names.items() if name in field)


def scorers_table() -> str:
    """Return all scorers with what they report; the first metric stands in the main table."""
    rows = [
        (f"`{name}`", scorer.doc, ", ".join(_metric(each) for each in scorer.metrics))
        for name, scorer in SCORERS.items()
    ]
    return table(("scorer", "meaning", "metrics"), rows)


def _metric(metric: Metric) -> str:
    return f"{metric.label} (`{metric.name}`)"


def options_table(shared: bool) -> str:
    """Return the options that several methods have alike, or those that only one of them has."""
    rows = [
        (", ".join(names), *option)
        for option, names in options_of_methods().items()
        if (len(names) > 1) == shared
    ]
    head = ("methods" if shared else "method", "option", "value", "default", "meaning")
    return table(head, rows)


def options_of_methods() -> dict[tuple[str, ...], list[str]]:
    """Return the methods and choices between runs that have each option, in their order.

    Methods of installed plug-ins are left out.
    """
    owners: dict[str, type[Method[Any]] | type[Selection]] = {**METHODS, **SELECTIONS}
    methods: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, owner in owners.items():
        if owner.__module__.startswith("adafuse."):
            for option, field in owner.Options.model_json_schema().get("properties", {}).items():
                row = (f"`{option}`", value(field), _option_default(field), field["description"])
                methods[row].append(f"`{name}`")
    return methods


def _option_default(field: Mapping[str, Any]) -> str:
    if "default" not in field:
        return "required"
    given = field["default"]
    return f"`{given if isinstance(given, str) else json.dumps(given)}`"


def columns_table() -> str:
    """Return all columns of a trace with their types and meanings."""
    found = [row for field in TRACE_FIELDS for row in _columns(field.name, field.type)]
    return table(("column", "type", "meaning"), [(f"`{p}`", t, COLUMNS[p]) for p, t in found])


def _columns(path: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    """Say what is under a path, lists and records opened."""
    if pa.types.is_list(kind):
        inner = kind.value_type
        if pa.types.is_struct(inner) or pa.types.is_list(inner):
            yield f"{path}[]", "list of records" if pa.types.is_struct(inner) else "list of lists"
        else:
            yield f"{path}[]", f"list of {_TYPES[str(inner)]}s"
        yield from _inside(f"{path}[]", inner)
    elif not pa.types.is_struct(kind):
        yield path, _TYPES[str(kind)]


def _inside(path: str, kind: pa.DataType) -> Iterator[tuple[str, str]]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _columns(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(kind):
        yield from _columns(path, kind)


def metadata_table(kind: str) -> str:
    """Return the keys of a kind of metadata, in order."""
    meanings: Mapping[str, str] = METADATA[kind]
    return table(("key", "meaning"), [(f"`{key}`", meaning) for key, meaning in meanings.items()])
