import math

import pytest

from adafuse.errors import UserError
from adafuse.lm_eval.requests import fuse, read_pair, write_chat
from adafuse.records.result import Chat, Likelihood, Turn


def likelihood(logprobs, greedy):
    """What two models say of three ids each."""
    return Likelihood(logprobs, (3, 3), greedy)


@pytest.mark.parametrize(
    ("context", "continuation", "pair"),
    [
        ("Answer:", " yes", ("Answer:", " yes")),
        ("Answer: ", "yes", ("Answer:", " yes")),
        ("Answer:\n\n", "yes", ("Answer:", "\n\nyes")),
        ("", " yes", ("", " yes")),
    ],
)
def test_space_at_the_end_of_a_context_goes_to_the_text(context, continuation, pair):
    assert read_pair(context, continuation) == pair


def test_the_text_behind_a_chat_is_left_alone():
    history = write_chat([{"role": "user", "content": "Who? "}], continues=False)
    assert read_pair(history, "She") == (Chat((Turn("user", "Who? "),)), "She")


def test_a_choice_without_text_which_would_always_win_is_refused():
    chat = write_chat([{"role": "user", "content": "Who? "}], continues=False)
    for context in ("Question: Who?\nAnswer:", chat):
        with pytest.raises(UserError, match=r"^a choice after '.*' is empty"):
            read_pair(context, "")
    assert read_pair("Answer: ", "") == ("Answer:", " ")


def test_the_weighted_mean_is_the_answer():
    value, _ = fuse(likelihood((-1.0, -4.0), (True, True)), (2.0, 1.0))
    assert value == pytest.approx(-2.0)


def test_it_is_greedy_if_it_is_for_every_model_that_has_a_say():
    assert fuse(likelihood((-1, -1), (True, True)), (1, 1))[1]
    assert not fuse(likelihood((-1, -1), (True, False)), (1, 1))[1]
    assert fuse(likelihood((-1, -1), (True, False)), (1, 0))[1]


def test_what_one_model_finds_impossible_is_impossible_unless_it_has_no_say():
    impossible = likelihood((-1.0, -math.inf), (True, False))
    assert fuse(impossible, (1, 1)) == (-math.inf, False)
    assert fuse(impossible, (1, 0)) == (-1.0, True)
