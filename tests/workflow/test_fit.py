"""Gates that the workflow fits: on development rows, and again where these or the models change."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adafuse.decoding.gate import FittedModel, Gate
from adafuse.development.gate_file import prompt_hashes, write_gate
from adafuse.errors import UserError
from adafuse.models.files import model_key
from adafuse.storage.journal import journal_path, journal_rows
from adafuse.storage.parquet import read_metadata, read_rows
from adafuse.workflow.decode import fit_gate
from adafuse.workflow.jobs import fit_job
from adafuse.workflow.plan import Plan
from adafuse.workflow.steps import Job
from tests.conftest import TOY_MODELS, toy_path
from tests.decoding.test_gate import FITTED
from tests.support.interrupted import Interrupted
from tests.workflow.conftest import unfinished

Change = Callable[[dict[str, Any]], object]
LEARNED = {"fusion": "learned", "gate": "development", "tau": 0.7}


@pytest.fixture
def learning(values: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """A configuration with a run that learns, and one that does not."""
    rows = [{"id": f"d{n}", "question": f"dev {n}?", "answer": f"a{n}"} for n in range(5)]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    qa = values["benchmarks"]["qa"]
    source = {"file": str(tmp_path / "dev.jsonl")}
    values["benchmarks"] = {
        "qa": {**qa, "development": "dev"},
        "dev": {**qa, "source": source, "shards": 1},
    }
    values["runs"]["learned"] = {**values["runs"]["both"], "options": dict(LEARNED)}
    return {**values, "main": {"benchmarks": ["qa"]}}


def keys(values: dict[str, Any]) -> tuple[str, list[str], list[str]]:
    """The key of the gate, and the digests of the run that learns and of the other."""
    plan = Plan.of(values)
    gate = plan.key(Job.of("fit", "dev", "learned"))
    return gate, plan.digests("qa", "learned"), plan.digests("qa", "both")


def edit(values: dict[str, Any], benchmark: str, **fields: str) -> None:
    path = Path(values["benchmarks"][benchmark]["source"]["file"])
    first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([json.dumps(json.loads(first) | fields), *rest]) + "\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda v: edit(v, "dev", answer="another"),
        lambda v: edit(v, "dev", question="another?"),
        lambda v: v["benchmarks"]["dev"].update(scorer="triviaqa"),
        lambda v: v["benchmarks"]["dev"].update(max_new_tokens=9),
        lambda v: v["runs"]["learned"]["options"].update(tau=0.5),
        lambda v: v["runs"]["learned"].update(weights=[1, 2]),
        lambda v: v["models"]["left"].update(chat=True),
    ],
)
def test_what_a_gate_is_fitted_on_decides_the_gate_and_what_is_decoded_with_it(
    learning: dict[str, Any], change: Change
) -> None:
    gate, learned, both = keys(learning)
    change(learning)
    new_gate, new_learned, new_both = keys(learning)
    assert new_gate != gate
    assert all(new != old for new, old in zip(new_learned, learned, strict=True))
    assert (new_both == both) == ("chat" not in learning["models"]["left"])


def test_other_rows_and_runs_leave_the_gate(learning: dict[str, Any]) -> None:
    gate, learned, _ = keys(learning)
    edit(learning, "qa", question="another?")
    learning["runs"]["both"]["options"].update(tau=0.1)
    new_gate, new_learned, _ = keys(learning)
    assert new_gate == gate
    assert new_learned != learned


def test_an_experiment_shows_the_gates_of_its_runs(learning: dict[str, Any]) -> None:
    shown = {"title": "Gates", "kind": "gates", "benchmarks": ["qa"], "runs": ["learned"]}
    learning["experiments"] = {"trust": shown}
    plan = Plan.of(learning)
    assert plan.inputs(Job.of("experiment", "trust")) == [plan.layout.gate("dev", "learned")]
    before = plan.key(Job.of("experiment", "trust"))
    edit(learning, "qa", question="another?")
    assert Plan.of(learning).key(Job.of("experiment", "trust")) == before
    edit(learning, "dev", answer="another")
    assert Plan.of(learning).key(Job.of("experiment", "trust")) != before


@pytest.mark.parametrize("question", ["q3?", " Q3"])
@pytest.mark.parametrize("prompt", ["Question: {question}\nAnswer:", "Q:  {question}\nA:"])
def test_rows_that_are_tested_are_not_fitted_on(
    learning: dict[str, Any], question: str, prompt: str
) -> None:
    edit(learning, "dev", question=question)
    learning["benchmarks"]["dev"]["prompt"] = prompt
    with pytest.raises(UserError, match=r"row 'd0' of 'dev', .*is row 'r3' of 'qa'; fit on other"):
        Plan.of(learning)


@pytest.mark.parametrize("method", ["development_pair", "certified"])
def test_rows_that_are_tested_are_not_chosen_on(learning: dict[str, Any], method: str) -> None:
    edit(learning, "dev", question="q3?")
    del learning["runs"]["learned"]
    learning["runs"]["other"] = {"method": "single", "models": ["right"]}
    models = learning["runs"]["both"]["models"]
    options = {"runs": ["both"]}
    learning["runs"]["fair"] = {"method": method, "models": models, "options": options}
    said = "runs.fair: row 'd0' of 'dev', on which it is chosen, is row 'r3' of 'qa'; choose on"
    with pytest.raises(UserError, match=said):
        Plan.of(learning)


def test_a_benchmark_without_development_rows_is_refused(learning: dict[str, Any]) -> None:
    del learning["benchmarks"]["qa"]["development"]
    with pytest.raises(UserError, match="'qa' has no development rows to fit on; set its"):
        Plan.of(learning)


def test_a_file_as_gate_is_checked_and_counts_by_its_content(
    learning: dict[str, Any], tmp_path: Path
) -> None:
    folders = [learning["models"][name]["path"] for name in ("left", "right")]
    models = tuple(FittedModel(name=f, key=tuple(model_key(f, None))) for f in folders)
    digests = []
    for first in (0.0, 1.0):
        written = Gate(models=models, bias=(first, 0.0), weights={}, span={}, fitted=FITTED)
        path = tmp_path / f"gate-{first}.json"
        write_gate(path, written)
        learning["runs"]["learned"]["options"]["gate"] = str(path)
        digests.append(Plan.of(learning).digests("qa", "learned"))
    assert digests[0] != digests[1]
    learning["runs"]["learned"]["models"] = ["left", "hub"]
    with pytest.raises(UserError, match=r"was fitted on .*left and .*right, not on"):
        Plan.of(learning)
    learning["runs"]["learned"]["options"]["gate"] = "none.json"
    with pytest.raises(UserError, match=r"gate 'none\.json' cannot be read"):
        Plan.of(learning)


def test_a_file_as_gate_is_not_tested_or_certified_on_rows_that_it_was_fitted_on(
    learning: dict[str, Any], tmp_path: Path
) -> None:
    folders = [learning["models"][name]["path"] for name in ("left", "right")]
    models = tuple(FittedModel(name=f, key=tuple(model_key(f, None))) for f in folders)

    def use(benchmark: str) -> None:
        prompts = [row.prompt for row in plan.prepared(benchmark).rows[:2]]
        fitted = FITTED.model_copy(update={"prompts": prompt_hashes(prompts)})
        gate = Gate(models=models, bias=(0.0, 0.0), weights={}, span={}, fitted=fitted)
        write_gate(tmp_path / f"{benchmark}.json", gate)
        learning["runs"]["learned"]["options"]["gate"] = str(tmp_path / f"{benchmark}.json")

    plan = Plan.of(learning)
    use("qa")
    with pytest.raises(
        UserError, match=r"^runs\.learned: gate .* on 2 of the \d+ rows 'qa', .*test"
    ):
        Plan.of(learning)
    use("dev")
    Plan.of(learning)
    fitted = FITTED.model_copy(update={"prompts": prompt_hashes(["Ask me this: q3?", "Q3"])})
    gate = Gate(models=models, bias=(0.0, 0.0), weights={}, span={}, fitted=fitted)
    write_gate(tmp_path / "dev.json", gate)
    with pytest.raises(UserError, match=r"^runs\.learned: gate .* on 1 of the \d+ rows 'qa', "):
        Plan.of(learning)  # fitted with another template
    use("dev")
    learning["runs"]["other"] = {"method": "single", "models": ["right"]}
    models_of = learning["runs"]["both"]["models"]
    options = {"runs": ["learned"]}
    learning["runs"]["safe"] = {"method": "certified", "models": models_of, "options": options}
    with pytest.raises(
        UserError, match=r"^runs\.learned: gate .* on 2 of the 5 rows 'dev', .*test"
    ):
        Plan.of(learning)


def test_an_interrupted_fit_goes_on_where_it_was(
    learning: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where one of the rows that were decoded has changed."""
    decoding = Interrupted(monkeypatch, 3)
    learning["decode"]["batch_size"] = 1
    for name, model in {"left": "mistral", "right": "llama"}.items():
        learning["models"][name]["path"] = toy_path(model)

    def fitted() -> int:
        decoding.texts = 0
        plan = Plan.of(learning)
        fit_gate(fit_job(plan.config, "dev", "learned"), plan.prepared("dev").rows, "nq", out)
        return decoding.texts

    out = Plan.of(learning).layout.gate("dev", "learned")
    with pytest.raises(KeyboardInterrupt):
        fitted()
    assert len(journal_rows(journal_path(out))) == 3
    assert not out.exists()
    assert journal_path(out) not in Plan.of(learning).orphans()
    edit(learning, "dev", question="another?")
    left = fitted()
    assert json.loads(out.read_text())["fitted"]["rows"] == 5
    assert not journal_path(out).exists()
    assert fitted() == left + 2, "the first row had changed"


