import pytest

from adafuse.tokenization.token_bytes import END, TokenKeys, without_space
from tests.tokenization.test_byte_spans import toy_model


def test_special_tokens_are_one_end_and_ids_without_bytes_have_no_key():
    keys = TokenKeys.read([b"a", None, b"b", b"a", b"", None], end_ids={1, 5})
    assert keys.of == (b"a", END, b"b", b"a", None, END)
    assert keys.ids == {b"a": (0, 3), END: (1, 5), b"b": (2,)}


@pytest.mark.parametrize(
    ("surface", "key"),
    [
        (b" Paris", b"Paris"),
        (b"Paris", b"Paris"),
        (b"  x", b" x"),
        (b" ", b" "),
        (b"  ", b"  "),
        (b" \n", b" \n"),
        (b"\nx", b"\nx"),
    ],
)
def test_one_leading_space_is_left_out_unless_all_is_whitespace(surface, key):
    assert without_space(surface) == key


def test_at_the_beginning_both_spellings_of_a_word_have_one_key():
    model = toy_model("mistral")
    plain, begins = (
        TokenKeys.read(model.token_bytes.of, model.end_ids),
        TokenKeys.read(model.token_bytes.of, model.end_ids, begins=True),
    )
    assert plain.ids[b" a"] and plain.ids[b"a"]
    assert sorted(begins.ids[b"a"]) == sorted(plain.ids[b" a"] + plain.ids[b"a"])
    assert b" a" not in begins.ids
