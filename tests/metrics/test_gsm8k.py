"""The final number of a text."""

import re
import time
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adafuse.errors import UserError
from adafuse.metrics.gsm8k import GSM8K, final_number
from adafuse.metrics.scorer import Prediction


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


WRITTEN = {
    "2500000": r"two million five hundred thousand|two million, five hundred thousand"
    r"|$2.5 million|2.5million|2.5 \text{ million}|$2.5M|2,500,000|2 500 000|2.500.000|2'500'000"
    r"|2_500_000|25,00,000|2{,}500{,}000|2\,500\,000|2\ 500\ 000|2,\!500,\!000|2.5x10^6|2.5e6"
    r"|2.5 \times 10^{6}|2.5 * 10**6|2.5\cdot10^6|2.5·10⁶|2 million 500 thousand|2.500.000,00"
    r"|two and a half million|2 1/2 million|2½ million",
    "1000": r"1e3|1E+3|10^3|10^{3}|10³|10 ^ 3|\text{10}^3|10<sup>3</sup>|10**3|a thousand"
    r"|one thousand|1k|$1K|1,000.00|1 000|1.000,00",
    "3.5": r"three point five|3.50|3 1/2|3½|3\frac{1}{2}|3 \dfrac{1}{2}|\frac{7}{2}|7/2|\frac72"
    r"|three and a half|3 and a half|3,5|3,50|$3.50|3.5%|3.5\%|3-1/2 cups",
    "0.5": r"point five|1/2|½|.5|0,5|\frac{1}{2}|\dfrac{1}{2}|\tfrac12|one half|a half"
    r"|one-half|5e-1",
    "-5": "minus 5|-5|-$5|$-5|−5|−$5|$−5|-5.00|minus five|negative five|-\\$5|\\$-5|(-5)",
    "-0.5": r"-\frac{1}{2}|\frac{-1}{2}|-½|-1/2|minus one half|minus point five",
    "12000": "12 000|12\u202f000|12\u00a0000|12\u2009000|12~000|twelve thousand|１２，０００",
    "12": "a dozen|one dozen|twelve|12.|12 apples|$12/hour|12 km/h|12 cm^2|12 m²|12^\\circ|**12**",
    "2500": "twenty-five hundred|twenty five hundred|25 hundred|two thousand five hundred",
    "105": "one hundred and five|a hundred and five|hundred and five|one hundred five",
    "24": "two dozen|2 dozen|twenty-four|24:00|2 dozens",
    "6": "half a dozen|half of a dozen|six",
    "5": r"\text{5 apples}|\textbf{5}|\mathrm{5}|x = 5|2 + 3 = 5|\$5|$5|5 €|US$5|5 and not 6|five",
    "1001": "a thousand and one|one thousand, and one|1.001e3",
    "0": "zero|0|$0.00|-0|0/7|0e5|0^2|0.0e+00",
    "1.75": "one and three quarters|1 and 3/4|one and three-quarters|1 and three fourths|1 3/4",
    "200000": "two lakh|2 lakhs|2,00,000",
    "20500000": "two crore five lakh|2 crore and 5 lakh",
    "1984": "nineteen eighty-four|nineteen eighty four|1984",
    "1999": "nineteen ninety nine|nineteen ninety-nine|nineteen hundred and ninety-nine",
    "2020": "twenty twenty|two thousand and twenty",
    "1905": "nineteen oh five|nineteen-oh-five",
    "5000000000": "$5 bn|$5 b|$5 B|$5bn|5 bn dollars|five billion|€5 bn",
    "1500000": "a million and a half|one and a half million|1.5 million|$1.5 m",
    "18": "a dozen and a half|one dozen and a half",
    "1000000000000000000": "one quintillion|1e18",
    "42": "fourty two|fourty-two|forty-two|42",
    "99": "ninty nine|ninety-nine|Ninty-nine",
    "87": "four score and seven|eighty-seven",
    "40": "two score|forty|fourty|40",
    "1": "one|1|only one|one apple|one of them|1/1",
}


