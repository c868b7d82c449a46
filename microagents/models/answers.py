"""The right and wrong answers to a question that the simulated model knows, and the ways in which it breaks their format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from types import NoneType
from typing import NamedTuple

from microagents.chat import Prompt, Reply, write
from microagents.parsing import Malformed, parse
from microagents.task import Task
from microagents.user_code import called


class Answer(NamedTuple):
    """A reply, and its text."""

    reply: Reply
    text: str


class Answers:
    """The right and wrong answers to one prompt, computed once and the same for every sample.

    Args:
        task: the task.
        prompt: the question, with the format instructions.
        reply: the class of its replies.
        key: the seed of the wrong answers.
        hard: whether the question is a hard one.

    Raises:
        TaskFailed: the expert raised, or gave something else than such a reply.
    """

    def __init__(self, task: Task, prompt: Prompt, reply: type[Reply], key: bytes, *, hard: bool) -> None:
        self.hard = hard
        self._task = task
        self._prompt = prompt
        self._reply = reply
        self._digest = blake2b(f"{prompt.system}\0{prompt.user}".encode("utf-8", "surrogatepass"), digest_size=16, key=key).digest()
        self._wrong: dict[int, Answer] = {}
        self.right = self._answer(called(task.expert, prompt, reply, gives=reply))
        self.difficulty: float | None = called(task.difficulty, prompt, reply, gives=(float, int, NoneType))

    def wrong(self, alternative: int) -> Answer:
        """The wrong answer with this number.

        Raises:
            TaskFailed: no mistake can be made, or it is no reply to this question.
        """
        found = self._wrong.get(alternative)
        if found is None:
            rng = Random(self._digest + alternative.to_bytes(4))  # noqa: S311 - seeded
            mistake = called(self._task.mistake, self._prompt, self.right.reply, rng, gives=self._reply)
            found = self._wrong[alternative] = self._answer(mistake)
        return found

    def _answer(self, reply: Reply) -> Answer:
        return Answer(reply, write(reply, self._task.format))


def broken(text: str, chance: float, reply: type[Reply], task: Task) -> str:
    """An answer with a broken format, which the parser refuses; empty text if it would still accept it.

    Args:
        text: the answer.
        chance: a uniform number in (0, 1), which chooses the way.
        reply: the class of the reply.
        task: the task, for the format.
    """
    spoilt = _FORMAT_BREAKS[int(chance * len(_FORMAT_BREAKS))](text)
    try:
        parse(spoilt, reply, task.format, task.reading)
    except Malformed:
        return spoilt
    return ""  # the change fell inside a text value and left the format valid


def _without_last_line(answer: str) -> str:
    return answer.rpartition("\n")[0] if "\n" in answer else answer.partition("=")[0]


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
