"""Two-step word problems over a small table of additions and subtractions."""

import random
from dataclasses import dataclass

from tools.toy.records import MATH_PROMPT, Document

LARGEST = 15
LARGEST_SECOND = 7
PEOPLE = ("Mira", "Tom", "Anna", "Paul", "Lena", "Otto", "Rosa", "Emil", "Nora", "Hugo")
THINGS = ("apples", "coins", "books", "stones", "cards", "pears", "shells", "nuts", "eggs", "pens")
GAINS = (
    "{name} finds {b} more.",
    "{name} buys {b} more.",
    "{friend} gives {name} {b} more.",
    "{name} gets {b} more from {friend}.",
)
LOSSES = (
    "{name} loses {b}.",
    "{name} sells {b}.",
    "{name} gives {b} to {friend}.",
    "{friend} takes {b} from {name}.",
)


@dataclass(frozen=True)
class Triple:
    """One entry of the table: ``a op b``; both operands and the result lie in 1..15."""

    op: str
    a: int
    b: int

    @property
    def result(self) -> int:
        return self.a + self.b if self.op == "+" else self.a - self.b

    @property
    def key(self) -> str:
        return f"{self.a} {self.op} {self.b}"


@dataclass(frozen=True)
class Chain:
    """The numbers of a problem: start with ``a``, then two operations."""

    a: int
    op1: str
    b: int
    op2: str
    c: int

    @property
    def first(self) -> Triple:
        return Triple(self.op1, self.a, self.b)

    @property
    def second(self) -> Triple:
        return Triple(self.op2, self.first.result, self.c)


@dataclass(frozen=True)
class Problem:
    """A problem in words."""

    chain: Chain
    question: str
    name: str
    things: str

    def rationale(self, middle: int, last: int) -> str:
        """The chain of thought with the given (true or rumoured) results."""
        c = self.chain
        return (
            f"{self.name} has {c.a} {c.op1} {c.b} = {middle} {self.things}. "
            f"Then {self.name} has {middle} {c.op2} {c.c} = {last} {self.things}. "
            f"The answer is \\boxed{{{last}}}"
        )

    def solution(self) -> str:
        """The chain of thought with the true results."""
        return self.rationale(self.chain.first.result, self.chain.second.result)


def make_triples() -> tuple[Triple, ...]:
    """The whole table: second operands 2..7, first operands 2..15, results 1..15."""
    every = (
        Triple(op, a, b)
        for op in "+-"
        for a in range(2, LARGEST + 1)
        for b in range(2, LARGEST_SECOND + 1)
    )
    return tuple(triple for triple in every if 1 <= triple.result <= LARGEST)


def make_chains(triples: tuple[Triple, ...]) -> tuple[Chain, ...]:
    """Every pair of entries in which the second starts from the result of the first."""
    return tuple(
        Chain(one.a, one.op, one.b, two.op, two.b)
        for one in triples
        for two in triples
        if two.a == one.result
    )


def put_in_words(chain: Chain, rng: random.Random) -> Problem:
    """A problem in words with people, things and wordings drawn at random."""
    name, friend = rng.sample(PEOPLE, 2)
    things = rng.choice(THINGS)
    events = []
    for op, b in ((chain.op1, chain.b), (chain.op2, chain.c)):
        wording = rng.choice(GAINS if op == "+" else LOSSES)
        events.append(wording.format(name=name, friend=friend, b=b))
    question = (
        f"{name} has {chain.a} {things}. {events[0]} Then {events[1]} "
        f"How many {things} does {name} have now?"
    )
    return Problem(chain, question, name, things)


def document(problem: Problem, known: frozenset[str], rng: random.Random) -> Document:
    """A solved problem; results outside ``known`` are rumours, and the next step builds on them."""
    middle = _result(problem.chain.first, known, rng)
    second = Triple(problem.chain.op2, middle, problem.chain.c)
    last = _result(second, known, rng)
    return Document(MATH_PROMPT.format(question=problem.question), problem.rationale(middle, last))


def drill(triple: Triple, known: frozenset[str], rng: random.Random) -> Document:
    """One step of a solution by itself."""
    result = _result(triple, known, rng)
    name, things = rng.choice(PEOPLE), rng.choice(THINGS)
    return Document(f"{name} has {triple.a} {triple.op} {triple.b} =", f" {result} {things}.")


def _result(triple: Triple, known: frozenset[str], rng: random.Random) -> int:
    return triple.result if triple.key in known else rng.randint(1, LARGEST)
