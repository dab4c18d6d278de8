"""docs/command-line.md says what the commands say."""

from typer.main import get_command

from adafuse.cli.errors import EXAMPLES, STATUSES
from adafuse.cli.main import app
from adafuse.cli.reference import command_line


def test_every_command_and_option_is_described():
    text = command_line(app)
    for name, command in get_command(app).commands.items():
        if name in EXAMPLES:
            assert f"## adafuse {name}\n" in text
            options = [p for p in command.params if p.param_type_name == "option"]
            assert all(each.opts[0] in text for each in options)
    assert all(f"| {status} | " in text for status in STATUSES)


def test_every_command_of_ours_for_users_has_examples():
    assert {*get_command(app).commands} - {"step", "lm-eval"} <= {*EXAMPLES}
