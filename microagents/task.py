"""What a user writes to bring their own work."""

from __future__ import annotations

import inspect
from functools import lru_cache
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct
from pydantic import BaseModel, ConfigDict

from microagents.chat import A, Format, Prompt, Reply, Sampling
from microagents.errors import InvalidDefinition
from microagents.mistakes import one_field_altered

S = TypeVar("S", bound=Struct)


class Task(BaseModel):
    """A piece of work; its fields are its options (``-o NAME=VALUE``)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sampling: ClassVar[Sampling] = Sampling()
    """How its questions are sampled, where nothing else is said."""
    format: ClassVar[Format] = "lines"
    """The form of its answers: ``lines`` (``name = <JSON>`` after free reasoning) or ``json`` (one object)."""
    default_strategy: ClassVar[str] = "maker"
    """The strategy that does it where none is named."""

    def __init_subclass__(cls, **options: Any) -> None:
        for name, annotation in inspect.get_annotations(cls).items():
            if any(callable(base.__dict__.get(name)) for base in cls.__mro__[1:]):
                raise InvalidDefinition(f"the field {cls.__qualname__}.{name} would hide the method {name}(); give it another name")
            if name in ("sampling", "format", "default_strategy") and "ClassVar" not in str(annotation):
                raise InvalidDefinition(
                    f"the field {cls.__qualname__}.{name} would hide a setting of the class; write {name}: ClassVar[...]"
                )
        super().__init_subclass__(**options)

    def flag(self, reply: Reply) -> str | None:  # noqa: ARG002 - for tasks to override
        """The task's own red flag, by name; None for a reply without one. It screens, it does not solve."""
        return None

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        """The right reply, worked out from the prompt's text alone. Only the simulated model asks."""
        raise NotImplementedError(f"{type(self).__name__} has no expert for {reply.__name__}: {prompt.user[:80]!r}")

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> Reply:  # noqa: ARG002 - for tasks to override
        """A plausible wrong reply, for the simulated model; by default one field is altered by its type."""
        return one_field_altered(right, rng)

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> float | None:  # noqa: ARG002 - for tasks to override
        """The simulated model's error rate for this question; None for that of the model's profile."""
        return None


class ChainTask(Task, Generic[S, A]):
    """Work done in steps, each fed by the one before. S is the state between steps, A what a model replies to one step."""

    def start(self) -> S:
        """The state before the first step."""
        raise NotImplementedError

    def done(self, state: S) -> bool:
        """Whether this state is the last."""
        raise NotImplementedError

    def prompt(self, state: S) -> Prompt:
        """The question that the next step answers; the format instructions are added to it."""
        raise NotImplementedError

    def advance(self, state: S, reply: A) -> S:
        """The state after a step. Pure; what code knows, the model need not echo."""
        raise NotImplementedError

    def result(self, state: S) -> object:
        """What the whole work gives, as JSON-like values or a struct; by default the last state."""
        return state

    def steps(self) -> int | None:
        """How many steps there will be, for the time left; None where nobody knows."""
        return None

    def oracle(self, state: S) -> A | None:  # noqa: ARG002 - for tasks to override
        """The right reply to a step where code can know it, for ``--known-inputs`` and evaluation; None otherwise."""
        return None

    def correct(self, state: S, reply: A) -> bool | None:
        """Whether a reply is right; by default, whether it casts the oracle's vote. None without an oracle."""
        right = self.oracle(state)
        return None if right is None else right.vote() == reply.vote()


@lru_cache(maxsize=256)
def chain_types(task: type[ChainTask[Any, Any]]) -> tuple[type[Struct], type[Reply]]:
    """The state and reply types that ``class Mine(ChainTask[State, Answer])`` names.

    Raises:
        InvalidDefinition: when it names none.
    """
    state, reply = types_named(task, ChainTask, "YourState, YourReply")
    return state, reply


def types_named(task: type[Task], base: type[Task], example: str) -> list[Any]:
    """The types that a task names in the brackets behind a generic base, also through classes between them.

    Raises:
        InvalidDefinition: when it names none; ``example`` says how.
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
    raise InvalidDefinition(f"{task.__qualname__} names no types; write class {task.__name__}({base.__name__}[{example}])")
