"""`adafuse generate` with prompts from everywhere, and where its text goes."""

import json

import pytest

from adafuse.methods import METHODS
from tests.cli.terminal import adafuse, adafuse_process, in_terminal
from tests.conftest import toy_path
from tests.support.tiny import random_model

PAIR = ["--model", toy_path("mistral"), "--model", toy_path("llama"), "--device", "cpu"]
PROMPT = "Question: Who founded the town of Orrin?\nAnswer:"
SHORT = ["--max-new-tokens", "8"]
REPLACING = """
from adafuse.methods import METHODS
from adafuse.methods.registry import register


class Odd(METHODS["fixed_length"]):
    name = "odd"

    def decode(self, example):
        yield from super().decode(example)
        example.finish("my text", "stop")


register(Odd)
"""


@pytest.fixture(scope="module")
def expected(pair):
    """The result of the library."""
    return pair.generate([PROMPT], max_new_tokens=8)[0]


@pytest.mark.soak
def test_a_piped_prompt_becomes_its_text_and_nothing_else(expected):
    done = adafuse_process("generate", *PAIR, *SHORT, given=PROMPT + "\n")
    assert (done.returncode, done.stdout) == (0, expected.text)
    assert done.stderr == ""


def test_a_prompt_on_the_command_line_has_written_line_breaks(expected):
    given = PROMPT.replace("\n", "\\n")
    done = in_terminal("generate", *PAIR, *SHORT, "--prompt", given, stream="stderr")
    assert done.piped == expected.text
    assert f"{len(expected.rounds)} rounds, {max(expected.tokens)} tokens, " in done.terminal
    assert f"tokens/s; stop reason: {expected.stop_reason}" in done.terminal


def test_a_terminal_gets_the_text_and_a_line_break(expected):
    done = in_terminal("generate", *PAIR, *SHORT, "--prompt", PROMPT)
    assert done.status == 0
    assert done.terminal == expected.text.rstrip("\n") + "\n"


def test_an_error_after_a_part_of_the_text_is_on_a_line_of_its_own(tmp_path):
    (tmp_path / "odd.py").write_text(REPLACING)
    given = ["--plugin", str(tmp_path / "odd.py"), "--method", "odd", "--prompt", PROMPT]
    try:
        done = in_terminal("generate", *PAIR, *SHORT, *given)
    finally:
        METHODS.pop("odd", None)
    assert done.status == 2
    assert len(done.terminal) > 1
    assert done.terminal.endswith("\n")
    assert done.piped.startswith("error: method 'odd' replaced text that was streamed;")


def test_json_lines_in_json_lines_out_in_order(pair):
    prompts = {"b": PROMPT, "a": "Question: Where?\nAnswer:", "c": "a"}
    rows = [json.dumps({"id": name, "prompt": text}) for name, text in prompts.items()]
    options = ["--prompts", "-", "--json", "--batch-size", "2"]
    done = adafuse("generate", *PAIR, *SHORT, *options, given="\n".join(rows))
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.strip().split("\n")]
    assert [row["id"] for row in told] == ["b", "a", "c"]
    assert [row["prompt"] for row in told] == list(prompts.values())
    expected = pair.generate(list(prompts.values()), max_new_tokens=8)
    assert [row["text"] for row in told] == [result.text for result in expected]


def test_several_prompts_on_the_command_line_print_under_each_other(pair):
    prompts = [PROMPT, "Question: Where?\nAnswer:"]
    given = [part for text in prompts for part in ("--prompt", text.replace("\n", "\\n"))]
    done = adafuse("generate", *PAIR, *SHORT, *given)
    assert done.returncode == 0, done.stderr
    texts = [result.text.strip("\n") for result in pair.generate(prompts, max_new_tokens=8)]
    shown = [text.replace("\n", "\\n") for text in prompts]
    assert done.stdout == f"1: {shown[0]}\n{texts[0]}\n\n2: {shown[1]}\n{texts[1]}\n\n"


def test_a_bar_shows_time_and_speed_where_there_is_a_terminal_only(tmp_path):
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": 1, "prompt": PROMPT}) + "\n")
    options = ["--prompts", "in.jsonl", "--out", "out.parquet"]
    done = in_terminal("generate", *PAIR, *SHORT, *options, stream="stderr", cwd=tmp_path)
    assert "1/1 [" in done.terminal
    assert " tokens/s]" in done.terminal
    assert done.piped == "1 prompt continued, 0 of them failed; written to out.parquet\n"
    assert adafuse("generate", *PAIR, *SHORT, *options, cwd=tmp_path).stderr == ""


def test_a_prompt_that_fails_ends_with_status_1(tmp_path):
    path = random_model(toy_path("llama"), tmp_path / "small", seed=0, context=40)
    done = adafuse("generate", "--model", path, "--prompt", "word " * 60)
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: the prompt has" in done.stderr.split("\n")[-2]


@pytest.mark.parametrize(
    ("options", "given", "sentence"),
    [
        ([], "", "standard input holds no prompt"),
        (["--prompt", " "], "", "--prompt: prompt must hold some text, not ' '"),
        (["--prompt", "a", "--prompts", "-"], "", "--prompts and --prompt are both given"),
        (
            ["--prompts", "-"],
            '{"prompt": "a"}\n{"prompt": "b"}',
            "2 prompts need a file or JSON as output",
        ),
        (["--prompts", "-"], '{"id": 1}', "standard input, line 1 has no 'prompt'; add it"),
        (["--prompts", "-"], "", "standard input holds no prompt; write one"),
    ],
)
def test_what_cannot_be_a_prompt_is_refused_before_models_load(options, given, sentence):
    done = adafuse("generate", "--model", "org/nowhere", *options, given=given)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_at_a_terminal_nothing_is_waited_for():
    done = in_terminal("generate", "--model", "org/nowhere", stdin_too=True)
    assert done.status == 2
    assert "no prompt was given; add --prompt TEXT or --prompts FILE" in done.piped
