"""The settings of a run, and the validation of settings, models and strategies before anything starts."""

from __future__ import annotations

import functools
import json
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypedDict, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from microagents.actors.registry import RUNTIMES, STRATEGIES, TASKS, unknown
from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage, read_failure, refusal
from microagents.base.files import read_text
from microagents.base.messages import address_of
from microagents.base.plain_values import number_in
from microagents.journal.requests import MAX_COUNT, MAX_S, MAX_USD
from microagents.models.model import ModelObject, ModelSpec, spec_of
from microagents.models.prices import OwnPrice, read_prices
from microagents.replies.chat import Format, Reading
from microagents.runs.fields import allowed_values
from microagents.runs.row_files import Dialect, checked_output
from microagents.systems.documents.document import Document
from microagents.systems.questions.problem import Problem
from microagents.task import ChainTask, Task

M = TypeVar("M", bound=BaseModel)
OneModel = str | ModelObject
"""A spec, an object with an async ``complete``, such as an instance of a user's provider, or an async function."""
Models = OneModel | Sequence[OneModel] | Mapping[str, OneModel | Sequence[OneModel]]
"""One model, a pool that samples rotate through, or pools by role."""


def plain_type(annotation: Any) -> Any:
    """Return the type of a setting without its bounds, which `Settings` checks: ``int | None`` of ``Annotated[int, ...] | None``."""
    if get_origin(annotation) is Annotated:
        return plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return functools.reduce(operator.or_, [plain_type(each) for each in get_args(annotation)])
    return annotation


