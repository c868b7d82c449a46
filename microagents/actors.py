"""The programming model: roles, their handlers, and how they are deployed. Knows no runtime.

A role is a class; a message's class is its address. A handler is a method whose one argument is annotated with a message: an ``async
def`` for a `Request`, an async generator for a `Stream`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, get_type_hints

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from microagents.elections.rules import FirstToAheadBy, Rule
from microagents.errors import InvalidDefinition, NoHandler
from microagents.messages import Message, R, Request, Stream, address_of, reply_type
from microagents.task import Task

T = TypeVar("T", bound=Task)
G = TypeVar("G", bound="Strategy")


class Context(Struct, frozen=True, kw_only=True):
    """All that a role is built from, in whatever process it lives."""

    run_id: str
    name: str = ""
    """The role's own, as the runtime calls this replica of it, such as ``Solver/0``."""
    seed: int
    tasks: Sequence[Task]
    """One per input; the first component of every path is the input."""
    strategy: Strategy
    models: Mapping[str, tuple[str, ...]] = {}
    """Pools of model specs by role name; ``""`` is everybody else's."""
    settings: Mapping[str, Any] = {}
    """Settings of the run that roles read, such as ``known_inputs``."""
    options: Mapping[str, Any] = {}
    """The deployment's own."""

    def pool(self, role: str) -> tuple[str, ...]:
        """The models that a role's questions go to."""
        return self.models.get(role.lower()) or self.models[""]


class Messenger(Protocol):
    """What a role needs of the runtime that carries it."""

    def ask(self, request: Request[R], timeout_s: float | None) -> Coroutine[Any, Any, R]:
        """Send a request and await its reply."""
        ...

    def stream(self, request: Stream[R], timeout_s: float | None) -> AsyncGenerator[R]:
        """Send a request and iterate its items."""
        ...

    def tell(self, request: Request[None]) -> None:
        """Send a request whose reply nobody awaits."""
        ...


class Role:
    """The base of every micro-role; built in its own process from its `Context` alone."""

    asks: ClassVar[tuple[type[Message], ...]] = ()
    """The messages it sends; those of its base classes are added."""
    concurrency: ClassVar[int | None] = None
    """How many messages it handles at a time. None: no bound. A bound is refused for a role that its own messages can reach."""
    handlers: ClassVar[dict[type[Message], str]] = {}
    """Method names by message; filled in when the class is created."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.handlers = dict(_handlers(cls))

    def __init__(self, context: Context, messenger: Messenger) -> None:
        self.context = context
        self._messenger = messenger

    async def start(self) -> None:
        """Called before the first message."""

    async def stop(self) -> None:
        """Called after the last message."""

    def ask(self, request: Request[R], *, timeout_s: float | None = None) -> Coroutine[Any, Any, R]:
        """Send a request to the role that handles it and await the reply.

        Raises:
            DeadlinePassed: no reply within ``timeout_s`` seconds; the callee was cancelled.
            RoleFailed: the handler raised.
        """
        return self._messenger.ask(request, timeout_s)

    def stream(self, request: Stream[R], *, timeout_s: float | None = None) -> AsyncGenerator[R]:
        """Send a request and iterate its items; ``timeout_s`` bounds the wait for each. Close it (``aclosing``) to cancel the callee."""
        return self._messenger.stream(request, timeout_s)

    def tell(self, request: Request[None]) -> None:
        """Send a request whose reply nobody awaits; one sender's messages to one replica keep their order."""
        self._messenger.tell(request)


def asked_by(role: type[Role]) -> tuple[type[Message], ...]:
    """All that a role may send: its own ``asks`` and those of its bases."""
    listed = [message for base in reversed(role.__mro__) for message in base.__dict__.get("asks", ())]
    return tuple(dict.fromkeys(listed))


def _handlers(role: type[Role]) -> Iterator[tuple[type[Message], str]]:
    seen: dict[type[Message], str] = {}
    for name in dir(role):
        method = inspect.getattr_static(role, name)
        if not inspect.isfunction(method) or name in Role.__dict__ or name.startswith("_"):
            continue
        message = _message_of(role, name, method)
        if message is None:
            continue
        if message in seen:
            raise InvalidDefinition(f"{role.__qualname__} handles {message.__name__} twice: in {seen[message]} and in {name}")
        seen[message] = name
        yield message, name


def _message_of(role: type[Role], name: str, method: Callable[..., object]) -> type[Message] | None:
    """The message that a method handles; None for a method that is no handler."""
    place = f"{role.__qualname__}.{name}"
    parameters = list(inspect.signature(method).parameters.values())[1:]
    is_async = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
    looks_like_one = is_async and len(parameters) == 1
    try:
        hints = get_type_hints(method)
    except (NameError, AttributeError) as error:
        if not looks_like_one:
            return None
        raise InvalidDefinition(f"{place}: {error}; define messages and replies at the top of a module") from None
    given = hints.get(parameters[0].name) if parameters else None
    if isinstance(given, type) and issubclass(given, Request | Stream) and len(parameters) > 1:
        raise InvalidDefinition(f"{place} handles {given.__name__}, so it can take no other argument; put it into the message")
    if not (isinstance(given, type) and issubclass(given, Request | Stream)):
        if looks_like_one:
            raise InvalidDefinition(
                f"{place} takes one argument that is no message; annotate `{parameters[0].name}` with a Request or a Stream, or begin "
                "the method's name with an underscore"
            )
        return None
    reply = reply_type(given)
    expected = f"{given.__name__} is answered with {_shown(reply)}"
    if issubclass(given, Request):
        if not inspect.iscoroutinefunction(method):
            raise InvalidDefinition(f"{place} must be an `async def` that returns: {expected}")
        promised = hints.get("return", reply)
        if (type(None) if promised is None else promised) != (type(None) if reply is None else reply):
            raise InvalidDefinition(f"{place} returns {_shown(promised)}, but {expected}")
    elif not inspect.isasyncgenfunction(method):
        raise InvalidDefinition(f"{place} must be an `async def` with `yield`: {expected}, item by item")
    return given


