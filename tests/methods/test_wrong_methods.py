"""What a method of a plug-in does wrongly fails its row, with a sentence that names it."""

import math
import sys
from pathlib import Path

import pytest

from adafuse.decoding.fusion import mean_nll, per_candidate
from adafuse.decoding.method import Method
from adafuse.decoding.round import fuse_rounds
from adafuse.decoding.token_round import Choice, Entry, PendingText, fuse_tokens
from adafuse.decoding.words import add_word, empty_span
from adafuse.engine import scheduler
from adafuse.engine.node import evaluated, gather
from adafuse.errors import UserError
from adafuse.methods import METHODS
from adafuse.methods.registry import register
from adafuse.options import MethodOptions

PROMPTS = ["Question: who founded Orrin?\nAnswer:"]
HERE = Path(__file__).name


def exits(example):
    sys.exit(0)
    yield


def ends(example):
    return "a text"
    yield


def gives_up(example):
    example.finish("a text", "error")
    return
    yield


def proposing(choose):
    """Return a `decode` that proposes a span of the sequence that this chooses."""

    def decode(example):
        def propose(sequence):
            span = empty_span(choose(example, sequence))
            span = yield from add_word(span, example.rules(4))
            return [span], ()

        return fuse_rounds(example, propose, per_candidate(mean_nll))

    return decode


def keeps_spans():
    """Return a `decode` that proposes the spans of the first round again."""
    kept = {}

    def decode(example):
        def propose(sequence):
            span = yield from add_word(empty_span(sequence), example.rules(1))
            return [kept.setdefault(sequence, span)], ()

        return fuse_rounds(example, propose, per_candidate(mean_nll))

    return decode


def settling(then):
    """Return a `decode` whose `settle` does something after it recorded the round."""

    def settle(example, pool, fuse):
        yield from pool.score()
        best = example.select(pool, fuse)
        then(example)
        return next(each for each in pool.candidates if each is not best)

    def decode(example):
        def propose(sequence):
            span = yield from add_word(empty_span(sequence), example.rules(4))
            return [span], ()

        return fuse_rounds(example, propose, per_candidate(mean_nll), settle=settle)

    return decode


def strips(pool, weights):
    for span in pool:
        span.text = span.text.strip()
    return [0.0] * len(pool), weights


def finished(example, text, thought):
    yield from evaluated([example.sequences[0].root])
    example.finish(text, "eos", thought)


def done_with(reason):
    """Return a `decode` that leaves this stop reason."""

    def decode(example):
        yield from evaluated([example.sequences[0].root])
        example.text, example.reason = "a text", reason

    return decode


def asks_for_5(example):
    yield 5


def asks_for_nothing(example):
    while True:
        yield []


def asks_what_is_known(example):
    while True:
        yield from evaluated([example.sequences[0].root])


def rounds(margins, weights=(), proposers=(0,)):
    """Return a `decode` whose rounds have these columns."""
    entry = Entry.of(b"a", proposers, (0.5, 0.5), 0.5)
    return choosing(lambda: Choice([entry], margins, weights))


def choosing(give, generator=True):
    """Return a `decode` whose `choose` gives something."""

    def choose(texts):
        yield from texts[0].next_token()
        return give()

    return lambda example: fuse_tokens(example, choose if generator else lambda texts: give())


def choice(surface=b"a", p=(0.5, 0.5), fused=0.5):
    return Choice([Entry.of(surface, [0], p, fused)], ((0.5,), (0.5,)))


def positive():
    return Choice([Entry(b"a", (0,), (-0.5, 0.5), 0.5)], ((), ()))


def spans(give):
    """Return a `decode` whose `propose` returns this."""

    def propose(sequence):
        yield from evaluated([sequence.root])
        return give()

    return lambda example: fuse_rounds(example, propose, per_candidate(mean_nll))


def fusing(fuse):
    """Return a `decode` with this `fuse`."""

    def decode(example):
        def propose(sequence):
            span = yield from add_word(empty_span(sequence), example.rules(4))
            return [span], ()

        return fuse_rounds(example, propose, fuse)

    return decode


def yields_a_generator(example):
    texts = [PendingText(sequence) for sequence in example.sequences]
    yield gather(text.next_token() for text in texts)


def two_entries(*fused):
    entries = [Entry.of(b"a", [0], (0.5, 0.5), each) for each in fused]
    return lambda: Choice(entries, ((), ()))


NAN = float("nan")


