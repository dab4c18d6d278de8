"""The toy world: benchmark files, what is kept out of training, and who knows what."""

import re
from pathlib import Path

import pytest

import adafuse.toy
from tools.toy import translation, world
from tools.toy.records import DEFAULT_PAIR, MODEL_NAMES, PROMPTS, questions
from tools.toy.train import Recipe

BENCHMARKS = Path(adafuse.toy.__path__[0]) / "benchmarks"
EVERYTHING = world.build_world()
ALL_KEYS = {
    "known_facts": {fact.key for fact in EVERYTHING.facts},
    "known_triples": {triple.key for triple in EVERYTHING.triples},
    "known_pairs": {word.key for group in translation.CLASSES for word in group},
}


@pytest.mark.parametrize("part", ["test", "dev"])
def test_committed_benchmarks_equal_the_regenerated_ones(tmp_path: Path, part: str) -> None:
    world.write_rows(getattr(EVERYTHING, part), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"{name}.jsonl" for name in PROMPTS)
    folder = BENCHMARKS if part == "test" else BENCHMARKS / "development"
    for fresh in tmp_path.iterdir():
        assert fresh.read_bytes() == (folder / fresh.name).read_bytes()


def test_the_world_does_not_depend_on_what_was_drawn_before() -> None:
    again = world.build_world.__wrapped__(world.SEED)
    assert again == EVERYTHING


@pytest.mark.parametrize("name", PROMPTS)
def test_rows_are_numerous_and_distinct_in_id_and_question(name: str) -> None:
    test, dev = EVERYTHING.test[name], EVERYTHING.dev[name]
    assert len(test) >= 60
    assert len({row.id for row in test + dev}) == len(test) + len(dev)
    assert len({row.question for row in test + dev}) == len(test) + len(dev)


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_no_held_out_question_is_a_question_or_an_answer_in_training(model: str) -> None:
    parts = [*EVERYTHING.test.values(), *EVERYTHING.dev.values()]
    held_out = frozenset().union(*(questions(rows) for rows in parts))
    documents = world.training_documents(EVERYTHING, model, Recipe.texts)
    lines = {line for d in documents for line in (d.prompt + d.answer).split("\n")}
    trained_on = {line.removeprefix("Question: ").removeprefix("Answer: ") for line in lines}
    assert not held_out & trained_on


def test_math_test_problems_are_chains_of_numbers_that_no_model_trains_on() -> None:
    def numbers(text: str) -> tuple[str, ...]:
        return tuple(re.findall(r"\d+ [+-] \d+", text))

    tested = {numbers(str(row.answer)) for row in EVERYTHING.test["toy_math"]}
    trained = {(c.first.key, c.second.key) for c in EVERYTHING.train_chains}
    assert len(tested) == len(EVERYTHING.test["toy_math"])
    assert not tested & trained


def test_math_answers_are_right() -> None:
    for row in EVERYTHING.test["toy_math"] + EVERYTHING.dev["toy_math"]:
        steps = re.findall(r"(\d+) ([+-]) (\d+) = (\d+)", str(row.answer))
        assert len(steps) == 2
        for a, op, b, result in steps:
            assert (int(a) + int(b) if op == "+" else int(a) - int(b)) == int(result)
        assert str(row.answer).endswith(f"\\boxed{{{steps[1][3]}}}")


@pytest.mark.parametrize("area", ["known_facts", "known_triples", "known_pairs"])
def test_the_default_pair_is_complementary_and_not_omniscient(area: str) -> None:
    known = getattr(EVERYTHING, area)
    everything = ALL_KEYS[area]
    first, second = (known[name] for name in DEFAULT_PAIR)
    assert 0.9 <= len(first | second) / len(everything) < 0.95
    assert {len(part) for part in known.values()} == {len(first)}
    assert 0.6 <= len(first) / len(everything) <= 0.85


def test_question_wordings_of_a_fact_are_split_without_overlap() -> None:
    for fact in EVERYTHING.facts:
        wordings = {fact.test_question, fact.dev_question, *fact.train_questions}
        assert len(wordings) == len(fact.relation.questions) == 8
