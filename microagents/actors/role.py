"""The programming model: roles, their handlers, deployments and strategies. It depends on no runtime.

A role is a class. The class of a message is its address. A handler is a method whose only argument is annotated with a message: an
``async def`` for a `Request`, an async generator for a `Stream`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Container, Coroutine, Iterator, Mapping, Sequence
from functools import cached_property
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Protocol, get_args, get_type_hints

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypeVar

from microagents.actors.ranges import OneOrMore
from microagents.actors.sent_messages import sent_by
from microagents.base.errors import InvalidDefinition, NoHandler
from microagents.base.messages import Message, R, Request, Stream, address_of, reply_type
from microagents.elections.election import Votes
from microagents.elections.rules import FirstToAheadBy, Rule
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import Reading
from microagents.task import ChainTask, Task

OWN_PACKAGE = f"{__name__.partition('.')[0]}."
"""Roles in it list what they send; a test compares them."""
T = TypeVar("T", bound=Task, default=Any)
G = TypeVar("G", bound="Strategy", default=Any)
H = TypeVar("H", bound=Callable[..., Any])
V = TypeVar("V")


class Tracing(Struct, frozen=True, kw_only=True):
    """How a run is traced."""

    traceparent: str
    """The W3C trace context of its span."""
    share: float
    """Share of the easy elections that are traced; hard ones are in any case."""
    with_content: bool
    """Whether spans may contain prompts and replies."""


class Context(Struct, frozen=True, kw_only=True):
    """Everything that a role is built from. It can be sent to any process."""

    run_id: str
    name: str = ""
    """Name of this replica, such as ``Solver/0``."""
    seed: int
    tasks: Sequence[Task]
    """One task for each input. The first component of every path is the number of its input."""
    is_of_many: bool = False
    """Whether there are other inputs, in this run or in the other shards of one."""
    strategy: Strategy
    models: Mapping[str, tuple[str, ...]] = {}
    """Pools of model specs by role name; ``""`` is the pool of every other role."""
    model_objects: Mapping[str, Any] = {}
    """Models that the caller gave as objects, by their spec in the pools."""
    settings: Mapping[str, Any] = {}
    """Settings of the run that roles read, such as ``max_outage_s``."""
    sharers: int = 1
    """Number of runs that share the limits of providers: this one, and others with journals in the same folder."""
    tracing: Tracing | None = None
    """None unless the driver's process has a provider of OpenTelemetry."""
    options: Mapping[str, Any] = {}
    """Options of this role's deployment."""
    listener: Callable[[Any], None] | None = None
    """Gets what a conductor notes of its work (`microagents.work.notes.Note`), in a replay; None in a run."""

    @property
    def reading(self) -> Reading:
        """Reading of replies: the run's, else the task's."""
        given: Reading | None = self.settings.get("reading")
        return given or self.tasks[0].reading

    def task_of(self, of_input: int, handed: bytes) -> Task:
        """Return the task of an input, or the agent's to which hand-offs lead."""
        return self.tasks[of_input].handed(handed)

    @property
    def is_in_batches(self) -> bool:
        """Whether calls go in batches, so that a round of all elections together takes hours."""
        specs = [spec for pool in self.models.values() for spec in pool]
        return self.settings.get("batch") is not None or any("batch=" in spec.partition("@")[2] for spec in specs)

    @property
    def can_park(self) -> bool:
        """Whether inputs need not wait in memory for batches: there are many, and each holds one election at a time."""
        return len(self.tasks) > 1 and self.tasks[0].has_one_question

    def pool(self, *roles: str) -> tuple[str, ...]:
        """Return the pool of models for the questions of the first of these roles that has one, else the common pool."""
        pools = [self.models.get(role.lower()) for role in roles]
        return next(filter(None, pools), self.models[""])


def eager(handler: H) -> H:
    """Let an asked handler run to its first wait at once, in the task of who asks: a request then need not cost a task.

    Before its first wait the handler must not ask for the current task, as a timeout does.
    """
    handler.is_eager = True  # type: ignore[attr-defined]
    return handler


def is_plain(handler: Callable[..., Any]) -> bool:
    """Whether a handler never waits: it is no ``async def``, nor the wrapper of one."""
    wrapped = inspect.unwrap(handler)
    return not (inspect.iscoroutinefunction(wrapped) or inspect.isasyncgenfunction(wrapped))