@pytest.mark.parametrize("drafts", [["own"], []])
@pytest.mark.parametrize(
    ("decode", "says"),
    [
        (exits, f"SystemExit: 0 ({HERE}, line "),
        (ends, "ended without a text: it left the stop reason None; have it commit"),
        (gives_up, "ended without a text: it left the stop reason 'error'; have it commit"),
        (lambda example: None, "TypeError: decode returned None; make it a generator, with yield"),
        (lambda example: "text", "TypeError: decode returned 'text'; make it a generator"),
        (asks_for_5, "TypeError: "),
        (asks_for_nothing, "RuntimeError: it does not end: it yielded 30 times"),
        (choosing(choice, generator=False), "make it a generator, with yield"),
        (choosing(lambda: None), "TypeError: choose returned None; return a Choice"),
        (choosing(lambda: "a"), "TypeError: choose returned 'a'; return a Choice"),
        (
            choosing(lambda: Choice([], ((), ()))),
            "ValueError: the method's Choice has no entry; give",
        ),
        (choosing(lambda: choice(fused=NAN)), "Choice has an entry whose fused is nan; give a num"),
        (choosing(two_entries(0.9, NAN)), "Choice has an entry whose fused is nan; give a number"),
        (choosing(lambda: choice(p=(0.5,))), "a round has NLL of each candidate of 1 models; gi"),
        (rounds(((0.5,),)), "a round has margins of 1 models; give one for each of 2"),
        (rounds(((0.5,), (1.5,))), "a round has a margin of 1.5; give p(1) - p(2), from 0 to 1"),
        (rounds(((-0.5,), ())), "a round has a margin of -0.5; give"),
        (rounds(((), ()), weights=(1.0,)), "a round has weights of 1 models; give"),
        (rounds(((), ()), proposers=(2,)), "a round has proposers [2]; give numbers of models, fr"),
        (rounds(((), ()), proposers=(0, 0)), "a round has a candidate with the proposers (0, 0)"),
        (rounds(((), ()), weights=(NAN, -1.0)), "a round has weights (nan, -1.0); give finite"),
        (choosing(two_entries(0.1, 0.9)), "ValueError: the method's Choice begins with an entry"),
        (choosing(lambda: choice(fused=0)), "the best entry of a round has the fused probabil"),
        (rounds((0.5, 0.5)), "a round has the margins 0.5 of a model; give a tuple for each model"),
        (choosing(positive), "a round has an NLL of -0.5; give -log p, which is at least 0"),
        (
            choosing(lambda: Choice(positive().entries[0], ((), ()))),
            "Choice has the entries Entry",
        ),
        (spans(lambda: ([], ())), "ValueError: propose returned no span for any model; return one"),
        (
            spans(lambda: None),
            "TypeError: propose returned None; return a list of spans, and",
        ),
        (fusing(lambda pool, w: [0.5]), "TypeError: fuse returned [0.5]; return F of each span, a"),
        (fusing(lambda pool, w: ([], w)), "ValueError: fuse returned 0 F of "),
        (fusing(lambda pool, w: ([NAN] * len(pool), w)), "ValueError: fuse returned the F nan; r"),
        (fusing(lambda pool, w: ([True] * len(pool), w)), "ValueError: fuse returned the F True; "),
        (fusing(lambda pool, w: ([-math.inf] * len(pool), w)), "ValueError: fuse returned the F -"),
        (fusing(lambda pool, w: (["1"] * len(pool), w)), "ValueError: fuse returned the F '1'; r"),
        (
            fusing(strips),
            "ValueError: F changed the spans that it was given; it may only read them",
        ),
        (proposing(lambda example, sequence: example.sequences[0]), "a span of another model or r"),
        (keeps_spans(), "returned ' Nirno', a span of another model or round; write one"),
        (settling(lambda example: None), "settle must record the span that it returns"),
        (settling(lambda example: example.rounds.clear()), "settle must record the sp"),
        (lambda example: finished(example, "abc", 4), "finish was given 'abc' and 4; give a text"),
        (
            lambda example: finished(example, b"abc", 0),
            "finish was given b'abc' and 0; give a text",
        ),
        (choosing(lambda: Choice(choice().entries, (("a",), ()))), "a round has 'a' as a number"),
        (
            choosing(lambda: choice()._replace(margins=((0.5,), None))),
            "a round has the margins Non",
        ),
        (done_with("done"), "ended without a text: it left the stop reason 'done'"),
        (yields_a_generator, "is no generator; write `yield from` ("),
        (asks_what_is_known, "RuntimeError: it does not end: it yielded 30 times"),
        (choosing(lambda: choice(surface="a")), "TypeError: the surface of an Entry is 'a'; give"),
        (choosing(lambda: choice(p=(2.0, 0.5))), "ValueError: an Entry has the probability 2.0; "),
        (choosing(lambda: choice(fused=math.inf)), "ValueError: an Entry has the probability inf"),
        (choosing(lambda: choice(fused=-1)), "ValueError: an Entry has the probability -1; give"),
    ],
)
def test_what_a_method_gives_wrongly_is_an_error_with_its_name_kind_and_file(
    pair, monkeypatch, decode, says, drafts
):
    monkeypatch.setattr(scheduler, "MOST_TURNS", 30)
    names = {"name": "odd", "Options": MethodOptions, "decode": lambda self, e: decode(e)}
    register(type("Odd", (Method,), names))
    try:
        (result,) = pair.generate(PROMPTS[:1], method="odd", max_new_tokens=2, drafts=drafts)
    finally:
        del METHODS["odd"]
    assert result.stop_reason == "error"
    assert result.error.startswith(("method 'odd': ", "method 'odd' ended", "the best entry"))
    assert says in result.error
    assert any(part in says for part in ("ended", "a round")) != (f"({HERE}" in result.error)


