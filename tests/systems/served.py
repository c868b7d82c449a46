"""Authors of documents behind real HTTP, on either wire: what they reply depends on the question that they read in the request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

from msgspec import Struct

from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import write
from microagents.systems.documents import (
    Part,
    Parts,
    Ranking,
    Segment,
    SegmentSummary,
    ToRank,
    ToSplit,
    ToSummarize,
    ToValidate,
    ToWrite,
    Validation,
)
from microagents.systems.documents.questions import Asked, asked_in
from tests.models.server import Answer, Connection, Server, reply, serving

Wire = Literal["openai", "anthropic"]


class Ended(Struct, frozen=True):
    """A reply that ended for a reason of its own."""

    text: str
    finish: str


Given = Reply | str | Ended | Answer
"""What an author gives: a right reply, any text, one that ended early, or any bytes of HTTP."""
Behavior = Callable[[Asked], Given]


def body(wire: Wire, text: str, finish: str | None) -> dict[str, Any]:
    """The JSON of a reply on the wire."""
    if wire == "openai":
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish or "stop"}
        return {"choices": [choice], "usage": {"prompt_tokens": 20, "completion_tokens": 10}}
    usage = {"input_tokens": 20, "output_tokens": 10}
    return {"content": [{"type": "text", "text": text}], "stop_reason": finish or "end_turn", "usage": usage}


class Served(Struct):
    """An author that is being served."""

    spec: str
    server: Server
    asked: list[Asked]
    """The questions that it was asked, in order."""

    def drafts(self) -> int:
        """Number of segments that it was asked for."""
        return sum(isinstance(each, ToWrite) for each in self.asked)


@asynccontextmanager
async def author(wire: Wire, name: str, behave: Behavior) -> AsyncIterator[Served]:
    """Serve an author as long as the block."""

    async def answer(connection: Connection) -> None:
        content = served.server.received[-1].json["messages"][-1]["content"]
        asked = asked_in(Prompt(user=content))
        served.asked.append(asked)
        given = behave(asked)
        match given:
            case str():
                given = reply(body(wire, given, None))
            case Reply():
                given = reply(body(wire, write(given, "json"), None))
            case Ended():
                given = reply(body(wire, given.text, given.finish))
        await given(connection)

    async with serving(answer) as server:
        served = Served(spec=f"{wire}:{name}@base_url={server.url}", server=server, asked=[])
        yield served


class Counting:
    """An author that counts, a line each; it passes the segments that do so, and nothing else."""

    def __init__(self, last: int) -> None:
        self.last = last

    def __call__(self, asked: Asked) -> Given:
        match asked:
            case ToWrite():
                return self.segment(asked)
            case ToValidate():
                return Validation(reason="counted again", passes=self.is_right(asked))
            case ToSplit():
                halves = (1, self.last // 2), (self.last // 2 + 1, self.last)
                parts = [
                    Part(id=number, objective=f"Count {a}-{b}", depends_on=()) for number, (a, b) in enumerate(halves)
                ]
                return Parts(subtasks=tuple(parts))
            case ToRank():
                best, second, *_ = sorted(asked.versions, key=lambda each: (-len(each.text), each.label))
                return Ranking(reason="the longer one", best=best.label, second=second.label)
            case ToSummarize():
                return SegmentSummary(summary=asked.text)

    def is_right(self, asked: ToValidate) -> bool:
        """Whether a segment is the next line."""
        right = self.segment(asked)
        return (asked.segment, asked.status, asked.mode) == (right.text, right.status, right.mode)

    def segment(self, asked: ToWrite | ToValidate) -> Segment:
        """The next line of a subtask ``Count 3-4``, or of the whole."""
        first, last = map(int, asked.subtask.removeprefix("Count ").split("-"))
        number = first + len(asked.written.splitlines())
        return Segment(
            justify="the next",
            text=f"line {number}",
            status="complete" if number == last else "ongoing",
            mode="continue",
        )
