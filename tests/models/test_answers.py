"""Reply classes that bring their own expert, for questions that a strategy asks beside those of the task."""

from __future__ import annotations

from typing import Any, Self

import pytest

from microagents.base.errors import TaskFailed
from microagents.replies.chat import Prompt
from microagents.replies.parsing import parse
from microagents.replies.reply import Reply
from microagents.task import Task
from microagents.tasks.drift import Onward
from tests.models.simulation import DRIFT, call, model, replies


class Paraphrase(Reply, frozen=True):
    """The question in other words."""

    text: str

    @classmethod
    def expert(cls, task: Task, prompt: Prompt) -> Self:
        return cls(text=f"{type(task).__name__}: {prompt.user[::-1]}")


def asked(reply: type[Reply], *, error: int = 0, task: Task = DRIFT) -> Any:
    """The reply of this class to a question."""
    (sample,) = replies(model(f"sim:perfect@error={error}", task), [call(prompt=Prompt(user="Number: 5"), reply=reply)])
    return parse(sample.text, reply)


def test_an_expert_that_gives_something_else_or_raises_is_refused_by_name() -> None:
    class Odd(Paraphrase, frozen=True):
        @classmethod
        def expert(cls, task: Task, prompt: Prompt) -> Any:  # noqa: ARG003
            return Onward(number=1)

    class Lost(Paraphrase, frozen=True):
        @classmethod
        def expert(cls, task: Task, prompt: Prompt) -> Self:  # noqa: ARG003
            raise KeyError(prompt.user)

    with pytest.raises(TaskFailed, match=r"Odd\.expert must give an Odd, not Onward\(number=1\)"):
        asked(Odd)
    with pytest.raises(TaskFailed, match=r"Lost\.expert raised KeyError\('Number: 5'\).*test_answers\.py"):
        asked(Lost)
