"""Options that commands share, and their conversion into a task, a strategy and models."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from glob import glob
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_origin

import typer

from microagents.actors.registry import STRATEGIES, TASKS
from microagents.base.docstrings import docstrings_of
from microagents.base.errors import InvalidUsage
from microagents.cli.command import parameters_of, source_of, take_parameters
from microagents.cli.reporting import warn
from microagents.runs.fields import annotations_of
from microagents.runs.row_files import names_rows
from microagents.runs.settings import (
    DEFAULTS,
    LIMITS,
    Flag,
    OptionKeywords,
    SettingKeywords,
    flag_of,
    option_of,
    plain_type,
    read_value,
    validated,
)
from microagents.runs.words.verdict import RUNS_DIR

if TYPE_CHECKING:
    from microagents.actors.role import Strategy
    from microagents.task import Task

DEFAULT_MODEL = "sim:gpt-4.1-mini"
ASKED_FROM_USD = 1.0
"""Expected cost above which a person at a terminal is asked before a run begins."""


def complete_task() -> list[str]:
    """List tasks and the files of the working folder; typer completes those that begin with the typed word."""
    return [*TASKS.addresses, *sorted(glob("*.py"))]


def complete_strategy() -> list[str]:
    """Names for the shell: shipped and installed strategies."""
    return list(STRATEGIES.addresses)


def complete_model() -> list[str]:
    """Names for the shell: models that need no key."""
    from microagents.models.simulation.profiles import PROFILES
    from microagents.models.tiny.vocabulary import VOCABULARIES

    names = [f"sim:{name}" for name in PROFILES]
    return names + [f"tiny:{name}" for name in VOCABULARIES]


def complete_run(context: typer.Context) -> list[str]:
    """Names for the shell: the runs of the folder."""
    files = glob("*.sqlite", root_dir=context.params.get("runs_dir") or RUNS)
    return sorted(file.removesuffix(".sqlite") for file in files)


TASK = typer.Argument(
    metavar="TASK",
    help=(
        f"A shipped task ({', '.join(TASKS.addresses)}), package.module:Class, or path/file.py:Class; path/file.py will do for a file "
        "with one task."
    ),
    autocompletion=complete_task,
)
TaskName = Annotated[str, TASK]
Options = Annotated[
    list[str],
    typer.Option(
        "-o",
        metavar="NAME=VALUE",
        help="Option of the task; NAME=@FILE reads the value from a file. Repeatable. `-o FILE.csv` is --output: a row for each input.",
    ),
]
Tools = Annotated[
    list[str],
    typer.Option(
        "--tool",
        metavar="TOOL",
        help="Tool of the task `agent`: path/file.py:function, package.module:function, mcp:COMMAND or mcp:https://... . Repeatable.",
    ),
]
STRATEGY_NAMES = f"A shipped strategy ({STRATEGIES.listed}), package.module:Class, or path/file.py:Class."
StrategyName = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        envvar="MICROAGENTS_STRATEGY",
        help=f"{STRATEGY_NAMES} [default: the task's]",
        autocompletion=complete_strategy,
    ),
]
Set = Annotated[
    list[str],
    typer.Option(
        "-s",
        metavar="NAME=VALUE",
        help="Option of the strategy, or of all compared strategies that have it. Repeatable.",
    ),
]
SHORT = ("k", "speculate")
"""Options of strategies that are short for ``-s NAME=VALUE``."""
TURNS_OFF = "--no-"
"""Beginning of the name of an option that sets a keyword to False."""


class StrategyOptions(NamedTuple):
    """Options of a strategy by name, of ``-s`` and of the options that are short for it."""

    typed: dict[str, Any]
    defaults: dict[str, Any]
    """Options from the environment and from files, which are for the strategies that have them."""

    def fitting(self, takes: Callable[[str], bool]) -> dict[str, Any]:
        """Return all options but the defaults that a strategy does not take."""
        return {name: value for name, value in self.defaults.items() if takes(name)} | self.typed


def model_option(said: str, metavar: str = "SPEC") -> Any:
    """Return the repeatable option of models, with its help."""
    return typer.Option(
        "--model",
        metavar=metavar,
        envvar="MICROAGENTS_MODEL",
        help=f"{said} [default: {DEFAULT_MODEL}]",
        autocompletion=complete_model,
    )


ModelSpecs = Annotated[
    list[str],
    model_option(
        "Model, as provider:model[@key=value,...]. Repeat it for a pool that samples rotate through; ROLE= sets the pool of one role.",
        "[ROLE=]SPEC",
    ),
]
FromMeasurement = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help="Run of a measurement: the expected calls, cost and chance are by it, and its model is the default of --model.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", envvar="MICROAGENTS_SEED", help=docstrings_of(SettingKeywords)["seed"])]
AsStream = Annotated[
    bool,
    typer.Option(
        "--stream",
        help="Of many inputs, print each result as it ends: a line of JSON with input, outcome, reason, result. [default: all at the end]",
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON on stdout, and everything else on stderr.")
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        help=f"Do not ask on a terminal whether to begin a run that is expected to cost more than ${ASKED_FROM_USD:g}.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="TOML file with defaults for these options. They override the ones in microagents.toml.",
    ),
]


RunsDir = Annotated[
    Path,
    typer.Option(
        "--runs-dir",
        metavar="FOLDER",
        envvar="MICROAGENTS_RUNS_DIR",
        help="Folder of journals; each run has one file in it.",
    ),
]
RUNS = RUNS_DIR
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="Name of the run; `microagents list` shows all runs.", autocompletion=complete_run
    ),
]
AnyRun = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="Name of the run. [default: all]", autocompletion=complete_run)
]
InputsFile = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="FILE",
        help=(
            "Do many inputs. Each row of a FILE.csv, .tsv or .parquet, or each JSON object of any other (one a line, or an array), is one "
            "input: its columns are options of the task, which override -o. FILE may be gzipped. `-` reads JSON from stdin."
        ),
    ),
]
GoldColumns = Annotated[
    list[str],
    typer.Option(
        "--gold",
        metavar="COLUMN[=FIELD]",
        help=(
            "Column of the rows of --inputs that holds the right value of a field of the reply, by default of the field of its name: it "
            "judges, and no prompt gets it. An empty cell judges nothing. Repeatable."
        ),
    ),
]
GoldFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --wrong-at-most: file of drawn rows in which you fill the gold columns. [default: OUTPUT.labels.csv]",
    ),
]
WrongAtMost = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help=(
            "Fill a table by two models, --model cheap=SPEC and --model strong=SPEC, so that at most this share of all rows is wrong; "
            "rows of which both are unsure stay open for you. It draws the rows to label."
        ),
    ),
]
LabelIn = Literal["terminal", "browser"]
"""Place where a person labels rows."""
Confidence = Annotated[float, typer.Option(metavar="SHARE", help="Probability with which --wrong-at-most is kept.")]
RowsOut = Annotated[
    Path | None,
    typer.Option(
        "--output",
        metavar="FILE",
        help=(
            "Write the inputs with their results and states into FILE.csv, .tsv or .jsonl, a row each; of a new run it must be new. "
            "`-o FILE` will do."
        ),
    ),
]
WithCode = Annotated[
    bool,
    typer.Option(
        "--trust-journal",
        help="Import the code that the journal names also if you did not begin the run here: you trust the journal from now on.",
    ),
]
AcceptChange = Annotated[
    list[str],
    typer.Option(
        "--accept-change", metavar="FIELD", help="Accept that this field differs from the recorded run. Repeatable."
    ),
]


RunPrefix = Annotated[
    str | None,
    typer.Option(
        "--run-id",
        metavar="NAME",
        envvar="MICROAGENTS_RUN_ID",
        help="Prefix of the names of the runs; the name of the only one of a measurement. [default: made of what is asked for]",
    ),
]
OF_ONE_STEP = ("max_output_tokens", "flag_above_tokens", "format", "reasoning", "reading", "max_outage_s", "prices")
"""The settings that also matter for a single step."""


def _parameters(declared: type, defaults: Mapping[str, object]) -> Iterator[Parameter]:
    """Yield an option for each keyword with a `Flag`. Its help is the docstring of the keyword."""
    described = docstrings_of(declared)
    for name, annotation in annotations_of(declared).items():
        flag = flag_of(name)
        if flag is None:
            continue
        option, default, kind = option_of(name), defaults.get(name), plain_type(annotation)
        said = described[name].replace("`", "")
        variable = f"MICROAGENTS_{option.strip('-').replace('-', '_').upper()}"
        if declared is OptionKeywords:
            said = f"{said} Short for -s {name}=..."
        elif default not in (None, False, {}, (), True):
            if isinstance(default, float):
                default = f"{default:g}"
            said += f" [default: {default}]"
        if kind == bool | None and not option.startswith(TURNS_OFF):
            option = f"{option}/--no-{option.removeprefix('--')}"
        given = typer.Option(option, metavar=flag.metavar, envvar=variable, help=said)
        yield Parameter(
            name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[_typed(name, kind, flag), given]
        )


def _typed(name: str, kind: Any, flag: Flag) -> Any:
    """Return the type of a keyword on the command line."""
    if get_origin(kind) in (dict, Sequence):
        return list[str] | None
    if flag.is_file or (name in LIMITS and kind == int | None) or kind == int | str | None:  # a limit may be `inf`
        return str | None
    return kind | None


def with_settings(
    command: Callable[..., None], *, only: Container[str] | None = None, short: Iterable[str] | None = SHORT
) -> Callable[..., None]:
    """Add the options of `Settings` to a command, or ``only`` some, and options of its strategy, with ``short`` forms of some.

    The command gets the given settings as a dict, ``changed``, the options of the strategy as ``options``, and the context if it takes one.
    A command with ``short`` None has no strategy.
    """
    settings = [each for each in _parameters(SettingKeywords, DEFAULTS) if only is None or each.name in only]
    takes_context = "context" in signature(command).parameters
    of_strategy: list[Parameter] = []
    if short is not None:
        by_name = {each.name: each for each in _parameters(OptionKeywords, {})}
        of_strategy = [
            Parameter("set_", Parameter.KEYWORD_ONLY, default=[], annotation=Set),
            *[by_name[name] for name in short],
        ]

    @wraps(command)
    def wrapped(context: typer.Context, **given: Any) -> None:
        _turn_off(given, [each.name for each in (*settings, *of_strategy)])
        popped = {each.name: given.pop(each.name) for each in settings}
        changed = {name: value for name, value in popped.items() if value not in (None, [])}
        if "deploy" in changed:
            changed["deploy"] = deploy_options(changed["deploy"])
        options = StrategyOptions({}, {})
        for name in [each.name for each in of_strategy]:
            value = given.pop(name)
            if name == "set_":
                found = pairs("-s", value)
            elif value is None:
                found = {}
            else:
                found = {name: value}
            if source_of(context, name) == "COMMANDLINE":
                options.typed.update(found)
            else:
                options.defaults.update(found)
        if of_strategy:
            given["options"] = options
        if takes_context:
            given["context"] = context
        command(**given, changed=changed)

    own = [each for each in parameters_of(command) if each.name not in ("changed", "context", "options")]
    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    every = [context, *own, *of_strategy, *settings]
    take_parameters(wrapped, every)
    return wrapped


def _turn_off(given: dict[str, Any], names: Iterable[str]) -> None:
    """Give False to the keywords whose options turn them off."""
    for name in names:
        if given[name] is not None and option_of(name).startswith(TURNS_OFF):
            given[name] = not given[name]


def check_typed(context: typer.Context, mode: str, *names: str) -> None:
    """Refuse parameters that were typed on the command line in the wrong mode of a command.

    Args:
        context: the command.
        mode: the mode in which they go, in words, such as "with --one".
        names: the parameters.
    """
    for each in context.command.params:
        if each.name in names and source_of(context, str(each.name)) == "COMMANDLINE":
            named = each.opts[-1]
            if each.param_type_name != "option":
                named = str(each.name).upper()
            raise InvalidUsage(f"{named} goes {mode} only; leave it out")


def pairs(option: str, words: list[str]) -> dict[str, Any]:
    """Parse the NAME=VALUE words of an option; ``@FILE`` as a value is the text of a file."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise InvalidUsage(f"{option} {word!r} is not of the form NAME=VALUE")
        found[name] = read_value(value)
    return found


