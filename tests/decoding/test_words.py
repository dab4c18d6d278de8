import pytest

from adafuse.decoding.words import StopStrings, WordRules

RULES = WordRules(StopStrings(["\n"]), max_tokens=3)


@pytest.mark.parametrize(
    ("text", "tokens", "complete"),
    [
        (" Paris", 1, False),
        (" Paris ", 1, True),  # rule 2: ends in whitespace
        (".\t", 1, True),  # a token that straddles the boundary stays whole
        ("  ", 1, False),  # whitespace alone is no word yet
        (" a\n", 1, True),  # rule 4
        ("\n", 1, False),  # a stop string of white space needs text before it
        (" a", 3, True),  # rule 5
        (" a\ufffd", 3, False),  # the character is finished first
        (" a\ufffd", 6, True),  # no character has more than four bytes
        ("\ufffd ", 2, True),
    ],
)
def test_a_word_is_complete_by_rules_2_4_and_5(text, tokens, complete):
    assert RULES.complete(text, tokens) is complete


@pytest.mark.parametrize(
    ("text", "addition", "ends"),
    [
        (" Paris", " is", True),
        (" Paris", "\nis", True),
        (" Paris", "ian", False),
        (" Paris", ",", False),
        (" ", " Paris", False),  # leading whitespace belongs to the word that follows
        ("", " Paris", False),
        (" Par\ufffd", " x", False),
        (" Paris", "", False),
    ],
)
def test_a_word_ends_before_whitespace(text, addition, ends):
    assert RULES.ends_before(text, addition) is ends


def test_a_hard_limit_cuts_even_an_unfinished_character():
    assert WordRules(hard_limit=1).complete("\ufffd", 1)
