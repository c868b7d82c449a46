"""Reply classes that bring their own expert, for questions that a strategy asks beside those of the task."""

from __future__ import annotations

from random import Random
from typing import Any, NoReturn, Self

import pytest

from microagents.base.errors import TaskFailed
from microagents.replies.chat import Prompt, Reply
from microagents.replies.parsing import parse
from microagents.task import Task
from microagents.tasks.drift import Drift, Onward
from tests.models.simulation import DRIFT, call, model, replies


class Paraphrase(Reply, frozen=True):
    """The question in other words."""

    text: str

    @classmethod
    def expert(cls, task: Task, prompt: Prompt) -> Self:
        return cls(text=f"{type(task).__name__}: {prompt.user[::-1]}")


class Silent(Drift):
    """A walk that knows nothing of such questions."""

    def expert(self, prompt: Prompt, reply: type[Reply]) -> NoReturn:
        raise AssertionError(prompt, reply)

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> NoReturn:
        raise AssertionError(prompt, right, rng)

    def difficulty(self, prompt: Prompt, reply: type[Reply]) -> NoReturn:
        raise AssertionError(prompt, reply)


def asked(reply: type[Reply], *, error: int = 0, task: Task = DRIFT) -> Any:
    """The reply of this class to a question."""
    (sample,) = replies(model(f"sim:perfect@error={error}", task), [call(prompt=Prompt(user="Number: 5"), reply=reply)])
    return parse(sample.text, reply)


def test_the_expert_of_a_reply_class_takes_the_place_of_the_tasks_and_a_mistake_alters_a_field() -> None:
    assert asked(Paraphrase, task=Silent()).text == "Silent: 5 :rebmuN"
    assert asked(Paraphrase, task=Silent(), error=1).text != "Silent: 5 :rebmuN"


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


def test_a_field_called_expert_leaves_the_task_to_answer() -> None:
    class Panel(Reply, frozen=True):
        expert: str
        mistake: str = "none"

    class Panels(Task):
        def expert(self, prompt: Prompt, reply: type[Reply]) -> Panel:  # noqa: ARG002
            return Panel(expert=prompt.user)

    assert asked(Panel, task=Panels()).expert == "Number: 5"
    assert asked(Panel, task=Panels(), error=1) != asked(Panel, task=Panels())
