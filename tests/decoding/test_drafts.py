"""Drafts change what decoding costs, and no text."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adafuse.bench.workloads import chains
from adafuse.decoding.drafts import Drafter, Guess, Lookup, grown
from adafuse.decoding.words import DRAFTS
from adafuse.engine.tree import TreeEngine
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.models.language_model import wrapped
from adafuse.records.result import Result
from tests.engine.test_tree import language_model
from tests.methods.test_engines_agree import PROMPTS
from tests.support.architectures import LONGROPE
from tests.support.results import assert_same
from tests.support.tiny import random_llama

LIMITS = {"max_new_tokens": 24, "stop": ["\n\n"]}
METHODS = ("adafuse", "fixed_length", "specfuse", "unite", "gac", "bytewise", "rerank")
PLAIN: dict[str, list[Result]] = {}
"""What the methods give without drafts."""


def forwards(results):
    return sum(sum(result.forwards) for result in results)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, marks=() if method in ("adafuse", "unite") else pytest.mark.soak)
        for method in METHODS
    ],
)
def test_they_save_forwards_and_change_nothing(pair, method):
    prompts = chains(2).prompts
    plain, drafted = (
        pair.generate(prompts, method=method, batch_size=1, drafts=kinds, max_new_tokens=64)
        for kinds in ((), DRAFTS)
    )
    assert_same(drafted, plain)
    assert [result.tokens for result in drafted] == [result.tokens for result in plain]
    assert forwards(drafted) < 0.95 * forwards(plain)


@pytest.mark.parametrize(
    ("kind", "method"),
    [("own", "adafuse"), ("others", "adafuse"), ("copies", "adafuse"), ("ahead", "unite")],
)
def test_each_kind_saves_forwards(pair, kind, method):
    texts = [prompt * 2 for prompt in PROMPTS[:4]]
    plain, drafted = (
        pair.generate(texts, method=method, batch_size=1, drafts=kinds, **LIMITS)
        for kinds in ((), ("others", "ahead") if kind == "ahead" else (kind,))
    )
    assert_same(drafted, plain)
    assert forwards(drafted) < forwards(plain)


def test_none_are_tried_where_each_node_is_a_forward_of_the_whole_text(pair):
    factors = {"short_factor": [1.0] * 2, "long_factor": [4.0] * 2}
    rope = LONGROPE | factors | {"original_max_position_embeddings": 8}
    tokenizers = [model.tokenizer for model in pair.models]
    networks = [random_llama(len(t), seed=3, rope_parameters=rope) for t in tokenizers]
    members = tuple(wrapped(*each) for each in zip(networks, tokenizers, strict=True))
    plain, drafted = (
        Ensemble(members, (1.0, 1.0)).generate(
            PROMPTS[:4], method="adafuse", drafts=kinds, **LIMITS
        )
        for kinds in ((), DRAFTS)
    )
    assert_same(drafted, plain)
    assert forwards(drafted) == forwards(plain)


@settings(max_examples=12, deadline=None)
@given(
    random=st.randoms(use_true_random=True),
    method=st.sampled_from(METHODS),
    batch_size=st.sampled_from((1, 3)),
)
def test_wrong_drafts_change_nothing(random_pair, random, method, batch_size):
    """Drafts are trees of random tokens under any nodes of the tree, END among them."""

    def chains(self, guess, nodes):
        for _ in range(random.randrange(4)):
            node = random.choice([*nodes, guess.sequence.root, guess.sequence.tip])
            vocabulary = guess.sequence.model.vocabulary
            ids = [random.randrange(vocabulary) for _ in range(random.randrange(6))]
            if node.next is not None or node in nodes:
                yield grown(node, ids)

    prompts = PROMPTS[:2]
    options = {"method": method, "max_new_tokens": 10}
    if method not in PLAIN:
        PLAIN[method] = random_pair.generate(prompts, engine="reference", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Drafter, "_chains", chains)
        drafted = random_pair.generate(prompts, batch_size=batch_size, **options)
    assert_same(drafted, PLAIN[method])


def test_a_batch_that_fills_its_forwards_has_none(pair, monkeypatch):
    monkeypatch.setattr("adafuse.engine.tree.FORWARD_COST", {"cpu": 1})
    plain, drafted = (pair.generate(PROMPTS[:2], drafts=kinds, **LIMITS) for kinds in ((), DRAFTS))
    assert [result.forwards for result in drafted] == [result.forwards for result in plain]


def test_an_unknown_kind_is_refused(pair):
    with pytest.raises(
        UserError, match=r"drafts.* must be 'own', 'others', 'copies' or 'ahead', not 'more'"
    ):
        pair.generate(PROMPTS[:1], drafts=["more"])
    for value in (None, "own"):
        with pytest.raises(UserError, match=f"drafts must be a valid list, not {value!r}"):
            pair.generate(PROMPTS[:1], drafts=value)


@pytest.fixture
def engine():
    """A forward costs as much as 32 tokens besides its own."""
    engine = TreeEngine(language_model(random_llama(700, seed=4)), top=2, rows=4)
    engine.spare = 32
    return engine


@pytest.fixture
def sequence(engine):
    """Ids that repeat, the last ones the second time."""
    return engine.open([9, 4, 5, 6, 7, 8, 3, 4, 5, 6])


@dataclass
class Following:
    """A distribution of which only the likeliest id is known."""

    greedy: int
    top_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


def copies(guess, node=None):
    """The ids that are tried after a node."""
    return [node.token for node in guess.copies(node or guess.sequence.root)]


def write(sequence, ids, likeliest=None):
    """Commit ids where the model would have written others."""
    node = sequence.root
    for token, own in zip(ids, likeliest or ids, strict=True):
        node.next = Following(own)
        node = node.child(token)
    sequence.commit(node)


def test_what_followed_the_same_tokens_is_tried_as_far_as_it_is_likely(engine, sequence):
    assert copies(Guess(sequence, Lookup())) == [7, 8, 3, 4]
    engine.spare = 4
    assert copies(Guess(sequence, Lookup())) == [7]
    assert copies(Guess(sequence, Lookup()), sequence.root.child(99)) == []


def test_what_the_model_would_have_written_in_other_texts_comes_before_the_prompt(engine, sequence):
    lookup = Lookup()
    first = Guess(sequence, lookup)
    assert copies(first) == [7, 8, 3, 4]
    write(sequence, [20, 21, 22], likeliest=[20, 31, 22])
    first.learn()
    other = engine.open([1, 4, 5, 6])
    assert copies(Guess(other, lookup))[:2] == [20, 31]
    assert copies(Guess(other, Lookup())) == []


def test_longer_matches_come_first(engine, sequence):
    lookup = Lookup()
    write(sequence, [20])
    Guess(sequence, lookup).learn()
    other = engine.open([1, 2, 7, 6])
    write(other, [30])
    Guess(other, lookup).learn()
    assert copies(Guess(engine.open([2, 2, 5, 6]), lookup))[0] == 20
    assert copies(Guess(engine.open([2, 2, 2, 6]), lookup))[0] == 30


def test_a_lookup_forgets_what_is_long_ago(engine, monkeypatch):
    monkeypatch.setattr("adafuse.decoding.drafts.MOST_KEPT", 40)
    lookup, starts = Lookup(), range(100, 400, 10)
    for start in starts:
        sequence = engine.open([start])
        guess = Guess(sequence, lookup)
        write(sequence, range(start + 1, start + 6))
        guess.learn()
        engine.close(sequence)
    tried = {start: copies(Guess(engine.open([start]), lookup)) for start in (100, 390)}
    assert tried == {100: [], 390: [391, 392, 393, 394]}


def tried(sequence, *, right, times):
    """How many ids are tried each time, if they are always right, or always wrong."""
    guess, sizes = Guess(sequence, Lookup()), []
    for _ in range(times):
        ids = copies(guess)
        for node, token in zip([sequence.root, *grown(sequence.root, ids)], ids, strict=False):
            node.next = Following(token if right else 0)
        sizes.append(len(ids))
    return sizes


def test_what_was_right_is_tried_longer_and_what_was_wrong_not_at_all(sequence):
    sizes = tried(sequence, right=True, times=9)
    assert sizes[0] == 4
    assert sizes[-1] == 8
    sizes = tried(sequence, right=False, times=400)
    assert 0 in sizes[:100]
    assert any(sizes[300:])


def test_drafts_end_at_the_end_of_the_context(sequence):
    size = sequence.engine.context - len(sequence.ids)
    assert len(grown(sequence.root, [3] * (size + 5))) == size
