"""Options that commands share, and how their words become a task, a strategy and models."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from microagents.actors import Strategy
from microagents.cli.reporting import one_sentence
from microagents.errors import InvalidUsage
from microagents.registry import STRATEGIES, TASKS, find, unknown
from microagents.runs.settings import Durability, RuntimeName, read_value, strategy_of, validated
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
    typer.Argument(metavar="TASK", help=f"A shipped name ({', '.join(TASKS)}), package.module:Class, or path/file.py:Class."),
]
Options = Annotated[
    list[str],
    typer.Option("-o", "--option", metavar="NAME=VALUE", help="An option of the task; NAME=@FILE reads text. Repeatable."),
]
StrategyName = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        envvar="MICROAGENTS_STRATEGY",
        help=f"A shipped name ({', '.join(STRATEGIES)}), package.module:Class, or file.py:Class. [default: the task's own]",
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
OnUndecided = Annotated[
    str | None,
    typer.Option(
        "--on-undecided",
        metavar="stop|leader|SPEC",
        envvar="MICROAGENTS_ON_UNDECIDED",
        help="Where an election ends undecided: stop, take its leader (and mark it), or ask another model. [default: stop]",
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        min=1,
        metavar="N",
        envvar="MICROAGENTS_CONCURRENCY",
        help="Calls open at a time over the whole run; no bound if not given.",
    ),
]
MaxCalls = Annotated[
    int | None, typer.Option("--max-calls", min=1, metavar="N", envvar="MICROAGENTS_MAX_CALLS", help="Stop after so many calls.")
]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", min=0, metavar="USD", envvar="MICROAGENTS_MAX_COST", help="Stop once calls cost so much.")
]
MaxTime = Annotated[
    float | None, typer.Option("--max-time", min=0, metavar="S", envvar="MICROAGENTS_MAX_TIME", help="Stop after so many seconds.")
]
MaxOutage = Annotated[
    float | None,
    typer.Option(
        "--max-outage",
        min=0,
        metavar="S",
        envvar="MICROAGENTS_MAX_OUTAGE",
        help="Stop once a provider was out for so many seconds. [default: 7200]",
    ),
]
Speculate = Annotated[
    bool | None,
    typer.Option(
        "--speculate/--no-speculate",
        envvar="MICROAGENTS_SPECULATE",
        help="Open next steps on guesses; decisions do not depend on it. [default: speculate]",
    ),
]
Durable = Annotated[
    Durability | None,
    typer.Option(
        "--durability", envvar="MICROAGENTS_DURABILITY", help="full survives a power cut, normal a kill of the process. [default: full]"
    ),
]
Runtime = Annotated[
    RuntimeName | None,
    typer.Option(
        "--runtime",
        envvar="MICROAGENTS_RUNTIME",
        help="Where roles live: in this process, or each in a Ray actor; `linked` encodes every message, as Ray would. [default: local]",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT|auto",
        envvar="MICROAGENTS_ADDRESS",
        help="The Ray cluster of --runtime ray. [default: $RAY_ADDRESS, else one of the run's own on this machine]",
    ),
]
Insecure = Annotated[
    bool | None,
    typer.Option(
        "--insecure", envvar="MICROAGENTS_INSECURE", help="Use a Ray cluster on other machines that lets everybody run programs on it."
    ),
]
Deploy = Annotated[
    list[str] | None,
    typer.Option(
        "--deploy",
        metavar="ROLE.OPTION=VALUE",
        envvar="MICROAGENTS_DEPLOY",
        help="solver.num_replicas=4, solver.num_cpus=1, solver.resources.GPU=1, or voter.colocate=core to share actors. Repeatable.",
    ),
]


def _changeable(
    *,
    runtime: Runtime = None,
    address: Address = None,
    insecure: Insecure = None,
    deploy: Deploy = None,
    durability: Durable = None,
    on_undecided: OnUndecided = None,
    speculate: Speculate = None,
    concurrency: Concurrency = None,
    max_calls: MaxCalls = None,
    max_cost_usd: MaxCost = None,
    max_time_s: MaxTime = None,
    max_outage_s: MaxOutage = None,
) -> None:
    """The settings that may change from one sitting of a run to the next, named as in `Settings`."""


def with_changeable_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options. It gets those that were given as one dict, ``changed``; the others keep what they are."""
    names = list(signature(_changeable).parameters)

    @wraps(command)
    def wrapped(**options: Any) -> None:
        changed = {name: value for name in names if (value := options.pop(name)) not in (None, [])}
        if "deploy" in changed:
            with one_sentence():
                changed["deploy"] = deployed(changed["deploy"])
        command(**options, changed=changed)

    hints = get_type_hints(command, include_extras=True) | get_type_hints(_changeable, include_extras=True)
    own = [each for name, each in signature(command).parameters.items() if name != "changed"]
    by_name = [
        each.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[each.name])
        for each in [*own, *signature(_changeable).parameters.values()]
    ]
    vars(wrapped).update(__signature__=Signature(by_name), __annotations__=hints)
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
    return validated(find("task", name, TASKS, Task), f"task {name!r}", pairs("-o", options), flag="-o")


def strategy_named(name: str | None, options: list[str], k: int | None, task: Task) -> Strategy:
    """The strategy that the command line names."""
    short = {} if k is None else {"k": k}
    return strategy_of(name, task, {**pairs("-s", options), **short})


def models_of(specs: list[str]) -> dict[str, list[str]]:
    """Pools by role: ``ROLE=SPEC`` goes to that role, a bare spec to all others."""
    pools: dict[str, list[str]] = {}
    for spec in specs:
        role, equals, rest = spec.partition("=")
        named = bool(equals) and ":" not in role and ":" in rest
        pools.setdefault(role.lower() if named else "", []).append(rest if named else spec)
    return pools or {"": [DEFAULT_MODEL]}
