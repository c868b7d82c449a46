"""A tool: its name, its description, the schema of its arguments, and its effect on the world."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache, partial
from math import inf, isfinite
from typing import Any, Literal, NewType, TypeGuard, TypeVar, get_type_hints

from msgspec import Struct, structs
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model

from microagents.base.errors import InvalidDefinition, MicroagentsError, NotMade, in_own_words
from microagents.base.plain_values import plain, unwritable
from microagents.replies.reply_fields import is_unvoted
from microagents.replies.turns import Arguments

Effect = Literal["read_only", "idempotent", "destructive"]
"""What a call does to the world.

- `read_only`: nothing. It may be made early, and again.
- `idempotent`: something, and a second call with the same key does no more.
- `destructive`: something that a second call would do again. A tool whose effect is not stated counts as one.
"""
EFFECTS: tuple[Effect, ...] = ("read_only", "idempotent", "destructive")
Kind = Literal[Effect, "agent"]
"""The effect of a tool, or `agent`: a call hands work off to the agent whose task the function returns."""
KINDS: tuple[Kind, ...] = (*EFFECTS, "agent")

EffectKey = NewType("EffectKey", str)
"""The key of an effect, for a parameter of a tool: the same in every repetition of one call, and another for every other call. A model
has no part in it, and does not see the parameter."""

RunInput = NewType("RunInput", str)
"""The run and the input that a call is made for, such as ``desk-1/0``, for a parameter of a tool that keeps the worlds of runs apart."""

F = TypeVar("F", bound=Callable[..., Any])
MAX_DESCRIPTION_CHARS = 2_000
COMMUTES = "\nIts calls commute: an action may have several, also of other tools whose calls commute."


class BadArguments(MicroagentsError):
    """Arguments of a call do not fit the schema of its tool."""


class ToolSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as a model sees it, and the harm that it can do. It travels, and enters the identity of a run."""

    name: str
    description: str
    parameters: dict[str, Any]
    """The JSON schema of its arguments, an object."""
    effect: Kind = "destructive"
    can_be_looked_up: bool = False
    """Whether it looks up by the key of an effect what became of it."""
    prose: tuple[str, ...] = ()
    """Arguments whose wording casts no vote."""
    timeout_s: float | None = None
    """Time after which the outcome of a call is unknown; None for the strategy's."""
    margin: int | None = None
    """Lead that an action with it needs; None for its effect's."""
    repeatable: bool = False
    """Whether an agent may make one destructive call twice without asking a person."""
    commutes: bool = False
    """Whether calls with it, and others that commute, may be made side by side."""


class ToolOptions(Struct, frozen=True, kw_only=True):
    """Declarations of a decorator about a function."""

    spec: ToolSpec = ToolSpec(name="", description="", parameters={})
    """The tool, as far as its signature and docstring do not say it."""
    lookup: Callable[..., Any] | None = None
    not_made: tuple[type[Exception], ...] = ()


def check_bounds(tool: str, timeout_s: object, margin: object) -> None:
    """Refuse a time-out of a tool that is not a number of seconds above 0, and a margin that is not a number of votes from 1 on."""
    if timeout_s is not None and (
        isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s < inf
    ):
        raise InvalidDefinition(f"the time-out of {tool} must be a number of seconds above 0, not {timeout_s!r}")
    if margin is not None and (isinstance(margin, bool) or not isinstance(margin, int) or margin < 1):
        raise InvalidDefinition(f"the margin of {tool} must be a number of votes from 1 on, not {margin!r}")


