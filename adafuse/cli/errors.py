"""How a command ends: its exit status, and mistakes as one line; and the examples in its help."""

import errno
import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError
from typer.exceptions import TyperException

from adafuse.errors import UserError, install

EXAMPLES: dict[str, tuple[str, ...]] = {
    "adafuse": (
        "adafuse doctor --model A --model B",
        'adafuse generate --model A --model B --prompt "Question: who?\\nAnswer:"',
    ),
    "generate": (
        'adafuse generate --model A --model B --prompt "Q: who?\\nA:" --stop "\\n"',
        "cat prompt.txt | adafuse generate --model A --model B > text.txt",
        "adafuse generate --model A --model B --prompts in.jsonl --out out.parquet",
        "adafuse generate --model A --method single --prompts - --json < in.jsonl",
    ),
    "serve": (
        "adafuse serve --model A --model B --port 8000",
        "adafuse serve --model A --model B --method unite --traces traces",
    ),
    "fit": (
        "adafuse fit --model A --model B --rows dev.jsonl --scorer nq \\\n"
        '    --template "Q: {question}\\nA:" --stop "\\n" --out gate.json',
    ),
    "advise": (
        "adafuse advise --model A --model B --rows dev.jsonl --scorer nq \\\n"
        '    --template "Q: {question}\\nA:" --stop "\\n"',
    ),
    "show": (
        "adafuse show out.parquet --list",
        "adafuse show out.parquet --id X --id Y --round 3",
        "adafuse show out.parquet --json",
        "adafuse show results --wrong --runs adafuse,mistral --csv failures.csv",
    ),
    "init": (
        "adafuse init my && cd my && snakemake --cores 2",
        "adafuse init my --plugin && cd my && python -m pytest tests",
    ),
    "methods": ("adafuse methods", "adafuse methods adafuse --json"),
    "score": (
        "adafuse score --benchmark gsm8k --predictions p.jsonl \\\n"
        "    --references gsm8k.jsonl --out score.json",
    ),
    "audit": (
        "adafuse audit --benchmark squad --predictions p.jsonl \\\n"
        "    --references squad.jsonl --csv audit.csv",
        "adafuse audit --benchmark squad --references squad.jsonl",
    ),
    "report": (
        "adafuse report results",
        "adafuse report one.parquet two.parquet --out compared",
    ),
    "export": (
        'adafuse export results --organization "My lab"',
        "adafuse export results --format dataset-card",
        "adafuse export results --latex --p-values",
    ),
    "pin": ("adafuse pin config/paper.yaml",),
    "plan": ("adafuse plan config/toy.yaml", "adafuse plan my.yaml --target figure_6"),
    "status": ("adafuse status", "adafuse status results --json"),
    "processor": ("adafuse processor vllm_processor.py",),
    "doctor": (
        "adafuse doctor",
        "adafuse doctor --model A --model B --device cuda:0 --batch-size 16",
        "adafuse doctor --model A --server http://127.0.0.1:8000",
    ),
    "preflight": ("adafuse preflight", "srun --gpus=1 adafuse preflight my.yaml"),
    "bench": ("adafuse bench --repeats 3", "adafuse bench --model A --model B --json"),
}
"""Of each command; lines are short enough for a terminal of 80 columns."""


def epilog(command: str) -> str:
    """Return the examples of a command as the end of its help; Markdown reads them as code."""
    return "Examples:\n\n" + "\n".join(f"    {line}" for line in EXAMPLES[command])


AUTHORS_PAGE = "docs/authors-scripts.md"
AUTHORS: dict[str, str] = {
    "--test_set": "name the file as `source: {file: FILE}` of a benchmark; --prompts takes whole"
    " prompts",
    "--model_path": "give --model, once per model",
    "--output_file": "give --out FILE.parquet",
    "--theta_delta": "give --tau",
    "--max_words": "give --max-words",
    "--max_total_tokens": "give --max-new-tokens; their scripts take the option and do not read it",
    "--max_new_tokens": "theirs limits each call of a model; --max-new-tokens limits the text",
    "--max_span_rounds": "give --max-rounds",
    "--per_device_batch_size": "give --batch-size",
    "--beam_size": "give --branching",
    "--span_length": "leave it out: --max-words is the longest span",
    "--voting_strategy": "leave it out: their scripts do not read it",
    "--pred": "give --predictions",
    "--ref": "give --references",
    "--answer_field": "name the field `answer` in the file of references",
}
"""What to do instead of an option of the authors' scripts; --model_path has a number."""


