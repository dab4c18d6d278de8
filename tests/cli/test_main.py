"""What all commands share: help, mistakes, and how they end."""

import io
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from typer.exceptions import TyperException
from typer.main import get_command
from typer.testing import CliRunner

from adafuse.cli.errors import EXAMPLES
from adafuse.cli.main import app
from tests.cli.terminal import ROOT, adafuse, environment, read_by, run
from tests.conftest import toy_path

COMMANDS = get_command(app).commands
SHELL = {"|", "<", ">", "&&"}
OURS = [name for name in COMMANDS if name in EXAMPLES]


def test_help_loads_no_heavy_library():
    code = (
        "import sys; from adafuse.cli.main import app\n"
        "for name in ([], *([name] for name in sys.argv[1:])):\n"
        "    app([*name, '--help'], standalone_mode=False)\n"
        "    heavy = {'torch', 'transformers', 'numpy', 'pyarrow', 'polars'} & set(sys.modules)\n"
        "    assert not heavy, (name, heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code, *COMMANDS], env=environment(), cwd=ROOT)
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["adafuse", *OURS])
def test_examples_keep_their_lines_in_a_terminal_of_80_columns(name):
    arguments = ["--help"] if name == "adafuse" else [name, "--help"]
    shown = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(app, arguments).stdout
    lines = [line.strip() for line in shown.split("\n")]
    for example in EXAMPLES[name]:
        for line in example.split("\n"):
            assert line.strip() in lines
    assert max(map(len, shown.split("\n"))) <= 80


@pytest.mark.parametrize("name", ["", *OURS])
def test_flags_show_no_type_and_arguments_are_written_once(name):
    shown = CliRunner().invoke(app, [name, "--help"] if name else ["--help"]).stdout
    assert "<bool>" not in shown
    assert "[[" not in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_paragraphs_of_help_are_not_broken_twice(name):
    _, *paragraphs = (COMMANDS[name].help or "").split("\n\n")
    assert all(len(line) <= 78 for each in paragraphs for line in each.split("\n"))


def words_of(example):
    """The command of an example and its arguments, without what the shell does."""
    lexer = shlex.shlex(example.replace("\\\n", " "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    begin = words.index("adafuse") + 1
    return list(itertools.takewhile(lambda word: word not in SHELL, words[begin:]))


@pytest.mark.parametrize("example", [line for lines in EXAMPLES.values() for line in lines])
def test_the_arguments_of_every_example_are_read(example):
    command, *arguments = words_of(example)
    with COMMANDS[command].make_context(command, arguments) as context:
        assert not context.args


@pytest.mark.parametrize(
    ("example", "sentence"),
    [
        ("adafuse bench --repeats three", "valid integer"),
        ("cat x | adafuse generate --modle A > y", "--modle"),
        ("adafuse show out.parquet out.parquet", "out.parquet"),
    ],
)
def test_the_arguments_of_a_wrong_example_are_refused(example, sentence):
    command, *arguments = words_of(example)
    with pytest.raises(TyperException, match=re.escape(sentence)):
        COMMANDS[command].make_context(command, arguments)


def test_an_option_takes_the_same_in_every_command_that_has_it():
    told = {}
    for name in OURS:
        for each in COMMANDS[name].params:
            told.setdefault(each.opts[0], set()).add((each.metavar, each.multiple))
    differ = {name for name, kinds in told.items() if len(kinds) > 1}
    # A file, or the folder of both files of `bench`; files, or for `init` whether to write some.
    assert differ <= {"--out", "--plugin"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["shwo"], "no such command 'shwo'. Did you mean 'show'? See 'adafuse --help'"),
        (["generate", "--modle", "x"], "no such option: --modle"),
        (
            ["generate", "--gap", "1"],
            "--gap is an option of adafuse; give it as --option gap=VALUE",
        ),
        (
            ["fit", "--top-p", "1"],
            "--top-p is an option of specfuse and self_consistency; give it as --option"
            " top_p=VALUE",
        ),
        (["show", "--gap", "1"], "no such option: --gap"),
        (["generate", "--tau", "x"], "invalid value for '--tau': 'x' must be a valid number; see"),
        (["bench", "--repeats", "0"], "'--repeats': '0' must be greater than or equal to 1"),
        (["generate"], "missing option '--model'; see 'adafuse generate --help'"),
        (["show"], "missing argument 'TRACE'; see 'adafuse show --help'"),
        (["show", "x", "--id"], "option '--id' requires an argument; see 'adafuse show --help'"),
        (
            ["report", "x.csv"],
            "'x.csv' is neither a results folder nor a .parquet trace; give one of",
        ),
        (
            ["export", "--latex", "--format", "dataset-card"],
            "--latex and --format dataset-card",
        ),
        (["export", "--latex", "--organization", "X"], "--organization is for the records, not fo"),
        (["report", "docs"], "name a results folder of the workflow"),
        (["methods", "unit"], "did you mean 'unite'?"),
        (["generate", "--model", "a", "--method", "gacc"], "did you mean 'gac'?"),
        (["generate", "--model", "a", "--option", "branchin=1"], "did you mean 'branching'?"),
    ],
)
def test_a_mistake_is_one_line_that_names_what_may_be_meant(arguments, sentence):
    done = adafuse(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["methods"], ["methods", "--json"]])
def test_output_that_nobody_reads_ends_quietly_with_141(arguments):
    assert read_by(os.close, *arguments) == (141, "")


def test_a_full_disk_behind_the_output_is_one_line():
    stderr = io.StringIO()
    with open("/dev/full", "w") as full:
        assert run("methods", stdout=full, stderr=stderr) == 2
    told = stderr.getvalue()
    assert told.startswith("error: the output cannot be written (No space left")
    assert told.count("\n") == 1


def test_streams_that_are_closed_are_no_traceback():
    command = [sys.executable, "-c", "from adafuse.cli.main import main; main()"]
    shell = f"{shlex.join([*command, 'methods'])} >&- 2>&- <&-"
    assert subprocess.run(["sh", "-c", shell], env=environment()).returncode == 0


LONG_ANSWER = [
    *("generate", "--method", "bytewise", "--model", toy_path("mistral")),
    *("--prompt", "Question: what", "--max-new-tokens", "900"),
]


def test_a_text_that_nobody_reads_on_ends_quietly_with_141():
    def read_a_byte(handle):
        assert os.read(handle, 1)
        os.close(handle)

    assert read_by(read_a_byte, *LONG_ANSWER) == (141, "")


def test_control_c_ends_quietly_with_130():
    process = subprocess.Popen(
        [sys.executable, "-m", "adafuse", *LONG_ANSWER],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=ROOT, bufsize=0,
    )  # fmt: skip
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    assert process.wait() == 130
    assert process.stderr.read() == b""
