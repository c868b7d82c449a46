"""The right and wrong answers to a question that the simulated model knows, and the ways in which it breaks their format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from inspect import getattr_static
from random import Random
from types import NoneType
from typing import Any, NamedTuple

from microagents.base.user_code import called
from microagents.replies.chat import Prompt
from microagents.replies.mistakes import one_field_altered
from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import Format, Reading, write
from microagents.replies.tool_calls import Calls
from microagents.task import Task


class SimulatedReply(NamedTuple):
    """A reply, and its text."""

    reply: Reply
    text: str


class Answers:
    """Right and wrong answers to one prompt, computed once and the same for every sample.

    Args:
        task: the task.
        prompt: the question, with the format instructions.
        reply: the class of its replies. Its own ``expert`` and ``mistake`` take the place of the task's.
        key: the seed of the wrong answers.
        hard: whether the question is a hard one.

    Raises:
        TaskFailed: the expert raised, or gave something else than such a reply.
    """

    def __init__(self, task: Task, prompt: Prompt, reply: type[Reply], key: bytes, *, hard: bool) -> None:
        self.hard = hard
        self._task = task
        self.prompt = prompt
        self._reply = reply
        self._digest = blake2b(
            f"{prompt.system}\0{prompt.user}".encode("utf-8", "surrogatepass"), digest_size=16, key=key
        ).digest()
        self._wrong: dict[int, SimulatedReply] = {}
        expert = _class_method(reply, "expert")
        self._is_of_strategy = expert is not None
        if expert is None:
            self.right = self._answer(
                called(task.expert, prompt, reply, gives=(reply, Calls) if task.looks_up else reply)
            )
            self.difficulty: float | None = called(task.difficulty, prompt, reply, gives=(float, int, NoneType))
        else:
            self.right = self._answer(called(expert, task, prompt, gives=reply))
            self.difficulty = None

    def wrong(self, alternative: int) -> SimulatedReply:
        """Return the wrong answer with this number.

        Raises:
            TaskFailed: no mistake can be made, or it is not a reply to this question.
        """
        found = self.right if type(self.right.reply) is Calls else self._wrong.get(alternative)
        if found is None:
            random = Random(self._digest + alternative.to_bytes(4))  # noqa: S311 - seeded
            found = self._wrong[alternative] = self._answer(self._mistake(random))
        return found

    def _mistake(self, rng: Random) -> Reply:
        right: Any = self.right.reply
        mistake = _class_method(self._reply, "mistake")
        if mistake is not None:
            wrong: Reply = called(mistake, self._task, self.prompt, right, rng, gives=self._reply)
        elif self._is_of_strategy:
            wrong = called(one_field_altered, right, rng, gives=self._reply)
        else:
            wrong = called(self._task.mistake, self.prompt, right, rng, gives=self._reply)
        return wrong

    def _answer(self, reply: Reply) -> SimulatedReply:
        return SimulatedReply(reply, write(reply, self._task.format))


@lru_cache(maxsize=256)
def _class_method(reply: type[Reply], name: str) -> Callable[..., Any] | None:
    """Find the class method of a reply class with this name; None for none. A field of this name is none."""
    return getattr(reply, name) if isinstance(getattr_static(reply, name, None), classmethod) else None


def broken(text: str, chance: float, reply: type[Reply], form: Format, reading: Reading) -> str:
    """Break the format of an answer, so that the parser refuses it; empty text if it would still accept it.

    Args:
        text: the answer.
        chance: a uniform number in (0, 1), which chooses the way.
        reply: the class of the reply.
        form: the form of replies.
        reading: the reading that must refuse it.
    """
    spoilt = _FORMAT_BREAKS[int(chance * len(_FORMAT_BREAKS))](text)
    try:
        parse(spoilt, reply, form, reading)
    except Malformed:
        return spoilt
    return ""  # the change fell inside a text value and left the format valid


def _without_last_line(answer: str) -> str:
    if "\n" in answer:
        return answer.rpartition("\n")[0]
    return answer.partition("=")[0]


_FORMAT_BREAKS: Sequence[Callable[[str], str]] = (
    lambda _: "",
    _without_last_line,
    lambda answer: answer[: len(answer) // 2],
    lambda answer: answer.replace(" = ", ": ").replace('":', '" ='),
    lambda answer: "\n".join(f"**{line}**" for line in answer.splitlines()),
    lambda answer: "\n".join(f"{line}, or so I think" for line in answer.splitlines()),
    lambda answer: answer.replace("=", "= (", 1).replace("\n", ")\n", 1) if "\n" in answer else f"({answer})",
    lambda answer: answer.replace("[", "(").replace("]", ")") if "[" in answer else f"{answer},",
    lambda answer: answer.replace("]", ",]") if "]" in answer else f"{answer},",
    lambda answer: answer.replace('"', "\u201d") if '"' in answer else f"\u201c{answer}\u201d",
    lambda answer: answer.replace("1", "True") if "1" in answer else f"{answer} True",
)
"""In order: empty text, a missing field, half of the text, another separator, bold, text behind the value, a parenthesis, tuples, a
trailing comma, typographic quotes, ``True`` for 1."""
