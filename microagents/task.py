"""Tasks: the base classes of a user's work."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Hashable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property, lru_cache
from random import Random
from types import GenericAlias, NoneType
from typing import Any, ClassVar, Generic, Self, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec
from msgspec import Struct
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeVar

from microagents.base.errors import InvalidDefinition, TaskFailed
from microagents.base.plain_values import read_as, read_by_pydantic, write_value
from microagents.base.user_code import called, called_aside, mistyped
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.data_prompts import prompt_of
from microagents.replies.mistakes import one_field_altered
from microagents.replies.model_replies import as_reply, reply_of
from microagents.replies.reply import NO_PROSE, ProseByTool, Reply, vote_of
from microagents.replies.reply_fields import voted_fields
from microagents.replies.reply_forms import Format, Reading
from microagents.replies.rollouts import Rollout, default_rollout_prompt
from microagents.replies.trajectories import Trajectory
from microagents.tools.toolbox import GivenTool, Toolbox

S = TypeVar("S", default=Any)
A = TypeVar("A", bound=Reply | BaseModel, default=Any)
"""The reply of a model: a reply class, or a model of pydantic."""
V = TypeVar("V", default=Any)
"""The result of a task: `Result.value`."""
R = TypeVar("R", default=S)
"""The result of a chain, which by default is its last state."""

MAX_FLAG_CHARS = 60
_STEP_OR_RUNG = (1, 2)
"""Parts of a path behind ``step``: its number, and perhaps a rung."""
MAX_FEEDBACK_CHARS = 4000
"""A longer feedback of `ChainTask.verify` is cut: it goes into a prompt and into the journal."""


class Task(BaseModel, Generic[V]):
    """A piece of work; its fields are its options (``-o NAME=VALUE``).

    Shipped strategies solve two kinds of task: `ChainTask` and `microagents.systems.questions.problem.Problem`. To add a kind, subclass
    this class and write a strategy that names it in ``solves``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sampling: ClassVar[Sampling] = Sampling()
    """Default sampling of its questions."""
    format: ClassVar[Format] = "lines"
    """Form of its replies: ``lines`` (``name = <JSON>`` after free reasoning) or ``json`` (one object)."""
    reasoning: ClassVar[bool] = True
    """Whether a reply may reason before its answer. A small model is often faster and as good without."""
    reading: ClassVar[Reading] = "strict"
    """Reading of replies: ``strict`` refuses all that is not in the form asked for. ``last`` takes the last ``name = <JSON>`` of each
    field, or the last JSON object, whatever stands around it, as the flagging parser of MAKER does."""
    default_strategy: ClassVar[str] = "maker"
    """Name of the strategy that solves it by default."""
    expert_page: ClassVar[str] = "docs/task-methods.md"
    """The page that shows what its `expert` needs, for messages."""
    required_methods: ClassVar[tuple[str, ...]] = ()
    """Names of the methods that every task of this kind must override."""
    has_one_question: ClassVar[bool] = False
    """Whether the work on it holds one election at a time, so that it can be parked while a batch takes hours."""
    progress_unit: ClassVar[str] = "step"
    """Name of a unit of progress, for displays. With an s behind it, it is the plural."""
    tools: ClassVar[Sequence[GivenTool]] = ()
    """What a model may call: functions (`tool`), and MCP servers (`McpServer`, or ``mcp:COMMAND`` or ``mcp:https://...``). An agent acts
    through them. In any other task they only read: before each reply a model may look things up."""
    tool_rounds: ClassVar[int] = 4
    """Number of times that a model may look things up before one reply."""
    oracle_judges_result: ClassVar[bool] = False
    """Whether a result without a ``correct`` or ``solved`` field is right if the oracle finds every decision right. For comparisons."""

    def __init_subclass__(cls, **options: Any) -> None:
        for name, annotation in inspect.get_annotations(cls).items():
            if any(callable(base.__dict__.get(name)) for base in cls.__mro__[1:]):
                raise InvalidDefinition(
                    f"rename the field {cls.__qualname__}.{name}: it would hide the method {name}()"
                )
            if name in Task.__annotations__ and "ClassVar" not in str(annotation):
                raise InvalidDefinition(
                    f"write {name}: ClassVar[...] in {cls.__qualname__}: as a field it would hide a setting of the class"
                )
        if cls.reading not in get_args(Reading) or (cls.reading == "last" and cls.format != "lines"):
            raise InvalidDefinition(
                f"reading of {cls.__qualname__} must be 'strict', or 'last' for 'lines', not {cls.reading!r} for {cls.format!r}"
            )
        for name, defined in vars(cls).items():
            _check_override(cls, name, defined)
        super().__init_subclass__(**options)

    @classmethod
    def reply_type(cls) -> type[Reply] | None:
        """Return the class of replies to its questions, for the identity of a run; None if there are several.

        Raises:
            InvalidDefinition: the class names no types.
        """
        return None

    @classmethod
    def read_result(cls, found: Any) -> V:
        """Read a result of its tasks from JSON-like values, by the type that the class names. For kinds of tasks."""
        (named,) = types_named(cls, Task, "YourResult")
        result: V = read_as(named, found)
        return result

    @classmethod
    def reply_at(cls, place: str) -> type[Reply] | None:  # noqa: ARG003 - for kinds of tasks to override
        """Return the class of the decided reply at a place in the work on an input, such as ``step/17``; None if it is unknown."""
        return None

    def first_prompt(self) -> Prompt | None:
        """Ask the first question of the work, for the identity of a run; None if it is unknown before."""
        return None

    def shown_background(self) -> str:
        """Return the text that every question about the task shows in front of its data; empty by default."""
        return ""

    def given_tools(self) -> Sequence[GivenTool]:
        """Name its tools; by default the class's."""
        return self.tools

    @cached_property
    def toolbox(self) -> Toolbox:
        """Tools with which a model may look things up.

        Raises:
            InvalidDefinition: a tool does more than read, two have one name, or the tools of a server were not read yet.
        """
        toolbox = Toolbox(self.given_tools(), getattr(self, "mcp_tools", {}), {})
        for spec in toolbox.specs.values():
            if spec.effect != "read_only":
                raise InvalidDefinition(
                    f"the tool {spec.name} of {type(self).__name__} is {spec.effect}; only an agent may call it, since a sample may be "
                    "drawn in vain: state @tool('read_only') if it changes nothing, or write an AgentTask"
                )
        return toolbox

    @property
    def looks_up(self) -> bool:
        """Whether a model may look things up before each reply."""
        return bool(self.given_tools())

    def handed(self, calls: bytes, /) -> Task:  # noqa: ARG002 - for kinds of tasks to override
        """Return the task that hand-offs lead to, by their calls as JSON; itself without one. For kinds of tasks."""
        return self

    def all_tools(self) -> Sequence[GivenTool]:
        """Name its tools, and the tools of agents to which it hands work off. For kinds of tasks."""
        return self.given_tools()

    def variant(self, number: int, /) -> Self:  # noqa: ARG002 - for tasks to override
        """Return another task of the same kind and size, to compare on. Number 0, and the default, is the task itself."""
        return self

    @classmethod
    def missing_methods(cls) -> list[str]:
        """List the required methods that it does not override."""
        kinds = [base for base in cls.__mro__ if "required_methods" in base.__dict__]
        return [
            name
            for name in cls.required_methods
            if any(getattr(cls, name) is base.__dict__.get(name) for base in kinds)
        ]

    def flag(self, *args: Any, **named: Any) -> str | None:  # noqa: ARG002 - for tasks to override
        """Name the task's red flag for a reply, ``flag(reply)``; None for none.

        It screens replies, it does not solve the task.

        In a `ChainTask` it is ``flag(state, reply)``.
        """
        return None

    def unfit(self, reply: Reply, /) -> str | None:  # noqa: ARG002 - for kinds of tasks to override
        """Name the red flag of a reply that cannot be taken, before the task's own; None for none. For kinds of tasks."""
        return None

    def prose_in(self, reply: type[Reply], /) -> ProseByTool:  # noqa: ARG002 - as above
        """Name by tool the arguments that are left out of votes on replies of a class; by default none. For kinds of tasks."""
        return NO_PROSE

    def fields_of_vote(self, reply: type[Reply], /) -> tuple[tuple[str, ...], ...]:  # noqa: ARG002 - as above
        """Name the fields of a reply class that vote each by themselves, in groups that vote together; none if replies vote as a whole.

        For kinds of tasks.
        """
        return ()

    def as_declared(self, reply: Reply, /) -> Reply:
        """Return a reply with the arguments of its calls as its tools declare them: equal ones alike. For kinds of tasks."""
        return reply

    def read_words(self, text: str, reply: type[Reply], /) -> Reply | str | None:  # noqa: ARG002 - as above
        """Read a text that has no reply in its form: as a reply, or as the name of a red flag; None for malformed. For kinds of tasks."""
        return None

    def vote_of(self, reply: Reply, /) -> Hashable:
        """Return the vote of a reply, without the prose in its calls. For kinds of tasks."""
        return vote_of(self.as_declared(reply), self.prose_in(type(reply)))

    def expert(self, prompt: Prompt, reply: type[Reply], /) -> Reply | BaseModel:
        """Work out the right reply from nothing but the prompt's text. Only the simulated model calls it."""
        raise InvalidDefinition(f"{type(self).__name__} has no expert for {reply.__name__}: {prompt.user[:80]!r}")

    def mistake(self, prompt: Prompt, right: Reply, rng: Random, /) -> Reply:  # noqa: ARG002 - for tasks to override
        """Make a plausible wrong reply, for the simulated model; by default the right one with one field altered."""
        return one_field_altered(as_reply(right), rng)

    def difficulty(self, prompt: Prompt, reply: type[Reply], /) -> float | None:  # noqa: ARG002 - for tasks to override
        """Return the error rate of the simulated model at this question; None for the rate of the model's profile."""
        return None