def is_eager(handler: Callable[..., Any]) -> bool:
    """Whether a handler is `eager`; one that overrides it in a subclass is not."""
    return getattr(handler, "is_eager", False)


class Messenger(Protocol):
    """Sends a role's messages. Each runtime implements it."""

    def ask(self, request: Request[R], timeout_s: float | None) -> Coroutine[Any, Any, R]:
        """Send a request and await its reply."""

    def stream(self, request: Stream[R], timeout_s: float | None) -> AsyncGenerator[R]:
        """Send a request and iterate over its items."""

    def tell(self, request: Request[None]) -> None:
        """Send a request without awaiting a reply."""

    def reaches_eager(self, message: type[Message]) -> bool:
        """Whether all handlers that a message may go to are `eager`, and in this process."""


class Role:
    """Base class of all roles. A role is built only from its `Context`, in the process where it runs.

    Its handlers are its public methods that take a message. One that never waits may be a plain method, a `def`: it costs no task and no
    iteration of the event loop, and takes a one-way message in the middle of the sender's own work, if no other one is being handled.
    """

    draws_as: ClassVar[str | None] = None
    """The name by which ``--model NAME=SPEC`` sets its pool of models; None for a role that asks none."""
    draws_in_part_as: ClassVar[tuple[str, ...]] = ()
    """Further such names, of pools for a part of its questions. Without one of these the pool of the role serves."""
    asks: ClassVar[tuple[type[Message], ...]] = ()
    """The messages it sends; what its base classes send is added."""
    may_ask: ClassVar[tuple[type[Message], ...]] = ()
    """Messages that it sends only if the strategy deploys a role that handles them; what its base classes list is added."""
    concurrency: ClassVar[int | None] = None
    """Number of messages handled at a time; None for no bound. A role whose messages can lead back to itself must not have a bound."""
    handles_no_message: ClassVar[tuple[str, ...]] = ()
    """Names of public methods that are not handlers; what its base classes list is added."""
    handlers: ClassVar[dict[type[Message], str]] = {}
    """Method names by message; filled in when the class is created."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.handlers = dict(_handlers(cls))

    def __init__(self, context: Context, messenger: Messenger) -> None:
        self.context = context
        self._messenger = messenger

    async def start(self) -> None:
        """Prepare for the first message. The runtime calls it once; by default it does nothing."""

    async def stop(self) -> None:
        """Release resources after the last message, also if `start` failed.

        The runtime calls it once; by default it does nothing.
        """

    def ask(self, request: Request[R], *, timeout_s: float | None = None) -> Coroutine[Any, Any, R]:
        """Send a request to the role that handles it and await the reply.

        Raises:
            DeadlinePassed: no reply within ``timeout_s`` seconds; the handler was cancelled.
            RoleFailed: the handler raised.
        """
        return self._messenger.ask(request, timeout_s)

    def stream(self, request: Stream[R], *, timeout_s: float | None = None) -> AsyncGenerator[R]:
        """Send a request and iterate over its items. ``timeout_s`` bounds the wait for each item.

        Closing the iterator (``aclosing``) cancels the handler.
        """
        return self._messenger.stream(request, timeout_s)

    def tell(self, request: Request[None]) -> None:
        """Send a request without awaiting a reply. Messages from one sender to one replica keep their order."""
        self._messenger.tell(request)

    def reaches_eager(self, message: type[Message]) -> bool:
        """Whether all handlers that a message of this role may go to are `eager`, and in this process."""
        return self._messenger.reaches_eager(message)


def asked_by(role: type[Role], handled: Container[type[Message]] = ()) -> tuple[type[Message], ...]:
    """All messages that a role may send: ``asks`` of its own and its bases, and the handled ones of ``may_ask``."""
    bases = [base.__dict__ for base in reversed(role.__mro__)]
    optional = [message for base in bases for message in base.get("may_ask", ()) if message in handled]
    asked = [message for base in bases for message in base.get("asks", ())]
    return tuple(dict.fromkeys([*asked, *optional]))


def _handlers(role: type[Role]) -> Iterator[tuple[type[Message], str]]:
    seen: dict[type[Message], str] = {}
    inherited = {name for base in role.__mro__[1:] for name in getattr(base, "handlers", {}).values()}
    others = {*Role.__dict__, *(name for base in role.__mro__ for name in base.__dict__.get("handles_no_message", ()))}
    for name in dir(role):
        method = inspect.getattr_static(role, name)
        if not inspect.isfunction(method) or name in others or name.startswith("_"):
            continue
        messages = _messages_of(role, name, method)
        if not messages and name in inherited:
            raise InvalidDefinition(
                f"{role.__qualname__}.{name} overrides a handler; annotate its argument with the message, as there"
            )
        for message in messages:
            if message in seen:
                raise InvalidDefinition(
                    f"{role.__qualname__} handles {message.__name__} twice: in {seen[message]} and in {name}"
                )
            seen[message] = name
            yield message, name


def _messages_of(role: type[Role], name: str, method: Callable[..., object]) -> Sequence[type[Message]]:
    """Return the message that a method handles, or all of a union; none for a method that is not a handler."""
    handler = f"{role.__qualname__}.{name}"
    parameters = list(inspect.signature(method).parameters.values())[1:]
    is_async = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
    looks_like_handler = is_async and len(parameters) == 1
    try:
        hints = get_type_hints(method)
    except (NameError, AttributeError) as error:
        if not looks_like_handler:
            return ()
        raise InvalidDefinition(f"{handler}: {error}; define messages and replies at module level") from None
    given = hints.get(parameters[0].name) if parameters else None
    if (
        isinstance(given, UnionType)
        and len(parameters) == 1
        and all(issubclass(each, Request) for each in get_args(given))
    ):
        return get_args(given)
    if isinstance(given, type) and issubclass(given, Request | Stream) and len(parameters) > 1:
        raise InvalidDefinition(
            f"{handler} handles {given.__name__}, so it can take no other argument; put it into the message"
        )
    if not (isinstance(given, type) and issubclass(given, Request | Stream)):
        if looks_like_handler:
            raise InvalidDefinition(
                f"{handler} takes one argument that is not a message; annotate `{parameters[0].name}` with a Request or a Stream, or begin "
                "the method's name with an underscore"
            )
        return ()
    _check_kind(handler, given, method, hints)
    return (given,)


def _check_kind(handler: str, given: type[Message], method: Callable[..., object], hints: Mapping[str, Any]) -> None:
    """Check that a handler answers as its message promises."""
    reply = reply_type(given)
    expected = f"{given.__name__} is answered with {_type_name(reply)}"
    if issubclass(given, Request):
        if inspect.isasyncgenfunction(method) or inspect.isgeneratorfunction(method):
            raise InvalidDefinition(f"{handler} must return, and not `yield`: {expected}")
        promised = hints.get("return", reply)
        if (type(None) if promised is None else promised) != (type(None) if reply is None else reply):
            raise InvalidDefinition(f"{handler} returns {_type_name(promised)}, but {expected}")
    elif not inspect.isasyncgenfunction(method):
        raise InvalidDefinition(f"{handler} must be an `async def` with `yield`: {expected}, item by item")


def _type_name(hint: object) -> str:
    if isinstance(hint, type):
        return hint.__qualname__
    return str(hint)


class Deployment(BaseModel):
    """Number of replicas of a role, and their placement. Field names are as in Ray Serve."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    role: type[Role]
    options: dict[str, Any] = {}
    """Options of the role, which it reads from its `Context`."""
    num_replicas: OneOrMore = 1
    num_cpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """CPUs that Ray reserves for each replica. Roles wait most of the time, so the default is none."""
    resources: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = {}
    """Other resources that Ray reserves for each replica, such as ``{"GPU": 1}``."""
    colocate: Annotated[str, Field(pattern=r"^[\w-]*$")] = ""
    """Roles with the same label share Ray actors, replica by replica: faster messages, less isolation."""
    in_driver: bool = False
    """Whether the role runs in the driver's process on every runtime."""