@pytest.mark.soak
def test_the_workflow_fits_a_gate_once_and_again_when_its_rows_change(
    tmp_path: Path, forked_python: str
) -> None:
    """From two files of rows to a trace that says what it was fitted on."""
    place = unfinished(tmp_path, forked_python)

    def learn(config: dict[str, Any]) -> None:
        mt = config["benchmarks"]["mt"] | {"max_new_tokens": 24}
        dev = {**mt, "source": {"file": "dev.jsonl"}}
        config["benchmarks"] = {"mt": {**mt, "development": "dev"}, "dev": dev}
        models = ["mistral", "llama"]
        config["runs"] = {
            "plain": {"method": "adafuse", "models": models},
            "learned": {"method": "adafuse", "models": models, "options": LEARNED},
        }
        config |= {"main": {"benchmarks": ["mt"]}}

    dev = TOY_MODELS.parent / "benchmarks/development/toy_en_de.jsonl"
    (tmp_path / "dev.jsonl").write_text("\n".join(dev.read_text().split("\n")[:12]) + "\n")
    place.configure(learn)
    place.run()
    gate = json.loads((tmp_path / "results/gates/dev/learned.json").read_text())
    assert (gate["fitted"]["benchmarks"], gate["fitted"]["rows"]) == (["dev"], 12)
    trace = tmp_path / "results/traces/mt/learned.parquet"
    (shard,) = read_metadata(trace)["shards"]
    assert shard["job"]["fitted_on"] == "dev"
    assert len(read_rows(trace)) == 9
    assert not place.plan().all
    place.write_rows("dev", [row | {"answer": "Nein."} for row in place.rows("dev")[:1]])
    assert {("fit", ("dev", "learned")), ("decode", ("mt", "learned", "0"))} <= place.plan().all
    assert {run for _, run, _ in place.plan().decodes} == {"learned"}