EITHER_FORM = ("flag", "verify")
"""Methods of two forms: with and without a state, plain and ``async``."""


def _check_override(task: type[Task], name: str, defined: object) -> None:
    """Refuse a function that cannot be called in the place of a method of a task."""
    bases = (base for base in task.__mro__[1:] if base.__module__.startswith("microagents.") and issubclass(base, Task))
    method = next((base.__dict__[name] for base in bases if name in base.__dict__), None)
    if name.startswith("_") or not inspect.isfunction(method) or isinstance(defined, staticmethod | classmethod):
        return
    parameters = [*inspect.signature(method).parameters]
    wanted = f"write `def {name}({', '.join(parameters)})`"
    if not inspect.isfunction(defined):
        raise InvalidDefinition(
            f"{task.__qualname__}.{name} must be a method, not a {type(defined).__name__}; {wanted}"
        )
    if name in EITHER_FORM:
        return
    if inspect.iscoroutinefunction(defined) or inspect.isasyncgenfunction(defined):
        raise InvalidDefinition(
            f"{task.__qualname__}.{name} is an `async def`, but a task's methods wait for nothing; {wanted}"
        )
    try:
        inspect.signature(defined).bind(*parameters)
    except TypeError:
        raise InvalidDefinition(
            f"{task.__qualname__}.{name} cannot be called with ({', '.join(parameters[1:])}); {wanted}"
        ) from None


