"""The command line: one file for each command, and the parts that they share."""

from __future__ import annotations

import sys

import typer

from microagents.cli import compare, decide, estimate, export, resume, rm, run, show, step
from microagents.cli import list as list_
from microagents.cli.reporting import EXIT_CODES

app = typer.Typer(
    name="microagents",
    help="Do long tasks with language models without an error: every small decision is an election.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.command)
app.command("resume")(resume.command)
app.command("list")(list_.command)
app.command("show")(show.command)
app.command("export")(export.command)
app.command("rm")(rm.command)
app.command("decide")(decide.command)
app.command("step")(step.command)
app.command("estimate")(estimate.command)
app.command("compare")(compare.command)


@app.callback()
def _commands() -> None:
    """Keep the name of the command on the command line: without a callback, typer drops it from an app with one command."""


def main() -> None:
    """Run the `microagents` command."""
    try:
        app()
    except KeyboardInterrupt:  # Ctrl-C while no run handles it
        sys.exit(EXIT_CODES["interrupted"])