def check_graph(deployments: Sequence[Deployment]) -> dict[type[Message], Deployment]:
    """Check the graph of messages before the first call; returns the deployment that handles each message.

    Raises:
        NoHandler: a role sends a message that no deployed role handles, or that it does not list.
        InvalidDefinition: two roles handle one message or have one name, or a role with bounded ``concurrency`` can reach itself.
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
                names = sorted([each.role.__name__ for each in deployments])
                raise NoHandler(
                    f"{deployment.role.__name__} asks for {address_of(message)}, which no deployed role handles; deployed are "
                    f"{', '.join(names)}; add a Deployment to the strategy's deployments()"
                )
        _check_sent(deployment.role)
        if deployment.role.concurrency is not None and deployment.role in _reachable(deployment.role, handled):
            raise InvalidDefinition(
                f"{deployment.role.__name__} bounds its concurrency to {deployment.role.concurrency}, but its own asks lead back to it: "
                "it could wait for itself for ever; set concurrency = None"
            )
    return handled


def _check_sent(role: type[Role]) -> None:
    """Refuse a role of a user whose code sends a message that it does not list: that would show only after paid calls."""
    if role.__module__.startswith(OWN_PACKAGE):
        return
    listed = {message for base in role.__mro__ for message in base.__dict__.get("may_ask", ())}.union(asked_by(role))
    for message, place in sent_by(role).items():
        if message not in listed:
            raise NoHandler(
                f"{place} sends {message.__name__}, which {role.__name__} does not list; add it to {role.__name__}.asks"
            )


def _reachable(role: type[Role], handled: Mapping[type[Message], Deployment]) -> list[type[Role]]:
    """Return the roles that the messages of a role can lead to, directly or through other roles."""
    found: dict[type[Role], None] = {}
    open_roles = [role]
    while open_roles:
        for message in asked_by(open_roles.pop(), handled):
            callee = handled[message].role if message in handled else None
            if callee is not None and callee not in found:
                found[callee] = None
                open_roles.append(callee)
    return list(found)


# -- strategies ----------------------------------------------------------------------------------------------------------------------


class Strategy(BaseModel):
    """Choice and the order of the elections that solve a task. Its fields are its options (``-s NAME=VALUE``)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    solves: ClassVar[tuple[type[Task], ...]] = ()
    """Kinds of task that it solves."""
    conductor: ClassVar[type[Role]]
    """The role that does the work on inputs; a subclass of `microagents.work.conductor.Conductor`."""
    roles: ClassVar[tuple[type[Role], ...]] = ()
    """Its own roles beside the conductor and the roles of an election."""
    draws_solution: ClassVar[bool] = False
    """Whether its conductor notes its work (`microagents.work.durable.Work.note`), so that ``show`` can draw it."""
    asks_at_once: ClassVar[bool] = False
    """Whether it asks for all steps of a chain side by side, whatever its options."""
    measures_masses: ClassVar[bool] = False
    """Whether each sample has its mass if the model can give it, though no mass decides."""
    changes_no_decision: ClassVar[tuple[str, ...]] = ()
    """Fields that no decision depends on: a run may be resumed with other values of them."""

    votes: Votes = "exact"
    """Which replies count as one vote: equal ones (`exact`), or also ones that mean the same (`semantic`, which asks the role \
`matcher` about each new reply)."""
    certain: Literal["off", "on", "branches"] = "off"
    """Whether the model's own probabilities may decide before the votes do (`on`): one call is then enough for a reply that it gives most \
often by its own numbers. `branches` also uses those of other tokens, for work in which every vote has one spelling."""

    @field_validator("*")
    @classmethod
    def _fits_messages(cls, value: object) -> object:
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError(f"a number in an option has at most 64 bits, unlike {value!r:.40}")
        return value

    @classmethod
    def takes(cls, name: str) -> bool:
        """Whether it has an option of this name."""
        return name in cls.model_fields

    def deployments(self) -> list[Deployment]:
        """Return the roles it needs beside its conductor; by default the roles of an election and ``roles``. A subclass may add others."""
        own = [Deployment(role=each) for each in self.roles]
        return [*_election_roles, *(_semantic_roles if self.votes == "semantic" else ()), *own]

    @property
    def passes_undecided(self) -> bool:
        """Whether its work continues to a result after an election ends undecided. Such a run ends as undecided, with a result."""
        return False

    @property
    def caution(self) -> str | None:
        """A warning about its options, in one sentence; None if they are fine."""
        return None

    @property
    def named_models(self) -> tuple[str, ...]:
        """Specs of models that its options name, beside the pools."""
        return ()

    def check_models(self, pool: Sequence[str]) -> None:
        """Refuse a pool of the solver that the strategy cannot work with. By default any pool is accepted.

        Raises:
            InvalidUsage: it cannot.
        """

    @property
    def draws_rollouts(self) -> bool:
        """Whether it asks for replies with several steps of a chain; by default False."""
        return False

    def trial_questions(self, task: Task) -> Sequence[tuple[Prompt, type[Reply]]]:
        """Questions that not every expert of such a task knows, by default the first. The simulated model tries them before a run."""
        # The expert of a chain knows its steps. `Strategy` itself, which stands for any in an endpoint, solves nothing.
        if isinstance(task, ChainTask) or not isinstance(task, self.solves):
            return ()
        first, reply = task.first_prompt(), task.reply_type()
        if first is None or reply is None:
            return ()
        return [(first, reply)]

    def expected_calls(self, task: Task) -> float | None:  # noqa: ARG002 - for strategies to override
        """Expected number of calls that the work on an input takes; None, the default, if it cannot be known beforehand."""
        return None

    def named_calls(self, task: Task) -> dict[str, float]:  # noqa: ARG002 - for strategies to override
        """Expected number of these calls that go to each model that its options name; the others go to the pools. By default none."""
        return {}

    def drawing(self) -> list[str]:
        """Names of the roles for which ``--model ROLE=SPEC`` can set a pool."""
        names = dict.fromkeys(role.draws_as for role in self._roles())
        return [name for name in names if name is not None] or ["solver"]

    def drawing_in_part(self) -> list[str]:
        """Names of parts of roles for which it can, too."""
        return [*dict.fromkeys(name for role in self._roles() for name in role.draws_in_part_as)]

    @property
    def spreads_inputs(self) -> bool:
        """Whether the work on an input spreads over all conductors, which send each other parts of it."""
        return any(message in self.conductor.handlers for message in asked_by(self.conductor))

    def _roles(self) -> list[type[Role]]:
        return [self.conductor, *(deployment.role for deployment in self.deployments())]

    # What others read of its options. A strategy that has no option of the name has the default.

    @property
    def deciding_votes(self) -> int | None:
        """Number of votes that decides an election: its option ``k``; None for a strategy without one."""
        k: object = self._option("k", default=None)
        if not isinstance(k, int):
            return None
        return k

    @property
    def draw_cap(self) -> int:
        """Cap of an election, in draws: its option ``max_draws``, else 100."""
        return self._option("max_draws", default=100)

    @property
    def extra_draws(self) -> int:
        """Number of surplus draws in flight at a step: the option ``hedge``, else none."""
        return self._option("hedge", default=0)

    @property
    def knows_inputs(self) -> bool:
        """Whether every step of a chain starts from the oracle's state: its option ``known_inputs``, else False."""
        return self._option("known_inputs", default=False)

    @property
    def rungs(self) -> Sequence[Any]:
        """Rungs to try at a step that the vote does not decide (`microagents.systems.chains.chain.Rung`); by default nothing."""
        return ()

    @cached_property
    def default_rule(self) -> Rule:
        """Rule of its elections: ahead by its ``k``, or by 3 if it has none."""
        return FirstToAheadBy(self._option("k", default=3))

    def rule_for(self, task: Task) -> Rule:  # noqa: ARG002 - for strategies to override
        """Return the rule of the votes on the steps of a chain; by default the rule of all elections."""
        return self.default_rule

    def rule_of(self, task: Task, number: int, steps: int | None) -> Rule:  # noqa: ARG002 - for strategies to override
        """Return the rule of the vote on one step, by its number and the number of steps; by default the rule of all steps."""
        return self.rule_for(task)

    def _option(self, name: str, *, default: V) -> V:
        found: V = getattr(self, name, default)
        return found


_election_roles: list[Deployment] = []
"""Set by `microagents.roles`: the programming model imports no role."""
_semantic_roles: list[Deployment] = []
"""The roles beside them when votes are counted by meaning."""


def deploy_by_default(*deployments: Deployment, semantic: Sequence[Deployment] = ()) -> None:
    """Set the roles of an election, and the further roles of semantic votes. The package of roles calls it once."""
    _election_roles[:] = deployments
    _semantic_roles[:] = semantic
