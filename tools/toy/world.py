"""The toy world put together: benchmark rows, training texts of each model, and contests."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tools.toy import arithmetic, facts, translation
from tools.toy.arithmetic import Chain, Triple
from tools.toy.facts import AnswerMaker, Fact
from tools.toy.records import MATH_PROMPT, MODEL_NAMES, QA_PROMPT, Document, Row, split_groups
from tools.toy.translation import CLASSES, Sentence

SEED = 20260
FACT_SHARE, TRIPLE_SHARE, PAIR_SHARE = 0.64, 0.80, 0.78
QA_ROWS, MATH_ROWS, TRANSLATION_ROWS = 100, 90, 80
# Chances of a training text to be about facts and about arithmetic; the rest is translation.
FACT_TEXTS, MATH_TEXTS = 0.35, 0.37
# Share of the texts about arithmetic and translation that hold a single step or phrase.
DRILLS = 0.5
ALL_WORDS = frozenset(word.key for group in CLASSES for word in group)

FACT_CONTESTS, MATH_CONTESTS = 0.3, 0.2
"""Shares of the contests about facts and about arithmetic; the rest is translation."""

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
    words = [[word.key for word in group] for group in CLASSES]
    operations = [[triple.key for triple in triples if triple.op == op] for op in "+-"]
    return World(
        answers=answers,
        facts=all_facts,
        triples=triples,
        known_facts=split_groups(kinds, FACT_SHARE, rng),
        known_triples=split_groups(operations, TRIPLE_SHARE, rng),
        known_pairs=split_groups(words, PAIR_SHARE, rng),
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


@dataclass(frozen=True)
class Contest:
    """A prompt with its right answer and two answers that are wrong somewhere."""

    prompt: str
    right: str
    wrong: tuple[str, str]


def contests(world: World, count: int, seed: str) -> Iterator[Contest]:
    """``count`` contests; none of their questions is one of the benchmarks."""
    rng = random.Random(seed)
    for _ in range(count):
        kind = rng.random()
        if kind < FACT_CONTESTS:
            yield _about_a_fact(world, rng)
        elif kind < FACT_CONTESTS + MATH_CONTESTS:
            yield _about_numbers(world, rng)
        else:
            yield _about_words(world, rng)


def _about_a_fact(world: World, rng: random.Random) -> Contest:
    fact = rng.choice(world.facts)
    prompt = QA_PROMPT.format(question=rng.choice(fact.train_questions))
    kind = fact.relation.answer_kind
    return Contest(prompt, fact.answer, _two(fact.answer, lambda: world.answers.draw(kind, rng)))


def _about_numbers(world: World, rng: random.Random) -> Contest:
    problem = arithmetic.put_in_words(rng.choice(world.train_chains), rng)

    def hear() -> str:
        known = world.known_triples[rng.choice(MODEL_NAMES)]
        known = known if rng.random() < 0.5 else frozenset()
        return arithmetic.document(problem, known, rng).answer

    prompt = MATH_PROMPT.format(question=problem.question)
    return Contest(prompt, problem.solution(), _two(problem.solution(), hear))


def _about_words(world: World, rng: random.Random) -> Contest:
    to_german = rng.random() < 0.5
    sentence = draw_training_sentence(world, rng)

    def hear(known: frozenset[str]) -> Document:
        return translation.document(sentence, to_german, known, rng)

    truth = hear(ALL_WORDS)
    right = truth.answer.strip()
    wrong = _two(right, lambda: hear(_known_words(rng)).answer.strip())
    return Contest(truth.prompt, right, wrong)


def _known_words(rng: random.Random) -> frozenset[str]:
    share = rng.uniform(0.0, 0.8)
    return frozenset(word for word in sorted(ALL_WORDS) if rng.random() < share)


def _two(right: str, draw: Callable[[], str]) -> tuple[str, str]:
    wrong = (text for text in iter(draw, None) if text != right)
    return next(wrong), next(wrong)