def near_misses(kind: type[Task]) -> Iterator[tuple[str, str]]:
    """Find the methods of a user's task that look like misspelt optional ones.

    Each is what is written, and what is there to override.

    A method with other parameters, or whose name only adds an ending (``flags``, ``steps_left``), is one of the user's own.
    """
    own = [base for base in kind.__mro__ if not base.__module__.startswith(("microagents.", "pydantic", "builtins"))]
    theirs = [base for base in kind.__mro__ if base.__module__.startswith("microagents.") and issubclass(base, Task)]
    written, there = _public_methods(own), _public_methods(theirs)
    optional = [name for name in there if name not in written and name not in kind.required_methods]
    for name in [each for each in written if each not in there]:
        for near in get_close_matches(name, optional, n=1, cutoff=0.82):
            is_longer = name.startswith(near) or near.startswith(name)
            if not is_longer and _parameters(written[name]) == _parameters(there[near]):
                yield name, near


def _public_methods(bases: Iterable[type]) -> dict[str, Any]:
    found = {name: method for base in bases for name, method in vars(base).items() if name[0] != "_"}
    return {name: method for name, method in found.items() if inspect.isfunction(method)}


def _parameters(method: Any) -> int:
    return len(inspect.signature(method).parameters)


def prompt_about(task: Task, system: str, asked: Struct) -> Prompt:
    """Return the prompt of a question about a task or a part of it, with the task's background.

    Raises:
        TaskFailed: ``background()`` raised, or did not return a text that UTF-8 can encode.
    """
    return prompt_of(system, asked, task.shown_background())


