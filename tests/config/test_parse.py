"""Configurations: what is refused, and how that reads."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy
import pytest
import yaml
from safetensors.numpy import save
from snakemake.utils import update_config

from adafuse.config.config import Config
from adafuse.config.reading import parse_config, read_config, to_json
from adafuse.errors import UserError
from adafuse.workflow.plan import Plan

ROOT = Path(__file__).parents[2]
QA = ("benchmarks", "qa")


def changed(values: dict[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    *above, last = path
    place = values
    for key in above:
        place = place[key]
    place[last] = value
    return values


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("result",), "x", "config: unknown key 'result'; known are: plugins, results, note"),
        (("runs", "both"), {"modls": []}, "runs.both: unknown key 'modls'; known are: method, mo"),
        ((*QA, "metrik"), "x", "benchmarks.qa: unknown key 'metrik'; known are: source, prompt"),
        ((*QA, "source", "url"), "x", "benchmarks.qa.source: unknown key 'url'; known are: file"),
        (("runs", "both", "tau"), 1, "runs.both: unknown key 'tau'; known are: method, models"),
        (("models", "left", "dtype"), 1, "models.left: unknown key 'dtype'; known are: path"),
        (("decode", "gpus"), 1, "decode: unknown key 'gpus'; known are: engine, batch_size"),
        (("runs", "both"), {"models": ["left"]}, "runs.both has no 'method'; add it"),
        ((*QA, "max_new_tokens"), 0, "max_new_tokens must be greater than or equal to 1, not 0"),
        ((*QA, "max_new_tokens"), "9", "max_new_tokens must be a valid integer, not '9'"),
        ((*QA, "shards"), True, "shards must be a valid integer, not True"),
        (("decode", "engine"), "fast", "decode.engine must be 'tree' or 'reference', not 'fast'"),
        (("decode", "dtype"), "auto", "decode.dtype must be 'float32', 'bfloat16' or 'float16'"),
        (("runs",), {}, "config: runs must have at least 1 item, not {}"),
        (("runs",), None, "config: runs must be a valid dictionary, not None"),
        (("runs", "both", "models"), [], "runs.both.models "),
        (("runs", "both", "models"), ["left", "rigth"], "unknown model 'rigth'; known are: left"),
        (("runs", "both", "method"), "adafuze", "runs.both: unknown method 'adafuze'"),
        (("runs", "both", "options"), {"tao": 1}, "both: method adafuse: unknown option 'tao'"),
        (("runs", "both", "options"), {"tau": -0.5}, "runs.both: method adafuse: tau "),
        (("runs", "left", "models"), ["left", "right"], "runs.left: method single needs exactly 1"),
        (("runs", "both", "weights"), [1], "runs.both: 1 weights for 2 models; give one per model"),
        (("runs", "both", "weights"), [0, 0], "runs.both: weights [0.0, 0.0] must be at least 0"),
        (("runs", "both", "weights"), [-1, 1], "greater than or equal to 0, not -1"),
        ((*QA, "scorer"), "rouge", "benchmarks.qa.scorer: unknown scorer 'rouge'; known are: nq"),
        ((*QA, "prompt"), "Answer:", "qa.prompt must hold {question} exactly once, not 'Answer:'"),
        ((*QA, "prompt"), "{question} {question}", "must hold {question} exactly once, not '{q"),
        ((*QA, "prompt"), "{Question}", "must hold {question} exactly once, not '{Question}'"),
        ((*QA, "source", "file"), "no.jsonl", "benchmarks.qa: file 'no.jsonl' does not exist"),
        ((*QA, "source", "file"), "/", "benchmarks.qa: file '/' is a folder; check its path"),
        ((*QA, "shots"), {"file": "no.txt"}, "benchmarks.qa: file 'no.txt' does not exist"),
        ((*QA, "shots"), {"count": 1}, "benchmarks.qa.shots has no 'file'; add it"),
        ((*QA, "shots"), {"file": "x", "n": 1}, "qa.shots: unknown key 'n'; known are: file"),
        ((*QA, "source", "fields"), {"q": "x"}, "qa.source.fields: unknown key 'q'; known are: q"),
        ((*QA, "prompt_layout"), "loose", "qa.prompt_layout must be 'strict' or 'published', not"),
        ((*QA, "sample"), {"size": 20}, "benchmarks.qa: sample.size 20 is more than its 12 rows"),
        ((*QA, "ids"), ["r1", 5], "benchmarks.qa: no row has the id '5'; correct `ids`"),
        ((*QA, "ids"), [], "benchmarks.qa.ids "),
        ((*QA, "ids"), [1.5], "benchmarks.qa.ids.0 must be a valid string, not 1.5"),
        ((*QA, "ids_file"), "no.txt", "benchmarks.qa: file 'no.txt' does not exist"),
        ((*QA, "source"), {}, "benchmarks.qa.source: give a `file` or a `dataset`, one of them"),
        ((*QA, "source", "dataset"), "a/b", "benchmarks.qa.source: give a `file` or a `dataset`"),
        ((*QA, "source", "split"), "test", "benchmarks.qa.source: split is for a dataset"),
        ((*QA, "source"), {"dataset": "a/b"}, "qa.source: dataset 'a/b' has no split; add"),
        ((*QA, "source"), {"dataset": "./b", "split": "test"}, "'./b' is not a folder; give a"),
        ((*QA, "source"), {"dataset": "a/b", "split": "test", "revision": "main"}, "is not a com"),
        ((*QA, "source"), {"dataset": "a/b", "split": "t", "answer_config": "d"}, "name fields.id"),
        ((*QA, "stop"), [5], "config: benchmarks.qa.stop.0 must be a valid string, not 5; put it"),
        ((*QA, "stop"), [{"string": "."}], "qa.stop.0: stop string has no 'after'; add it"),
        ((*QA, "stop"), [{"string": ".", "afer": "x"}], "stop string: unknown key 'afer'; known"),
        (("models", "left"), "a/b", "not 'a/b'; write names with values, as in {name: value}"),
        ((*QA, "shards"), 50, "shards empty; use fewer shards"),
        (("models", "left", "path"), "./none", "models.left: './none' is not a folder"),
        (("models", "left", "path"), "a/b/c", "models.left: 'a/b/c' is not a folder"),
        (("models", "left", "revision"), "main", "revision 'main' is for hub models"),
        (("runs", "a b"), {"method": "single", "models": ["left"]}, "runs: 'a b' cannot name"),
        (("runs", "größe"), {"method": "single", "models": ["left"]}, "use letters (a to z)"),
        (("runs", "../up"), {"method": "single", "models": ["left"]}, "'../up' cannot name"),
        (("runs", "Left"), {"method": "single", "models": ["left"]}, "files of 'left' and 'Left'"),
        (("results",), "a{b}", "results: 'a{b}' has a '{', which Snakemake cannot take"),
        (("note",), 3, "config: note must be a valid string, not 3"),
        (("protocols",), ["published"], "config: protocols must be [strict] or [strict, "),
        (("protocols",), ["strict", "strict"], "[strict, published], not ['strict', 's"),
        (("protocols",), ["lenient"], "protocols.0 must be 'strict' or 'published', not 'lenient'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(
    values: dict[str, Any], path: tuple[str, ...], value: object, sentence: str
) -> None:
    with pytest.raises(UserError) as error:
        Plan.of(changed(values, path, value))
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_an_answer_that_the_scorer_cannot_read_is_found_while_planning(
    values: dict[str, Any], tmp_path: Path
) -> None:
    with (tmp_path / "qa.jsonl").open("a") as file:
        file.write(json.dumps({"id": "x", "question": "How many?", "answer": "Paris"}) + "\n")
    values["benchmarks"]["qa"]["scorer"] = "gsm8k"
    told = "the gold answer 'Paris' of row 'x' of benchmark 'qa' has no number; correct it or use"
    with pytest.raises(UserError, match=told):
        Plan.of(values)


def test_a_misspelt_section_is_named_before_the_one_that_is_missing(values: dict[str, Any]) -> None:
    values["runz"] = values.pop("runs")
    with pytest.raises(UserError, match=r"config: unknown key 'runz'; .*; did you mean 'runs'\?$"):
        parse_config(values)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [("config.json", "has no config.json"), ("tokenizer.json", "has no tokenizer")],
)
def test_a_model_folder_that_lacks_a_file_is_one_sentence(
    values: dict[str, Any], tmp_path: Path, file: str, sentence: str
) -> None:
    (tmp_path / "left" / file).unlink()
    with pytest.raises(UserError, match=f"^models.left: .* {sentence}"):
        parse_config(values)


def test_an_adapter_that_cannot_be_used_is_told_before_any_job(
    values: dict[str, Any], tmp_path: Path
) -> None:
    values["models"]["left"]["adapter"] = str(tmp_path)
    with pytest.raises(UserError, match=r"^models\.left: adapter .* has no adapter_config\.json"):
        parse_config(values)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    with pytest.raises(UserError, match=r"^models\.left: adapter .* has no adapter_model"):
        parse_config(values)


def test_weights_that_are_cut_off_are_told_before_any_job(
    values: dict[str, Any], tmp_path: Path
) -> None:
    weights = tmp_path / "left" / "model.safetensors"
    weights.write_bytes(save({"weight": numpy.zeros(9)})[:-1])
    told = r"^models.left: the file 'model.safetensors' of model .* is cut off"
    with pytest.raises(UserError, match=told):
        parse_config(values)


@pytest.mark.parametrize("name", ["run", "macro_average", "qa_low", "x_n", "x_cut", "x_failed"])
def test_a_benchmark_cannot_take_the_name_of_another_column(
    values: dict[str, Any], name: str
) -> None:
    values["benchmarks"][name] = values["benchmarks"]["qa"]
    with pytest.raises(UserError, match=f"'{name}' is also a column"):
        parse_config(values)


def test_a_good_configuration_survives_being_stored(values: dict[str, Any], tmp_path: Path) -> None:
    config = parse_config(values)
    (tmp_path / "config.json").write_text(to_json(config))
    assert read_config(tmp_path / "config.json") == config


def test_a_stored_configuration_that_is_missing_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json' cannot be read: .*No such file"):
        read_config(tmp_path / "config.json")


@pytest.mark.parametrize("text", ["", "[1]", "a: [", "'"])
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError) as error:
        read_config(tmp_path / "config.yaml")
    assert "\n" not in str(error.value)


def test_nothing_is_written_while_planning(values: dict[str, Any], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    Plan.of(values)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("name", ["toy", "smoke"])
def test_the_configurations_of_the_project_are_of_the_right_form(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    config = read_config(ROOT / f"config/{name}.yaml")
    assert {"mistral", "llama", "adafuse", "fixed_3"} <= config.runs.keys()


@pytest.mark.parametrize(("below", "above"), [("toy", "controller"), ("small", "small_controller")])
def test_the_configurations_that_extend_another_one_are_of_the_right_form(
    below: str, above: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    values, more = (
        yaml.safe_load((ROOT / f"config/{name}.yaml").read_text()) for name in (below, above)
    )
    update_config(values, more)  # as Snakemake does with two files after --configfile
    assert "gates" in parse_config(values).experiments


def test_the_paper_may_be_decoded_on_servers_but_for_methods_that_cannot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    values: dict[str, Any] = {}
    for name in ("paper", "served"):
        update_config(values, yaml.safe_load((ROOT / f"config/{name}.yaml").read_text()))
    (tmp_path / "both.json").write_text(json.dumps(values))
    config = read_config(tmp_path / "both.json")
    loading = {
        cell
        for cell in product(config.benchmarks, config.decoded_runs)
        if any(model.server is None for model in config.model_specs(*cell))
    }
    assert {run for benchmark, run in loading if benchmark == "squad"} == {
        *("unite", "unite_llama", "gac", "deepen", "deepen_llama", "bytewise")
    }
    timed = {run for benchmark, run in loading if benchmark.endswith("timed")}
    assert timed == {*config.decoded_runs}


def test_every_field_is_explained_in_the_readme() -> None:
    text = (ROOT / "config/README.md").read_text()
    schema = Config.model_json_schema()
    sections = [schema, *schema["$defs"].values()]
    fields = {field for section in sections for field in section.get("properties", {})}
    assert not {field for field in fields if f"`{field}`" not in text}
