"""Numbers as people and models write them: digits, fractions, powers, LaTeX and English words."""

import re
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

_TEENS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
_TY = "twenty thirty forty fifty sixty seventy eighty ninety"
_POWERS = "thousand million billion trillion quadrillion quintillion sextillion septillion"
_NTH = "first second third fourth fifth sixth seventh eighth ninth"
_ONES, _TENS, _ORDINALS = _TEENS.split(), _TY.split(), _NTH.split()
_SMALL = {word: n for n, word in enumerate(_ONES)} | {w: 10 * n for n, w in enumerate(_TENS, 2)}
_SMALL |= {f"{word} score": 20 * n for n, word in enumerate(_ONES) if n > 1}
_SMALL |= {f"oh {word}": n for n, word in enumerate(_ONES[:10])}  # nineteen oh five
_SCALES = {word: 1000**power for power, word in enumerate(_POWERS.split(), 1)}
_SCALES |= {"lakh": 10**5, "crore": 10**7, "mn": 10**6, "bn": 10**9, "tn": 10**12}
_UNITS = {"hundred": 100, "dozen": 12}
_PARTS = {word: n for n, word in enumerate(_ORDINALS, 1) if n > 2}
_PARTS |= {"half": 2, "halve": 2, "quarter": 4, "tenth": 10}


