"""docs/command-line.md, written from the commands themselves."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import typer
from typer.main import get_command

from adafuse.cli.errors import EXAMPLES, STATUSES

_HEAD = """\
<!-- Made by `make docs` from adafuse/cli/; change it there. -->

# Command line

`adafuse COMMAND --help` says the same in the terminal; `adafuse --install-completion` makes the
shell suggest commands, options, methods, model folders and the examples of a trace. Wherever a
machine may read the result, `--json` prints JSON and nothing else to standard output. Mistakes are
one line on standard error. `adafuse lm-eval` hands everything to
[lm-evaluation-harness](lm-eval.md), and `adafuse step ...` is what the workflow's rules run.

## Exit status

| status | meaning |
| ---: | --- |
"""


_MARK = "<!-- not run: A and B stand for your models; tests/cli/test_main.py -->"


def command_line(app: typer.Typer) -> str:
    """Return all commands with their options and examples, and what an exit status says."""
    group: Any = get_command(app)
    context = typer.Context(group, info_name="adafuse")
    commands = (group.get_command(context, name) for name in group.list_commands(context))
    statuses = [_line([str(status), meaning]) for status, meaning in STATUSES.items()]
    sections = [_section(command) for command in commands if command.name in EXAMPLES]
    return _HEAD + "\n".join(statuses) + "\n" + "".join(sections)


def _section(command: Any) -> str:
    usage = " ".join(["adafuse", command.name, *_arguments(command), "[OPTIONS]"])
    parts = [
        f"\n## adafuse {command.name}\n",
        inspect.cleandoc(command.help),
        "",
        f"`{usage}`",
        "",
        *_table(command),
        _MARK,
        "```sh",
        *EXAMPLES[command.name],
        "```",
    ]
    return "\n".join(parts) + "\n"


def _arguments(command: Any) -> Iterator[str]:
    for each in command.params:
        if each.param_type_name == "argument":
            name = each.metavar if each.required else f"[{each.metavar}]"
            yield name + "..." * (each.nargs != 1)


def _table(command: Any) -> list[str]:
    rows = list(_rows(command))
    head = [_line(["option", "meaning", "default"]), "| --- | --- | --- |"]
    return [*head, *rows, ""] if rows else []


def _rows(command: Any) -> Iterator[str]:
    for each in command.params:
        names = ", ".join([*each.opts, *each.secondary_opts])
        option = each.param_type_name == "option"
        shown = f"{names} {each.metavar or ''}".strip() if option else each.metavar
        yield _line([f"`{shown}`", (each.help or "").replace("\\n", "`\\n`"), _default(each)])


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    flag = getattr(parameter, "is_flag", False)
    empty = parameter.default in (None, (), []) or (flag and not parameter.secondary_opts)
    return "" if empty else f"`{parameter.default}`"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