@pytest.mark.parametrize(
    ("written", "number"),
    [(way, number) for number, ways in WRITTEN.items() for way in ways.split("|")],
)
def test_a_number_is_what_people_mean_by_it(written: str, number: str) -> None:
    assert final_number(f"\\boxed{{{written}}}") == Decimal(number)
    assert final_number(f"The answer is {written}.") == Decimal(number)
    assert final_number(f"The answer is: {written}\n\nQuestion: 7 and 8?") == Decimal(number)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 10 - 3 = 7 apples.", "7"),
        ("The answer is 10 + 20 = $30. There were 99.", "30"),
        ("\\boxed{3 + 4 = 7}", "7"),
        ("The answer is 9 eggs * $2 = $18.", "18"),
        ("The answer is 5 * (3 + 2) = 25.", "25"),
        ("The answer is 3 tickets for $5 = $15", "15"),
        ("The answer is $18 = 9 x $2.", "18"),
        ("The answer is 18 (16 - 3 - 4 = 9, 9 * 2 = 18).", "18"),
        ("The answer is 18 since Janet sells 16 - 3 - 4 = 9 eggs for $2 each.", "18"),
        ("The answer is 18 when x = 9.", "18"),
        ("The answer is 18 for n = 3.", "18"),
        ("The answer is 2 hours (1 hour = 60 minutes).", "2"),
        ("The answer is 9 eggs left.\nSo 9*2=<<9*2=18>>18.\n#### 18", "18"),
        ("9 * 2 = 18\n#### $1,800\nI checked it 2 times.", "1800"),
        ("#### 18\nThe answer is 20.", "20"),
        ("#### 1. Eggs\nThe answer is 18. #### 3", "18"),
        ("\\boxed{5^{th}}", "5"),
        ("The answer is not 5 but 6", "6"),
        ("The answer is twelve, not 13", "12"),
        ("The answer is that two boys have 5 each", "5"),
        ("It is 5, not 6.", "5"),
        ("On the 3rd day she has 12", "12"),
        ("She has 12 on the 3rd", "12"),
        ("It is 3:30 pm and 5 are left at 4:15", "5"),
        ("The answer is 2:00 pm", "2"),
        ("5 lions and 7 tigers on 12/25/2020", "7"),
        ("Mark's age minus 4", "4"),
        ("10 apples minus 5 apples", "5"),
        ("It fell to minus 4 degrees", "-4"),
        ("ten minus three", "3"),
        ("1, 2, 3", "3"),
        ("two, three and four", "4"),
        ("two thousand, three thousand", "3000"),
        ("Choose a) $5 b) $6", "6"),
        ("at this point five people", "5"),
        ("a test score of ninety", "90"),
        ("half of them, 2/3 of 9", "9"),
        ("three quarters and a dime", "3"),
        ("The other one has 4. One must wait", "4"),
        ("there is one", "1"),
    ],
)
def test_what_else_is_said_does_not_count(text: str, number: str) -> None:
    assert final_number(text) == Decimal(number)


SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
LARGE = {10**12: "trillion", 10**9: "billion", 10**6: "million", 1000: "thousand", 100: "hundred"}