RUN_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""The form of the name of a run, which is also the name of a file."""
LIMITS = ("max_calls", "max_tokens", "max_cost_usd", "max_time_s")
"""The settings that end a run. Its journal keeps them for the next sitting."""
NO_LIMIT = "inf"
"""The value that lifts a limit."""
PricesGiven = str | Path | Mapping[str, OwnPrice | Mapping[str, Any]]
"""A TOML file of prices, or its content."""


class Flag(NamedTuple):
    """Marks a setting as a command-line option. Such a setting may change from one sitting of a run to the next."""

    metavar: str | None = None
    name: str | None = None
    """Name of the option, if it differs from the name of the field."""
    is_file: bool = False
    """Whether the option names a file, from which the setting is read."""


class Settings(BaseModel):
    """Settings of a run, except its task and its strategy.

    They are keywords of `microagents.run`, typed as `SettingKeywords`. Those with a `Flag` are also options of every command that begins
    or resumes a run, and their docstrings are the help texts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: dict[str, tuple[str, ...]]
    """Pools of model specs by role; "" is the pool of every other role."""
    seed: int = 0
    """Seed of simulated models."""
    run_id: str
    """Name of the run."""
    runtime: Annotated[str, Flag("NAME")] = "local"
    """Where roles run: `local` in this process, `ray` in Ray actors, `linked` in this process with every message encoded as on Ray."""
    address: Annotated[str | None, Flag("HOST:PORT|auto")] = None
    """Ray cluster of --runtime ray. [default: $RAY_ADDRESS, else a new Ray on this machine]"""
    insecure: Annotated[bool, Flag()] = False
    """Allow a Ray cluster on other machines on which anyone who reaches it can run programs."""
    deploy: Annotated[dict[str, dict[str, Any]], Flag("ROLE.OPTION=VALUE")] = {}
    """Change the deployment of a role: solver.num_replicas=4, solver.num_cpus=1, solver.resources.GPU=1, or voter.colocate=core \
(roles with the same label share Ray actors). Repeatable."""
    spread: Annotated[bool, Flag()] = False
    """Give each role on Ray an actor of its own. [default: the roles of a lane share one, which is some forty times as fast]"""
    max_wait_nodes_s: Annotated[float, Field(ge=0, le=MAX_S), Flag("S", "--max-wait-nodes")] = 900.0
    """Longest wait in seconds for a node of the Ray cluster with room for a role, at the start and after a node was lost."""
    lanes: Annotated[str | None, Flag("N|auto")] = None
    """Engines side by side on Ray, each with all roles of an input's work; `auto` is one a CPU of the cluster, and grows with \
it. [default: auto for many inputs, else 1]"""
    durability: Annotated[Literal["full", "normal"], Flag()] = "full"
    """`full`: records survive a power cut. `normal`: they survive a kill of the process."""
    keep_texts: Annotated[Literal["all", "lost", "none"], Flag()] = "lost"
    """Texts of replies that the journal keeps: `all`, `none`, or the ones that `lost` or were flagged, and all of undecided elections."""
    on_undecided: Annotated[str, Flag("stop|leader|SPEC")] = "stop"
    """Action after an undecided election: `stop` the run, take the `leader` and mark it, or ask another model, given by its SPEC."""
    max_output_tokens: Annotated[Annotated[int, Field(ge=1, le=MAX_COUNT)] | None, Flag("N")] = None
    """Limit of a reply that is sent to the provider, reasoning included; a longer one is flagged as `cut_off`. \
[default: the task's, 2048 unless it says otherwise]"""
    flag_above_tokens: Annotated[Annotated[int, Field(ge=0, le=MAX_COUNT)] | None, Flag("N")] = None
    """Flag replies whose text has more tokens as `too_long`; reasoning does not count, and 0 turns the flag off. \
[default: the task's, 750 for chains]"""
    format: Annotated[Format | None, Flag("lines|json")] = None
    """Form of replies: `lines` (name = JSON, after free reasoning) or `json` (one object). [default: the task's, lines unless it says \
otherwise]"""
    reasoning: Annotated[bool | None, Flag()] = None
    """Let replies reason before their answer, or tell the model not to. [default: the task's, which lets them unless it says otherwise]"""
    reading: Annotated[Reading | None, Flag("strict|last")] = None
    """Reading of replies in lines: `strict` flags all that is not in the form asked for; `last` takes the last value of each field, \
whatever stands around it. [default: the task's, strict unless it says otherwise]"""
    resend_stragglers: Annotated[bool, Flag()] = True
    """Send a call again that takes longer than 3 times the 95th percentile of its model, and at least 5 s; the first reply counts."""
    concurrency: Annotated[Annotated[int, Field(ge=1, le=MAX_COUNT)] | None, Flag("N")] = None
    """Maximum number of calls in flight over the whole run. \
[default: no bound, but what each model behind HTTP turns out to take]"""
    max_calls: Annotated[Annotated[int, Field(ge=1, le=MAX_COUNT)] | None, Flag("N")] = None
    """Stop after this many calls. A resumed run counts its earlier calls; `inf` lifts a recorded limit, here and below. \
[default: no limit]"""
    max_tokens: Annotated[Annotated[int, Field(ge=1, le=MAX_COUNT)] | None, Flag("N")] = None
    """Stop before the calls use more tokens than this, of prompts and replies. A resumed run counts its earlier ones. \
[default: no limit]"""
    max_cost_usd: Annotated[Annotated[float, Field(gt=0, le=MAX_USD)] | None, Flag("USD", "--max-cost")] = None
    """Stop before the calls cost more than this: each is sent only if the most that it can cost is left. A resumed run counts its earlier \
cost. [default: no limit]"""
    max_time_s: Annotated[Annotated[float, Field(gt=0, le=MAX_S)] | None, Flag("S", "--max-time")] = None
    """Stop this many seconds after the start or the resume of the run. [default: no limit]"""
    max_outage_s: Annotated[float, Field(ge=0, le=MAX_S), Flag("S", "--max-outage")] = 7200.0
    """Stop once a provider has delivered nothing for this many seconds."""
    max_wait_effects_s: Annotated[float, Field(ge=0, allow_inf_nan=False), Flag("S", "--max-wait-effects")] = 60.0
    """Wait this many seconds, at the end of the run, for calls of tools that are under way and change the world. Then leave them, their \
outcome unknown."""
    fallback: Annotated[tuple[str, ...], Flag("SPEC")] = ()
    """Model that is asked while another one is out, or while its provider refuses the account. Repeatable: the first that delivers is \
asked."""
    otel_sample: Annotated[float, Field(ge=0, le=1), Flag("SHARE")] = 0.01
    """Share of the easy elections that are traced, if the program has configured OpenTelemetry; hard ones are in any case."""
    prices: Annotated[dict[str, OwnPrice], Flag("FILE", is_file=True)] = {}
    """Your own prices: a TOML file with a table `["provider:model"]` for each model, of `input` and `output` in US dollars per million \
    tokens. They go before the known prices. [default: no file]"""

    output: str | Path | None = None
    """File for the rows of the inputs and their results, see `Result.rows`: CSV, TSV, JSON, JSON lines or Parquet, by its ending, also \
gzipped. It is written whenever the run ends, also by a resume; a file that is there before the run begins is kept."""
    output_dialect: Dialect = Dialect()
    """Separator, byte order mark and `sep=` line of an output in CSV. [default: those of the input]"""

    @field_validator("output")
    @classmethod
    def _check_output(cls, value: str | Path | None) -> str | None:
        return None if value is None else checked_output(value)

    @field_validator("run_id")
    @classmethod
    def _check_run_id(cls, value: str) -> str:
        if re.fullmatch(RUN_ID, value) is None:
            raise ValueError(
                "the name of a run has up to 100 letters, digits, dots, dashes and underscores, and begins with a letter or a digit, "
                f"unlike run_id={value!r:.100}"
            )
        return value

    @field_validator("prices", mode="before", json_schema_input_type=PricesGiven)
    @classmethod
    def _read_prices(cls, value: object) -> dict[str, OwnPrice]:
        return read_prices(value)

    @field_validator(*LIMITS, mode="before")
    @classmethod
    def _no_limit(cls, value: object) -> object:
        return None if value in (math.inf, NO_LIMIT) else value

    @field_validator("runtime")
    @classmethod
    def _check_runtime(cls, value: str) -> str:
        if value not in RUNTIMES.addresses and ":" not in value:
            raise ValueError(unknown("runtime", value, list(RUNTIMES.addresses)))
        return value

    @field_validator("lanes", mode="before", json_schema_input_type=int | str | None)
    @classmethod
    def _check_lanes(cls, value: object) -> object:
        text = str(value)
        if value is not None and text != "auto" and not (text.isdecimal() and int(text) >= 1):
            raise ValueError(f"lanes is a number from 1 on or `auto`, not {text!r}")
        return str(int(text)) if text.isdecimal() else value

    @field_validator("on_undecided")
    @classmethod
    def _check_on_undecided(cls, value: str) -> str:
        if value not in ("stop", "leader"):
            try:
                ModelSpec.parse(value)
            except InvalidUsage as error:
                raise ValueError(f"on_undecided is `stop`, `leader` or a model; {error}") from None
        return value

    @field_validator("fallback", mode="before", json_schema_input_type=Sequence[str])
    @classmethod
    def _check_fallback(cls, value: object) -> object:
        specs = [value] if isinstance(value, str) else value
        for spec in specs if isinstance(specs, list | tuple) else ():
            try:
                ModelSpec.parse(spec)
            except (InvalidUsage, TypeError) as error:
                raise ValueError(f"a fallback is the spec of a model; {error}") from None
        return specs

    @property
    def solver_pool(self) -> tuple[str, ...]:
        """Models that samples are drawn from if no role has a pool of its own."""
        return self.models.get("solver") or self.models[""]

    @property
    def pools(self) -> dict[str, tuple[str, ...]]:
        """All models that may be asked: the pools by role, the model for undecided elections, and the fallbacks."""
        second = {} if self.on_undecided in ("stop", "leader") else {"undecided": (self.on_undecided,)}
        return {**self.models, **second, **({"fallback": self.fallback} if self.fallback else {})}