def deploy_options(words: list[str]) -> dict[str, dict[str, Any]]:
    """Parse words ROLE.OPTION=VALUE and ROLE.resources.NAME=AMOUNT into options by role."""
    found: dict[str, dict[str, Any]] = {}
    for place, value in pairs("--deploy", words).items():
        match place.split("."):
            case [role, "resources", name]:
                found.setdefault(role, {}).setdefault("resources", {})[name] = value
            case [role, option]:
                found.setdefault(role, {})[option] = value
            case _:
                raise InvalidUsage(
                    f"--deploy {place!r} is not of the form ROLE.OPTION=VALUE, such as solver.num_replicas=4"
                )
    return found


_NAMES_A_FILE = re.compile("file|path|folder|dir|output", re.IGNORECASE)
"""A text option with such a name is the name of a file on purpose."""


def with_output(options: list[str], output: Path | None, changed: dict[str, Any]) -> list[str]:
    """Note the output of rows in the settings; returns the words of the task's options without it."""
    named = [word for word in options if names_rows(word)]
    found: list[Any] = [*named]
    if output is not None:
        found.append(output)
    if found:
        changed["output"] = found[-1]
    return [word for word in options if word not in named]


def task_options(kind: type[Task], words: list[str]) -> dict[str, Any]:
    """Return the options of a task by name, from its ``-o`` words. It warns of a text that is a file, perhaps for a forgotten ``@``."""
    for name, _, value in (word.partition("=") for word in words):
        field = kind.model_fields.get(name)
        if field is None or plain_type(field.annotation) not in (str, str | None) or _NAMES_A_FILE.search(name):
            continue
        if os.path.isfile(value):
            warn(f"{name} is the text {value!r}; for the content of that file write {name}=@{value}")
    return pairs("-o", words)


