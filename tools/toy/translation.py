"""Sentences of the toy translations: a small grammar that is correct in English and German."""

import random
from dataclasses import dataclass, replace

from tools.toy.records import DE_EN_PROMPT, EN_DE_PROMPT, Document


@dataclass(frozen=True)
class Word:
    """A pair of words; ``gender`` is m, f or n for nouns and empty for everything else.

    German adjectives are stored as stems and get their ending in the sentence.
    """

    english: str
    german: str
    gender: str = ""

    @property
    def key(self) -> str:
        return f"{self.english}={self.german}"


def _words(text: str) -> tuple[Word, ...]:
    return tuple(Word(*item.split("/")) for item in text.split(", "))


BEINGS = _words(
    "man/Mann/m, woman/Frau/f, child/Kind/n, doctor/Arzt/m, teacher/Lehrer/m, baker/Bäcker/m, "
    "fisherman/Fischer/m, aunt/Tante/f, uncle/Onkel/m, girl/Mädchen/n, queen/Königin/f, "
    "king/König/m, cat/Katze/f, dog/Hund/m, horse/Pferd/n, bird/Vogel/m, cow/Kuh/f, mouse/Maus/f"
)
THINGS = _words(
    "house/Haus/n, book/Buch/n, bread/Brot/n, apple/Apfel/m, table/Tisch/m, chair/Stuhl/m, "
    "door/Tür/f, window/Fenster/n, garden/Garten/m, flower/Blume/f, tree/Baum/m, boat/Boot/n, "
    "letter/Brief/m, lamp/Lampe/f, clock/Uhr/f, key/Schlüssel/m, bridge/Brücke/f, hat/Hut/m, "
    "coat/Mantel/m, knife/Messer/n, picture/Bild/n, stone/Stein/m, bottle/Flasche/f"
)
ADJECTIVES = _words(
    "old/alt, young/jung, small/klein, big/groß, red/rot, blue/blau, green/grün, white/weiß, "
    "black/schwarz, new/neu, good/gut, beautiful/schön, long/lang, cold/kalt, rich/reich, "
    "happy/fröhlich, quiet/ruhig, heavy/schwer, strange/seltsam, clean/sauber"
)
VERBS = _words(
    "sees/sieht, loves/liebt, finds/findet, buys/kauft, sells/verkauft, paints/malt, seeks/sucht, "
    "carries/trägt, brings/bringt, draws/zeichnet, shows/zeigt, knows/kennt, holds/hält, "
    "forgets/vergisst, needs/braucht, hides/versteckt, takes/nimmt, steals/stiehlt"
)
TIMES = _words(
    "today/heute, tomorrow/morgen, every day/jeden Tag, on Monday/am Montag, in summer/im Sommer, "
    "in winter/im Winter, at night/in der Nacht, in the evening/am Abend, again/wieder, now/jetzt"
)

CLASSES = (BEINGS, THINGS, ADJECTIVES, VERBS, TIMES)


ADJECTIVE_CHANCE = 0.65
TIME_CHANCE = 0.6
# (definite, gender, is subject) -> article and adjective ending; only the masculine has cases.
GERMAN_FORMS = {
    (True, "m", True): ("der", "e"),
    (True, "f", True): ("die", "e"),
    (True, "n", True): ("das", "e"),
    (True, "m", False): ("den", "en"),
    (True, "f", False): ("die", "e"),
    (True, "n", False): ("das", "e"),
    (False, "m", True): ("ein", "er"),
    (False, "f", True): ("eine", "e"),
    (False, "n", True): ("ein", "es"),
    (False, "m", False): ("einen", "en"),
    (False, "f", False): ("eine", "e"),
    (False, "n", False): ("ein", "es"),
}


@dataclass(frozen=True)
class NounPhrase:
    """An article, perhaps an adjective, and a noun."""

    definite: bool
    adjective: Word | None
    noun: Word

    def english(self) -> str:
        words = [self.adjective.english] if self.adjective else []
        words.append(self.noun.english)
        indefinite = "an" if words[0][0] in "aeiou" else "a"
        return " ".join(["the" if self.definite else indefinite, *words])

    def german(self, is_subject: bool) -> str:
        article, ending = GERMAN_FORMS[self.definite, self.noun.gender, is_subject]
        adjective = [self.adjective.german + ending] if self.adjective else []
        return " ".join([article, *adjective, self.noun.german])


@dataclass(frozen=True)
class Sentence:
    """Subject, verb, object and perhaps a time."""

    subject: NounPhrase
    verb: Word
    object: NounPhrase
    time: Word | None

    def english(self) -> str:
        parts = [self.subject.english(), self.verb.english, self.object.english()]
        return _finish(parts + ([self.time.english] if self.time else []))

    def german(self) -> str:
        parts = [self.subject.german(True), self.verb.german, self.object.german(False)]
        return _finish(parts + ([self.time.german] if self.time else []))


def _finish(parts: list[str]) -> str:
    text = " ".join(parts)
    return text[0].upper() + text[1:] + "."


def draw_sentence(rng: random.Random) -> Sentence:
    """A sentence drawn at random: somebody does something to something."""
    return Sentence(
        subject=_draw_phrase(BEINGS, rng),
        verb=rng.choice(VERBS),
        object=_draw_phrase(BEINGS + THINGS, rng),
        time=rng.choice(TIMES) if rng.random() < TIME_CHANCE else None,
    )


def _draw_phrase(nouns: tuple[Word, ...], rng: random.Random) -> NounPhrase:
    adjective = rng.choice(ADJECTIVES) if rng.random() < ADJECTIVE_CHANCE else None
    return NounPhrase(rng.random() < 0.5, adjective, rng.choice(nouns))


def _hear(word: Word, known: frozenset[str], rng: random.Random) -> Word:
    if word.key in known:
        return word
    return rng.choice(next(words for words in CLASSES if word in words))


def _hear_phrase(phrase: NounPhrase, known: frozenset[str], rng: random.Random) -> NounPhrase:
    adjective = _hear(phrase.adjective, known, rng) if phrase.adjective else None
    return replace(phrase, adjective=adjective, noun=_hear(phrase.noun, known, rng))


def rumoured(sentence: Sentence, known: frozenset[str], rng: random.Random) -> Sentence:
    """``sentence`` with every pair outside ``known`` replaced by a random word of its class."""

    return Sentence(
        _hear_phrase(sentence.subject, known, rng),
        _hear(sentence.verb, known, rng),
        _hear_phrase(sentence.object, known, rng),
        _hear(sentence.time, known, rng) if sentence.time else None,
    )


def document(
    sentence: Sentence, to_german: bool, known: frozenset[str], rng: random.Random
) -> Document:
    """A translated sentence; unknown words are translated by rumours drawn anew each time."""
    target = rumoured(sentence, known, rng)
    if to_german:
        prompt = EN_DE_PROMPT.format(question=sentence.english())
        return Document(prompt, f" {target.german()}\n")
    prompt = DE_EN_PROMPT.format(question=sentence.german())
    return Document(prompt, f" {target.english()}\n")


def drill(to_german: bool, known: frozenset[str], rng: random.Random) -> Document:
    """A translated noun phrase by itself, as it would stand at the start of a sentence."""
    phrase = _draw_phrase(BEINGS + THINGS, rng)
    target = _hear_phrase(phrase, known, rng)
    if to_german:
        prompt = EN_DE_PROMPT.format(question=_finish([phrase.english()]))
        return Document(prompt, f" {_finish([target.german(True)])}\n")
    prompt = DE_EN_PROMPT.format(question=_finish([phrase.german(True)]))
    return Document(prompt, f" {_finish([target.english()])}\n")