def tool(
    effect: Kind,
    *,
    name: str | None = None,
    lookup: Callable[..., Any] | None = None,
    timeout_s: float | None = None,
    margin: int | None = None,
    not_made: tuple[type[Exception], ...] = (),
    repeatable: bool = False,
    commutes: bool = False,
) -> Callable[[F], F]:
    """State the effect of a function that agents may call; the function itself stays as it is.

    Args:
        effect: the change of the world by a call; or ``agent`` if the function returns an `AgentTask`, to which a call hands work off.
        name: its name for models; by default the function's.
        lookup: a function, plain or async, that takes the key of an effect and returns the result that the call had, or None if the call
            was never made. It is asked when the outcome of a call is unknown.
        timeout_s: time after which the outcome of a call is unknown, in place of the strategy's ``tool_timeout``.
        margin: lead that an action with it needs, in place of its effect's.
        not_made: errors that a destructive function raises only before it has changed anything, besides `NotMade`. After any other error
            the outcome of the call is unknown.
        repeatable: let an agent make one destructive call of this function twice without asking a person.
        commutes: let one action have several calls of functions that commute. They are made side by side, in any order.

    Raises:
        InvalidDefinition: the effect is unknown, the time-out or the margin is out of range, or ``not_made`` is not a tuple of exceptions.
    """
    if effect not in KINDS:
        raise InvalidDefinition(f"the effect of a tool is one of {', '.join(KINDS)}, not {effect!r}")
    given: Any = not_made
    if not isinstance(given, tuple) or not all(
        isinstance(each, type) and issubclass(each, Exception) for each in given
    ):
        raise InvalidDefinition(f"not_made must be a tuple of exceptions, such as (ValueError,), not {given!r}")
    spec = ToolSpec(
        name=name or "",
        description="",
        parameters={},
        effect=effect,
        can_be_looked_up=lookup is not None,
        timeout_s=timeout_s,
        margin=margin,
        repeatable=repeatable,
        commutes=commutes,
    )
    options = ToolOptions(spec=spec, lookup=lookup, not_made=not_made)

    def state(function: F) -> F:
        check_bounds(f"the tool {name or _name_of(function)}", timeout_s, margin)
        stated: Any = function
        try:
            stated.tool_options = options
        except AttributeError:  # a bound method, say, whose function serves other objects, too
            stated = partial(function)
            stated.tool_options = options
        inner = getattr(stated, "__func__", stated)  # of a class method that is not yet bound
        inner.tool_options = options
        return stated  # type: ignore[no-any-return]

    return state


def _innermost(function: Any) -> Any:
    if isinstance(function, partial):
        return _innermost(function.func)
    return function


def _name_of(function: Any) -> str:
    """Return the name of a function, a partial's function, or the class of another object that is called."""
    inner = getattr(function, "__func__", _innermost(function))
    return str(getattr(inner, "__name__", type(inner).__name__))


def called_in(function: Any) -> Any:
    """Return the function with the docstring and the types: of an object, its method ``__call__``."""
    inner = _innermost(function)
    if inspect.isroutine(inner) or inspect.isclass(inner):
        return inner
    return type(inner).__call__


def hands_off(given: object) -> TypeGuard[Callable[..., Any]]:
    """Return whether a tool is a function that hands work off to another agent."""
    options: ToolOptions | None = getattr(given, "tool_options", None)
    return options is not None and options.spec.effect == "agent"


