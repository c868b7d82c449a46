"""The command line: one file for each command, and the parts that they share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from platform import python_version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from microagents import interrupts
from microagents.cli.command import Command, with_shared_options
from microagents.cli.commands import compare, decide, doctor, estimate, export, init, resume, rm, run, serve, show, step, study
from microagents.cli.commands import list as list_
from microagents.cli.reporting import EXIT_CODES, exit_on_error
from microagents.errors import InvalidUsage
from microagents.packages import installed_version


class Commands(TyperGroup):
    """The commands. A file in the place of one is told apart: people leave out `run`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names."""
        if args[0] not in self.commands and args[0].endswith(".py"):
            with exit_on_error():
                raise InvalidUsage(f"{args[0]!r} is a file and no command; write microagents run {args[0]}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="microagents",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS: dict[str, Callable[..., None]] = {
    "init": init.command,
    "run": run.command,
    "resume": resume.command,
    "list": list_.command,
    "show": show.command,
    "export": export.command,
    "rm": rm.command,
    "decide": decide.command,
    "step": step.command,
    "estimate": estimate.command,
    "compare": compare.command,
    "study": study.command,
    "serve": serve.command,
    "doctor": doctor.command,
}
for name, command in COMMANDS.items():
    app.command(name, cls=Command)(with_shared_options(command))


def _show_version(given: bool) -> None:
    if given:
        typer.echo(f"microagents {installed_version()}, Python {python_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")] = False,
) -> None:
    """Do long tasks with language models without an error: every small decision is an election."""


def main() -> None:
    """Run the `microagents` command."""
    try:
        interrupts.raise_again()
        app()
    except KeyboardInterrupt:  # Ctrl-C while no run handles it
        sys.exit(EXIT_CODES["interrupted"])
