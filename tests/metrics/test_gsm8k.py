"""The final number of a text."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adafuse.metrics.gsm8k import GSM8K, final_number
from adafuse.metrics.scorer import Example


@pytest.mark.parametrize(
    ("text", "number"),
    [
        # the box first
        ("5 + 3 = 8. The answer is \\boxed{18}", "18"),
        ("\\boxed{3} and then \\boxed{4}", "4"),
        ("\\boxed{\\$1,250.00}. So 7", "1250"),
        ("\\boxed{1{,}250}", "1250"),
        ("\\boxed{\\frac{x}{y} = 12} 9", "12"),
        ("\\boxed{42", "42"),
        ("\\boxed{twelve}", "12"),
        # then the phrase
        ("The answer is 10. The answer is 12. Then 99 more", "12"),
        ("Therefore, the ANSWER IS -7.", "-7"),
        ("the answer is twenty-five apples", "25"),
        ("the answer is minus three", "-3"),
        # then the last number
        ("She has 3 apples and 10 pears.", "10"),
        ("It costs $1,234.50", "1234.50"),
        ("-$5", "-5"),
        ("It is \u22124 degrees", "-4"),
        ("that is 15%", "15"),
        ("10-3", "3"),
        ("(5)-3", "3"),
        (".5", "0.5"),
        ("2,1500", "1500"),
        ("there are a hundred and five of them", "105"),
        ("one left of 12", "12"),
    ],
)
def test_the_number_is_found(text: str, number: str) -> None:
    assert final_number(text) == Decimal(number)


@pytest.mark.parametrize(
    "text",
    ["", "no idea", "I do not know.", ".", "\\boxed{x}", "-", "and", "one thousand million"],
)
def test_a_text_without_a_number_has_none(text: str) -> None:
    assert final_number(text) is None


def test_a_box_without_a_number_is_not_made_good_by_the_text() -> None:
    assert final_number("7 \\boxed{x}") is None


@pytest.mark.parametrize(
    ("text", "gold", "same"),
    [
        ("18.00", "the answer is 18", True),
        ("\\boxed{8}", "the answer is 18", False),
        ("\\boxed{-18}", "the answer is 18", False),
        ("\\boxed{0}", "the answer is 10", False),
        ("1,000", "\\boxed{1000.}", True),
        ("no idea", "the answer is 5", False),
    ],
)
def test_numbers_are_equal_exactly_or_not_at_all(text: str, gold: str, same: bool) -> None:
    judged = GSM8K.strict([Example("a", text, (gold,))])
    assert judged.outcomes[0].value == same


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=2, min_value=-(10**12), max_value=10**12
    )
)
def test_every_written_number_is_read_back(number: Decimal) -> None:
    for written in (f"{number:f}", f"{number:,f}", f"${number:,f}".replace("$-", "-$")):
        assert final_number(f"The answer is {written}.") == number
        assert final_number(f"so \\boxed{{{written}}}") == number
        assert final_number(f"3 times 4, thus {written}") == number


@given(st.text())
def test_any_text_has_a_number_or_none(text: str) -> None:
    assert final_number(text) is None or final_number(text).is_finite()
