"""The settings of a run: each is declared once, for keywords, flags, variables and files; and the validation of users' values."""

from __future__ import annotations

import functools
import itertools
import json
import math
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    with_config,
)
from pydantic_core import ErrorDetails
from typing_extensions import TypedDict

from microagents.actors.registry import RUNTIMES, unknown
from microagents.base.errors import InvalidUsage, in_own_words, refusal, refusing
from microagents.base.files import read_text
from microagents.base.largest import MAX_COUNT, MAX_S, MAX_USD
from microagents.base.plain_values import adapter_of, number_in
from microagents.journal.ending import LimitName
from microagents.journal.requests import SetRun
from microagents.models.prices import OwnPrice, read_prices
from microagents.replies.reply_forms import Format, Reading
from microagents.runs.fields import allowed_values, annotations_of
from microagents.runs.row_files import checked_output
from microagents.runs.row_forms import Dialect

T = TypeVar("T")


def plain_type(annotation: Any) -> Any:
    """Return the type of a setting without its bounds, which `Settings` checks: ``int | None`` of ``Annotated[int, ...] | None``."""
    if get_origin(annotation) is Annotated:
        return plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return functools.reduce(operator.or_, [plain_type(each) for each in get_args(annotation)])
    return annotation


RUN_ID = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""The form of the name of a run, which is also the name of a file."""
LIMITS: tuple[LimitName, ...] = get_args(LimitName)
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


Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]


def _read_run_id(value: str) -> str:
    if re.fullmatch(RUN_ID, value) is None:
        raise ValueError(
            "the name of a run has up to 100 letters, digits, dots, dashes and underscores, and begins with a letter or a digit, "
            f"unlike run_id={value!r:.100}"
        )
    return value


def _without_limit(value: object) -> object:
    if value in (math.inf, NO_LIMIT):
        return None
    return value


def _known_runtime(value: str) -> str:
    if value not in RUNTIMES.addresses and ":" not in value:
        raise ValueError(unknown("runtime", value, list(RUNTIMES.addresses)))
    return value


def _read_lanes(value: object) -> str | None:
    if value is None or value == "auto":
        return value
    text = str(value)
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"lanes is a number from 1 on or `auto`, not {text!r}")
    return str(int(text))


def _check_spec(value: Any) -> None:
    from microagents.models.model import ModelSpec  # noqa: PLC0415 - a command's help needs no models

    ModelSpec.parse(value)


@contextmanager
def _said_as(said: str) -> Iterator[None]:
    """Give a refusal to pydantic, after these words."""
    try:
        yield
    except (InvalidUsage, TypeError) as error:
        raise ValueError(f"{said}{error}") from None


def _read_on_undecided(value: str) -> str:
    if value not in ("stop", "leader"):
        with _said_as("on_undecided is `stop`, `leader` or a model; "):
            _check_spec(value)
    return value


def _read_within(value: str) -> str:
    from microagents.models.http.spec_options import hours_in  # noqa: PLC0415 - a command's help needs no models

    with _said_as("batch_within: "):
        hours_in(value)
    return value


def _read_fallback(value: object) -> object:
    specs = [value] if isinstance(value, str) else value
    for spec in specs if isinstance(specs, list | tuple) else ():
        with _said_as("a fallback is the spec of a model; "):
            _check_spec(spec)
    return specs


class SettingKeywords(TypedDict, total=False):
    """Settings of a run, except its task, its strategy and its models: keywords of `microagents.run`.

    Those with a `Flag` are also options of every command that begins or resumes a run, with variables of the environment and keys of
    microagents.toml. Their docstrings are the help texts.
    """

    seed: Annotated[int, Field(default=0)]
    """Seed of simulated models."""
    runtime: Annotated[str, Field(default="local"), Flag("NAME"), AfterValidator(_known_runtime)]
    """Where roles run: `local` in this process, `ray` in Ray actors, `linked` in this process with every message encoded as on Ray."""
    address: Annotated[str | None, Field(default=None), Flag("HOST:PORT|auto")]
    """Ray cluster of --runtime ray. [default: $RAY_ADDRESS, else a new Ray on this machine]"""
    insecure: Annotated[bool, Field(default=False), Flag()]
    """Allow a Ray cluster on other machines on which anyone who reaches it can run programs."""
    deploy: Annotated[dict[str, dict[str, Any]], Field(default={}), Flag("ROLE.OPTION=VALUE")]
    """Change the deployment of a role: solver.num_replicas=4, solver.num_cpus=1, solver.resources.GPU=1, or voter.colocate=core \
