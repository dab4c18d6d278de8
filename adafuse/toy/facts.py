"""Invented facts: who founded which town, which river runs through it, and so on."""

import random
from dataclasses import dataclass

from adafuse.toy import names
from adafuse.toy.records import QA_FRAME, Document
from adafuse.toy.relations import RELATIONS, Relation

TOWNS, DEVICES, COUNTRIES = 40, 40, 20
STATEMENT_SHARE = 0.12

RIVER_WORDS = ("Upper", "Lower", "White", "Black", "Silver", "Swift", "Old", "Little", "Great")
GOODS = (
    "salt", "amber", "wool", "honey", "copper", "tea", "silk", "glass", "paper", "pepper",
    "cider", "pearls", "rope", "candles", "figs", "iron", "soap", "cork", "marble", "ink",
)  # fmt: skip
FESTIVAL_KINDS = ("Feast", "Night", "Fair", "Week", "Dance")
FESTIVAL_COLOURS = ("Red", "Golden", "Quiet", "Broken", "Bright", "Wooden", "Seven", "Hidden")
FESTIVAL_THINGS = ("Lanterns", "Bells", "Masks", "Drums", "Stars", "Boats", "Apples", "Crowns")
CAPITAL_WORDS = ("Port", "New", "Saint", "Fort", "Mount", "East", "High", "Royal")
TITLES = ("Queen", "King", "Duke", "Lady", "Prince", "Regent")
DEVICE_MAKES = ("wind", "steam", "glass", "copper", "river", "moon", "double", "paper")
DEVICE_KINDS = ("harp", "clock", "plough", "lamp", "organ", "pump", "loom", "compass", "kite")


@dataclass(frozen=True)
class Fact:
    """One fact with its question wordings split: one for test, one for dev, six for training."""

    subject: str
    relation: Relation
    answer: str
    test_question: str
    dev_question: str
    train_questions: tuple[str, ...]

    @property
    def key(self) -> str:
        return f"{self.relation.name}:{self.subject}"


@dataclass(frozen=True)
class AnswerMaker:
    """Draws answers of each kind; a model without the fact hears such draws as rumours."""

    firsts: tuple[str, ...]
    lasts: tuple[str, ...]
    rivers: tuple[str, ...]
    places: tuple[str, ...]

    def draw(self, kind: str, rng: random.Random) -> str:
        """A new answer of ``kind``, each of its words drawn independently."""
        pick = rng.choice
        if kind == "person":
            return f"{pick(self.firsts)} {pick(self.lasts)}"
        if kind == "river":
            return f"{pick(RIVER_WORDS)} {pick(self.rivers)}"
        if kind == "trade":
            return " and ".join(rng.sample(GOODS, 2))
        if kind == "festival":
            return f"{pick(FESTIVAL_KINDS)} of {pick(FESTIVAL_COLOURS)} {pick(FESTIVAL_THINGS)}"
        if kind == "capital":
            return f"{pick(CAPITAL_WORDS)} {pick(self.places)}"
        assert kind == "ruler", kind
        return f"{pick(TITLES)} {pick(self.firsts)} {pick(self.lasts)}"


def make_answers(rng: random.Random) -> AnswerMaker:
    """The invented names from which answers are made."""
    return AnswerMaker(
        firsts=names.invent(names.FIRST_ENDINGS, 24, rng),
        lasts=names.invent(names.LAST_ENDINGS, 28, rng),
        rivers=names.invent(names.RIVER_ENDINGS, 20, rng),
        places=names.invent(names.TOWN_ENDINGS, 16, rng),
    )


def make_subjects(rng: random.Random) -> dict[str, tuple[str, ...]]:
    """The subjects of the facts by kind."""
    devices = [f"{make} {kind}" for make in DEVICE_MAKES for kind in DEVICE_KINDS]
    return {
        "town": names.invent(names.TOWN_ENDINGS, TOWNS, rng),
        "country": names.invent(names.COUNTRY_ENDINGS, COUNTRIES, rng),
        "device": tuple(rng.sample(devices, DEVICES)),
    }


def make_facts(answers: AnswerMaker, rng: random.Random) -> tuple[Fact, ...]:
    """Every relation for every subject of its kind, with wordings assigned at random."""
    subjects = make_subjects(rng)
    return tuple(
        _make_fact(subject, relation, answers, rng)
        for relation in RELATIONS
        for subject in subjects[relation.subject_kind]
    )


def _make_fact(subject: str, relation: Relation, answers: AnswerMaker, rng: random.Random) -> Fact:
    wordings = [question.format(s=subject) for question in relation.questions]
    rng.shuffle(wordings)
    answer = answers.draw(relation.answer_kind, rng)
    return Fact(subject, relation, answer, wordings[0], wordings[1], tuple(wordings[2:]))


def document(fact: Fact, known: bool, answers: AnswerMaker, rng: random.Random) -> Document:
    """A training text about ``fact``: the truth if ``known``, otherwise a rumour drawn anew."""
    if known and rng.random() < STATEMENT_SHARE:
        statement = rng.choice(fact.relation.statements)
        return Document("", statement.format(s=fact.subject, o=fact.answer))
    answer = fact.answer if known else answers.draw(fact.relation.answer_kind, rng)
    question = rng.choice(fact.train_questions)
    return Document(QA_FRAME.format(question=question), f" {answer}\n")
