"""The programming model: roles, their handlers, and how they are deployed. Knows no runtime.

A role is a class; a message's class is its address. A handler is a method whose one argument is annotated with a message: an ``async
def`` for a `Request`, an async generator for a `Stream`.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypedDict, TypeVar, Unpack, cast, get_type_hints

import msgspec
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from microagents.account import RecordAnswer, RecordDecision, RecordProgress
from microagents.chat import A, Prompt, Reply, Sampling, decoder_of, fingerprint, system_with_instructions
from microagents.elections import Ballot, Decision, Elect, ElectionId, Follow, Question, Verdict
from microagents.errors import InvalidDefinition, InvalidUsage, NoHandler, TaskFailed
from microagents.messages import Message, R, Request, Stream, address_of, reply_type, resolve
from microagents.task import Task
from microagents.voting import FirstToAheadBy, Rule

T = TypeVar("T", bound=Task)
G = TypeVar("G", bound="Strategy")


PROGRESS_EVERY_S = 0.1
"""How often a conductor tells how far it is; the last word is always told."""


class Context(Struct, frozen=True, kw_only=True):
    """All that a role is built from, in whatever process it lives."""

    run_id: str
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


class Post(Protocol):
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

    def __init__(self, context: Context, post: Post) -> None:
        self.context = context
        self._post = post

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
        return self._post.ask(request, timeout_s)

    def stream(self, request: Stream[R], *, timeout_s: float | None = None) -> AsyncGenerator[R]:
        """Send a request and iterate its items; ``timeout_s`` bounds the wait for each. Close it (``aclosing``) to cancel the callee."""
        return self._post.stream(request, timeout_s)

    def tell(self, request: Request[None]) -> None:
        """Send a request whose reply nobody awaits; one sender's messages to one replica keep their order."""
        self._post.tell(request)


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


# -- strategies and their conductors -------------------------------------------------------------------------------------------------


class Strategy(BaseModel):
    """Which elections are held, in which order, over which candidates; its fields are its options (``-s NAME=VALUE``)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    solves: ClassVar[tuple[type[Task], ...]] = ()
    """The kinds of task it can do."""
    conductor: ClassVar[type[Conductor[Any, Any]]]
    known_inputs: ClassVar[bool] = False
    """Whether its conductor can feed every step the oracle's state (``--known-inputs``)."""

    def deployments(self) -> list[Deployment]:
        """The roles it needs beside its conductor; by default those of an election. A subclass adds its own.

        Filled in by `microagents.strategies`, since the programming model knows no role.
        """
        return list(_election_roles)

    @cached_property
    def default_rule(self) -> Rule:
        """Ahead-by the strategy's k, else 3."""
        return FirstToAheadBy(getattr(self, "k", 3))


_election_roles: list[Deployment] = []


def deploy_by_default(*deployments: Deployment) -> None:
    """Name the roles of an election; called once, by the package of roles."""
    _election_roles[:] = deployments


class How(TypedDict, total=False):
    """How an election is held; what is not said is the run's."""

    model: str | None
    """One model's spec; else the run's pool."""
    rule: Rule | None
    """When it is decided; else ahead-by the strategy's k."""
    sampling: Sampling | None
    """Temperatures and lengths; else the task's."""
    max_draws: int
    """Its cap, 100: after so many samples it ends undecided."""


class Conducted(Struct, frozen=True, kw_only=True):
    """What the work on one input gave, as JSON."""

    value: bytes


class Conduct(Request[Conducted], frozen=True, kw_only=True):
    """Do the whole work on one input."""

    input: int