def _any(words: "list[str] | dict[str, int]") -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_MEASURES = r" ?(?:cup|tea|table|inch|feet|foot|yard|mile|pound|ounce|hour)"
_LONGEST = 1000  # digits; what is longer is no answer
_DIGITS = r"(?:\d{1,3}(?: \d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,'_]\d+)*|(?<![\w.])\.\d+)"
_EXPONENT = r"(?: *\^ *|\*\*)\(?(?P<{}>-?\d+)\)?"
_TOKEN = re.compile(
    # times that are no full hour, ratios, dates, ordinals, 0x1F, 3-1/2 of nothing, and the
    # exponent of a unit or a variable
    r"(?P<skip>\^ *\(?-?\d+\)?|(?<=[a-z])\*\*\d+\b(?!\*)"
    r"|\d+(?!\d|:00(?![\d:]))(?::\d+)+|\d+/\d+/\d+|\d{4}-\d\d-\d\d|\d+(?:st|nd|rd|th)\b"
    rf"|\b0[xob][\da-f]+\b|(?<![\w.,/^-])\d+-\d+/\d+\b(?!{_MEASURES})"
    rf"|\b(?:{_any(_TENS)})(?:-| (?!second))(?:{_any(_ORDINALS)})\b)"
    # A minus is a sign unless it stands between two numbers or words, as in 10-3.
    r"|(?:(?P<said>\bnegative|\bminus)\s+)?(?:"
    r"(?P<sign>(?<![\w.)%])-)?(?:(?P<money>[$€£¥₹]) ?(?P<inner>-)?)?(?:"
    rf"(?P<whole>\d+)(?: |-(?=\d+/\d+{_MEASURES}))(?P<above>\d+) ?/ ?(?P<below>\d+)"
    rf"|(?P<numerator>{_DIGITS}) ?/ ?(?P<denominator>{_DIGITS})"
    rf"|(?P<factor>{_DIGITS}) ?[x*] ?10{_EXPONENT.format('ten')}"
    rf"|(?P<base>{_DIGITS}){_EXPONENT.format('power')}"
    rf"|(?P<mantissa>{_DIGITS})e(?P<e>[+-]?\d+)\b"
    rf"|(?P<digits>{_DIGITS})(?:(?P<suffix>[kmb](?!\$)| [kmb](?![$)]))\b|:00)?)"
    rf"|\b(?P<parts>an?|{_any(_ONES[1:])})(?P<hyphen>[ -])(?P<part>{_any(_PARTS)})(?P<s>s?)\b"
    rf"|(?<![a-z])(?P<word>half(?: of)?(?= an? (?:{_any(_SCALES | _UNITS)})\b)"
    rf"|an?(?= (?:{_any(_SCALES | _UNITS)})\b)|point(?= (?:{_any(_ONES[:10])})\b)"
    rf"|{_any(_SMALL)}|(?:{_any(_SCALES | _UNITS)})(?P<plural>s?))\b)",
    re.ASCII | re.IGNORECASE,
)
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:([ ,'_])\d{3})(?:\1\d{3})*(?:\.\d+)?", re.ASCII)
_LAKHS = re.compile(r"[1-9]\d?(?:,\d{2})+,\d{3}(?:\.\d+)?", re.ASCII)
_PLAIN = re.compile(r"\d*(?:\.\d+)?", re.ASCII)
_COMMA = re.compile(
    r"[1-9]\d{0,2}(?:([ .'])\d{3})(?:\1\d{3})*,\d+|[1-9]\d{0,2}(?:\.\d{3}){2,}|\d+,\d{1,2}|0,\d+",
    re.ASCII,
)


class Number(NamedTuple):
    """A number and where it stands; `digits` says whether some of it is written in digits."""

    value: Fraction
    start: int
    end: int
    digits: bool


class _Token(NamedTuple):
    """A numeral, a fraction or a word of a number; `value` is None for a word."""

    word: str
    value: Fraction | None
    match: re.Match[str]

    @property
    def digits(self) -> bool:
        return not self.word and not self.match["parts"]


def numbers(text: str) -> list[Number]:
    """Return all numbers of a text that `plain` returned, in order."""
    return list(_Reader(text).all())


class _Reader:
    """Joins the tokens of a text to numbers: "two million five hundred thousand", "3 and a half".

    A term is a number below 1000 (or in digits) and perhaps a scale, such as thousand; terms join
    while their scales fall.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [token for match in _TOKEN.finditer(text) for token in _tokens(match)]

    def all(self) -> Iterator[Number]:
        at = 0
        while at < len(self._tokens):
            first = self._tokens[at]
            value, end = self._cardinal(at)
            if value is not None and not self._is_article(at, end):
                negative = first.match["sign"] or first.match["inner"] or self._is_sign(first)
                place = first.match.start(), self._tokens[end - 1].match.end()
                digits = any(token.digits for token in self._tokens[at:end])
                yield Number(-value if negative else value, *place, digits)
            at = end

    def _is_article(self, at: int, end: int) -> bool:
        """Whether it is "a third" and no more, which may be a third person."""
        parts, part = self._tokens[at].match["parts"], self._tokens[at].match["part"]
        return end == at + 1 and (parts or "").lower() in ("a", "an") and part.lower() != "half"

    def _is_sign(self, token: _Token) -> bool:
        """Whether the number is negative; "minus" is subtraction except after a few words."""
        said = (token.match["said"] or "").lower()
        return said == "negative" or (said == "minus" and self._begins(token))

    def _begins(self, token: _Token) -> bool:
        """Whether a number may begin here: neither "ten minus three" nor "this point five"."""
        start = token.match.start()
        return bool(_BEFORE_SIGN.search(self._text[max(0, start - _NEAR) : start]))

    def _word(self, at: int) -> str:
        return self._tokens[at].word if at < len(self._tokens) else ""

    def _gap(self, at: int) -> str:
        """Return how a token is joined to the one before it: " ", "and", "," or not at all ("")."""
        if at >= len(self._tokens) or self._tokens[at].match["said"]:
            return ""
        before, own = self._tokens[at - 1].match, self._tokens[at].match
        between = self._text[before.end() : own.start()].lower()
        if before is own or own["sign"] or own["money"]:
            return ""
        if re.fullmatch(r"[ \t-]*", between):
            return " "
        return {"and": "and", ",": ",", ", and": "and"}.get(between.strip(" \t-"), "")

    def _cardinal(self, at: int) -> tuple[Fraction | None, int]:
        """Return the number that begins at a token, and the token after it."""
        total, below = Fraction(0), 0
        while True:
            value, end = self._below_thousand(at)
            if value is None:
                return (total, at) if below else (None, at + 1)
            scale = _SCALES.get(self._word(end), 0) if self._gap(end) or end == at else 0
            if scale:
                value, end = self._with_part(value * scale, end + 1)
            if below and (value >= below or (self._gap(at) == "," and value < 100)):
                return total, at
            total += value
            if not scale:
                return total, end
            if self._word(end) in _SCALES and self._gap(end) == " ":  # one thousand million
                return None, end + 1
            if not self._gap(end):
                return total, end
            at, below = end, scale

    def _below_thousand(self, at: int) -> tuple[Fraction | None, int]:
        if at >= len(self._tokens):
            return None, at
        word, value = self._tokens[at].word, self._tokens[at].value
        if word in _SCALES or word in _UNITS:
            if self._tokens[at].match["plural"]:  # thousands of them
                return None, at
            value, end = Fraction(1), at
        elif value is not None:
            end = at + 1
        elif word in _SMALL or (word == "point" and self._begins(self._tokens[at])):
            value, end = self._small(at)
        elif word == "point":  # at this point
            return None, at
        else:
            half = word.startswith("half")  # and an article
            value, end = Fraction(1, 2 if half else 1), at + 1 + half
        if self._word(end) == "hundred" and (end == at or self._gap(end) == " "):
            value, end = 100 * value, end + 1
            if self._word(end) in _SMALL and self._gap(end) in (" ", "and"):
                more, end = self._small(end)
                value += more
        if self._word(end) == "dozen" and (end == at or self._gap(end) == " "):
            value, end = 12 * value, end + 1
        return self._with_part(value, end)

    def _with_part(self, value: Fraction, end: int) -> tuple[Fraction, int]:
        """Add "and three quarters"; "and a half" of the million or dozen before it."""
        if self._gap(end) != "and" or not (part := _beside_whole(self._tokens[end])):
            return value, end
        article = (self._tokens[end].match["parts"] or "").lower() in ("a", "an")
        unit = (_SCALES | _UNITS).get(self._word(end - 1), 1) if article else 1
        return value + part * unit, end + 1

    def _small(self, at: int) -> tuple[Fraction, int]:
        """Read a number below 100 or a year in words, and decimals after "point"."""
        first = self._word(at)
        value, end = Fraction(_SMALL.get(first, 0)), at + (first != "point")
        joints = (" ", "and") if first.endswith("score") else (" ",)
        more = self._word(end) if end > at and self._gap(end) in joints else ""
        if 13 <= value <= 20 and (9 < _SMALL.get(more, 0) < 100 or more.startswith("oh ")):
            value, (rest, end) = 100 * value, self._small(end)
            return value + rest, end
        if value >= 20 and 0 < _SMALL.get(more, 0) < 10:
            value, end = value + _SMALL[more], end + 1
        if self._word(end) == "point" and (end == at or self._gap(end) == " "):
            unit, end = Fraction(1, 10), end + 1
            while _SMALL.get(self._word(end), 10) < 10 and self._gap(end) == " ":
                value, unit, end = value + _SMALL[self._word(end)] * unit, unit / 10, end + 1
        return value, end


_NEAR = 40  # characters
_BEFORE_SIGN = re.compile(
    r"(?:(?:^|[^\w)%\s])|\b(?:is|are|was|were|be|to|of|or|and|than|at|from|by|about|gets?))\s*$",
    re.IGNORECASE,
)


def _tokens(match: re.Match[str]) -> Iterator[_Token]:
    """Yield what a match comes to: a numeral, several in a list such as 2,1500, or a word."""
    if match["word"]:
        yield _Token(match["word"].lower().removesuffix("s" * bool(match["plural"])), None, match)
    elif match["parts"]:
        if (value := _part(match)) is not None:
            yield _Token("", value, match)
    elif not match["skip"]:
        yield from (_Token("", value, match) for value in _values(match))


def _part(match: re.Match[str]) -> Fraction | None:
    """Return the value of "two thirds"; three quarters are coins, three-quarters are not."""
    above, name = _SMALL.get(match["parts"].lower(), 1), match["part"].lower()
    if (above > 1) != bool(match["s"]):
        return None
    coins = name == "quarter" and match["hyphen"] == " " and match["parts"].lower() != "a"
    return Fraction(above, 1 if coins else _PARTS[name])


def _beside_whole(token: _Token) -> Fraction | None:
    """Return what "and three quarters" and "and 3/4" add to the number before them."""
    match, value = token.match, token.value
    if match["part"] and value is not None:
        return Fraction(_SMALL.get(match["parts"].lower(), 1), _PARTS[match["part"].lower()])
    return value if match["denominator"] and value is not None and value < 1 else None


def _values(match: re.Match[str]) -> list[Fraction]:
    def one(name: str) -> Fraction | None:
        found = _read_digits(match[name])
        return found[0] if len(found) == 1 else None

    if match["below"]:
        whole, part = one("whole"), _divided(one("above"), one("below"))
        if whole is None or part is None:
            return []
        return [whole + part] if part < 1 else [whole, part]
    if match["denominator"]:
        part = _divided(one("numerator"), one("denominator"))
        return [] if part is None else [part]
    for name, exponent, ten in (("factor", "ten", 10), ("mantissa", "e", 10), ("base", "power", 0)):
        if match[exponent]:
            value, power = one(name), int(match[exponent][:5])
            digits = abs(power) * (1 if ten else len(match[name]))
            if value is None or (power < 0 and not value) or digits > _LONGEST:
                return []
            return [value * Fraction(ten) ** power if ten else value**power]
    found = _read_digits(match["digits"])
    suffix = (match["suffix"] or "").lower()
    scale = {"k": 3, "m": 6, "b": 9}.get(suffix.strip(), 0)
    return [value * 10**scale for value in found] if suffix == "k" or match["money"] else found


def _divided(above: Fraction | None, below: Fraction | None) -> Fraction | None:
    return above / below if above is not None and below else None


def _read_digits(digits: str) -> list[Fraction]:
    """Return the number that digits and separators mean, several for a list, none if unclear."""
    if len(digits) > _LONGEST:
        return []
    if any(form.fullmatch(digits) for form in (_THOUSANDS, _LAKHS, _PLAIN)):
        return [Fraction(re.sub("[ ,'_]", "", digits))]
    if _COMMA.fullmatch(digits):
        return [Fraction(re.sub("[ .']", "", digits).replace(",", "."))]
    items = digits.split(",")
    return [Fraction(item) for item in items] if all(map(_PLAIN.fullmatch, items)) else []


_CHARACTERS = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d", "-"),
    **dict.fromkeys("\u00d7\u00b7\u22c5\u2217", "*"),
    **dict.fromkeys("\u2044\u2215", "/"),
    **dict.fromkeys("\u2248\u2245", "="),
    **dict.fromkeys("\uff0c\u066c", ","),
    **dict.fromkeys("\uff0e\u066b", "."),
    **dict.fromkeys("\u2019\u02bc", "'"),
    "\uff04": "$",
    "\uff05": "%",
    "\uff1d": "=",
}
_GROUP = r"\{([^{}]*)\}"
_LENGTH = r"[kcdm]?m|ft|feet|foot|yd|yards?|miles?|inch(?:es)?|met(?:er|re)s?"
_ROOT = (  # with its factor and what is added to it
    r"(?:(?<![\d.,])\d+(?:[.,]\d+)* *\*? *)?"
    r"(?:[√∛∜]|\\?\b(?i:sqrt)(?:\[[^]]*\])?|\b(?i:root of)) *"
    rf"(?:{_GROUP}|\([^()]*\)|\d+(?:[.,]\d+)*)(?: *[-+*/] *\d+(?:[.,]\d+)*)?"
)
_LATEX = [
    (re.compile(form), written)
    for form, written in (
        (r"\{([,.'])\}", r"\1"),
        (r"\\!", ""),
        (r"\\[,;: >]|~|\\(?:thinspace|enspace|q?quad)(?![A-Za-z])", " "),
        (r"\\([$%#&_])", r"\1"),
        (r"\\(?:times|cdot|ast)(?![A-Za-z])", "*"),
        (r"\\(?:approx|simeq|implies|Rightarrow|equiv)(?![A-Za-z])|\bequals?\b", "="),
        (r"\^\{?\\circ\}?|\\(?:left|right|displaystyle)(?![A-Za-z])", ""),
        (r"(?<=\d)\^\{?(?:\\text\{)?(st|nd|rd|th)\b\}*", r"\1"),
        (_ROOT, " root "),
        (r"(?i)\boh-", "oh "),
        (r"(?i)\bfour(?=ty\b)", "for"),
        (r"(?i)\bnin(?=ty\b|teen\b)", "nine"),
        (r"(?i)\bfive?(?=ty\b|teen\b)", "fif"),
        (rf"(?<=\d) *\\[dtc]?frac *{_GROUP} *{_GROUP}", r" \1/\2"),
        (rf"\\[dtc]?frac *{_GROUP} *{_GROUP}", r"\1/\2"),
        (r"(?<=\d) *\\[dtc]?frac *(\d) *(\d)", r" \1/\2"),
        (r"\\[dtc]?frac *(\d) *(\d)", r"\1/\2"),
        (rf"\^ *{_GROUP}|\\textsuperscript *{_GROUP}|<sup>([^<>]*)</sup>", r"^\1\2\3"),
        (rf"(?<=[A-Za-z)}}$])_(?:\d+|{_GROUP})|<sub>[^<>]*</sub>", " "),
        (rf"\b({_LENGTH}|m/s)[23]\b", r"\1"),
        (r"(?<=[A-Za-z)]) *\^ *-?\w+", ""),
        (rf"\\(?:text|math|mbox|operatorname|emph|boxed|fbox)[a-z]* *{_GROUP}", r" \1 "),
    )
]
_REST = re.compile(r"\\[A-Za-z]+|[\\{}]")


def plain(text: str) -> str:
    """Return a text with its LaTeX and its odd characters as plain ASCII writes them."""
    return _REST.sub(" ", _written(text))


def unread(text: str) -> list[str]:
    """Return the commands of LaTeX that `plain` leaves out."""
    return re.findall(r"\\[A-Za-z]+", _written(text))


def _written(text: str) -> str:
    text = "".join(map(_character, text, "\n" + text))
    for _ in range(3):  # as deep as braces are nested
        for form, written in _LATEX:
            text = form.sub(written, text)
    return text


def _character(character: str, before: str) -> str:
    if character.isascii():
        return character
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    kind, meant = unicodedata.category(character), unicodedata.normalize("NFKC", character)
    if kind == "Zs":
        return " "
    if kind == "Cf":
        return ""
    if "\u2044" in meant:  # one half, as one character
        return " " * before.isdecimal() + meant.replace("\u2044", "/")
    if unicodedata.decomposition(character).startswith("<super>") and meant in "0123456789\u2212":
        joined = before.isascii() and (before.isalnum() or before in ")}$")
        return "^" * joined + meant.replace("\u2212", "-")
    return character
