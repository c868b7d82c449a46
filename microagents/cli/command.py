"""Shared parts of all commands: defaults from files, and the help of a task's and a strategy's options."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from microagents.actors.registry import STRATEGIES, TASKS, Registry
from microagents.base.errors import InvalidUsage, MicroagentsError
from microagents.base.printing import printable, users_print_to_stderr
from microagents.cli.config import file_of_default, has_parameter, load_config, load_files, warn_of_unknown_variables
from microagents.cli.reporting import log_to_stderr

if TYPE_CHECKING:
    from microagents.actors.role import Strategy
    from microagents.task import Task

SPEC_OPTIONS = ("effort", "service_tier", "timeout_s", "base_url", "api_key_env", "votes_per_request", "error", "flag")
"""Options in the specs of models that people look for on the command line."""
USAGE_ERROR: Any = typer.BadParameter.__base__
"""Error of a command line. Typer exports only some of its classes."""
MAX_DEFAULT_CHARS = 60
"""Of a longer default only the beginning is shown."""


GROUPS: Mapping[str, Sequence[str]] = {
    "Steps": ("tool", "step", "speculate", "on_undecided", "stream", "share"),
    "Limits": ("max_calls", "max_tokens", "max_time_s", "max_outage_s", "max_wait_effects_s", "concurrency"),
    "Promise": ("wrong_at_most", "confidence", "label"),
    "Models": ("from_", "seed", "batch", "batch_then", "batch_within", "fallback", "resend_stragglers", "prices"),
    "Replies": ("max_output_tokens", "flag_above_tokens", "format", "reasoning", "reading"),
    "Journal": ("runs_dir", "no_journal", "accept_change", "durability", "keep_texts", "reuse"),
    "Places": ("runtime", "address", "insecure", "deploy", "lanes", "shards", "detach"),
    "Files, logs": ("output", "gold", "gold_file", "trust_columns", "config", "trust_folder", "yes"),
}
"""Parameters that `--help` of a command with many options only names."""
_WANTED = {
    "valid integer": "must be a whole number",
    "valid number": "must be a number",
    r"less than or equal to (\S+)": r"must be at most \1",
    r"greater than or equal to (\S+)": r"must be at least \1",
    r"is not one of (.+)\.": r"must be one of \1",
}
"""Our words for refusals of values, by patterns of theirs."""
MAX_EXPLAINED = 19
"""Number of parameters up to which `--help` explains all."""


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all", is_eager=True, hidden=True, callback=lambda context, given: _explain_all(context, given=given)
    ),
]
TrustFolder = Annotated[
    bool,
    typer.Option(
        "--trust-folder",
        help=(
            "Let microagents.toml and .env of the working folder name hosts for models, code and the like. Else a terminal asks you, once "
            "for each version of a file."
        ),
    ),
]


def with_shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --help-all to a command, and --trust-folder to one whose options files can give.

    `Command` reads these options. The command's logs are set up.
    """
    every = [*parameters_of(command)]
    shared: dict[str, Any] = {"help_all": HelpAll}
    if any(each.name in ("runs_dir", "config") for each in every):
        shared["trust_folder"] = TrustFolder
    every += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=option) for name, option in shared.items()
    ]

    @wraps(command)
    def wrapped(**given: Any) -> None:
        log_to_stderr()
        with users_print_to_stderr():
            command(**{name: value for name, value in given.items() if name not in shared})

    take_parameters(wrapped, every)
    return wrapped


def parameters_of(command: Callable[..., None]) -> Iterator[Parameter]:
    """Yield the parameters of a command as keywords, with their types and options."""
    hints = get_type_hints(command, include_extras=True)
    for each in signature(command).parameters.values():
        yield each.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints.get(each.name, each.annotation))


def take_parameters(command: Callable[..., None], parameters: Sequence[Parameter]) -> None:
    """Show typer these parameters in place of those of the function."""
    annotations = {each.name: each.annotation for each in parameters}
    vars(command).update(__signature__=Signature(parameters), __annotations__=annotations)


