"""The pages that are made from the code, each from a template that holds its prose."""

from collections.abc import Callable
from pathlib import Path

from adafuse.cli.main import app
from adafuse.cli.reference import command_line
from adafuse.config.config import Config
from adafuse.config.schema import SCHEMA_FILE, schema, schema_text
from adafuse.docs import methods, reproduce, traces
from adafuse.docs.fields import fields_table

COMMANDS = "docs/command-line.md"
TEMPLATES = Path(__file__).parent / "templates"
PAGES = ("config/README.md", "docs/methods.md", "docs/traces.md", "docs/reproduce.md")


def files() -> dict[str, str]:
    """Return what every file that is made from the code must hold, by its path in the checkout."""
    made = {path: page(path) for path in PAGES}
    return {SCHEMA_FILE: schema_text(), COMMANDS: command_line(app), **made}


def page(path: str) -> str:
    """Return a page: its template with the tables filled in."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True
    )
    template = template_of(path)
    told = f"<!-- Made by `make docs` from adafuse/docs/templates/{template}; change it there. -->"
    return f"{told}\n\n{environment.get_template(template).render(**_functions())}"


def template_of(path: str) -> str:
    """Return the name of a page's template."""
    return path.replace("/", "_") + ".j2"


def _functions() -> dict[str, Callable[..., str | int]]:
    """What templates may call."""
    return {
        "section": section,
        "options": methods.options_table,
        "scorers": methods.scorers_table,
        "columns": traces.columns_table,
        "metadata": traces.metadata_table,
        "estimates": reproduce.estimates_table,
        "totals": reproduce.totals_table,
        "hours_of_starts": reproduce.hours_of_starts,
        "days": reproduce.days,
        "memory": reproduce.memory,
    }


def section(name: str = "") -> str:
    """Return the fields of a section of the configuration; of the top level without a name."""
    # In the schema nothing is required of a benchmark that a file of its own completes.
    typed = Config.model_json_schema()
    required = (typed["$defs"][name] if name else typed).get("required", ())
    return fields_table(schema()["$defs"][name] if name else schema(), required)
