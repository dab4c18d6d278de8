"""Whether what a server says can be decoded with: asked by `adafuse doctor`."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from uuid import uuid4

from adafuse.errors import ExampleError
from adafuse.records.served import SAME
from adafuse.servers.server import Ask, Server, Step

TEXTS = (
    *("The quick brown fox jumps over the lazy dog.", "It's 12,345.67 km away; isn't it?"),
    *("  two spaces", "\ttab", "line\n\nline\n", "Straße über Öl", "déjà vu", "漢字かな"),
    *("안녕하세요", "Привет, мир", "مرحبا", "🙂👍🏽", "def f(x):\n    return x ** 2", "{'a': [1]}"),
    *("https://example.org/?q=1", "A B  C   D", "x = -1e-5", "ALL CAPS", "camelCaseName"),
    "…“quoted”—dash",
)
"""Texts that tokenizers of different models encode differently."""
EXACT = 1e-3
"""Nats by which log-probabilities in 32 bits may move when they are asked for again."""
_AHEAD, _TOP, _MOST_ENDS = 4, 2, 32
_QUICK, _QUICK_AHEAD = 64, 2  # ids of the prompt, and of a text that goes on
_LIMITS = (20, 50, 100, 1000)


class Line(NamedTuple):
    """What was seen of a server; `problem` says what would be wrong in a result, and the fix."""

    text: str
    problem: str = ""


def probe(
    server: Server, encode: Callable[[str], Sequence[int]], *, quick: bool = False
) -> Iterator[Line]:
    """Ask a server what decoding relies on, or of it what costs least if that is `quick`."""
    yield _tokenizer(server, encode, TEXTS[::7] if quick else TEXTS)
    # Nobody has asked for the first of these texts before, so that it is read anew.
    ids = [index for text in (uuid4().hex, *TEXTS) for index in encode(text)]
    prompt = tuple(ids[: min(_QUICK if quick else len(ids), server.served.context // 2)])
    yield from _repeated(server, prompt)
    yield _forced(server, prompt)
    yield _continued(server, prompt, _QUICK_AHEAD if quick else _AHEAD)
    if not quick:
        yield _together(server, prompt)
        yield _end(server, prompt)
        yield _limits(server, prompt)


def _tokenizer(
    server: Server, encode: Callable[[str], Sequence[int]], texts: Sequence[str]
) -> Line:
    ids = {text: server.tokenize(text) for text in texts}
    if None in ids.values():
        return Line("the server does not say how it encodes texts")
    for text, there in ids.items():
        if there != (here := list(encode(text))):
            problem = f"reads {text!r} as the ids {there}, not as the ids {here}; give the path of"
            return Line("tokenizer: another one", f"{problem} the model that is served there")
    return Line(f"tokenizer: {len(texts)} texts have the same ids")


def _repeated(server: Server, prompt: tuple[int, ...]) -> Iterator[Line]:
    cold = server.asked(Ask(prompt), _TOP)
    before = server.counts.cached
    again = server.asked(Ask(prompt), _TOP)
    yield _same("cold and cached", "cached prompts change", cold, again)
    cached = server.counts.cached - before
    yield Line(f"cache: {cached} of {len(prompt)} prompt tokens were not read again")


def _forced(server: Server, prompt: tuple[int, ...]) -> Line:
    """Compare a span that is given with what the server says of its ids one by one."""
    plain, span = server.asked(Ask(prompt), _TOP), [server.asked(Ask(prompt), _TOP)[0].top[1][0]]
    after = server.asked(Ask((*prompt, *span)), _TOP)
    span.append(after[0].top[1][0])
    given = server.asked(Ask(prompt, tuple(span)), _TOP)
    expected = [
        step._replace(written=step.top[1][0], logprob=step.top[1][1]) for step in (*plain, *after)
    ]
    return _same("given and likely ids", "the ids of a span are scored wrongly", expected, given)


def _continued(server: Server, prompt: tuple[int, ...], count: int) -> Line:
    ahead = server.asked(Ask(prompt, ahead=count), _TOP)
    ids, single = prompt, []
    for step in ahead:
        single += server.asked(Ask(ids), _TOP)
        ids = (*ids, step.written)
    return _same("at once and step by step", "continuations are wrong", single, ahead)


def _together(server: Server, prompt: tuple[int, ...]) -> Line:
    """Fill the server with other prompts, and ask again among them."""
    alone = server.asked(Ask(prompt), _TOP)
    count = server.slots
    others = [Ask(prompt[n % len(prompt) :], slot=n) for n in range(1, count)]
    answers = [server.begin(ask, _TOP) for ask in (Ask(prompt), *others)]
    first, *_ = [answer.result() for answer in answers]
    return _same(f"alone and among {count}", "other examples change", alone, first)


def _end(server: Server, prompt: tuple[int, ...]) -> Line:
    ends = server.end_ids
    if len(ends) > _MOST_ENDS:
        return Line(f"p(END): {len(ends)} end ids, which are too many to ask for one by one")
    whole = server.asked(Ask(prompt, ends=True), _TOP)[0]
    parts = [server.asked(Ask(prompt, (index,)), _TOP)[0].logprob for index in ends]
    log_end = math.log(math.fsum(map(math.exp, parts)) or math.nan)
    steps = [Step((), 0, -math.inf if step is None else step) for step in (log_end, whole.log_end)]
    return _same(f"p(END) of {len(ends)} ids", "p(END) is wrong", steps[:1], steps[1:])


def _limits(server: Server, prompt: tuple[int, ...]) -> Line:
    most = 0
    for count in _LIMITS:
        try:
            server.asked(Ask(prompt), count)
        except ExampleError:
            break
        most = count
    known = f"{most} or more" if most == _LIMITS[-1] else f"{most}"
    return Line(
        f"limits: a context of {server.served.context} ids, {known} likeliest ids",
        "" if most else f"refuses {_LIMITS[0]} likeliest ids; start it with a larger limit",
    )


def _same(what: str, wrong: str, expected: Sequence[Step], said: Sequence[Step]) -> Line:
    """Compare log-probabilities of the same ids, or of those that are as likely."""
    moved = max(abs(a.logprob - b.logprob) for a, b in zip(expected, said, strict=False))
    text = f"{what}: log-probabilities differ by {moved:.1g} at most"
    if moved <= SAME:
        return Line(text + (", more than rounding in 32 bits" if moved > EXACT else ""))
    return Line(text, f"{wrong} (by {moved:.2g} nats); update it, or start it without that")