def _shown(hint: object) -> str:
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


class Deployment(BaseModel):
    """How many replicas of a role run, and where (Ray Serve's words)."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    role: type[Role]
    options: dict[str, Any] = {}
    num_replicas: Annotated[int, Field(ge=1)] = 1
    num_cpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """What each replica needs on Ray; a role that waits for others most of the time needs none of its own."""
    resources: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = {}
    """The same of other resources, such as ``{"GPU": 1}``."""
    colocate: Annotated[str, Field(pattern=r"^[\w-]*$")] = ""
    """Roles with the same word here share Ray actors, replica by replica: less waiting for each other, less isolation."""
    in_driver: bool = False
    """Whether it lives in the process that drives the run, whatever the runtime."""


def check_graph(deployments: Sequence[Deployment]) -> dict[type[Message], Deployment]:
    """Who handles what; checked whole, before the first call.

    Raises:
        NoHandler: a role asks for a message that nobody deployed handles.
        InvalidDefinition: two roles handle one message, or a role with bounded ``concurrency`` can reach itself.
    """
    handled: dict[type[Message], Deployment] = {}
    for deployment in deployments:
        for message in deployment.role.handlers:
            if message in handled:
                both = f"{handled[message].role.__name__} and {deployment.role.__name__}"
                raise InvalidDefinition(f"{both} both handle {message.__name__}; deploy one of them")
            handled[message] = deployment
    names = [deployment.role.__name__ for deployment in deployments]
    for name in names:
        if names.count(name) > 1:
            raise InvalidDefinition(f"two deployed roles are called {name}; give one of the classes another name")
    for deployment in deployments:
        for message in asked_by(deployment.role):
            if message not in handled:
                raise NoHandler(
                    f"{deployment.role.__name__} asks for {address_of(message)}, which no deployed role handles; deployed are "
                    f"{', '.join(sorted(each.role.__name__ for each in deployments))}; add a Deployment to the strategy's deployments()"
                )
        if deployment.role.concurrency is not None and deployment.role in _reachable(deployment.role, handled):
            raise InvalidDefinition(
                f"{deployment.role.__name__} bounds its concurrency to {deployment.role.concurrency}, but its own asks lead back to it: "
                "it could wait for itself for ever; set concurrency = None"
            )
    return handled


def _reachable(role: type[Role], handled: Mapping[type[Message], Deployment]) -> list[type[Role]]:
    found: dict[type[Role], None] = {}
    open_roles = [role]
    while open_roles:
        for message in asked_by(open_roles.pop()):
            callee = handled[message].role if message in handled else None
            if callee is not None and callee not in found:
                found[callee] = None
                open_roles.append(callee)
    return list(found)


# -- strategies ----------------------------------------------------------------------------------------------------------------------


class Strategy(BaseModel):
    """Which elections are held, in which order, over which candidates; its fields are its options (``-s NAME=VALUE``)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    solves: ClassVar[tuple[type[Task], ...]] = ()
    """The kinds of task it can do."""
    conductor: ClassVar[type[Role]]
    """Does the work on one input; see `microagents.durable.Conductor`."""
    in_order: ClassVar[bool] = False
    """Whether decisions are taken in the order of their paths, so that their digest is a chain; otherwise it is a tree over the paths."""
    cuts_problems: ClassVar[bool] = False
    """Whether it cuts problems in two as the recursive strategy does, so that ``show`` can draw the tree of them."""
    known_inputs: ClassVar[bool] = False
    """Whether its conductor can feed every step the oracle's state (``--known-inputs``)."""

    def deployments(self) -> list[Deployment]:
        """The roles it needs beside its conductor; by default those of an election. A subclass adds its own.

        Filled in by `microagents.strategies`, since the programming model knows no role.
        """
        return list(_election_roles)

    def drawing(self) -> list[str]:
        """The names by which ``--model ROLE=SPEC`` gives its questions models: those of its roles that draw, and the solver's."""
        roles = (self.conductor, *(deployment.role for deployment in self.deployments()))
        return [*dict.fromkeys(name for role in roles if (name := getattr(role, "draws_as", None)) is not None)] or ["solver"]

    @cached_property
    def default_rule(self) -> Rule:
        """Ahead-by the strategy's k, else 3."""
        return FirstToAheadBy(getattr(self, "k", 3))


_election_roles: list[Deployment] = []


def deploy_by_default(*deployments: Deployment) -> None:
    """Name the roles of an election; called once, by the package of roles."""
    _election_roles[:] = deployments
