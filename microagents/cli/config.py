"""Defaults of options: microagents.toml and .env of the working folder, and the file of --config.

The command line goes before the environment, that before `.env`, that before --config, and that before microagents.toml.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer

from microagents.cli.dotenv import read_dotenv
from microagents.cli.reporting import LOG_LEVEL, warn
from microagents.errors import InvalidUsage, read_failure
from microagents.files import read_text
from microagents.registry import unknown

PROJECT = Path("microagents.toml")
DOTENV = Path(".env")
PREFIX = "MICROAGENTS_"
"""Beginning of the names of all environment variables that commands read."""
OWN_WORDS = ("config", "no-config", "help", "debug")
"""Options that a file cannot give."""


def load_files(context: typer.Context) -> None:
    """Take the files of the working folder as defaults of a command, and name each of them on stderr."""
    if DOTENV.is_file():  # a folder of this name is somebody's virtual environment
        new = {name: value for name, value in read_dotenv(DOTENV).items() if name not in os.environ}
        set_environment(context, new)
        _name_file(DOTENV, "sets", new)
    if PROJECT.is_file():
        taken = _options_of(context.command)
        known = {**_options_of_all(context), **taken}
        if not _takes_config(context.command):  # it finds its settings in a journal
            taken = {"runs-dir": taken["runs-dir"]}
        defaults = dict(_defaults(PROJECT, _read_toml(PROJECT), known))
        _add_defaults(context, PROJECT, {name: value for option, (name, value) in defaults.items() if option in taken})
        _name_file(PROJECT, "gives", [option for option in defaults if option in taken])


def load_config(context: typer.Context, path: Path) -> None:
    """Take the file of --config as defaults of a command."""
    _add_defaults(context, path, dict(dict(_defaults(path, _read_toml(path), _options_of(context.command))).values()))


def file_of_default(context: typer.Context, parameter: str) -> Path | None:
    """Return the file that gives the default of a parameter."""
    found: Path | None = context.meta.get(__name__, {}).get(parameter)
    return found


def warn_of_unknown_variables(context: typer.Context) -> None:
    """Name each variable ``MICROAGENTS_...`` of the environment that no command reads: a misspelt limit is none."""
    given = sorted(name for name in os.environ if name.startswith(PREFIX))
    if not given:
        return
    from microagents.models.simulation.simulated import Purchases  # noqa: PLC0415 - only where such a variable is set

    read = [each.envvar for command in _commands(context) for each in command.params if isinstance(each.envvar, str)]
    known = sorted({*read, LOG_LEVEL, Purchases.VARIABLE})
    for name in given:
        if name not in known:
            near = get_close_matches(name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known], n=1)
            warn(
                f"the variable {name} is ignored: no option has this name{f'; did you mean {PREFIX}{near[0]}?' if near else ''}"
            )


def set_environment(context: typer.Context, variables: Mapping[str, str]) -> None:
    """Set environment variables until a command has ended."""
    before = {name: os.environ.get(name) for name in variables}

    def restore() -> None:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    context.call_on_close(restore)
    os.environ.update(variables)


def _name_file(path: Path, verb: str, names: Mapping[str, str] | list[str]) -> None:
    if names:
        typer.echo(f"microagents: {path} {verb} {', '.join(names)}", err=True)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:  # also a number of 5,000 digits, and 100,000 brackets
        raise InvalidUsage(f"the config {str(path)!r} cannot be read: {read_failure(error)}") from None


def _options_of(command: Any) -> dict[str, Any]:
    """Return the parameters of a command by the names that a file gives them."""
    named = {flag.lstrip("-"): parameter for parameter in command.params for flag in parameter.opts}
    return {name: parameter for name, parameter in named.items() if name not in OWN_WORDS}


def _takes_config(command: Any) -> bool:
    return any(parameter.name == "config" for parameter in command.params)


def _commands(context: typer.Context) -> list[Any]:
    """All commands, also those that are imported when they are named."""
    assert context.parent is not None
    group: Any = context.parent.command
    return [group.get_command(context.parent, name) for name in group.list_commands(context.parent)]


def _options_of_all(context: typer.Context) -> dict[str, Any]:
    taking = [_options_of(command) for command in _commands(context) if _takes_config(command)]
    return {name: parameter for options in taking for name, parameter in options.items()}


def _defaults(path: Path, values: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, Any]]]:
    """For each option of a file its parameter and its default."""
    for key, value in values.items():
        option = key.replace("_", "-")
        parameter = known.get(option)
        if parameter is None:
            raise InvalidUsage(unknown(f"option in the config {str(path)!r} called", key, sorted(known)))
        yield option, (str(parameter.name), _option_words(value) if getattr(parameter, "multiple", False) else value)


def _option_words(value: object) -> list[str]:
    """Return the words of a repeatable option: NAME=VALUE for each entry of a table, one word for a single value."""
    if isinstance(value, dict):
        return [f"{name}={each}" for name, each in value.items()]
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def _add_defaults(context: typer.Context, path: Path, defaults: Mapping[str, Any]) -> None:
    context.default_map = {**(context.default_map or {}), **defaults}
    context.meta.setdefault(__name__, {}).update(dict.fromkeys(defaults, path))