class ChainTask(Task[R], Generic[S, A, R]):
    """Work in steps. S is the state between steps, A the reply of a model to one step.

    R, which may be left out if the result is the last state, is what `result` returns: ``ChainTask[State, Answer, Total]``.
    """

    required_methods: ClassVar[tuple[str, ...]] = ("start", "done", "prompt", "advance")
    oracle_judges_result = True

    @classmethod
    def reply_type(cls) -> type[Reply]:
        """Return the class of replies to its steps.

        Raises:
            InvalidDefinition: the class names no types.
        """
        return chain_types(cls)[1]

    @classmethod
    def read_result(cls, found: Any) -> R:
        """Read a result by the type that ``result()`` says it returns; without one it stays JSON-like values."""
        returned = get_type_hints(cls.result).get("return", Any)
        if isinstance(returned, TypeVar):
            _, _, returned = types_named(cls, ChainTask, "YourState, YourReply")
        result: R = read_as(returned, found)
        return result

    @classmethod
    def reply_at(cls, place: str) -> type[Reply] | None:
        """Return the class of replies to its steps, for a step and the rungs that may decide it."""
        kind, *below = place[place.rfind("/step/") + 1 :].split(
            "/"
        )  # a step of this agent, or of one that it hands off to
        if kind == "step" and len(below) in _STEP_OR_RUNG:
            return cls.reply_type()
        return None

    def first_prompt(self) -> Prompt | None:
        """Ask the question of the first step; None for a chain that is done at its start and has none."""
        started = called(self.start, gives=state_class(type(self)))
        asked: Prompt | None = None
        try:
            asked = called(self.prompt, started, gives=Prompt, at=0)
        except TaskFailed:
            if not called(self.done, started, gives=bool, at=0):
                raise
        return asked

    def start(self) -> S:
        """Return the initial state."""
        raise NotImplementedError

    def done(self, state: S, /) -> bool:
        """Return whether this state is the last."""
        raise NotImplementedError

    def prompt(self, state: S, /) -> Prompt:
        """Ask the question of the next step. The format instructions are added to it."""
        raise NotImplementedError

    def advance(self, state: S, reply: A, /) -> S:
        """Return the state after a step.

        A pure function. A reply need not repeat anything that code can compute from the state.
        """
        raise NotImplementedError

    def result(self, state: S, /) -> R:
        """Return the result of the work; by default the last state."""
        return cast("R", state)

    def steps(self) -> int | None:
        """Count the steps, for the display of the remaining time; None if their number is unknown."""
        return None

    def flag(self, state: S, reply: A, /) -> str | None:  # noqa: ARG002 - for tasks to override
        """Name the task's red flag for a reply to a step; None for none. A pure function.

        A flagged reply is discarded: it uses its seq and casts no vote. The name is counted in the account.
        """
        return None

    def verify(self, state: S, reply: A, /) -> Awaitable[str | None] | str | None:  # noqa: ARG002 - for tasks to override
        """Name the fault of a valid reply to a step, for the model to mend; None without one.

        A plain method or an ``async`` one.

        A reply that fails is asked again with this feedback, in the place of its seq, a bounded number of times; then it is flagged as
        ``unverified``. The method may be slow: the next steps open on a reply that is still being verified. A plain method is called in a
        thread. The method must depend only on its arguments: equal replies to one question are verified once.
        """
        return None

    def rollout_prompt(self, state: S, horizon: int, /) -> Prompt:
        """Ask for the next ``horizon`` steps in one reply, for lookahead. The format instructions are added to it.

        By default the question of one step, with the request to go on after it.
        """
        asked: Prompt = called(self.prompt, state, gives=Prompt)
        return default_rollout_prompt(asked, horizon)

    def state_in(self, prompt: Prompt) -> S:
        """Read the state that the question of a step or rollout shows, from its text. For the simulated model only."""
        raise NotImplementedError

    def oracle(self, state: S, /) -> A | None:  # noqa: ARG002 - for tasks to override
        """Work out the right reply to a step, for ``known_inputs`` and evaluation; None if code cannot know it."""
        return None

    def right_fields(self, state: S, /) -> dict[str, Any]:
        """Return the right values of the voted fields of a reply to a step, as far as code knows them. For kinds of tasks."""
        kind = self.reply_type()
        right: A | None = called(self.oracle, state, gives=(kind, NoneType))
        if right is None:
            return {}
        return {name: getattr(right, name) for name in voted_fields(kind)}

    def correct(self, state: S, reply: A, /) -> bool | None:
        """Return whether a reply is right; by default, whether it casts the same vote as the oracle's reply.

        None without an oracle.
        """
        right: Reply | None = called(self.oracle, state, gives=(self.reply_type(), NoneType))
        if right is None:
            return None
        return self.vote_of(right) == self.vote_of(as_reply(reply))


