"""Questions with a right answer and rumours, for training a ranker and a fuser."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from adafuse.toy import arithmetic, lexicon, translation
from adafuse.toy.records import MATH_FRAME, MODEL_NAMES, QA_FRAME, Document
from adafuse.toy.world import World, draw_training_sentence

ALL_WORDS = frozenset(word.key for group in lexicon.CLASSES for word in group)

FACTS, NUMBERS = 0.3, 0.2
"""Shares of the contests about facts and about arithmetic; the rest is translation."""


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
        if kind < FACTS:
            yield _about_a_fact(world, rng)
        elif kind < FACTS + NUMBERS:
            yield _about_numbers(world, rng)
        else:
            yield _about_words(world, rng)


def _about_a_fact(world: World, rng: random.Random) -> Contest:
    fact = rng.choice(world.facts)
    prompt = QA_FRAME.format(question=rng.choice(fact.train_questions))
    kind = fact.relation.answer_kind
    return Contest(prompt, fact.answer, _two(fact.answer, lambda: world.answers.draw(kind, rng)))


def _about_numbers(world: World, rng: random.Random) -> Contest:
    problem = arithmetic.put_in_words(rng.choice(world.train_chains), rng)

    def hear() -> str:
        known = world.known_triples[rng.choice(MODEL_NAMES)]
        known = known if rng.random() < 0.5 else frozenset()
        return arithmetic.document(problem, known, rng).answer

    prompt = MATH_FRAME.format(question=problem.question)
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
