"""The kinds of facts in the toy world and the ways in which each can be asked and stated."""

from dataclasses import dataclass


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