def with_tools(options: list[str], tools: list[str]) -> list[str]:
    """Add the tools to the words of the task's options."""
    if tools:
        return [*options, f"tool={json.dumps(tools)}"]
    return options


def task_of(name: str, options: list[str], flag: str = "-o") -> Task:
    """Build the task that the command line names; `flag` is the flag that a message advises for a missing option."""
    from microagents.task import Task

    kind = TASKS.find(name, Task)
    return validated(kind, f"task {name!r}", task_options(kind, options), flag=flag)


def strategy_named(name: str | None, options: StrategyOptions, task: Task) -> Strategy:
    """Build the strategy that the command line names, with its options."""
    from microagents.actors.role import Strategy
    from microagents.runs.strategies import strategy_of

    kind = STRATEGIES.find(name or task.default_strategy, Strategy)
    return strategy_of(name, task, options.fitting(kind.takes))


def models_of(specs: list[str]) -> dict[str, list[str]]:
    """Return the pools by role: ``ROLE=SPEC`` goes to the pool of that role, a bare spec to the pool of all others."""
    pools: dict[str, list[str]] = {}
    for spec in specs:
        role, equals, rest = spec.partition("=")
        if not equals or ":" in role or ":" not in rest:
            role, rest = "", spec
        pools.setdefault(role.lower(), []).append(rest)
    return pools or {"": [DEFAULT_MODEL]}


def models_as_measured(
    specs: list[str], runs_dir: Path, run: str | None, task: Task, changed: dict[str, Any]
) -> dict[str, list[str]]:
    """Note the measurement of --from in the settings; returns the pools: of the measured model, if no other is named."""
    from microagents.studies.measure import model_measured

    changed["measurement"] = None
    if run is None:
        return models_of(specs)
    found = changed["measurement"] = model_measured(runs_dir, run, task)
    return models_of(specs or [found.model])


def check_stream(stream: bool, *, as_json: bool, is_listed: bool) -> None:
    """Refuse --stream if there is nothing to stream, or stdout is one object."""
    if stream and as_json:
        raise InvalidUsage(
            "--json prints one object at the end, and --stream a line for each input as it ends; give one of them"
        )
    if stream and not is_listed:
        raise InvalidUsage(
            "--stream prints the results of many inputs as they end, and this is one task; leave it out, or give --inputs"
        )
