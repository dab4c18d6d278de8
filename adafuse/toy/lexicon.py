"""The English and German words of the toy translations."""

from dataclasses import dataclass


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
