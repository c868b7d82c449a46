"""Defaults of options: microagents.toml and .env of the working folder, and the file of --config.

The command line goes before the environment, that before `.env`, that before --config, and that before microagents.toml.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from io import StringIO
from pathlib import Path
from typing import Any

import typer
from dotenv.parser import parse_stream

from microagents.actors.registry import unknown
from microagents.base.errors import InvalidUsage, refusing
from microagents.base.files import read_text, replace_text
from microagents.base.trust import FOLDERS
from microagents.cli.reporting import LOG_LEVEL, warn
from microagents.cli.trusting import confirm_trust
from microagents.runs.references import references_in

PROJECT = Path("microagents.toml")
DOTENV = Path(".env")
PREFIX = "MICROAGENTS_"
"""Beginning of the names of all environment variables that commands read."""
KEY_SUFFIX = "_API_KEY"
"""Ending of the names of variables with keys. Others may redirect requests and programs, and a file of the folder sets none of them."""
OWN_WORDS = ("config", "trust-folder", "help")
"""Options that a file cannot give."""


def load_files(context: typer.Context, *, trusts: bool) -> None:
    """Take the files of the working folder as defaults of a command, and name each of them on stderr.

    Args:
        context: the command.
        trusts: whether the files may name hosts, keys, commands, code, and files elsewhere. Otherwise a person is asked, once for each
            version of a file that does.

    Raises:
        InvalidUsage: a file is broken, or not trusted.
    """
    if os.path.isfile(DOTENV):  # a folder of this name is somebody's virtual environment
        _take_dotenv(context, trusts=trusts)
    if os.path.isfile(PROJECT):
        _take_project(context, trusts=trusts)


def _take_dotenv(context: typer.Context, *, trusts: bool) -> None:
    """Set the variables of the file for this process."""
    text, new, refused = _text_of(DOTENV), dict[str, str](), list[str]()
    reaching: list[str] = []
    for name, value in _variables(text).items():
        if name.startswith(PREFIX):
            references = references_in([(name.removeprefix(PREFIX).lower(), value)])
        else:
            references = []
        if name in os.environ or (references and name not in _variables_of(context.command)):
            continue
        if not name.startswith(PREFIX) and not name.endswith(KEY_SUFFIX):
            refused.append(name)
            continue
        reaching += references
        new[name] = value
    if refused:
        warn(f"{DOTENV} may set only {PREFIX}... and ...{KEY_SUFFIX}; ignored: {', '.join(refused)}")
    _check_trust(DOTENV, text, reaching, trusts=trusts)
    os.environ.update(new)
    _name_file(DOTENV, "sets", new)


def _take_project(context: typer.Context, *, trusts: bool) -> None:
    text, taken = _text_of(PROJECT), _options_of(context.command)
    known = {**_options_of_all(context), **taken}
    if not has_parameter(context.command, "config"):  # it finds its settings in a journal
        taken = {"runs-dir": taken["runs-dir"]}
    defaults = {name: each for name, each in _defaults(PROJECT, _parsed(PROJECT, text), known) if name in taken}
    reaching = references_in((name, value) for name, (_, value) in defaults.items())
    _check_trust(PROJECT, text, reaching, trusts=trusts)
    _add_defaults(context, PROJECT, dict(defaults.values()))
    _name_file(PROJECT, "gives", list(defaults))


def load_config(context: typer.Context, path: Path) -> None:
    """Take the file of --config as defaults of a command."""
    values = _parsed(path, _text_of(path))
    found = dict(_defaults(path, values, _options_of(context.command)))
    _add_defaults(context, path, dict(found.values()))


def with_defaults(text: str, settings: Mapping[str, Any]) -> str:
    """Return the text of a TOML file with these options in front, in place of lines that give them.

    Raises:
        InvalidUsage: one of them is given in another way, such as a table, or the text cannot be read.
    """
    new = "".join(f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())
    for line in text.splitlines(keepends=True):
        name = line.partition("=")[0].strip()
        if name.replace("_", "-") not in settings:
            new += line
    with suppress(ValueError, RecursionError):
        before = {key: value for key, value in tomllib.loads(text).items() if key.replace("_", "-") not in settings}
        if tomllib.loads(new) == {**settings, **before}:
            return new
    raise InvalidUsage(
        f"{PROJECT} cannot be read, or gives some of {', '.join(settings)} in another way than by a line; change it yourself"
    )


def write_defaults(settings: Mapping[str, Any]) -> None:
    """Write options into microagents.toml of the working folder, and trust it if the file before was trusted."""
    text = ""
    if os.path.isfile(PROJECT):
        text = _text_of(PROJECT)
    new = with_defaults(text, settings)
    if not text or FOLDERS.has(PROJECT, text.encode()) or not references_in(tomllib.loads(text).items()):
        FOLDERS.add(PROJECT, new.encode())
    with refusing(f"{PROJECT} cannot be written", "; it is as it was"):
        replace_text(Path(os.path.realpath(PROJECT)), new)


def file_of_default(context: typer.Context, parameter: str) -> Path | None:
    """Return the file that gives the default of a parameter."""
    found: Path | None = context.meta.get(__name__, {}).get(parameter)
    return found


def warn_of_unknown_variables(context: typer.Context) -> None:
    """Name each variable ``MICROAGENTS_...`` of the environment that no command reads: a misspelt limit is none."""
    given = sorted(name for name in os.environ if name.startswith(PREFIX))
    if not given:
        return
    from microagents.models.simulation.simulated import Purchases  # noqa: PLC0415 - only if such a variable is set

    read = [name for command in _commands(context) for name in _variables_of(command)]
    known = sorted({*read, LOG_LEVEL, Purchases.VARIABLE})
    for name in given:
        if name not in known:
            said = f"the variable {name} is ignored: no option has this name"
            near = get_close_matches(name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known], n=1)
            if near:
                said += f"; did you mean {PREFIX}{near[0]}?"
            warn(said)


def _name_file(path: Path, verb: str, names: Mapping[str, str] | list[str]) -> None:
    if names:
        typer.echo(f"microagents: {path} {verb} {', '.join(names)}", err=True)


def _check_trust(path: Path, text: str, named: Sequence[str], *, trusts: bool) -> None:
    """Ask about a file of the folder that reaches out of it, unless this user trusts it already."""
    if not named or FOLDERS.has(path, text.encode()):
        return
    if not trusts:
        what = f"{path} of this folder gives {', '.join(named)}, which may send your keys elsewhere or run other code"
        confirm_trust(what, "--trust-folder", "or begin the run in another folder")
    FOLDERS.add(path, text.encode())


def _text_of(path: Path) -> str:
    with refusing(f"{str(path)!r} cannot be read", "; mend it, or move it away"):
        return read_text(path)


def _parsed(path: Path, text: str) -> dict[str, Any]:
    with refusing(f"the config {str(path)!r} cannot be read"):
        return tomllib.loads(text)


def _variables(text: str) -> dict[str, str]:
    """Return the variables of a `.env`. If a name stands twice, the last line counts.

    Raises:
        InvalidUsage: a line sets no variable. The message names the line and never shows it: it may be a key.
    """
    found = {}
    for each in parse_stream(StringIO(text)):
        line = each.original.string
        if each.error or "\0" in line or (each.key is not None and each.value is None):
            number = each.original.line + len(line) - len(line.lstrip("\r\n"))
            raise InvalidUsage(
                f"line {number} of {str(DOTENV)!r} is not of the form NAME=value; mend it, or move the file away"
            )
        if each.key is not None and each.value is not None:
            found[each.key] = each.value
    return found


def _options_of(command: Any) -> dict[str, Any]:
    """Return the parameters of a command by the names that a file gives them."""
    named = {flag.lstrip("-"): parameter for parameter in command.params for flag in parameter.opts}
    return {name: parameter for name, parameter in named.items() if name not in OWN_WORDS}


def _variables_of(command: Any) -> list[str]:
    """Return the names of the environment variables that a command reads."""
    return [each.envvar for each in command.params if isinstance(each.envvar, str)]


def has_parameter(command: Any, name: str) -> bool:
    """Return whether a command has a parameter of this name."""
    return any(parameter.name == name for parameter in command.params)


def _commands(context: typer.Context) -> list[Any]:
    """Return all commands, including those imported only when named."""
    assert context.parent is not None
    group: Any = context.parent.command
    return [group.get_command(context.parent, name) for name in group.list_commands(context.parent)]


def _options_of_all(context: typer.Context) -> dict[str, Any]:
    taking = [_options_of(command) for command in _commands(context) if has_parameter(command, "config")]
    return {name: parameter for options in taking for name, parameter in options.items()}


def _defaults(path: Path, values: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, Any]]]:
    """For each option of a file its parameter and its default."""
    for key, value in values.items():
        option = key.replace("_", "-")
        parameter = known.get(option)
        if parameter is None:
            raise InvalidUsage(unknown(f"option in the config {str(path)!r} called", key, sorted(known)))
        yield option, (str(parameter.name), _given_to(parameter, value))


def _given_to(parameter: Any, value: object) -> object:
    """Return a value of a file as the command line would give it to a parameter, which else took true for the number 1."""
    if getattr(parameter, "multiple", False):
        return _option_words(value)
    if isinstance(value, bool) and not getattr(parameter, "is_flag", False):
        return str(value).lower()
    return value


def _option_words(value: object) -> list[str]:
    """Return the words of a repeatable option: NAME=VALUE for each entry of a table, one word for a single value."""
    if isinstance(value, dict):
        return [f"{name}={each}" for name, each in value.items()]
    if isinstance(value, list):
        return [str(each) for each in value]
    return [str(value)]


def _add_defaults(context: typer.Context, path: Path, defaults: Mapping[str, Any]) -> None:
    context.default_map = {**(context.default_map or {}), **defaults}
    context.meta.setdefault(__name__, {}).update(dict.fromkeys(defaults, path))
