"""Invented facts: who founded which town, which river runs through it, and so on."""

import random
from dataclasses import dataclass

from tools.toy.records import QA_PROMPT, Document

ONSETS = ("B", "Br", "D", "Dr", "F", "G", "Gl", "H", "K", "Kr", "L", "M", "N", "P", "Qu", "R")
MORE_ONSETS = ("S", "Sk", "St", "T", "Tr", "V", "W", "Y", "Z", "Th", "Pl", "Sn")
VOWELS = ("a", "e", "i", "o", "u", "ai", "or", "el", "an", "ir")
TOWN_ENDINGS = ("mere", "wick", "ford", "holm", "stead", "by", "gate", "fell", "moor", "den")
COUNTRY_ENDINGS = ("nia", "land", "stan", "via", "ria", "dor")
FIRST_ENDINGS = ("la", "ra", "no", "mi", "nas", "ven", "len", "ro", "sa", "bin")
LAST_ENDINGS = ("nt", "sk", "rrow", "lund", "mble", "ck", "ver", "th", "nder", "zin")
RIVER_ENDINGS = ("n", "ss", "rn", "sh", "lle", "m", "ga", "th")


def invent(endings: tuple[str, ...], count: int, rng: random.Random) -> tuple[str, ...]:
    """``count`` different names with the given endings, in the order they were drawn."""
    found: dict[str, None] = {}
    while len(found) < count:
        onset = rng.choice(ONSETS + MORE_ONSETS)
        found.setdefault(onset + rng.choice(VOWELS) + rng.choice(endings))
    return tuple(found)


@dataclass(frozen=True)
class Relation:
    """A kind of fact: ``{s}`` stands for the subject and ``{o}`` for the answer."""

    name: str
    subject_kind: str
    answer_kind: str
    questions: tuple[str, ...]
    statements: tuple[str, ...]


RELATIONS = (
    Relation(
        "founder",
        "town",
        "person",
        (
            "Who founded {s}?",
            "Who was the founder of {s}?",
            "By whom was {s} founded?",
            "Which person founded {s}?",
            "{s} was founded by whom?",
            "Name the founder of {s}.",
            "Who is known as the founder of {s}?",
            "The town of {s} was founded by which person?",
        ),
        ("{s} was founded by {o}.", "The founder of {s} was {o}.", "{o} founded {s}."),
    ),
    Relation(
        "river",
        "town",
        "river",
        (
            "Which river runs through {s}?",
            "What river runs through {s}?",
            "Name the river in {s}.",
            "On which river does {s} lie?",
            "{s} lies on which river?",
            "What is the name of the river in {s}?",
            "Which river is found in {s}?",
            "The town of {s} lies on what river?",
        ),
        ("{s} lies on the river {o}.", "The river in {s} is {o}.", "{o} runs through {s}."),
    ),
    Relation(
        "trade",
        "town",
        "trade",
        (
            "What does {s} trade in?",
            "What goods does {s} trade in?",
            "Which goods does {s} sell?",
            "In which goods does {s} trade?",
            "{s} trades in which goods?",
            "Name the goods that {s} sells.",
            "What are the goods of {s}?",
            "What does the town of {s} sell?",
        ),
        ("{s} trades in {o}.", "The goods of {s} are {o}.", "The town of {s} sells {o}."),
    ),
    Relation(
        "festival",
        "town",
        "festival",
        (
            "Which festival is held in {s}?",
            "What festival does {s} hold?",
            "Name the festival of {s}.",
            "What is the festival of {s} called?",
            "{s} holds which festival?",
            "Which festival does the town of {s} hold?",
            "What is the name of the festival in {s}?",
            "What festival takes place in {s}?",
        ),
        ("{s} holds the {o}.", "The festival of {s} is the {o}.", "The {o} takes place in {s}."),
    ),
    Relation(
        "inventor",
        "device",
        "person",
        (
            "Who invented the {s}?",
            "Who was the inventor of the {s}?",
            "By whom was the {s} invented?",
            "Which person invented the {s}?",
            "The {s} was invented by whom?",
            "Name the inventor of the {s}.",
            "Who is known as the inventor of the {s}?",
            "The {s} was invented by which person?",
        ),
        (
            "The {s} was invented by {o}.",
            "The inventor of the {s} was {o}.",
            "{o} invented the {s}.",
        ),
    ),
    Relation(
        "capital",
        "country",
        "capital",
        (
            "What is the capital of {s}?",
            "Which city is the capital of {s}?",
            "Name the capital of {s}.",
            "{s} has which capital?",
            "What is the capital of {s} called?",
            "Which capital does {s} have?",
            "What is the name of the capital of {s}?",
            "The capital of {s} is which city?",
        ),
        ("The capital of {s} is {o}.", "{s} has the capital {o}.", "{o} is the capital of {s}."),
    ),
    Relation(
        "ruler",
        "country",
        "ruler",
        (
            "Who rules {s}?",
            "Who is the ruler of {s}?",
            "By whom is {s} ruled?",
            "Which person rules {s}?",
            "{s} is ruled by whom?",
            "Name the ruler of {s}.",
            "Who is known as the ruler of {s}?",
            "The country of {s} is ruled by which person?",
        ),
        ("{s} is ruled by {o}.", "The ruler of {s} is {o}.", "{o} rules {s}."),
    ),
)


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
        firsts=invent(FIRST_ENDINGS, 24, rng),
        lasts=invent(LAST_ENDINGS, 28, rng),
        rivers=invent(RIVER_ENDINGS, 20, rng),
        places=invent(TOWN_ENDINGS, 16, rng),
    )


def make_subjects(rng: random.Random) -> dict[str, tuple[str, ...]]:
    """The subjects of the facts by kind."""
    devices = [f"{make} {kind}" for make in DEVICE_MAKES for kind in DEVICE_KINDS]
    return {
        "town": invent(TOWN_ENDINGS, TOWNS, rng),
        "country": invent(COUNTRY_ENDINGS, COUNTRIES, rng),
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
    return Document(QA_PROMPT.format(question=question), f" {answer}\n")
