"""The pages that are made from the code, each from a template that holds its prose."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from typer.cli import get_docs_for_click
from typer.main import get_command

from adafuse.cli.errors import EXAMPLES, STATUSES
from adafuse.cli.main import app
from adafuse.config.config import Config
from tools.docs import reproduce, tables
from tools.docs.schema import SCHEMA_FILE, schema, schema_text

ROOT = Path(__file__).parents[2]
TEMPLATES = Path(__file__).parent / "templates"
PAGES = (
    "config/README.md",
    "docs/command-line.md",
    "docs/methods.md",
    "docs/traces.md",
    "docs/reproduce.md",
)


def files() -> dict[str, str]:
    """Return what every file that is made from the code must hold, by its path in the checkout."""
    return {SCHEMA_FILE: schema_text(), **{path: page(path) for path in PAGES}}


def page(path: str) -> str:
    """Return a page: its template with the tables filled in."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True
    )
    template = template_of(path)
    origin = f"<!-- Made by `make docs` from tools/docs/templates/{template}; change it there. -->"
    return f"{origin}\n\n{environment.get_template(template).render(**_functions())}"


def template_of(path: str) -> str:
    """Return the name of a page's template."""
    return path.replace("/", "_") + ".j2"


def _functions() -> dict[str, Callable[..., str | int]]:
    """What templates may call."""
    return {
        "statuses": statuses,
        "commands": commands,
        "section": section,
        "options": tables.options_table,
        "scorers": tables.scorers_table,
        "columns": tables.columns_table,
        "metadata": tables.metadata_table,
        "estimates": reproduce.estimates_table,
        "totals": reproduce.totals_table,
        "served": reproduce.served_table,
        "hours_of_starts": reproduce.hours_of_starts,
        "days": reproduce.days,
        "memory": reproduce.memory,
    }


def section(name: str = "") -> str:
    """Return the fields of a section of the configuration; of the top level without a name."""
    # In the schema nothing is required of a benchmark that a file of its own completes.
    typed = Config.model_json_schema()
    required = (typed["$defs"][name] if name else typed).get("required", ())
    return tables.fields_table(schema()["$defs"][name] if name else schema(), required)


def statuses() -> str:
    """Return what every exit status says."""
    rows = [(str(status), meaning) for status, meaning in STATUSES.items()]
    return tables.table(("status", "meaning"), rows)


def commands() -> str:
    """Return the commands for users with their options and examples, as typer describes them."""
    group: Any = get_command(app)
    context = typer.Context(group, info_name="adafuse")
    described = []
    for command in (group.get_command(context, name) for name in group.list_commands(context)):
        if command.name in EXAMPLES:
            command.help = _unwrapped(command.help)
            described.append(
                get_docs_for_click(obj=command, ctx=context, indent=1, call_prefix="adafuse")
            )
    return "".join(described).rstrip()


def _unwrapped(docstring: str) -> str:
    """Return a docstring with each paragraph on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in docstring.split("\n\n"))
