"""The command line: one file for each command, and the parts that they share."""

from __future__ import annotations

import ast
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from platform import python_version
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from microagents.actors.registry import Registry, unknown
from microagents.base import exits, interrupts
from microagents.base.errors import InvalidUsage
from microagents.base.packages import installed_version
from microagents.base.printing import keep_stdout
from microagents.cli.command import Command, with_shared_options
from microagents.cli.reporting import EXIT_CODES, exit_on_closed_stdout, exit_on_error

GROUPS = {
    "To begin with": ("init", "try", "run", "resume", "list", "show", "view", "decide"),
    "To measure and plan": ("measure", "plan", "compare"),
    "To control and serve": ("ctl", "export", "serve"),
}
"""Shipped commands as `--help` lists them."""
COMMANDS = Registry(
    kind="command",
    group="microagents.commands",
    shipped={
        name: f"microagents.cli.commands.{name.replace('try', 'try_model')}:command"
        for names in GROUPS.values()
        for name in names
    },
)
RENAMED = {
    "step": "try TASK --one",
    "doctor": "try --setup",
    "graph": "show TASK --graph",
    "rm": "list --remove RUN",
    "top": "list --live",
    "attach": "show --live",
    "report": "view -o FILE",
    "calibrate": "measure",
    "study": "measure [--rollouts N]",
    "estimate": "plan --p P --steps N",
    "simulate": "plan --repeat N",
    "approve": "decide RUN PATH approve",
    "logs": "show RUN",
    "pause": "ctl RUN pause",
    "status": "ctl RUN status",
    "stop": "ctl RUN stop",
}
"""Words that people type for commands, and the commands."""


class Commands(TyperGroup):
    """Shipped commands, and commands of installed packages. A file in place of a command is an error that names `run`."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the same in every context
        """Return the names of all. A package cannot replace a shipped command."""
        return list(COMMANDS.addresses)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name. Its module is imported only for its command, or for the help on all."""
        if cmd_name not in self.commands and cmd_name in COMMANDS.addresses:
            self.commands[cmd_name] = _command(cmd_name)
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by their groups, installed packages at the end."""
        shipped = [name for names in GROUPS.values() for name in names]
        others = tuple([name for name in self.list_commands(ctx) if name not in shipped])
        for title, names in {**GROUPS, "Of installed packages": others}.items():
            rows = [(name, _in_short(name, formatter.width - 14)) for name in names]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def make_context(self, *given: Any, **named: Any) -> Any:
        """Parse the options before the command, of which two print and exit."""
        with exit_on_closed_stdout():
            return super().make_context(*given, **named)

    def invoke(self, ctx: Any) -> Any:
        """Execute the command, and say its error in one sentence."""
        with exit_on_closed_stdout(), exit_on_error():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first argument names."""
        if args[0] not in self.list_commands(ctx):
            if args[0] in RENAMED:
                raise InvalidUsage(f"{args[0]!r} is not a command; write microagents {RENAMED[args[0]]}")
            if args[0].endswith(".py"):
                raise InvalidUsage(f"{args[0]!r} is a file, not a command; write microagents run {args[0]}")
            if not args[0].startswith("-"):
                raise InvalidUsage(unknown("command", args[0], self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


def _in_short(name: str, width: int) -> str:
    """Return the beginning of a command's docstring. Its module is read and not imported, since that takes half a second."""
    module, _, function = COMMANDS.addresses[name].partition(":")
    with suppress(ImportError, OSError, SyntaxError, ValueError):
        found = find_spec(module)
        if found is not None and found.origin is not None:
            source = Path(found.origin).read_bytes()
        else:
            source = b""
        for each in ast.parse(source).body:
            if isinstance(each, ast.FunctionDef) and each.name == function:
                return TyperCommand(name, help=ast.get_docstring(each)).get_short_help_str(width)
    return ""


HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="microagents",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)


def _command(name: str) -> Any:
    """Return a command; if it cannot be imported, one that says why."""
    try:
        function = COMMANDS.find_function(name)
    except InvalidUsage as error:
        refusal = error

        def function() -> None:
            raise refusal

        function.__doc__ = str(refusal)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings=HELP)
    alone.command(name, cls=Command)(with_shared_options(function))
    return get_command(alone)


def _show_version(given: bool) -> None:
    if given:
        typer.echo(f"microagents {installed_version()}, Python {python_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Do long tasks with language models without an error: every small decision is an election."""


def main() -> None:
    """Run the `microagents` command."""
    try:
        keep_stdout()
        interrupts.end_children_by_signals()
        interrupts.raise_again()
        app()
    except KeyboardInterrupt:  # Ctrl-C while no run handles it
        sys.exit(EXIT_CODES["interrupted"])
    except SystemExit as ended:
        exits.end_bounded(ended.code)
        raise
    finally:
        sys.stdout = sys.stderr  # what users' code prints at the exit