FAILED, WRONG, UNFINISHED, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141
STATUSES = {
    0: "success",
    FAILED: "a failure: a prompt of `generate`, a job of `status`, a check of `doctor`, `preflight`"
    " or `audit`, or adafuse itself (with a traceback)",
    WRONG: "an error in the command, or in a file or setting that it reads",
    UNFINISHED: "`status`: not everything is decoded yet",
    INTERRUPTED: "Ctrl-C; `generate --out` keeps the finished prompts for --resume, and `fit`"
    " what is decoded, for the same command",
    BROKEN_PIPE: "broken pipe, as in `adafuse show x.parquet | head`",
}
"""What exit statuses mean."""
EXTRAS = {
    "workflow": ("datasets", "polars", "sacrebleu", "snakemake", "word2number"),
    "report": ("altair", "polars", "vl_convert", "word2number"),
    "lm-eval": ("lm_eval", "pytablewriter"),
    "quantized": ("bitsandbytes", "compressed_tensors"),
    "bertscore": ("bert_score",),
    "serve": ("fastapi", "prometheus_client", "uvicorn"),
}
"""Modules that `pip install adafuse` does not bring, by the extra that does."""


def run(app: typer.Typer, program: str = "adafuse") -> int:
    """Run the command line and return its exit status; a mistake becomes one line on stderr."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed, as by `>&-`
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - till the end
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # Not every terminal can write what models can.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = _status(app, program)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        status = BROKEN_PIPE
    except SystemExit as end:  # what typer and rich make of a broken pipe
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        status = BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _tell(f"error: the output cannot be written ({error.strerror}); make room for it")
        status = WRONG
    # What is left cannot be written, and the interpreter need not try again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


def _status(app: typer.Typer, program: str) -> int:
    try:
        status = app(prog_name=program, standalone_mode=False)
        return status if isinstance(status, int) else 0
    except UserError as error:
        _tell(f"error: {error}")
    except TyperException as error:
        if error.format_message():  # it is empty where giving nothing prints the help
            _tell(_usage(error))
    except ModuleNotFoundError as error:
        _tell(f"error: {_missing(error)}")
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        _tell(f"error: the name {str(error.filename)[:40]!r}... is too long; give a shorter one")
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as end:
        from adafuse.plugins import places, said

        if places(end)[0] is None:
            raise
        _tell(f"error: a plug-in ended the command: {said(end)}")
    return WRONG


def _missing(error: ModuleNotFoundError) -> str:
    """Name the extra that brings a module; any other missing module is not of the user's making."""
    module = (error.name or "").partition(".")[0]
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    extra = next((name for name in (command, *EXTRAS) if module in EXTRAS.get(name, ())), None)
    if extra is None:
        raise error
    return f"adafuse {command} needs {module}, which is not installed; {install(extra)}"


def _usage(error: TyperException) -> str:
    """Return what typer has to say in one line, with where to read on."""
    if isinstance(cause := error.__context__, ValidationError):  # of a value, which it leaves out
        first = cause.errors()[0]
        whole = first["msg"].removeprefix("Value error, ")  # of a choice; it names the value
        reason = first["msg"].removeprefix("Input ").partition(",")[0].replace("should", "must")
        error.message = whole if whole != first["msg"] else f"{first['input']!r} {reason}"
    option = str(getattr(error, "option_name", ""))
    if hasattr(error, "possibilities") and (there := AUTHORS.get(option.rstrip("1234"))):
        return f"error: {option} is an option of the authors' scripts; {there} ({AUTHORS_PAGE})"
    context = getattr(error, "ctx", None)
    if hasattr(error, "possibilities") and (owners := _owners(option, context)):
        name = option.lstrip("-").replace("-", "_")
        return f"error: {option} is an option of {owners}; give it as --option {name}=VALUE"
    message = " ".join(error.format_message().split()).rstrip(".")
    named = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1] in EXAMPLES else ""
    command = context.command_path if context else f"adafuse {named}".rstrip()
    sentence = f"error: {message[:1].lower()}{message[1:]}"
    return sentence + (" See" if sentence.endswith("?") else "; see") + f" '{command} --help'"


def _owners(option: str, context: Any) -> str:
    """Return the methods that have an option of that name, where a command takes `--option`."""
    if context is None or not any("--option" in each.opts for each in context.command.params):
        return ""
    from adafuse.methods import METHODS

    name = option.lstrip("-").replace("-", "_")
    return " and ".join(key for key, each in METHODS.items() if name in each.Options.model_fields)


def _tell(sentence: str) -> None:
    try:
        typer.echo(sentence, err=True)
    except BrokenPipeError:
        return
    except OSError:  # stderr is a log on the disk that is full
        typer.echo(sentence)
