"""`adafuse step command-line`: what docs/command-line.md says."""

import typer

app = typer.Typer()


@app.command("command-line")
def command_line_step() -> None:
    """Print the description of all commands."""
    from adafuse.cli.main import app as adafuse
    from adafuse.cli.reference import command_line

    typer.echo(command_line(adafuse), nl=False)