def words(number: int, joint: str = " and ") -> str:
    """A number as English writes it, up to 10^15."""
    small, tens = SMALL.split(), TENS.split()
    if number < 20:
        return small[number]
    if number < 100:
        return tens[number // 10 - 2] + (f"-{small[number % 10]}" if number % 10 else "")
    scale, name = next((scale, name) for scale, name in LARGE.items() if number >= scale)
    rest, before = number % scale, f"{words(number // scale, joint)} {name}"
    return before + (joint if rest < 100 else " ") + words(rest, joint) if rest else before


AS_WRITTEN = [
    lambda n: words(n),
    lambda n: words(n, " "),
    lambda n: words(n).replace("-", " "),
    lambda n: words(n).title(),
    lambda n: re.sub(r"(thousand|illion) (?=[^,]*hundred)", r"\1, ", words(n)),
    *(lambda n, mark=mark: f"{n:,}".replace(",", mark) for mark in ",_' \u202f\u2009\u00a0’，"),
    *(lambda n, mark=mark: f"{n:,}".replace(",", mark) for mark in ("{,}", "\\,", "\\;", ",\\!")),
    lambda n: f"{n:,}.00",
    lambda n: str(n),
    lambda n: f"{n}.",
    lambda n: f"{n:e}" if float(f"{n:e}") == n else str(n),
    lambda n: f"{n:,}".replace(",", ".") + ",00" if n > 999 else str(n),
]


@given(st.one_of(st.integers(0, 3000), st.integers(0, 10**12)), st.sampled_from(AS_WRITTEN))
@settings(max_examples=500, deadline=None)
def test_every_integer_is_read_however_it_is_written(number: int, written) -> None:
    text = written(number)
    assert final_number(f"\\boxed{{{text}}}") == number
    assert final_number(f"The answer is {text} apples.") == number
    assert final_number(f"so it is ${text}") == number
    negative = f"negative {text}"
    assert final_number(f"The answer is {negative}") == -number


@given(st.integers(-(10**6), 10**6), st.integers(1, 10**4), st.integers(1, 10**4))
def test_fractions_are_equal_exactly(above: int, below: int, factor: int) -> None:
    one, other = (
        final_number(f"{above}/{below}"),
        final_number(f"{above * factor}/{below * factor}"),
    )
    assert one == other == final_number(f"\\boxed{{\\frac{{{above}}}{{{below}}}}}")
    assert one != final_number(f"{above * factor + 1}/{below * factor}")
    if not above % below:
        assert one == above // below


NUMBERLESS = (
    r"|no idea|I do not know.|.|\boxed{x}|-|and|one thousand million|I think no one knows."
    r"|She came first.|the twenty-first day|The answer is 3:30|a ratio of 2:3|5'10|1.2.3|2020-05-01"
    r"|dozens|thousands of people|the red one|If one thinks|No one must|one another|a third person"
    r"|\boxed{3+4}|\boxed{2x+3}|The answer is 10 - 3|\boxed{10-12}|1/0|\frac{1}{0}|\frac{x}{y}"
    r"|\sqrt{16}|10^99999|1e99999|0^-1|half of them"
    r"|√4|√16|∛8|2√3|2\sqrt{3}|sqrt(4)|the square root of 4|\boxed{2 + \sqrt{9}}|0x1F|0b101|3-1/2"
    r"|\boxed{3-\frac{1}{2}}|no one|No one.|nobody|The answer is no one"
)


@pytest.mark.parametrize("text", NUMBERLESS.split("|"))
def test_a_text_without_a_number_has_none(text: str) -> None:
    assert final_number(text) is None


@pytest.mark.parametrize("text", ["1" * 8000, "0." + "3" * 8000, "1,000," * 1000])
def test_a_text_that_repeats_digits_is_read_at_once(text: str) -> None:
    started = time.process_time()
    final_number(text)
    assert time.process_time() - started < 5


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
        ("1/2", "the answer is 1", False),
        ("\\boxed{10\\,000}", "the answer is 10", False),
        ("$2.5 million", "the answer is 2.5", False),
        ("1/3", "the answer is 0.333333333333", False),
        ("I think no one knows.", "the answer is 1", False),
    ],
)
def test_numbers_are_equal_exactly_or_not_at_all(text: str, gold: str, same: bool) -> None:
    judged = GSM8K.strict([Prediction("a", text, (gold,))])
    assert judged.outcomes[0].value == same


@pytest.mark.parametrize("unit", [
    r"\text{ m}^2", r"\mathrm{m}^{2}", r"\,\text{cm}^{\text{3}}", r"\text{ m}²", "m²", "m^2",
    "m ^ 2", "m**2", "m2", "cm3", "square m", "m<sup>2</sup>", r"m\textsuperscript{2}",
    "m $^2$", "m$^2$", r"{\rm m}^2", r"\text{m}\cdot\text{s}^{-1}", "m/s2", r"\text{ (m)}^2",
    r"\text{ units}_1", "kg of CO_2", "kg of CO<sub>2</sub>",
])  # fmt: skip
def test_the_exponent_or_index_of_a_unit_is_no_number(unit: str) -> None:
    for text in (f"The area is 16 {unit}.", f"\\boxed{{16 {unit}}}", f"The answer is 16 {unit}"):
        assert final_number(text) == 16


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


@pytest.mark.parametrize("answer", [
    r"12\pi", "6 - 5i", "(3,4]", "3, 5, 7", "y = 2x + 3", r"0.\overline{3}", r"\frac{3\sqrt{3}}{4}",
    r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "7i",
])  # fmt: skip
def test_an_accepted_answer_that_is_an_expression_is_refused(answer: str) -> None:
    with pytest.raises(UserError, match="of row 'a' is more than a number; correct it or"):
        GSM8K.check_answers("row 'a'", [answer])


@pytest.mark.parametrize("answer", [
    "18", "-1,234.50", "3 + 4 = 7", "x = 5", r"1\frac{1}{2}", r"\(18\)", "18 (18.0)", "5 m", "2^9",
    r"16\text{ m}^2", "3 apples, then 4", "17 - 5 = 12\n12 + 6 = 18\n#### 18",
    r"so \therefore 3 + 4i is \boxed{7}",
])  # fmt: skip
def test_an_accepted_answer_with_one_number_is_taken(answer: str) -> None:
    GSM8K.check_answers("row 'a'", [answer])