def source_of(context: Any, parameter: str) -> str:
    """Name the place that gave the value of a parameter, such as COMMANDLINE; empty if none did."""
    source = context.get_parameter_source(parameter)
    return "" if source is None else str(source.name)


class Command(TyperCommand):
    """A command that takes defaults from files, and whose help shows the task and the strategy on the same line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the files before the command line, which goes before them."""
        given: dict[str, Any] = {}
        try:
            parser = self.make_parser(ctx)
            parser.ignore_unknown_options = True
            given, unknown, _ = parser.parse_args(args=list(args))
            ctx.meta[__name__] = given
            if unknown and not ctx.resilient_parsing:
                self._explain_unknown([_task_in(given), *unknown], given.get("strategy"))
            wants_help = given.get("help") or given.get("help_all")  # which is shown even if a file is broken
            if not ctx.resilient_parsing and not wants_help:
                if has_parameter(self, "trust_folder"):
                    load_files(ctx, trusts=bool(given.get("trust_folder")))
                warn_of_unknown_variables(ctx)
                if given.get("config") is not None:
                    load_config(ctx, Path(given["config"]))
            return super().parse_args(ctx, args)
        except USAGE_ERROR as error:
            raise InvalidUsage(_refusal(ctx, given, error)) from None

    def _explain_unknown(self, words: Sequence[str | None], strategy: Any) -> None:
        """Refuse the first word that is an option not of the command, but of the task, the strategy or a model.

        Args:
            words: the task, if the command line names one, and the words that the command does not know.
            strategy: the strategy on the command line.

        Raises:
            InvalidUsage: there is such a word.
        """
        given = [word for word in words if word]
        kinds = list[Any]()
        if words[0] is not None:
            kinds = _kinds_in(given, strategy)
        for word, after in itertools.pairwise([*given, ""]):
            name, equals, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            if not equals:
                value = after or "VALUE"
            is_option = word.startswith("--")
            if is_option and any(f"-{name}" in each.opts for each in self.params):
                raise InvalidUsage(f"there is no option --{name}; write -{name} {value}")
            for kind, what, flag in zip(kinds, ("task", "strategy"), ("-o", "-s"), strict=False):
                if (is_option or equals) and name in kind.model_fields:
                    raise InvalidUsage(_place_of(kind, what, flag, name, value))
            if kinds and is_option and name == "temperature":
                raise InvalidUsage(
                    f"the temperature belongs to the task: write sampling = Sampling(temperature={value}) into its class"
                )
            if kinds and is_option and name in SPEC_OPTIONS:
                raise InvalidUsage(
                    f"{name} is an option of a model; write it into its spec: --model PROVIDER:MODEL@{name}={value}"
                )

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options of the command, and below them the options of the task and strategy that the command line names."""
        given = ctx.meta.get(__name__, {})
        explains_all = given.get("help_all") or len(self.params) <= MAX_EXPLAINED
        if explains_all:
            named = {}
        else:
            named = {name: group for group, names in GROUPS.items() for name in names}
        sections: dict[str, list[Any]] = {}
        for each in self.get_params(ctx):
            if (row := each.get_help_record(ctx)) is not None:
                title = named.get(str(each.name), f"{each.param_type_name.capitalize()}s")
                sections.setdefault(title, []).append(each.opts[-1] if title in GROUPS else row)
        for title in ("Arguments", "Options"):
            if title in sections:
                with formatter.section(title):
                    formatter.write_dl(sections[title])
        if named:
            with formatter.section("More options, explained by --help-all"):
                for group in GROUPS:
                    _write_names(formatter, group, sections.get(group, []))
        for title, rows in _named_options(given, with_strategy=has_parameter(self, "strategy")):
            with formatter.section(title):
                formatter.write_dl(rows)


def _kinds_in(given: Sequence[str], strategy: Any) -> list[Any]:
    """Return the classes of the task and of the strategy that a command line names, as far as they are found."""
    found = [_found(TASKS, word) for word in given]
    kinds: list[Any] = [kind for kind in found if isinstance(kind, type)][:1]
    if not kinds:
        return []
    if not isinstance(strategy, str):
        strategy = kinds[0].default_strategy
    kind = _found(STRATEGIES, strategy)
    if isinstance(kind, type):
        kinds.append(kind)
    return kinds


def _place_of(kind: Any, what: str, flag: str, name: str, value: str) -> str:
    """Say where the value of an option of a class is given."""
    if name == "gold" and "row" in kind.model_fields:
        return f"--gold {value} names a column of right values, for run, try, measure and compare; a plan goes by those of its measurement"
    return f"{name} is an option of the {what}; write {flag} {name}={value}"


def _write_names(formatter: Any, group: str, flags: list[str]) -> None:
    """Write a line with the options of a group, if it has any, broken between options only."""
    head = f"{'':>{formatter.current_indent}}{group:<{max(map(len, GROUPS))}}  "
    lines = textwrap.wrap(", ".join(flags), formatter.width - len(head), break_on_hyphens=False)
    for line in lines:
        formatter.write(f"{head}{line}\n")
        head = " " * len(head)


def _explain_all(context: typer.Context, *, given: bool) -> None:
    if given:
        typer.echo(context.get_help())
        raise typer.Exit


def _refusal(ctx: Any, given: Mapping[str, Any], error: Any) -> str:
    """Say in one sentence why a command line was refused, and where its options are explained."""
    parameter: Any = getattr(error, "param", None)
    found = [match.expand(ours) for theirs, ours in _WANTED.items() if (match := re.search(theirs, error.message))]
    if parameter is not None and source_of(ctx, parameter.name) == "DEFAULT_MAP":
        why, value = (*found, error.message)[0], ctx.default_map[parameter.name]
        return f"{file_of_default(ctx, parameter.name)} gives {parameter.name}={value!r:.100}: {why}"
    if parameter is not None and found:
        value = given.get(parameter.name) or parameter.resolve_envvar_value(ctx)
        return f"{parameter.opts[0]} {found[0]}, not {value!r:.100}"
    return f"{error.format_message().rstrip('.')}; {ctx.command_path} --help has all options"


def _task_in(given: Mapping[str, Any]) -> str | None:
    """Return the name of the task on the command line; None if it names none."""
    named: str | None = given.get("task")
    if given.get("graph"):
        named = given.get("run")
    return named


def _named_options(given: Mapping[str, Any], *, with_strategy: bool) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    task = _task_in(given)
    if task is None:
        return
    found = _found(TASKS, task)
    if isinstance(found, str):
        yield "Options of the task", [(task, found)]
        return
    yield f"Options of the task {task} (-o NAME=VALUE)", _rows(found)
    if not with_strategy:
        return
    strategies = given.get("strategy") or found.default_strategy
    if isinstance(strategies, str):
        strategies = [strategies]
    for name in strategies:
        strategy = _found(STRATEGIES, name)
        if isinstance(strategy, str):
            rows = [(name, strategy)]
        else:
            rows = _rows(strategy)
        yield f"Options of the strategy {name} (-s NAME=VALUE)", rows


def _found(registry: Registry, name: str) -> Any:
    """Return the class of a task's or a strategy's name, or the sentence that says why there is none."""
    from microagents.actors.role import Strategy
    from microagents.task import Task

    base: Any = Strategy
    if registry is TASKS:
        base = Task
    try:
        with users_print_to_stderr():
            return registry.find(name, base)
    except MicroagentsError as error:
        words = str(error).split()
        return printable(" ".join(words))


def _rows(kind: type[Task | Strategy]) -> list[tuple[str, str]]:
    from microagents.runs.fields import fields_in_words

    rows = []
    for field in fields_in_words(kind):
        note = ""
        if field.required:
            note = "[required]"
        elif field.default is not None:
            default = " ".join(field.default.split())
            if len(default) > MAX_DEFAULT_CHARS:
                default = f"{default[: MAX_DEFAULT_CHARS - 3]}..."
            note = f"[default: {default}]"
        parts = [field.meaning]
        if field.values:
            parts.append(f"({field.values})")
        said = " ".join([*parts, note]).strip()
        rows.append((field.name, printable(said)))
    return rows or [("none", "It has no options.")]
