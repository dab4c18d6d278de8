"""Words that models write byte by byte where they propose different spans."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from adafuse.decoding.round import Example
from adafuse.ensemble import Ensemble
from adafuse.errors import UserError
from adafuse.methods.registry import resolve
from tests.conftest import toy_path
from tests.methods.test_engines_agree import PROMPTS
from tests.support.scripted import ScriptedModel, decode

TOKENS = ("a", "b", "ab", " a", " b", " ", "\n", "END")
OTHER_TOKENS = ("a", "b", " ", "ba", " b", "\n", "END")
HALVES = ("a", " ", b"\xc3", b"\xa9", b"\xa8", "END")
OTHER_HALVES = ("a", " a", " ", b"\xc3\xa9", b"\xc3", b"\xa9", b"\xa8", "END")
LIMITS = {"max_new_tokens": 12}
BYTES = {"disagreement": "bytes"}


def model(name: str, tokens: Sequence[str | bytes], weights: Sequence[int], **others: Any) -> Any:
    """A model whose next token depends on the last one, by a table of weights."""
    size = len(tokens)

    def script(ids: tuple[int, ...]) -> list[float]:
        last = ids[-1] + 1 if ids else 0
        row = [1 + weights[(last * size + place) % len(weights)] for place in range(size)]
        return [value / sum(row) for value in row]

    return ScriptedModel(name, tokens, script, **others)


def written(example: Example) -> str:
    """The text up to the first round that was not written byte by byte."""
    text = ""
    for taken in example.rounds:
        if not taken.joint:
            break
        assert taken.selected == 0
        text += taken.candidates[0].text
    return text


tables = st.lists(st.integers(0, 200), min_size=23, max_size=60)


@given(
    tables,
    tables,
    st.sampled_from([(TOKENS, OTHER_TOKENS), (HALVES, OTHER_HALVES)]),
    st.sampled_from([(), ("b a",), ("\n",), ("ab",), ("é",), ("a a",)]),
)
@settings(max_examples=20, deadline=None)
def test_where_every_round_is_written_by_bytes_the_text_is_that_of_bytewise(
    one: list[int],
    other: list[int],
    tokens: tuple[Sequence[str | bytes], Sequence[str | bytes]],
    stop: tuple[str, ...],
) -> None:
    models = [model("one", tokens[0], one), model("other", tokens[1], other)]
    limits = {**LIMITS, "stop": stop}
    example = decode("adafuse", models, limits=limits, tau=2.0, **BYTES)
    alone = decode("bytewise", models, limits=limits)
    text, expected = written(example), alone.text.rstrip("\ufffd")
    if all(taken.joint for taken in example.rounds):
        text = example.text.rstrip("\ufffd")  # cut at a stop string
        assert alone.reason == "length" or example.reason == "length" or text == expected
    common = min(len(text), len(expected))
    assume(common > 0)
    assert text[:common] == expected[:common]


def sure(name: str, text: str, tokens: Sequence[str | bytes], **others: Any) -> Any:
    """A model that writes a text, and gives other tokens a thousandth."""
    ids = ScriptedModel(name, tokens, lambda _: []).encode_span(text)

    def script(given: tuple[int, ...]) -> list[float]:
        wanted = ids[len(given)] if len(given) < len(ids) else len(tokens) - 1
        return [1.0 if place == wanted else 1e-3 for place in range(len(tokens))]

    return ScriptedModel(name, tokens, script, **others)


def test_models_that_agree_write_no_bytes() -> None:
    models = [sure("one", "ab ab", TOKENS), sure("other", "ab ab", OTHER_TOKENS)]
    example = decode("adafuse", models, limits=LIMITS, **BYTES)
    assert example.text == "ab ab" and not any(taken.joint for taken in example.rounds)


def test_models_that_differ_inside_a_character_write_a_whole_one() -> None:
    models = [sure("one", "é a", HALVES), sure("other", "è a", HALVES)]
    weights = (1.0, 2.0)
    example = decode("adafuse", models, weights=weights, limits=LIMITS, tau=2.0, **BYTES)
    first = example.rounds[0]
    assert first.joint and first.candidates[0].text == "è"
    assert [c.text for c in first.candidates[1:]] == ["é", "è"]
    assert all(not candidate.nll for candidate in first.candidates[1:])  # which nobody scored


def test_a_model_without_weight_has_no_say() -> None:
    models = [sure("one", "ab", TOKENS), sure("other", "ba", OTHER_TOKENS)]
    for weights, text in (((1.0, 0.0), "ab"), ((0.0, 1.0), "ba")):
        example = decode("adafuse", models, weights=weights, limits=LIMITS, **BYTES)
        assert example.text == text and example.rounds[0].joint


def test_the_word_may_be_one_candidate_more() -> None:
    models = [sure("one", "ab", TOKENS), sure("other", "ba", OTHER_TOKENS)]
    example = decode("adafuse", models, limits=LIMITS, disagreement="pool")
    (first, *_) = example.rounds
    assert all(len(candidate.nll) == 2 for candidate in first.candidates)
    assert {"ab", "ba"} <= {candidate.text for candidate in first.candidates}
    best = min(range(len(first.candidates)), key=lambda index: first.candidates[index].fused)
    assert first.selected == best


@given(tables, tables)
@settings(max_examples=40, deadline=None)
def test_a_gap_says_where(one: list[int], other: list[int]) -> None:
    models = [model("one", TOKENS, one), model("other", OTHER_TOKENS, other)]
    plain = decode("adafuse", models, limits=LIMITS)
    for taken in decode("adafuse", models, limits=LIMITS, gap=0.5, **BYTES).rounds:
        scored = sorted(c.fused for c in taken.candidates if c.proposers)
        assert taken.joint == (len(scored) > 1 and scored[1] - scored[0] <= 0.5)
    never = decode("adafuse", models, limits=LIMITS, gap=0.0, **BYTES)
    if not any(taken.joint for taken in never.rounds):  # no equal scores
        assert never.text == plain.text


def test_after_a_chat_template_each_model_begins_as_it_does() -> None:
    models = [sure("one", " ab", TOKENS, chat=True), sure("other", "ba", OTHER_TOKENS, chat=True)]
    example = decode("adafuse", models, weights=(1.0, 3.0), limits={"max_rounds": 1}, **BYTES)
    assert example.rounds[0].joint and example.text == " ba"
    bytes_of = [sequence.model.token_bytes.of for sequence in example.sequences]
    ids = [sequence.ids[sequence.prompt_length :] for sequence in example.sequences]
    texts = [b"".join(of[i] for i in own) for of, own in zip(bytes_of, ids, strict=True)]
    assert texts == [b" ba", b"ba"]


def test_a_gap_without_bytes_is_refused() -> None:
    with pytest.raises(UserError, match=r"gap 1\.0 is for disagreement bytes or pool; choose one"):
        resolve("adafuse", {"gap": 1.0})


def test_the_end_after_a_chat_template_has_no_text() -> None:
    models = [sure("one", " ab", TOKENS, chat=True), sure("other", "", OTHER_TOKENS, chat=True)]
    for disagreement in ("select", "bytes", "pool"):
        options = {"weights": (1.0, 50.0), "limits": LIMITS, "disagreement": disagreement}
        example = decode("adafuse", models, **options)
        assert (example.text, example.reason) == ("", "eos")
        assert {c.text for c in example.rounds[0].candidates} == {" ab", ""}


def test_bytes_that_are_no_character_stay_in_the_text_and_in_the_ids() -> None:
    text = b"\xc3\xc3\xc3\xc3\xa9 a"
    tokens = [*(bytes([byte]) for byte in sorted({*text, *b"\xa8"})), "END"]
    ids = [tokens.index(bytes([byte])) for byte in text]

    def script(given: tuple[int, ...]) -> list[float]:
        wanted = ids[len(given)] if len(given) < len(ids) else len(tokens) - 1
        return [1.0 if place == wanted else 1e-3 for place in range(len(tokens))]

    models = [ScriptedModel("one", tokens, script), sure("other", " a", tokens)]
    options = {"weights": (50.0, 1.0), "limits": {"max_new_tokens": 7}}
    for words in ({"max_word_tokens": 1}, {}):
        example = decode("adafuse", models, tau=2.0, **BYTES, **words, **options)
        assert (
            example.text
            == decode("bytewise", models, **options).text
            == text.decode(errors="replace")
        )


def test_a_model_of_weight_0_is_not_asked_for_bytes() -> None:
    tokens = ("a", "b", " ", "END")

    def script(given: tuple[int, ...]) -> list[float]:
        return [0.0] * 4 if given else [0.0, 1.0, 0.0, 0.0]

    models = [sure("one", "a a", tokens), ScriptedModel("other", tokens, script)]
    example = decode("adafuse", models, weights=(1.0, 0.0), limits={"max_rounds": 1}, **BYTES)
    assert example.text == "a" and example.rounds[0].joint


def test_on_servers_it_is_refused() -> None:
    with pytest.raises(
        UserError, match="adafuse with disagreement bytes reads whole distributions"
    ):
        resolve("adafuse", BYTES).check_served(["served"])
    resolve("adafuse", {}).check_served(["served"])


def test_trained_models_that_always_differ_write_what_bytewise_does() -> None:
    models = [toy_path("mistral"), toy_path("llama")]
    ensemble = Ensemble.from_pretrained(models, device="cpu")
    limits: Any = {"max_new_tokens": 24, "stop": ["\n"]}
    results = ensemble.generate(PROMPTS, **limits, **BYTES)
    alone = ensemble.generate(PROMPTS, method="bytewise", **limits)
    assert [result.text for result in results] == [result.text for result in alone]