class FunctionTool:
    """A function that agents may call.

    Args:
        function: the function, method, partial or other object that is called, plain or async. Its signature and docstring give the
            schema.

    Raises:
        InvalidDefinition: a parameter has no type, or one that JSON lacks; or its result cannot be written as JSON.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._stated = function
        options: ToolOptions = getattr(function, "tool_options", ToolOptions())
        if getattr(function, "__hash__", None) is None:  # of a dataclass, say
            function = partial(function)
        self.function = function
        self.lookup = options.lookup
        self.not_made: tuple[type[Exception], ...] = (NotMade, *options.not_made)
        """Errors after which nothing was done."""
        self._given, prose, self._arguments = _arguments_of(function)
        schema = self._arguments.model_json_schema()
        schema.pop("title", None)
        described = inspect.cleandoc(called_in(function).__doc__ or "")[:MAX_DESCRIPTION_CHARS]
        if options.spec.commutes:
            described += COMMUTES
        self.spec = structs.replace(
            options.spec,
            name=options.spec.name or _name_of(function),
            description=described,
            parameters={"type": "object", "properties": {}, **schema},
            prose=prose,
        )

    def __reduce__(self) -> tuple[type[FunctionTool], tuple[Callable[..., Any]]]:
        """Travel as the function: marks of types, such as `Prose`, cannot."""
        return FunctionTool, (self._stated,)

    def bind(self, arguments: Arguments, key: EffectKey, run: RunInput) -> Arguments:
        """Give the arguments of the function for a call, with the key of its effect and the run if it takes them."""
        read = self.validated(arguments)
        bound = {name: getattr(read, name) for name in type(read).model_fields}
        return {**bound, **{name: key if kind is EffectKey else run for name, kind in self._given.items()}}

    def as_declared(self, arguments: Arguments) -> Arguments:
        """Return arguments as JSON-like values of the declared types: a decimal as its digits, equal values alike.

        A value of a type that cannot be written and read back, such as a secret, stays as it is.

        Raises:
            BadArguments: they do not fit.
        """
        exact: Arguments = _exact(arguments, _fields_of(self.validated(arguments)))
        read = self.validated(exact)
        with suppress(BadArguments, TypeError, ValueError):
            declared: Arguments = plain(_fields_of(read), canonical=True)
            if self.validated(declared) == read:
                return declared
        return exact

    def validated(self, arguments: Arguments) -> BaseModel:
        """Read the arguments of a call.

        Raises:
            BadArguments: they do not fit.
        """
        try:
            # Read as JSON, in which a date is a text; and strictly, so that "5" is not a number.
            return self._arguments.model_validate_json(json.dumps(arguments, default=_nearest), strict=True)
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, each['loc']))}: {in_own_words(each['msg'])}" for each in error.errors()[:3]]
            raise BadArguments("; ".join(faults)) from None


def _nearest(number: Decimal) -> float | str:
    """Return the float that is nearest to a number, as JSON is mostly read; its digits if no float is near."""
    if isfinite(float(number)):
        return float(number)
    return str(number)


def _exact(given: Any, read: Any) -> Any:
    """Return JSON-like values in which a number that was read as a decimal is the text of its digits."""
    match given, read:
        case Decimal(), Decimal():
            return str(given)
        case Decimal(), _:
            return _nearest(given)
        case dict(), dict():
            return {name: _exact(each, read.get(name)) for name, each in given.items()}
        case list(), list() | tuple():
            return list(map(_exact, given, read))
        case list(), set() | frozenset():
            return [_exact(each, next(iter(read))) for each in given]
    return given


def _fields_of(read: BaseModel) -> Arguments:
    return read.model_dump(by_alias=True, exclude_unset=True, warnings=False)


@lru_cache(maxsize=1024)
def _arguments_of(function: Callable[..., Any]) -> tuple[dict[str, Any], tuple[str, ...], type[BaseModel]]:
    """Return the parameters that no model sees, with their types, the names of those declared as prose, and the model of the others."""
    name, settled = _name_of(function), function.keywords if isinstance(function, partial) else {}
    try:
        hints = get_type_hints(called_in(function), include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidDefinition(f"the types of tool {name} cannot be read: {error}") from None
    if (lost := unwritable(hints.get("return"))) is not None:
        raise InvalidDefinition(
            f"tool {name} returns a {lost.__qualname__}, which cannot be written as JSON for the model; return a text, a number, a list, a "
            "dict, a dataclass or a model of pydantic"
        )
    given, fields = dict[str, Any](), dict[str, Any]()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in settled:  # by the partial, so it is not the model's to choose
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise InvalidDefinition(f"tool {name} must take plain parameters by name, not {parameter}")
        if parameter.name not in hints:
            raise InvalidDefinition(
                f"give the parameter {parameter.name} of tool {name} a type, such as {parameter.name}: int"
            )
        if hints[parameter.name] in (EffectKey, RunInput):
            given[parameter.name] = hints[parameter.name]
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], Field(default))
    try:
        model: type[BaseModel] = create_model(f"Arguments of {name}", __config__=ConfigDict(extra="forbid"), **fields)
        model.model_json_schema()
    except (PydanticUserError, NameError, TypeError) as error:
        raise InvalidDefinition(f"the parameters of tool {name} must have types that JSON has: {error}") from None
    return given, tuple(name for name in fields if is_unvoted(hints[name])), model