(roles with the same label share Ray actors; others share those of their lane). Repeatable."""
    lanes: Annotated[int | str | None, Field(default=None), Flag("N|auto"), BeforeValidator(_read_lanes)]
    """Engines side by side on Ray, each with all roles of an input's work; `auto` is one a CPU of the cluster, and grows with \
it. [default: auto for many inputs, else 1]"""
    durability: Annotated[Literal["full", "normal"], Field(default="full"), Flag()]
    """`full`: records survive a power cut. `normal`: they survive a kill of the process."""
    keep_texts: Annotated[Literal["all", "lost", "none"], Field(default="lost"), Flag()]
    """Texts of replies that the journal keeps: `all`, `none`, or the ones that `lost` or were flagged, and all of undecided elections."""
    on_undecided: Annotated[str, Field(default="stop"), Flag("stop|leader|SPEC"), AfterValidator(_read_on_undecided)]
    """Action after an undecided election: `stop` the run, take the `leader` and mark it, or ask another model, given by its SPEC."""
    max_output_tokens: Annotated[Count | None, Field(default=None), Flag("N")]
    """Limit of a reply that is sent to the provider, reasoning included; a longer one is flagged as `cut_off`. \
[default: the task's, 2048 unless it says otherwise]"""
    flag_above_tokens: Annotated[Annotated[int, Field(ge=0, le=MAX_COUNT)] | None, Field(default=None), Flag("N")]
    """Flag replies whose text has more tokens as `too_long`; reasoning does not count, and 0 turns the flag off. \
[default: the task's, 750 for chains]"""
    format: Annotated[Format | None, Field(default=None), Flag("lines|json")]
    """Form of replies: `lines` (name = JSON, after free reasoning) or `json` (one object). [default: the task's, lines unless it says \
otherwise]"""
    reasoning: Annotated[bool | None, Field(default=None), Flag()]
    """Let replies reason before their answer, or tell the model not to. [default: the task's, which lets them unless it says otherwise]"""
    reading: Annotated[Reading | None, Field(default=None), Flag("strict|last")]
    """Reading of replies: `strict` flags all that is not in the form asked for; `last` takes the last value of each field, or the last \
object, whatever stands around it. [default: the task's, strict unless it says otherwise]"""
    resend_stragglers: Annotated[bool, Field(default=True), Flag(name="--no-resend-stragglers")]
    """Send a call again that takes longer than 3 times the 95th percentile of its model, and at least 5 s; the first reply counts. The \
option turns this off."""
    share: Annotated[Literal["on", "off"], Field(default="on"), Flag("on|off")]
    """`on`: rows that ask the same question are asked once, and share the result of the first of them. `off`: each is asked."""
    reuse: Annotated[str | None, Field(default=None)]
    """Name of an earlier run of the same folder. Replies that it has paid for are the first samples of rows of the same prompt, form \
of reply, sampling and model."""
    concurrency: Annotated[Count | None, Field(default=None), Flag("N")]
    """Maximum number of calls in flight over the whole run. \
[default: no bound, but what each model behind HTTP turns out to take]"""
    max_calls: Annotated[Count | None, Field(default=None), Flag("N"), BeforeValidator(_without_limit)]
    """Stop after this many calls. A resumed run counts its earlier calls; `inf` lifts a recorded limit, here and below. \
[default: no limit]"""
    max_tokens: Annotated[Count | None, Field(default=None), Flag("N"), BeforeValidator(_without_limit)]
    """Stop before the calls use more tokens than this, of prompts and replies. A resumed run counts its earlier ones. \
[default: no limit]"""
    max_cost_usd: Annotated[
        Annotated[float, Field(gt=0, le=MAX_USD)] | None,
        Field(default=None),
        Flag("USD", "--max-cost"),
        BeforeValidator(_without_limit),
    ]
    """Stop before the calls cost more than this: each is sent only if the most that it can cost is left. A resumed run counts its earlier \
cost. [default: no limit]"""
    max_time_s: Annotated[
        Annotated[float, Field(gt=0, le=MAX_S)] | None,
        Field(default=None),
        Flag("S", "--max-time"),
        BeforeValidator(_without_limit),
    ]
    """Stop this many seconds after the start or the resume of the run. [default: no limit]"""
    max_outage_s: Annotated[float, Field(ge=0, le=MAX_S, default=7200.0), Flag("S", "--max-outage")]
    """Stop once a provider has delivered nothing, or no node of the Ray cluster had room for a role, for this many seconds."""
    max_wait_effects_s: Annotated[
        float, Field(ge=0, allow_inf_nan=False, default=60.0), Flag("S", "--max-wait-effects")
    ]
    """Wait this many seconds, at the end of the run, for calls of tools that are under way and change the world. Then leave them, their \
outcome unknown."""
    batch: Annotated[Literal["file", "window"] | None, Field(default=None), Flag("file|window")]
    """Send calls in batches, for half the price within hours: many in a `file`, or each in a `window` of its own (OpenAI's \
responses). [default: singly, unless the model's spec says @batch=file]"""
    batch_then: Annotated[Literal["batch", "single"], Field(default="batch"), Flag("batch|single")]
    """Send the last calls of a run, at most 3 for 1,000 of its largest batch, and those that failed in a batch, again in a `batch`, \
or each as a `single` call."""
    batch_within: Annotated[Annotated[str, AfterValidator(_read_within)] | None, Field(default=None), Flag("TIME")]
    """Cancel a batch after this time, such as 24h or 90m, and take the results that it has. A chain needs it: each of its steps may \
then take as long. [default: the provider's limit]"""
    fallback: Annotated[Sequence[str], Field(default=()), Flag("SPEC"), BeforeValidator(_read_fallback)]
    """Model that is asked while another one is out, or while its provider refuses the account. Repeatable: the first that delivers is \
asked."""
    otel_sample: Annotated[float, Field(ge=0, le=1, default=0.01)]
    """Share of the easy elections that are traced, if the program has configured OpenTelemetry; hard ones are in any case."""
    prices: Annotated[
        PricesGiven,
        Field(default={}),
        Flag("FILE", is_file=True),
        PlainValidator(read_prices, json_schema_input_type=PricesGiven),
    ]
    """Your own prices: a TOML file with a table `["provider:model"]` for each model, of `input` and `output` in US dollars per million \
tokens. They go before the known prices. [default: no file]"""

    output: Annotated[Annotated[str | Path, AfterValidator(checked_output)] | None, Field(default=None)]
    """File for the rows of the inputs and their results, see `Result.rows`: CSV, TSV, JSON, JSON lines or Parquet, by its ending, also \
gzipped. It is written whenever the run ends, also by a resume; a file that is there before the run begins is kept."""
    trust_columns: Annotated[bool, Field(default=False), Flag()]
    """Add to the output how sure each row is: the agreement of the samples on each field (5/6), their number, what settled the row, and \
its open fields."""
    output_dialect: Annotated[Dialect, Field(default=Dialect())]
    """Separator, byte order mark and `sep=` line of an output in CSV. [default: those of the input]"""


