import pytest

from adafuse.tokenization.text import first_token
from tests.support.scripted import ScriptedModel


@pytest.mark.parametrize(
    ("surface", "token"),
    [
        (b" Lon", 0),  # a token of its own
        (b" London", 0),  # spelt " Lon", "don"
        ("é".encode(), None),  # its second byte has no token
        (b"\xc3", 2),  # an unfinished character
        (b"\xa9", None),
        (b"x", None),
        (b"", None),
    ],
)
def test_a_token_of_another_model_is_found_or_begun(surface, token):
    model = ScriptedModel("m", [" Lon", "don", b"\xc3", "END"], lambda ids: [])
    assert first_token(model, surface) == token
