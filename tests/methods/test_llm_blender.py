import pyarrow as pa
import pytest
from typer.testing import CliRunner

from adafuse.cli.main import app
from adafuse.decoding.round import Example
from adafuse.decoding.words import Limits
from adafuse.errors import ExampleError, UserError
from adafuse.methods import resolve
from adafuse.records.result import Answer, Candidate
from adafuse.storage.parquet import read_rows, write_rows
from adafuse.storage.traces import RESULT_FIELDS, result_columns, result_from
from tests.conftest import toy_path

TOYS = {"ranker": toy_path("pair_ranker"), "fuser": toy_path("gen_fuser")}
WORTH = {"bad": 0.0, "good": 1.0, "better": 2.0, "best": 3.0}
ANSWERS = (
    Answer(" good", "length"),
    Answer(" best", "eos"),
    Answer(" bad", "stop"),
    Answer(" good", "eos"),
)


class Ranker:
    """Prefers what is worth more, and the candidate shown first a little."""

    def compare(self, source, candidates):
        """Return the matrix."""
        yield from ()
        self.source, self.candidates = source, candidates
        worth = [WORTH[text] for text in candidates]
        return [
            [0.0 if i == j else one - two + 0.1 for j, two in enumerate(worth)]
            for i, one in enumerate(worth)
        ]


class Fuser:
    """Writes a fixed text."""

    def __init__(self, text, ended=True):
        self.text, self.ended = text, ended

    def fuse(self, source, candidates):
        """Return the text."""
        yield from ()
        self.source, self.candidates = source, candidates
        return self.text, self.ended


def decode(fuser=None, answers=ANSWERS, stop=(), **options):
    """Decode one example with given answers; returns it and the ranker."""
    method = resolve("llm_blender", options)
    method._ranker, method._fuser = Ranker(), fuser
    weights, shots = [1.0] * len(answers), "few-shot examples, then the prompt"
    example = Example(weights, Limits(stop=stop), shots, "the prompt", answers)
    assert list(method.decode(example)) == []
    return example, method._ranker


def test_rank_only_takes_the_best_answer_with_its_stop_reason():
    example, ranker = decode(rank_only=True)
    assert (example.text, example.reason) == (" best", "eos")
    assert ranker.source == "the prompt"
    assert ranker.candidates == ["good", "best", "bad"]


def test_with_cyclic_preferences_a_bubble_pass_takes_its_survivor(monkeypatch):
    def cyclic(self, source, candidates):
        yield from ()
        return [[0.0, 1.2, -0.3], [-0.8, 0.0, 0.5], [0.4, -0.9, 0.0]]

    monkeypatch.setattr(Ranker, "compare", cyclic)
    whole, _ = decode(answers=ANSWERS[:3], rank_only=True)
    passed, _ = decode(answers=ANSWERS[:3], rank_only=True, bubble=True)
    assert (whole.text, whole.rounds[0].selected) == (" good", 0)
    assert (passed.text, passed.rounds[0].selected) == (" bad", 2)
    with pytest.raises(UserError, match="bubble finds only the best answer; set rank_only"):
        resolve("llm_blender", {"bubble": True})


def test_answers_that_are_errors_take_no_part():
    error = Answer(" best", "error")
    example, ranker = decode(answers=(error, ANSWERS[0], ANSWERS[2]), rank_only=True)
    assert ranker.candidates == [a.text.strip() for a in (ANSWERS[0], ANSWERS[2])]
    assert [c.proposers for c in example.rounds[0].candidates] == [(1,), (2,)]
    with pytest.raises(ExampleError, match="the own answers of all models are errors"):
        decode(answers=(error, error))


THOUGHT = "<think>\nWho?</think>"
THINKING = (
    Answer(f"{THOUGHT} good", "eos", thoughts=len(THOUGHT)),
    Answer(f"{THOUGHT}\nHm. best", "stop", thoughts=len(THOUGHT) + 4),
    Answer(" good", "eos"),
    Answer("<think>\nWho", "length", thoughts=11),
)


def test_answers_are_ranked_and_fused_without_their_thoughts():
    example, ranker = decode(answers=THINKING, rank_only=True, stop=("\n",))
    assert ranker.candidates == ["good", "best"]
    assert (example.text, example.reason, example.thought_length) == (
        THINKING[1].text,
        "stop",
        THINKING[1].thoughts,
    )
    assert [c.text for c in example.rounds[0].candidates] == [a.text for a in THINKING[:2]]
    assert [c.proposers for c in example.rounds[0].candidates] == [(0, 2), (1,)]
    fuser = Fuser("written anew")
    example, _ = decode(fuser, answers=THINKING)
    assert fuser.candidates == ["best", "good"]
    assert (example.text, example.thought_length) == ("written anew", None)