class SettingKeywords(TypedDict, total=False):
    """Fields of `Settings` as keywords, for type checkers. The pools of models and the name of the run are given in other forms."""

    seed: int
    runtime: str
    address: str | None
    insecure: bool
    deploy: dict[str, dict[str, Any]]
    spread: bool
    max_wait_nodes_s: float
    lanes: int | str | None
    durability: Literal["full", "normal"]
    keep_texts: Literal["all", "lost", "none"]
    on_undecided: str
    max_output_tokens: int | None
    flag_above_tokens: int | None
    format: Format | None
    reasoning: bool | None
    reading: Reading | None
    resend_stragglers: bool
    concurrency: int | None
    max_calls: int | None
    max_tokens: int | None
    max_cost_usd: float | None
    max_time_s: float | None
    max_outage_s: float
    max_wait_effects_s: float
    fallback: Sequence[str]
    otel_sample: float
    prices: PricesGiven
    output: str | Path | None
    output_dialect: Dialect


class OptionKeywords(TypedDict, total=False):
    """Options of the strategy as keywords: any in ``options``, and four by themselves."""

    options: Mapping[str, Any]
    k: int | None
    max_draws: int | None
    speculate: bool | None
    known_inputs: bool | None


def options_in(given: OptionKeywords) -> dict[str, Any]:
    """Return the options of the strategy among keywords."""
    named = {name: given.get(name) for name in OptionKeywords.__annotations__ if name != "options"}
    return {**given.get("options", {}), **{name: value for name, value in named.items() if value is not None}}