@with_config(ConfigDict(extra="forbid"))
class Settings(SettingKeywords):
    """Settings of a run with its name and its models, which callers give in other forms. `validated` adds the defaults."""

    models: dict[str, tuple[str, ...]]
    """Pools of model specs by role; "" is the pool of every other role."""
    run_id: Annotated[str, AfterValidator(_read_run_id)]
    """Name of the run."""


DEFAULTS: Mapping[str, object] = adapter_of(SettingKeywords).validate_python({})
"""The value of each setting that is not given."""


def check_promised(settings: Mapping[str, Any]) -> None:
    """Refuse settings of a table with a promise that take replies into it which no label tests.

    Raises:
        InvalidUsage: there is one.
    """
    for name in ("fallback", "on_undecided", "reuse"):
        if settings.get(name, DEFAULTS[name]) != DEFAULTS[name]:
            raise InvalidUsage(
                f"{option_of(name)} takes replies that no label tests into a table with a promise; leave it out"
            )


def solver_pool(settings: Settings) -> tuple[str, ...]:
    """Return the models that samples are drawn from if no role has a pool of its own."""
    return settings["models"].get("solver") or settings["models"][""]


def pools_of(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Return all models that may be asked: the pools by role, the model for undecided elections, and the fallbacks."""
    pools = dict(settings["models"])
    if settings["on_undecided"] not in ("stop", "leader"):
        pools["undecided"] = (settings["on_undecided"],)
    if settings["fallback"]:
        pools["fallback"] = tuple(settings["fallback"])
    return pools


def own_prices(settings: Settings) -> dict[str, OwnPrice]:
    """Return the user's prices by model."""
    return read_prices(settings["prices"])


def dumped(settings: Settings, mode: Literal["python", "json"] = "python") -> dict[str, Any]:
    """Return the settings as plain values: those of Python, or of JSON."""
    values: dict[str, Any] = adapter_of(Settings).dump_python(settings, mode=mode)
    return values


def flag_of(name: str) -> Flag | None:
    """Return the command-line option of a keyword; None for one that has none, and for any other name."""
    parts = getattr({**annotations_of(OptionKeywords), **annotations_of(Settings)}.get(name), "__metadata__", ())
    return next((each for each in parts if isinstance(each, Flag)), None)


class OptionKeywords(TypedDict, total=False):
    """Options of the strategy as keywords: any in ``options``, and four by themselves. Those with a `Flag` are also options of commands."""

    options: Mapping[str, Any]
    """Options by name."""
    k: Annotated[int | None, Flag("K", "-k")]
    """The number of votes that decides an election."""
    max_draws: int | None
    """The cap of an election, in samples."""
    speculate: Annotated[bool | None, Flag(name="--no-speculate")]
    """Open the next steps on guesses; the option turns this off. Decisions do not depend on it."""
    known_inputs: bool
    """Start every step from the oracle's state, so that steps run side by side."""


def options_in(given: OptionKeywords) -> dict[str, Any]:
    """Return the options of the strategy among keywords."""
    short = OptionKeywords.__annotations__.keys() - {"options"}
    named = {name: value for name, value in given.items() if name in short and value is not None}
    return {**given.get("options", {}), **named}


def option_of(name: str) -> str:
    """Return the command-line option of a keyword."""
    flag = flag_of(name)
    if flag is None or flag.name is None:
        return f"--{name.replace('_', '-')}"
    return flag.name


def limit_text(name: str, value: float) -> str:
    """Write a limit as its option with the value."""
    return f"{option_of(name)} {value:.15g}"


def word_of(name: str) -> str:
    """Return the option of a keyword without dashes, as `ctl set` has it."""
    return option_of(name).removeprefix("--")


ADJUSTABLE = {word_of(name): name for name in SetRun.__struct_fields__}
"""The settings that can be changed while a run is under way, by their options without dashes. Only `SetRun` names them."""


def validated(model: type[T], subject: str, given: Mapping[str, Any], *, flag: str = "") -> T:
    """Build an instance of a pydantic model, or a typed dict with its defaults.

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
        built: T = adapter_of(model).validate_python(dict(given))
    except ValidationError as error:
        errors = error.errors(include_url=False)
    else:
        return built
    read = dict(itertools.chain.from_iterable(map(_value_in_json, errors)))
    if read:
        return validated(model, subject, {**given, **read}, flag=flag)
    raise InvalidUsage(_refusal(model, subject, errors[0], flag))


def _refusal(model: type, subject: str, first: ErrorDetails, flag: str) -> str:
    """Write one sentence about an error of pydantic."""
    place = first["loc"]
    name = ".".join(map(str, place))
    match first["type"]:
        case "extra_forbidden":
            return unknown(f"option of {subject} named", name, sorted(annotations_of(model)))
        case "missing" if len(place) > 1:
            return f"{subject} needs {name}, which {first['input']!r:.100} lacks"
        case "missing":
            return f"{subject} needs {name}; give it with {flag} {name}=VALUE".replace("  ", " ")
        case "value_error" | "assertion_error":
            return f"{subject}: {in_own_words(first['msg'])}"
    allowed = allowed_values(model, name)
    said = first["msg"] if allowed is None else f"Input should be {allowed}"
    return f"{subject}: {refusal(name + _as_flag(model, name), said, first['input'])}"


_NUMBERS = (int, float, int | None, float | None, int | float, int | float | None)


def _refuse_bools(model: type, subject: str, given: Mapping[str, Any]) -> None:
    """Refuse true and false as numbers, which pydantic takes as 1 and 0."""
    for name, value in given.items():
        kind = plain_type(annotations_of(model).get(name))
        if isinstance(value, bool) and kind in _NUMBERS:
            said = refusal(name + _as_flag(model, name), "Input should be a number", value)
            raise InvalidUsage(f"{subject}: {said}")


def _as_flag(model: type, name: str) -> str:
    """Return the command-line option of a setting in parentheses, if it has another name than the setting."""
    flag = flag_of(name)
    if model is not Settings or flag is None or flag.name is None:
        return ""
    return f" ({flag.name})"


_JSON_TYPES = ("list_type", "tuple_type", "set_type", "frozen_set_type", "dict_type", "model_type", "dataclass_type")
"""Errors of pydantic about a value that is neither a list nor a table."""


def _value_in_json(error: ErrorDetails) -> Iterator[tuple[str, object]]:
    if error["type"] in _JSON_TYPES and len(error["loc"]) == 1 and isinstance(error["input"], str):
        with suppress(ValueError, RecursionError):
            value = json.loads(error["input"], parse_float=number_in)
            if isinstance(value, list | dict):
                yield str(error["loc"][0]), value


def read_value(text: str) -> str:
    """Return the value of an option: the text itself, or for ``@FILE`` the text of a file."""
    if not text.startswith("@"):
        return text
    with refusing(f"{text[1:]!r} cannot be read"):
        return read_text(text[1:])