def test_nothing_is_written_from_thoughts_alone(monkeypatch):
    monkeypatch.setitem(WORTH, "", 0.0)
    fuser = Fuser("made up")
    example, _ = decode(fuser, answers=THINKING[3:] * 2)
    assert (example.text, example.reason, example.thought_length) == ("<think>\nWho", "length", 11)
    assert not hasattr(fuser, "candidates")
    assert len(example.rounds) == 1


def test_the_first_round_shows_every_answer_once_with_its_models_and_minus_its_score():
    example, _ = decode(rank_only=True)
    (taken,) = example.rounds
    assert [(c.text, c.ends, c.proposers) for c in taken.candidates] == [
        (" good", False, (0, 3)),
        (" best", True, (1,)),
        (" bad", False, (2,)),
    ]
    # good: (0 + 2 (1 - 3) + 2 (1 - 0)) / 3
    assert [c.fused for c in taken.candidates] == pytest.approx([2 / 3, -10 / 3, 8 / 3])
    assert (taken.selected, taken.words, taken.margins) == (1, 1, ())


def test_equal_scores_go_to_the_earlier_model():
    answers = (Answer("good ", "eos"), Answer(" good", "length"))
    example, _ = decode(answers=answers, rank_only=True)
    assert (example.text, example.reason) == ("good ", "eos")


@pytest.mark.parametrize(("top_k", "read"), [(1, 1), (2, 2), (3, 3), (9, 3)])
def test_the_fuser_reads_the_best_answers_best_first(top_k, read):
    fuser = Fuser("written anew")
    example, _ = decode(fuser, top_k=top_k)
    assert fuser.candidates == ["best", "good", "bad"][:read]
    assert fuser.source == "the prompt"
    assert (example.text, example.reason) == ("written anew", "eos")


def test_the_second_round_holds_the_fusers_text():
    example, _ = decode(Fuser("written anew", ended=False))
    first, second = example.rounds
    assert (first.selected, first.words) == (1, 0)
    assert second.candidates == (Candidate("written anew", False, (), (), 0.0),)
    assert (second.selected, second.words, example.reason) == (0, 2, "length")


def test_the_fusers_text_is_cut_before_a_stop_string():
    example, _ = decode(Fuser("one two; three"), stop=(";",))
    assert (example.text, example.reason) == ("one two", "stop")
    assert example.rounds[-1].words == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"ranker": "$NOWHERE/x"}, "ranker: path '.NOWHERE/x': variable 'NOWHERE' is not set"),
        ({"ranker": "/nowhere"}, "'/nowhere' is not a folder"),
        ({"ranker": toy_path("gen_fuser")}, "is of type t5, not deberta-v2"),
        ({"ranker": toy_path("llama")}, "is of type llama, not deberta-v2"),
        ({"fuser": toy_path("llama")}, "is not an encoder-decoder"),
        ({"prompt_tokens": 9}, "prompt_tokens is 9, but the fuser's prompt takes"),
    ],
)
def test_what_cannot_work_is_refused_before_decoding_starts(pair, options, sentence):
    with pytest.raises(UserError, match=sentence):
        pair.stream(["a"], method="llm_blender", **(TOYS | options))


def test_rank_only_loads_no_fuser(pair):
    options = TOYS | {"fuser": "/nowhere"}
    pair.stream(["a"], method="llm_blender", rank_only=True, **options)


def test_one_model_has_nothing_to_rank():
    with pytest.raises(UserError, match="method llm_blender needs at least 2 models, not 1"):
        resolve("llm_blender", {}).check_models(1)


def test_a_blended_trace_is_written_and_shown(pair, tmp_path):
    results = pair.generate(["a", "b"], method="llm_blender", max_new_tokens=8, **TOYS)
    columns = [pa.field("id", pa.string()), *RESULT_FIELDS]
    rows = [{"id": str(n), **result_columns(result)} for n, result in enumerate(results)]
    write_rows(tmp_path / "out.parquet", columns, rows, {})
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "out.parquet"), "--id", "1"])
    assert shown.exit_code == 0
    assert "round 2" in shown.output
    assert [result_from(row) for row in read_rows(tmp_path / "out.parquet")] == results