@lru_cache(maxsize=256)
def chain_types(task: type[ChainTask]) -> tuple[type[Struct], type[Reply]]:
    """Read the state and reply types that ``class Mine(ChainTask[State, Answer])`` names.

    Raises:
        InvalidDefinition: it names none.
    """
    state, reply, _ = types_named(task, ChainTask, "YourState, YourReply")
    return state, reply_named(task, reply)


def state_class(task: type[ChainTask]) -> type:
    """Return the class of which the states of a task are instances: ``list`` for ``list[int]``; ``object`` for a union, or ``Any``.

    So it is for a typed dict, which has no instances, and for ``float``, of which whole numbers are values.
    """
    named: Any = chain_types(task)[0]
    if isinstance(named, GenericAlias):
        named = named.__origin__
    if isinstance(named, type) and named not in {Any, float} and not is_typeddict(named):
        return named
    return object


def reply_named(task: type[Task], reply: Any) -> type[Reply]:
    """Read the reply type that a task names, checked."""
    if isinstance(reply, type) and issubclass(reply, Reply):
        return reply
    if isinstance(reply, type) and issubclass(reply, BaseModel):
        return reply_of(reply)
    name, wanted = getattr(reply, "__name__", repr(reply)), "Answer(Reply, frozen=True)"
    if isinstance(get_origin(reply), type) and issubclass(get_origin(reply), Reply):
        name, wanted = str(reply), f"Answer({name}[...], frozen=True)"
    raise InvalidDefinition(
        f"{task.__qualname__} names {name} as its reply, which is not a class of replies; write class {wanted}, and name that"
    )


