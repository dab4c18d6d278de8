"""Next-byte probabilities against the enumeration of everything that a model could write."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adafuse.decoding.byte_words import END, CoverEncodings, SortedVocabulary
from adafuse.decoding.token_round import PendingText
from adafuse.errors import ExampleError
from tests.support.scripted import START, ScriptedEngine, ScriptedModel, run


@st.composite
def canonical_models(draw):
    """A byte-pair vocabulary over a, b, c, and probabilities that are 0 off its own encodings."""
    tokens, merges = ["a", "b", "c"], []
    for _ in range(draw(st.integers(0, 4))):
        pair = draw(st.tuples(st.sampled_from(tokens), st.sampled_from(tokens)))
        if "".join(pair) not in tokens:
            merges.append(pair)
            tokens.append("".join(pair))
    seed, memo = draw(st.integers(0, 10**6)), {}

    def script(ids):
        if ids not in memo:
            rng = random.Random(f"{seed} {ids}")
            weights = [
                rng.choice((0.0, 0.1, 1.0)) * rng.random() * canonical((*ids, token))
                for token in range(len(tokens))
            ]
            weights.append(0.05)
            memo[ids] = [weight / sum(weights) for weight in weights]
        return memo[ids]

    def canonical(ids):
        return model.encode_span("".join(tokens[index] for index in ids)) == ids

    model = ScriptedModel("m", [*tokens, "END"], script, merges=merges)
    return model, tokens


def enumerated(model, tokens, text):
    """P(text and then each symbol), summed over all ids whose last one goes beyond the text."""
    masses = {}

    def grow(ids, written, probability):
        if probability == 0:
            return
        distribution = model.script(ids)
        for token, p in zip(tokens, distribution, strict=False):
            longer = written + token
            if len(longer) > len(text) and longer.startswith(text):
                symbol = ord(longer[len(text)])
                masses[symbol] = masses.get(symbol, 0.0) + probability * p
            elif text.startswith(longer):
                grow((*ids, tokens.index(token)), longer, probability * p)
        if written == text:
            masses[END] = masses.get(END, 0.0) + probability * distribution[-1]

    grow((), "", 1.0)
    return masses


@settings(max_examples=150, deadline=None)
@given(canonical_models(), st.text("abc", max_size=5))
def test_next_byte_probabilities_are_those_of_all_encodings_together(made, text):
    model, tokens = made
    strand = PendingText(ScriptedEngine(model).open([START]))
    covers = CoverEncodings(strand, SortedVocabulary(model.token_bytes), 0.0)
    for size in range(len(text) + 1):
        masses = enumerated(model, tokens, text[:size])
        if sum(masses.values()) == 0:
            return  # impossible for the model: it falls back to its own ids
        p = run(covers.probabilities())
        for symbol in (*b"abc", END):
            expected = masses.get(symbol, 0.0) / sum(masses.values())
            assert p[symbol] == pytest.approx(expected, abs=1e-6)
        assert math.fsum(p) == pytest.approx(1)
        if size < len(text):
            strand.extend(text[size].encode())


def covers_of(model, prune=1e-6):
    strand = PendingText(ScriptedEngine(model).open([START]))
    return strand, CoverEncodings(strand, SortedVocabulary(model.token_bytes), prune)


def after(covers, strand, text):
    """The probabilities behind bytes that are taken one by one."""
    p = run(covers.probabilities())
    for byte in text:
        strand.extend(bytes([byte]))
        p = run(covers.probabilities())
    return p


@pytest.mark.parametrize(("prune", "asked"), [(1e-6, [()]), (1e-12, [(), (0,)])])
def test_improbable_ids_are_never_asked_for(prune, asked):
    model = ScriptedModel("m", ["a", "ab", "END"], lambda ids: [1e-9, 1 - 2e-9, 1e-9])
    strand, covers = covers_of(model, prune)
    assert after(covers, strand, b"a")[ord("b")] == pytest.approx(1, abs=1e-6)
    assert strand.sequence.engine.asked == asked


def test_a_text_that_the_model_holds_impossible_goes_on_behind_its_ids():
    script = {(): [1, 0, 0, 0], (1,): [0.2, 0.3, 0.4, 0.1], (1, 2): [0.5, 0.25, 0, 0.25]}
    model = ScriptedModel("m", ["a", "b", "c", "END"], script.__getitem__)
    strand, covers = covers_of(model)
    p = after(covers, strand, b"b")
    assert p[[*b"abc", END]].tolist() == pytest.approx([0.2, 0.3, 0.4, 0.1])
    strand.extend(b"c")
    p = run(covers.probabilities())
    assert p[[*b"abc", END]].tolist() == pytest.approx([0.5, 0.25, 0, 0.25])


def test_nothing_is_asked_twice_and_a_new_word_starts_anew():
    # Behind "a", the token "a " would go across the border at which "a" is committed.
    model = ScriptedModel("m", ["a", " ", "a ", " a", "END"], lambda ids: [0.4, 0.1, 0.1, 0.2, 0.2])
    model.encode_span = {"": (), "a": (0,), "a ": (0, 1), " ": (1,), " a": (3,)}.__getitem__
    strand, covers = covers_of(model)
    p = after(covers, strand, b"a ")
    assert strand.sequence.ids == [START, 0] and strand.pending == b" "
    # " a" behind "a" (0.2), and " " (0.1) then any token.
    expected = [(0.2 + 0.1 * 0.5) / 0.3, 0.1 * 0.3 / 0.3, 0.1 * 0.2 / 0.3]
    assert p[[*b"a ", END]].tolist() == pytest.approx(expected)
    asked = strand.sequence.engine.asked
    assert len(asked) == len(set(asked))


def test_characters_may_come_byte_by_byte():
    tokens = ["e", "é", b"\xc3", b"\xa9", "END"]
    model = ScriptedModel("m", tokens, lambda ids: [0.3, 0.5, 0.1, 0.05, 0.05])
    strand, covers = covers_of(model)
    assert after(covers, strand, b"")[0xC3] == pytest.approx(0.6)
    strand.extend(b"\xc3")
    assert run(covers.probabilities())[0xA9] == pytest.approx((0.5 + 0.1 * 0.05) / 0.6)
    strand.extend(b"\xa9")
    assert strand.node.token == 1
    assert run(covers.probabilities())[ord("e")] == pytest.approx(0.3)


def test_a_model_without_any_probability_is_an_error():
    model = ScriptedModel("m", ["a", "END"], lambda ids: [0.0, 0.0])
    _, covers = covers_of(model)
    with pytest.raises(ExampleError, match="m gives no byte a probability"):
        run(covers.probabilities())
