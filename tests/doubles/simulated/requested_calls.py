"""From a request to a call of a model: which sample it draws, and which reply it asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from typing import overload

import msgspec
from msgspec import structs

from microagents.actors.registry import STRATEGIES
from microagents.actors.role import Strategy
from microagents.base.errors import InvalidDefinition, InvalidUsage
from microagents.elections.election import ElectionId, SampleId
from microagents.models.model import Call
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import BARE_HEADS, HEADS, instructions
from microagents.replies.trajectories import trajectory_of
from microagents.replies.turns import EARLIER, Turn
from microagents.task import Task
from tests.doubles.simulated.sample_keys import Named, read_key
from tests.doubles.simulated.wires import CompletionRequest

_SCRATCH = "0/http"
"""Path of the samples that requests without a key draw."""


class OneTask(Sequence[Task]):
    """Same task for every input."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def __len__(self) -> int:
        return 1

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return [self._task]
        return self._task


class RequestedCalls:
    """Makes calls of requests.

    A request with an idempotency key of a run draws the sample that the key names, so that the simulated model replies as in the process of
    the run. Of all others, equal ones draw one sample after the other.
    """

    def __init__(self, task: Task | None) -> None:
        self._task = task
        self._drawn = Counter[bytes]()

    def of(self, asked: CompletionRequest, key: str | None) -> list[Call]:
        """Build the calls of a request, one for each choice.

        Raises:
            InvalidUsage: the reply that it asks for is unknown.
        """
        if not asked.choices:
            return []
        question, *earlier = asked.prompt.user.split(EARLIER)
        rounds = [(Turn(role="assistant", text=each), Turn(role="user", text="Answer again.")) for each in earlier]
        prompt, rejected = structs.replace(asked.prompt, user=question, turns=sum(rounds, ())), len(earlier)
        reply = self._reply(prompt)
        named = (read_key(key) if key else None) or self._next(asked, rejected)
        election, first = named.id.election, named.id.seq
        return [
            Call(
                id=SampleId(election=election, seq=first + choice),
                prompt=prompt,
                reply=reply,
                temperature=asked.temperature,
                max_output_tokens=asked.max_output_tokens,
                attempt=named.attempt,
                rejected=named.rejected,
            )
            for choice in range(asked.choices)
        ]

    def _next(self, asked: CompletionRequest, rejected: int) -> Named:
        digest = blake2b(
            msgspec.json.encode((asked.model, asked.prompt.system, asked.prompt.user)), digest_size=16
        ).digest()
        seq = self._drawn[digest]
        self._drawn[digest] += asked.choices
        return Named(SampleId(election=ElectionId(path=_SCRATCH, question_digest=digest), seq=seq), rejected, 0)

    def _reply(self, prompt: Prompt) -> type[Reply]:
        """Find the reply that a prompt asks for by its format instructions; `Reply` itself without a task."""
        if self._task is None:
            return Reply
        start = max(prompt.system.rfind(heads[self._task.format]) for heads in (HEADS, BARE_HEADS))
        found = None if start < 0 else self._replies.get(prompt.system[start:])
        if found is None:
            name = type(self._task).__name__
            raise InvalidUsage(
                f"the system prompt ends with no instructions for a reply that is known; a question of {name} has them"
            )
        return found

    @cached_property
    def _replies(self) -> Mapping[str, type[Reply]]:
        """Classes of replies by their instructions. Of several with the same, the task's own comes first."""
        for name in STRATEGIES.addresses:  # with a strategy the replies are defined that it and its roles ask for
            with suppress(InvalidUsage):  # an installed package's may be broken
                STRATEGIES.find(name, Strategy)
        assert self._task is not None
        own = type(self._task).reply_type()
        found: dict[str, type[Reply]] = {}
        # A trajectory's class is made on demand.
        for reply in [
            *([own, trajectory_of(own)] if own else []),
            *_subclasses(Reply),
        ]:
            try:
                for reasoning in (True, False):
                    found.setdefault(instructions(reply, self._task.format, reasoning), reply)
            except (
                InvalidDefinition,
                KeyError,
            ):  # a base class, or one that was refused when it was defined: nothing asks for it
                continue
        return found


def _subclasses(reply: type[Reply]) -> Iterator[type[Reply]]:
    for each in reply.__subclasses__():
        yield each
        yield from _subclasses(each)