def flag_of(task: Task, reply: Reply, state: bytes, *, at: str = "") -> str | None:
    """Ask the task for its red flag for a reply; None for none.

    Args:
        task: the task.
        reply: the reply. A trajectory is judged by its answer.
        state: the state that a step was asked in, as JSON; empty for any other question.
        at: path of the election, for the message of an error.

    Raises:
        TaskFailed: ``flag()`` raised, or gave something else than None or a short name.
    """
    kind = type(task)
    if kind.unfit is not Task.unfit and (unfit := called(task.unfit, reply, gives=(str, NoneType), at=at)) is not None:
        return str(unfit)
    if kind.flag is Task.flag or kind.flag is ChainTask.flag:  # none of its own: this runs for every sample
        return None
    by_state = flags_by_state(kind)
    if by_state and not state:
        return None
    if isinstance(reply, Rollout):
        if not state:
            return None
        return _flag_of_steps(task, reply, state, at=at)
    judged = reply.answer if isinstance(reply, Trajectory) else reply
    if by_state:
        own: object = called(task.flag, _state_decoder(kind).decode(state), judged, at=at)
    else:
        own = called(task.flag, judged, at=at)
    # A flag is a key of the account and is shown on terminals, so it must be short and printable.
    if own is None or (isinstance(own, str) and own.isprintable() and 0 < len(own) <= MAX_FLAG_CHARS):
        return own
    raise mistyped(task.flag, own, "None or a short name", at)


def _flag_of_steps(task: Task, reply: Rollout, state: bytes, *, at: str) -> str | None:
    """Ask for the red flag of each of several steps, in the state that the steps before it lead to."""
    assert isinstance(task, ChainTask)
    reached: Any = _state_decoder(type(task)).decode(state)
    for step in reply.steps:
        if called(task.done, reached, gives=bool, at=at):  # steps behind the end are taken by nobody
            return None
        if (flag := flag_of(task, step, msgspec.json.encode(reached, enc_hook=write_value), at=at)) is not None:
            return flag
        reached = called(task.advance, reached, step, at=at)
    return None


@lru_cache(maxsize=256)  # pydantic's check of subclasses takes 1 us
def flags_by_state(kind: type[Task]) -> bool:
    """Return whether `flag_of` needs the state of a step."""
    return issubclass(kind, ChainTask) and kind.flag is not ChainTask.flag and _takes_state(kind)


@lru_cache(maxsize=256)
def verifies(kind: type[Task]) -> bool:
    """Return whether tasks of a class verify the replies to their steps."""
    return issubclass(kind, ChainTask) and kind.verify is not ChainTask.verify


async def feedback_on(task: Task, reply: Reply, state: bytes) -> str | None:
    """Ask the task for its feedback on a reply to a step; None if it is verified.

    Args:
        task: a task that verifies.
        reply: the reply.
        state: the state that the step was asked in, as JSON.
    """
    assert isinstance(task, ChainTask)
    judged = _state_decoder(type(task)).decode(state)
    feedback = await called_aside(task.verify, judged, reply)
    if feedback is None:
        return None
    if not (isinstance(feedback, str) and feedback.strip()):
        raise mistyped(task.verify, feedback, "None or a text that says what is wrong")
    return feedback[:MAX_FEEDBACK_CHARS]


def _takes_state(kind: type[ChainTask]) -> bool:
    """Return whether its ``flag`` takes the state beside the reply."""
    return _parameters(kind.flag) > len(("self", "reply"))


@lru_cache(maxsize=256)
def _state_decoder(kind: type[ChainTask]) -> msgspec.json.Decoder[Struct]:
    return msgspec.json.Decoder(chain_types(kind)[0], dec_hook=read_by_pydantic)


def types_named(task: type[Task], base: type[Task], example: str) -> list[Any]:
    """Read the type arguments that a task gives a generic base class, also through classes between the two.

    Raises:
        InvalidDefinition: it gives none. The message shows ``example``.
    """
    bound: dict[object, Any] = {}
    for each in task.__mro__:
        generic = getattr(each, "__pydantic_generic_metadata__", {"origin": None, "args": (), "parameters": ()})
        origin: Any = generic["origin"] or each
        given = [bound.get(one, one) for one in generic["args"] or generic["parameters"]]
        if origin is base and not any(isinstance(one, TypeVar) for one in given):
            return given
        if origin is not each:
            bound.update(zip(origin.__pydantic_generic_metadata__["parameters"], given, strict=True))
    raise InvalidDefinition(
        f"write class {task.__name__}({base.__name__}[{example}]): {task.__qualname__} names no types"
    )
