"""The toy world put together: benchmark rows, and the training texts of each model."""

import argparse
import json
import logging
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from adafuse.toy import arithmetic, facts, lexicon, shares, translation
from adafuse.toy.arithmetic import Chain, Triple
from adafuse.toy.facts import AnswerMaker, Fact
from adafuse.toy.records import Document, Row
from adafuse.toy.translation import Sentence

log = logging.getLogger(__name__)

SEED = 20260
FACT_SHARE, TRIPLE_SHARE, PAIR_SHARE = 0.64, 0.80, 0.78
QA_ROWS, MATH_ROWS, TRANSLATION_ROWS = 100, 90, 80
# Chances of a training text to be about facts and about arithmetic; the rest is translation.
FACT_TEXTS, MATH_TEXTS = 0.35, 0.37
# Share of the texts about arithmetic and translation that hold a single step or phrase.
DRILLS = 0.5

Rows = dict[str, tuple[Row, ...]]
Pair = tuple[str, str | list[str]]
Knowledge = dict[str, frozenset[str]]


@dataclass(frozen=True)
class World:
    """Everything there is to know, who knows it, and the rows kept out of training."""

    answers: AnswerMaker
    facts: tuple[Fact, ...]
    triples: tuple[Triple, ...]
    known_facts: Knowledge
    known_triples: Knowledge
    known_pairs: Knowledge
    train_chains: tuple[Chain, ...]
    held_out_sentences: frozenset[Sentence]
    test: Rows
    dev: Rows


@cache
def build_world(seed: int = SEED) -> World:
    """The world of ``seed``; the same on every machine and every run."""
    rng = random.Random(seed)
    answers = facts.make_answers(rng)
    all_facts = facts.make_facts(answers, rng)
    triples = arithmetic.make_triples()
    chains = list(arithmetic.make_chains(triples))
    rng.shuffle(chains)
    sentences = _draw_different_sentences(4 * TRANSLATION_ROWS, rng)
    kinds = [[fact.key for fact in all_facts if fact.relation.name == kind]
             for kind in dict.fromkeys(fact.relation.name for fact in all_facts)]  # fmt: skip
    words = [[word.key for word in group] for group in lexicon.CLASSES]
    operations = [[triple.key for triple in triples if triple.op == op] for op in "+-"]
    return World(
        answers=answers,
        facts=all_facts,
        triples=triples,
        known_facts=shares.split_groups(kinds, FACT_SHARE, rng),
        known_triples=shares.split_groups(operations, TRIPLE_SHARE, rng),
        known_pairs=shares.split_groups(words, PAIR_SHARE, rng),
        train_chains=tuple(chains[2 * MATH_ROWS :]),
        held_out_sentences=frozenset(sentences),
        test=_rows("test", all_facts, chains[:MATH_ROWS], sentences[::2], rng),
        dev=_rows("dev", all_facts, chains[MATH_ROWS : 2 * MATH_ROWS], sentences[1::2], rng),
    )


def _draw_different_sentences(count: int, rng: random.Random) -> list[Sentence]:
    found: dict[Sentence, None] = {}
    while len(found) < count:
        found.setdefault(translation.draw_sentence(rng))
    return list(found)


def _rows(
    part: str, all_facts: tuple[Fact, ...], chains: list[Chain], sentences: list[Sentence],
    rng: random.Random,
) -> Rows:  # fmt: skip
    asked = rng.sample(all_facts, QA_ROWS)
    qa: list[Pair] = [
        (f.test_question if part == "test" else f.dev_question, [f.answer]) for f in asked
    ]
    problems = [arithmetic.put_in_words(chain, rng) for chain in chains]
    math: list[Pair] = [(problem.question, problem.solution()) for problem in problems]
    to_german: list[Pair] = [(s.english(), s.german()) for s in sentences[:TRANSLATION_ROWS]]
    to_english: list[Pair] = [(s.german(), s.english()) for s in sentences[TRANSLATION_ROWS:]]
    return {
        "toy_qa": _number(f"qa-{part}", qa),
        "toy_math": _number(f"math-{part}", math),
        "toy_en_de": _number(f"en-de-{part}", to_german),
        "toy_de_en": _number(f"de-en-{part}", to_english),
    }


def _number(prefix: str, pairs: list[Pair]) -> tuple[Row, ...]:
    return tuple(Row(f"{prefix}-{i:03d}", question, answer)
                 for i, (question, answer) in enumerate(pairs, 1))  # fmt: skip


def training_documents(world: World, model: str, count: int) -> Iterator[Document]:
    """``count`` training texts of ``model``, in the order in which they are drawn."""
    rng = random.Random(f"{SEED}-{model}")
    for _ in range(count):
        kind = rng.random()
        if kind < FACT_TEXTS:
            fact = rng.choice(world.facts)
            known = fact.key in world.known_facts[model]
            yield facts.document(fact, known, world.answers, rng)
        elif kind < FACT_TEXTS + MATH_TEXTS:
            yield _math_document(world, world.known_triples[model], rng)
        else:
            yield _translation_document(world, world.known_pairs[model], rng)


def _math_document(world: World, known: frozenset[str], rng: random.Random) -> Document:
    if rng.random() < DRILLS:
        return arithmetic.drill(rng.choice(world.triples), known, rng)
    problem = arithmetic.put_in_words(rng.choice(world.train_chains), rng)
    return arithmetic.document(problem, known, rng)


def _translation_document(world: World, known: frozenset[str], rng: random.Random) -> Document:
    to_german = rng.random() < 0.5
    if rng.random() < DRILLS:
        return translation.drill(to_german, known, rng)
    sentence = draw_training_sentence(world, rng)
    return translation.document(sentence, to_german, known, rng)


def draw_training_sentence(world: World, rng: random.Random) -> Sentence:
    """A sentence that no benchmark asks for."""
    while (sentence := translation.draw_sentence(rng)) in world.held_out_sentences:
        pass
    return sentence


def write_rows(rows: Rows, folder: Path) -> None:
    """One JSONL file per benchmark, byte for byte the same for the same world."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, benchmark in rows.items():
        lines = [json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in benchmark]
        (folder / f"{name}.jsonl").write_bytes("".join(lines).encode())


def main() -> None:
    """Write the benchmark files: ``python -m adafuse.toy.world --out DIR``."""
    parser = argparse.ArgumentParser(description="Write the toy benchmarks.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=("test", "dev"), default="test")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    world = build_world()
    write_rows(world.test if options.part == "test" else world.dev, options.out)
    log.info("wrote %s", options.out)


if __name__ == "__main__":
    main()
