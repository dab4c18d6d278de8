from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adafuse.decoding.token_round import LONGEST_CHAIN, PendingText
from adafuse.engine.node import NextToken
from adafuse.engine.reference import ReferenceEngine
from adafuse.tokenization.text import encode_bytes
from tests.conftest import loaded
from tests.support.scripted import run
from tests.tokenization.test_added import NAMES
from tests.tokenization.test_byte_spans import bare_model, toy_model

PROMPT = [5, 6, 7]
# Characters that some tokenizer reads as something else, among ordinary and long ones.
PIECES = [
    "a",
    "b",
    " ",
    "\n",
    ".",
    "é",
    "e\u0301",
    "\u2581",
    "漢",
    "🙂",
    "<s>",
    "<|end|>",
    " the",
    "7",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=12).map("".join)


def new_strand(model):
    return PendingText(ReferenceEngine(model, top=2).open(list(PROMPT)))


def written(strand):
    """The bytes of the committed ids, and those of the pending ones."""
    surface = strand.sequence.model.token_bytes.of
    committed = b"".join(surface[token] for token in strand.sequence.ids[len(PROMPT) :])
    return committed, b"".join(surface[node.token] for node in strand.node.path())


@st.composite
def cut_bytes(draw):
    """A text's bytes, and some of them that are no text, in pieces that may cut characters."""
    data = draw(TEXTS).encode() + draw(st.binary(max_size=3)) + draw(TEXTS).encode()
    places = draw(st.lists(st.integers(0, len(data)), max_size=8).map(sorted))
    borders = [0, *places, len(data)]
    return [data[a:b] for a, b in pairwise(borders) if a < b]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(NAMES), cut_bytes())
def test_the_ids_join_to_the_text_and_are_committed_where_words_begin(name, pieces):
    strand = new_strand(toy_model(name))
    text = b""
    for piece in pieces:
        before = strand.sequence.generated
        strand.extend(piece)
        text += piece
        committed, pending = written(strand)
        assert committed + pending == text
        assert pending == strand.pending
        assert strand.generated == strand.sequence.generated + len(strand.node.path())
        if strand.sequence.generated > before and strand.generated < LONGEST_CHAIN:
            assert pending[:1].isspace()
            assert not committed[-1:].isspace()
    strand.sequence.engine.commit(strand.node)
    assert written(strand) == (text, b"")


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(NAMES), cut_bytes())
def test_pending_ids_are_those_of_the_pending_text(name, pieces):
    model = toy_model(name)
    strand = new_strand(model)
    for piece in pieces:
        strand.extend(piece)
    assert strand.node is strand.encoded(strand.pending)
    try:
        string = strand.pending.decode()
    except UnicodeDecodeError:
        return
    own = model.encode_span(string)
    if b"".join(model.token_bytes.of[token] or b"" for token in own) == strand.pending:
        assert tuple(node.token for node in strand.node.path()) == own


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(NAMES), cut_bytes(), st.binary(min_size=1, max_size=3))
def test_a_model_splits_before_what_it_does_not_join_to_the_text(name, pieces, surface):
    model = toy_model(name)
    strand = new_strand(model)
    for piece in pieces:
        strand.extend(piece)
    whole = encode_bytes(model, strand.pending + surface)
    borders = accumulate((len(model.token_bytes.of[token]) for token in whole), initial=0)
    assert strand.splits_before(surface) == (len(strand.pending) in borders)


def whole_ids(strand):
    return [*strand.sequence.ids, *(node.token for node in strand.node.path())]


def total_logprob(model, ids):
    with torch.no_grad():
        rows = model.network(torch.tensor([ids])).logits[0].double().log_softmax(-1)
    places = range(len(PROMPT), len(ids))
    return sum(float(rows[place - 1, ids[place]]) for place in places)


@settings(max_examples=30, deadline=None)
@given(pieces=st.lists(st.sampled_from([b" the", b" Nig", b"ht", b" of", b"\n", b"7", b"\xc3"])))
def test_the_logprob_of_bytes_is_what_the_text_gains_by_them(pair, pieces):
    for model in pair.models:
        strand = new_strand(model)
        for piece in pieces:
            before = total_logprob(model, whole_ids(strand))
            logprob = run(strand.logprob(piece))
            strand.extend(piece)
            after = total_logprob(model, whole_ids(strand))
            assert logprob == pytest.approx(min(0, after - before), abs=1e-3)
        end = run(strand.logprob(b""))
        assert end == pytest.approx(run(strand.next_token()).log_end)


@pytest.mark.parametrize("name", NAMES)
def test_a_token_of_the_models_own_choice_is_kept(name):
    model = toy_model(name)
    whole = model.token_bytes.ids[b" the"]
    parts = [model.token_bytes.ids[letter] for letter in (b" ", b"t", b"h", b"e")]
    strand = new_strand(model)
    for token in parts:
        strand.node.next = NextToken((token,), (0.0,), 1.0, 0.0, None)
        strand.extend(model.token_bytes.of[token])
    assert [node.token for node in strand.node.path()] == parts
    strand = new_strand(model)
    for token in parts:
        strand.extend(model.token_bytes.of[token])
    assert [node.token for node in strand.node.path()] == [whole]


def test_text_without_spaces_is_committed_in_the_end():
    model = toy_model("llama")
    strand = new_strand(model)
    for _ in range(LONGEST_CHAIN):
        strand.extend("漢".encode())
    assert strand.sequence.generated > 0
    assert len(strand.node.path()) == LONGEST_CHAIN
    assert b"".join(written(strand)) == "漢".encode() * LONGEST_CHAIN


def test_real_tokenizers_write_what_they_are_given(real_tokenizer, benchmark_texts):
    model = bare_model(loaded(real_tokenizer), real_tokenizer.name)
    for text in [*benchmark_texts[::5], "e\u0301 \u2581 <s>漢🙂 <|im_end|>"]:
        strand = new_strand(model)
        data = text[:80].encode()
        for start in range(0, len(data), 3):
            strand.extend(data[start : start + 3])
        assert b"".join(written(strand)) == data
