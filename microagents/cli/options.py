"""Options that commands share, and how their words become a task, a strategy and models."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from microagents.actors import Strategy
from microagents.cli.reporting import one_sentence
from microagents.errors import InvalidUsage
from microagents.registry import STRATEGIES, TASKS, unknown
from microagents.runs.settings import Flag, Settings, read_value, strategy_of, validated
from microagents.task import Task

DEFAULT_MODEL = "sim:gpt-4.1-mini"


def _from_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make a TOML file's values the defaults of a command; flags and the environment go before them."""
    if path is None:
        return None
    with one_sentence():
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise InvalidUsage(f"the config {str(path)!r} cannot be read: {error}") from None
        known = {flag.lstrip("-"): parameter for parameter in context.command.params for flag in parameter.opts}
        defaults = dict(context.default_map or {})
        for key, value in values.items():
            parameter = known.get(key.replace("_", "-"))
            if parameter is None:
                raise InvalidUsage(unknown(f"option in the config {str(path)!r} called", key, sorted(known)))
            defaults[str(parameter.name)] = _as_words(value) if getattr(parameter, "multiple", False) else value
        context.default_map = defaults
    return path


def _as_words(value: object) -> list[str]:
    """What a repeatable option takes: a table gives NAME=VALUE words, a single value one word."""
    if isinstance(value, dict):
        return [f"{name}={each}" for name, each in value.items()]
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


TaskName = Annotated[
    str,
    typer.Argument(metavar="TASK", help=f"A shipped name ({', '.join(TASKS.addresses)}), package.module:Class, or path/file.py:Class."),
]
Options = Annotated[
    list[str],
    typer.Option("-o", "--option", metavar="NAME=VALUE", help="An option of the task; NAME=@FILE reads text. Repeatable."),
]
STRATEGY_NAMES = f"A shipped name ({', '.join(STRATEGIES.addresses)}), package.module:Class, or path/file.py:Class."
StrategyName = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        envvar="MICROAGENTS_STRATEGY",
        help=f"{STRATEGY_NAMES} [default: the task's own]",
    ),
]
StrategyOptions = Annotated[list[str], typer.Option("-s", "--set", metavar="NAME=VALUE", help="An option of the strategy. Repeatable.")]
ModelSpecs = Annotated[
    list[str],
    typer.Option(
        "--model",
        metavar="[ROLE=]SPEC",
        envvar="MICROAGENTS_MODEL",
        help=f"provider:model[@key=value,...]; repeated: a pool that samples rotate through. Default: {DEFAULT_MODEL}.",
    ),
]
Margin = Annotated[
    int | None,
    typer.Option("-k", metavar="K", envvar="MICROAGENTS_K", help="Short for -s k=K: the margin of an election."),
]
Seed = Annotated[int, typer.Option("--seed", envvar="MICROAGENTS_SEED", help="Seeds simulated models.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout; everything else goes to stderr.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=_from_config,
        help="A TOML file with defaults for these options.",
    ),
]


RunsDir = Annotated[
    Path, typer.Option("--runs-dir", metavar="FOLDER", envvar="MICROAGENTS_RUNS_DIR", help="The folder that holds a journal for each run.")
]
RUNS = Path("runs")
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's name; `microagents list` shows what there is.")]
AcceptChange = Annotated[
    list[str],
    typer.Option("--accept-change", metavar="FIELD", help="A field that may differ from what the run was begun with. Repeatable."),
]
Speculate = Annotated[
    bool | None,
    typer.Option(
        "--speculate/--no-speculate",
        envvar="MICROAGENTS_SPECULATE",
        help="Short for -s speculate=...: open next steps on guesses. Decisions do not depend on it. [default: speculate]",
    ),
]


def _option_type(annotation: Any) -> Any:
    """The type of a setting as an option: without bounds, which `Settings` checks, and as words where it is a dict."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = get_args(annotation)[0]
    return list[str] if get_origin(annotation) is dict else annotation


def _setting_options() -> Iterator[Parameter]:
    """An option for each setting that may change from one sitting of a run to the next; its help is the field's docstring."""
    for name, info in Settings.model_fields.items():
        for flag in info.metadata:
            if isinstance(flag, Flag):
                option = flag.name or f"--{name.replace('_', '-')}"
                shown = "" if info.default in (None, False, {}) else f" [default: {info.default}]"
                given = typer.Option(
                    option,
                    metavar=flag.metavar,
                    envvar=f"MICROAGENTS_{option.strip('-').replace('-', '_').upper()}",
                    help=f"{(info.description or '').replace('`', '')}{shown}",
                )
                kind = _option_type(info.annotation) | None
                yield Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, given])
    yield Parameter("speculate", Parameter.KEYWORD_ONLY, default=None, annotation=Speculate)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the run's settings. It gets those that were given as one dict, ``changed``."""
    options = list(_setting_options())

    @wraps(command)
    def wrapped(**given: Any) -> None:
        changed = {each.name: value for each in options if (value := given.pop(each.name)) not in (None, [])}
        if "deploy" in changed:
            with one_sentence():
                changed["deploy"] = deployed(changed["deploy"])
        command(**given, changed=changed)

    hints = get_type_hints(command, include_extras=True)
    own = [
        each.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, each in signature(command).parameters.items()
        if name != "changed"
    ]
    every = [*own, *options]
    vars(wrapped).update(__signature__=Signature(every), __annotations__={each.name: each.annotation for each in every})
    return wrapped


def pairs(option: str, words: list[str]) -> dict[str, Any]:
    """NAME=VALUE words as a dict; VALUE behind an @ is a file's text.

    Raises:
        InvalidUsage: for a word without a name or an equals sign.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise InvalidUsage(f"{option} {word!r} is not of the form NAME=VALUE")
        found[name] = read_value(value)
    return found


def deployed(words: list[str]) -> dict[str, dict[str, Any]]:
    """ROLE.OPTION=VALUE words as options by role; RESOURCE amounts are ROLE.resources.NAME=AMOUNT.

    Raises:
        InvalidUsage: for a word of another form.
    """
    found: dict[str, dict[str, Any]] = {}
    for place, value in pairs("--deploy", words).items():
        match place.split("."):
            case [role, "resources", name]:
                found.setdefault(role, {}).setdefault("resources", {})[name] = value
            case [role, option]:
                found.setdefault(role, {})[option] = value
            case _:
                raise InvalidUsage(f"--deploy {place!r} is not of the form ROLE.OPTION=VALUE, such as solver.num_replicas=4")
    return found


def task_of(name: str, options: list[str]) -> Task:
    """The task that the command line names."""
    return validated(TASKS.find(name, Task), f"task {name!r}", pairs("-o", options), flag="-o")


def strategy_named(name: str | None, options: list[str], short: Mapping[str, Any], task: Task) -> Strategy:
    """The strategy that the command line names, with its options and their short forms."""
    return strategy_of(name, task, pairs("-s", options), short)


def models_of(specs: list[str]) -> dict[str, list[str]]:
    """Pools by role: ``ROLE=SPEC`` goes to that role, a bare spec to all others."""
    pools: dict[str, list[str]] = {}
    for spec in specs:
        role, equals, rest = spec.partition("=")
        named = bool(equals) and ":" not in role and ":" in rest
        pools.setdefault(role.lower() if named else "", []).append(rest if named else spec)
    return pools or {"": [DEFAULT_MODEL]}