def odd_method(pair, **parts):
    """Decode a prompt with a method of these parts."""
    register(type("Odd", (parts.pop("base", Method),), {"name": "odd", **parts}))
    try:
        (result,) = pair.generate(
            PROMPTS[:1], method="odd", max_new_tokens=4, **parts.get("settings", {})
        )
    finally:
        del METHODS["odd"]
    return result


def test_weights_that_begin_changes_are_checked_and_stand_in_the_trace(pair):
    def begin(weights):
        def changes(self, example):
            example.weights = weights
            yield from ()

        return {"base": METHODS["fixed_length"], "begin": changes}

    result = odd_method(pair, **begin([5, 0.5]))
    assert result.rounds[0].weights == (5, 0.5)
    for weights in ([-1, 2], [NAN, 1], [0, 0], ["1", "2"], [1], None):
        result = odd_method(pair, **begin(weights))
        assert "begin: " in result.error or "TypeError" in result.error, weights


def test_a_begin_that_leaves_out_the_weighting_is_refused(pair):
    def begin(self, example):
        yield from ()

    own = {"base": METHODS["fixed_length"], "settings": {"weighting": "prompt"}}
    assert "have it call super().begin" in odd_method(pair, begin=begin, **own).error
    result = odd_method(pair, begin=lambda self, example: None, **own)
    assert "TypeError: begin returned None; make it a generator" in result.error


@pytest.mark.parametrize("by", ["propose", "choose"])
def test_a_text_that_a_step_ends_ends_there(pair, by):
    def decode(self, example):
        def propose(sequence):
            span = yield from add_word(empty_span(sequence), example.rules(4))
            if len(example.rounds) == 1:
                example.finish("my text", "stop")
                return [], ()
            return [span], ()

        def choose(texts):
            yield from texts[0].next_token()
            if len(example.rounds) == 1:
                example.finish("my text", "stop")
            return choice()

        if by == "choose":
            return fuse_tokens(example, choose)
        return fuse_rounds(example, propose, per_candidate(mean_nll))

    result = odd_method(pair, Options=MethodOptions, decode=decode, replaces_text=True)
    assert (result.text, result.stop_reason, len(result.rounds)) == ("my text", "stop", 1)


def test_text_that_was_streamed_and_is_replaced_is_refused(pair):
    def decode(self, example):
        yield from METHODS["fixed_length"].decode(self, example)
        example.finish("my text", "stop")

    register(type("Odd", (METHODS["fixed_length"],), {"name": "odd", "decode": decode}))
    try:
        with pytest.raises(UserError, match="replaced text that was streamed"):
            [*pair.stream_text(PROMPTS[0], method="odd", max_new_tokens=4)]
    finally:
        del METHODS["odd"]


def test_a_top_without_a_margin_is_refused(pair):
    with pytest.raises(UserError, match="method 'odd' has top 1; give 2 or more"):
        odd_method(pair, base=METHODS["fixed_length"], top=1)


@pytest.mark.parametrize("missing", ["name", "Options", "decode"])
def test_a_class_that_lacks_a_part_of_a_method_is_refused(missing):
    names = {"name": "odd", "Options": MethodOptions, "decode": ends}
    del names[missing]
    with pytest.raises(UserError, match=f"^method class Odd has no {missing}; give it one$"):
        register(type("Odd", (Method,), names))
    assert "odd" not in METHODS