def validated(model: type[M], subject: str, given: Mapping[str, Any], *, flag: str = "") -> M:
    """Build an instance of a pydantic model.

    Args:
        model: the class.
        subject: name of the instance in error messages.
        given: values by field. A text in place of a list or a table is read as JSON, since the command line has only texts.
        flag: the command-line option that sets a field, for error messages.

    Raises:
        InvalidUsage: a value is wrong, missing or unknown. The message is one sentence about the first of them.
    """
    _refuse_bools(model, subject, given)
    try:
        return model(**given)
    except ValidationError as error:
        read = {name: value for each in error.errors(include_url=False) for name, value in _value_in_json(each)}
        if read:
            return validated(model, subject, {**given, **read}, flag=flag)
        first = error.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise InvalidUsage(unknown(f"option of {subject} named", name, sorted(model.model_fields))) from None
        if first["type"] == "missing":
            how = (
                f"; give it with {flag} {name}=VALUE".replace("  ", " ")
                if len(first["loc"]) == 1
                else f", which {first['input']!r:.100} lacks"
            )
            raise InvalidUsage(f"{subject} needs {name}{how}") from None
        if first["type"] in ("value_error", "assertion_error"):
            said = first["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            raise InvalidUsage(f"{subject}: {said}") from None
        allowed = allowed_values(model, name)
        said = first["msg"] if allowed is None else f"Input should be {allowed}"
        raise InvalidUsage(f"{subject}: {refusal(name + _as_flag(model, name), said, first['input'])}") from None


_NUMBERS = (int, float, int | None, float | None, int | float, int | float | None)


def _refuse_bools(model: type[BaseModel], subject: str, given: Mapping[str, Any]) -> None:
    """Refuse true and false as numbers, which pydantic takes as 1 and 0."""
    for name, value in given.items():
        if not isinstance(value, bool) or name not in model.model_fields:
            continue
        if plain_type(model.model_fields[name].annotation) in _NUMBERS:
            said = refusal(name + _as_flag(model, name), "Input should be a number", value)
            raise InvalidUsage(f"{subject}: {said}")


def _as_flag(model: type[BaseModel], name: str) -> str:
    """Return the command-line option of a setting in parentheses, if it has another name than the setting."""
    flags = (
        [each.name for each in model.model_fields[name].metadata if isinstance(each, Flag)]
        if name in model.model_fields
        else []
    )
    return f" ({flags[0]})" if flags and flags[0] else ""


_JSON_TYPES = ("list_type", "tuple_type", "set_type", "frozen_set_type", "dict_type", "model_type", "dataclass_type")
"""Errors of pydantic about a value that is neither a list nor a table."""


def _value_in_json(error: ErrorDetails) -> Iterator[tuple[str, object]]:
    if error["type"] in _JSON_TYPES and len(error["loc"]) == 1 and isinstance(error["input"], str):
        with suppress(ValueError, RecursionError):
            value = json.loads(error["input"], parse_float=number_in)
            if isinstance(value, list | dict):
                yield str(error["loc"][0]), value


class ModelPools(NamedTuple):
    """Models of a run."""

    pools: dict[str, tuple[str, ...]]
    """Pools of specs by role."""
    objects: dict[str, ModelObject]
    """Models that were given as objects, by their spec in the pools."""


def model_pools(models: Models, strategies: Sequence[Strategy]) -> ModelPools:
    """Return the pools by role, from any of the forms that `run` accepts.

    Raises:
        InvalidUsage: a pool is empty, a pool's role asks no model, a role of a strategy has no pool, or two objects have one spec.
    """
    objects: dict[str, ModelObject] = {}
    pools = {role: tuple([_spec(each, objects) for each in pool]) for role, pool in _pools(models).items()}
    if not (pools and all(pools.values())):
        raise InvalidUsage(f"{models!r} names no model, or a pool without one")
    drawing = [*dict.fromkeys(name for strategy in strategies for name in strategy.drawing())]
    known = [*drawing, *dict.fromkeys(name for strategy in strategies for name in strategy.drawing_in_part())]
    for role in pools:
        if role and role not in known:
            raise InvalidUsage(unknown("role with a model called", role, known))
    if "" not in pools and (missing := [name for name in drawing if name not in pools]):
        raise InvalidUsage(
            f"there is a model for {', '.join(pools)}, but none for {', '.join(missing)}; name one for all other roles, too: "
            "--model SPEC, or the role '' in a dict"
        )
    return ModelPools({"": next(iter(pools.values())), **pools}, objects)


def _pools(models: Models) -> dict[str, Sequence[OneModel]]:
    if isinstance(models, Mapping):
        for role in models:
            if not isinstance(role, str):
                raise InvalidUsage(
                    f"{role!r:.100} in models names no role: a dict of models is by role, such as {{'solver': 'sim:o3-mini'}}"
                )
        return {role.lower(): _pool(pool) for role, pool in models.items()}
    return {"": _pool(models)}


def _pool(models: OneModel | Sequence[OneModel]) -> Sequence[OneModel]:
    return models if isinstance(models, Sequence) and not isinstance(models, str) else [models]


def _spec(model: OneModel, objects: dict[str, ModelObject]) -> str:
    if isinstance(model, str):
        return model
    spec = spec_of(model)
    if objects.setdefault(spec, model) is not model:
        raise InvalidUsage(
            f"two models have the spec {spec!r}; give each object another `spec`: the journal names them by it"
        )
    return spec


def strategy_of(strategy: str | Strategy | None, task: Task, options: Mapping[str, Any]) -> Strategy:
    """Build the strategy, and check that it fits the task.

    Args:
        strategy: a name or an instance; None for the task's default strategy.
        task: the task, or the first of many.
        options: options by name. False for an option that the strategy lacks changes nothing.
    """
    if strategy is None:
        strategy = task.default_strategy
    check_strategy(strategy)
    kind = STRATEGIES.find(strategy, Strategy) if isinstance(strategy, str) else type(strategy)
    options = {name: value for name, value in options.items() if value is not False or kind.takes(name)}
    if isinstance(strategy, str):
        strategy = validated(kind, f"strategy {strategy!r}", options, flag="-s")
    elif options:
        strategy = validated(kind, kind.__name__, {**strategy.model_dump(), **options})
    if not hasattr(strategy, "conductor"):
        raise InvalidUsage(f"{type(strategy).__name__} names no conductor; add one: conductor = MyConductor")
    if not isinstance(task, strategy.solves):
        named, kinds = (
            STRATEGIES.name_of(address_of(type(strategy))),
            " and ".join(map(_kind_solved, strategy.solves)) or "nothing",
        )
        raise InvalidUsage(
            f"{named} solves {kinds}, and {TASKS.name_of(address_of(type(task)))} is {_kind_of(task)}; its own strategy is "
            f"{task.default_strategy}"
        )
    if missing := type(task).missing_methods():
        raise InvalidUsage(
            f"{type(task).__name__} lacks {', '.join(f'{name}()' for name in missing)}, which every task of its kind needs"
        )
    return strategy


_KINDS: dict[type[Task], tuple[str, str]] = {
    Document: ("documents", "a document"),
    Problem: ("problems", "a problem"),
    ChainTask: ("chains of steps", "a chain of steps"),
}
"""Kinds of task in words, several and one. A kind stands before the kinds that it belongs to."""


def _kind_solved(kind: type[Task]) -> str:
    return _KINDS[kind][0] if kind in _KINDS else TASKS.name_of(address_of(kind))


def _kind_of(task: Task) -> str:
    return next((one for kind, (_, one) in _KINDS.items() if isinstance(task, kind)), "of another kind")


def check_strategy(given: object) -> None:
    """Refuse a value that is neither the name of a strategy nor an instance."""
    if not isinstance(given, str | Strategy):
        raise InvalidUsage(
            f"strategy must be a name, or an instance such as Maker(k=3), not {given!r:.100}; nothing was started"
        )


WHERE_SET = "it is set on the command line, in a MICROAGENTS_ variable or in a file microagents.toml"
"""The places that an option may come from, for who did not type it."""


def check_for_ray(given: Mapping[str, Any], runtime: str) -> None:
    """Refuse settings for Ray on another runtime, which would ignore them."""
    address, lanes = given.get("address"), given.get("lanes")
    reasons = (
        (address is not None, f"the address {address!r} is a Ray cluster's"),
        (lanes is not None, f"lanes={lanes!r} are engines on Ray"),
        (given.get("spread"), "--spread gives roles Ray actors of their own"),
        ("max_wait_nodes_s" in given, "--max-wait-nodes is for nodes of Ray"),
    )
    for is_given, reason in reasons:
        if is_given and runtime != "ray":
            raise InvalidUsage(
                f"{reason}, but the runtime is {runtime!r}; add --runtime ray, or leave it out: {WHERE_SET}"
            )


def read_value(text: str) -> str:
    """Return the value of an option: the text itself, or for ``@FILE`` the text of a file."""
    if not text.startswith("@"):
        return text
    try:
        return read_text(text[1:])
    except (OSError, ValueError) as error:
        raise InvalidUsage(f"{text[1:]!r} cannot be read: {read_failure(error)}") from None