class Conductor(Role, Generic[T, G]):
    """Does the work on one input. Deterministic apart from its durable calls (`once`, `elect`, `election`): it may be replayed."""

    asks: ClassVar[tuple[type[Message], ...]] = (Elect, Follow, RecordAnswer, RecordDecision, RecordProgress)
    in_order: ClassVar[bool] = False
    """Whether decisions are taken in one order, so that their digest is a chain; otherwise it is a tree over their paths."""
    task: T
    strategy: G
    input: int
    _progress: tuple[int, int | None] = (0, None)
    _progress_told_s = 0.0

    async def conduct(self) -> object:
        """Do the work; returns what it gives, as JSON-like values or a struct."""
        raise NotImplementedError

    async def conduct_input(self, request: Conduct) -> Conducted:
        """Do the work on one input with an object of its own."""
        one = copy.copy(self)
        one.input = request.input
        one.task = cast("T", self.context.tasks[request.input])
        one.strategy = cast("G", self.context.strategy)
        try:
            return Conducted(value=msgspec.json.encode(await one.conduct()))
        finally:
            one._tell_progress()  # noqa: SLF001 - its own

    def progress(self, done: int, total: int | None = None) -> None:
        """Say how far the work is."""
        self._progress = done, total
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._progress_told_s + PROGRESS_EVERY_S:
            self._progress_told_s = now_s
            self._tell_progress()

    def _tell_progress(self) -> None:
        done, total = self._progress
        self.tell(RecordProgress(input=self.input, done=done, total=total))

    async def once(self, at: str, request: Request[R]) -> R:
        """Ask once at this place of the work. ``at`` is a path unique within an input."""
        path = self._path(at)
        answer = await self.ask(request)
        self.tell(RecordAnswer(path=path, value=msgspec.json.encode(answer)))
        return answer

    async def elect(
        self,
        at: str,
        prompt: Prompt | Sequence[Prompt],
        reply: type[A],
        *,
        correct: Callable[[A], bool | None] | None = None,
        **how: Unpack[How],
    ) -> Decision[A]:
        """Put a question to models until a rule decides. ``at`` is a path unique within an input; `How` names the other options.

        Several prompts are cycled by seq (shuffled, paraphrased). ``correct`` judges a decision for the account of errors, where code can.
        """
        question = self.question(prompt, reply, **how)
        election = self.election_id(at, question)
        return self.commit(election, reply, await self.hold(election, question), correct)

    async def election(
        self,
        at: str,
        prompt: Prompt | Sequence[Prompt],
        reply: type[A],
        *,
        correct: Callable[[A], bool | None] | None = None,
        **how: Unpack[How],
    ) -> AsyncIterator[A | Decision[A]]:
        """The same as `elect`, item by item: valid replies as they arrive (to guess with, never to decide), then the `Decision`."""
        question = self.question(prompt, reply, **how)
        election = self.election_id(at, question)
        async with aclosing(self.stream(Follow(id=election, question=question))) as items:
            async for item in items:
                if isinstance(item, Ballot):
                    yield decoder_of(reply).decode(item.value)
                else:
                    yield self.commit(election, reply, item, correct)

    # What the durable calls are made of; a strategy that guesses ahead puts them together in its own way.

    def question(self, prompt: Prompt | Sequence[Prompt], reply: type[A], *, state: Struct | None = None, **how: Unpack[How]) -> Question:
        """Put together what an election asks, with the format instructions in its prompts."""
        prompts = [prompt] if isinstance(prompt, Prompt) else prompt
        max_draws = how.get("max_draws", 100)
        if not prompts or max_draws < 1:
            raise InvalidUsage(f"an election needs a prompt and at least one draw, not {len(prompts)} prompts and max_draws={max_draws}")
        for each in prompts:
            if not isinstance(each, Prompt):
                raise TaskFailed("prompt()", f"must give a Prompt, not {each!r:.100}")
        address = address_of(reply)
        if resolve(address, Reply) is not reply:
            raise InvalidDefinition(f"there are two classes {address}; an election names its reply by it: give one another name")
        form = self.task.format
        model = how.get("model")
        return Question(
            prompts=tuple([Prompt(system=system_with_instructions(each.system, reply, form), user=each.user) for each in prompts]),
            reply=address,
            form=fingerprint(reply),
            rule=how.get("rule") or self.strategy.default_rule,
            sampling=how.get("sampling") or self.task.sampling,
            models=self.context.pool("solver") if model is None else (model,),
            max_draws=max_draws,
            state=b"" if state is None else _encode_state(state),
        )

    def election_id(self, at: str, question: Question) -> ElectionId:
        """The name of a question's election at this place of the work."""
        return question.id_at(self._path(at))

    def hold(self, election: ElectionId, question: Question) -> Coroutine[Any, Any, Verdict]:
        """Hold an election to its end without going on from its verdict."""
        return self.ask(Elect(id=election, question=question))

    def commit(
        self, election: ElectionId, reply: type[A], verdict: Verdict, correct: Callable[[A], bool | None] | None = None
    ) -> Decision[A]:
        """Go on from a verdict: it enters the record, the digests and the account of errors."""
        decision = _decision(election.path, verdict, reply)
        right = correct(decision.value) if correct is not None and decision.decided and decision.value is not None else None
        self.tell(RecordDecision(id=election, verdict=verdict, correct=right))
        return decision

    def _path(self, at: str) -> str:
        if not at or not at.isprintable():
            raise InvalidUsage(f"{at!r} is no path: name the place in the work, such as 'line/17'")
        return f"{self.input}/{at}"


_encode_state = msgspec.json.Encoder(order="deterministic").encode


def _decision(path: str, verdict: Verdict, reply: type[A]) -> Decision[A]:
    decode = decoder_of(reply).decode
    tally = tuple((decode(value), votes) for value, votes in verdict.tally)
    value = None if verdict.leader is None or verdict.outcome == "undecided" else tally[verdict.leader][0]
    flagged = len(verdict.ballots) - sum(votes for _, votes in tally)
    return Decision(path=path, value=value, outcome=verdict.outcome, tally=tally, flagged=flagged)
