"""The first word after chat templates, of which some end so that it begins with a space."""

import math

import pytest

from adafuse.records.result import Chat, Turn
from tests.support.scripted import ScriptedModel, decode

TOKENS = [" Paris", "Paris", " Rome", "Rome", "<end>"]
ASKED = Chat((Turn("user", "Where?"),))


def answering(name, *first, chat=True):
    """A model that begins with these probabilities of `TOKENS`, and then ends."""
    return ScriptedModel(name, TOKENS, lambda ids: (0, 0, 0, 0, 1) if ids else first, chat=chat)


def spaced(**template):
    return answering("spaced", 0.8, 0.04, 0.1, 0.04, 0.02, **template)


def bare(**template):
    return answering("bare", 0.04, 0.8, 0.04, 0.1, 0.02, **template)


@pytest.mark.parametrize("options", [{"max_words": 1}, {"method": "fixed_length", "words": 1}])
def test_one_answer_is_one_candidate_with_and_without_the_space(options):
    example = decode(**{"method": "adafuse", "models": [spaced(), bare()], **options})
    (candidate,) = example.rounds[0].candidates
    assert candidate.text == " Paris"
    assert candidate.proposers == (0, 1)
    assert candidate.nll == pytest.approx([-math.log(0.8)] * 2)


def test_each_model_reads_a_foreign_first_word_as_it_would_write_it():
    other = answering("other", 0.02, 0.1, 0.04, 0.8, 0.04)  # the likeliest is "Rome"
    paris, rome = decode("adafuse", [spaced(), other], tau=1.1).rounds[0].candidates
    assert (paris.text, rome.text) == (" Paris", "Rome")
    assert paris.nll == pytest.approx([-math.log(0.8), -math.log(0.1)])
    assert rome.nll == pytest.approx([-math.log(0.1), -math.log(0.8)])


@pytest.mark.parametrize("method", ["adafuse", "unite", "gac"])
@pytest.mark.parametrize(
    ("prompt", "chat", "one"),
    [
        ("Where?", False, False),
        ("Where?", True, True),
        (ASKED, False, True),
        (Chat((*ASKED.turns, Turn("assistant", "In")), continues=True), False, False),
    ],
)
def test_only_an_answer_after_a_template_may_begin_either_way(method, prompt, chat, one):
    models = [spaced(chat=chat), bare(chat=chat)]
    candidates = decode(method, models, prompt=prompt).rounds[0].candidates
    texts = [c.text for c in candidates if c.text.strip() == "Paris"]
    assert len(texts) == (1 if one else 2)
