"""Roles that only exist to go wrong, or to ask each other, in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import structlog

from microagents import Context, Request, Role
from microagents.actors.role import Messenger


class Die(Request[None], frozen=True):
    """Handling it kills the process."""


class Mortal(Role):
    async def die(self, request: Die) -> None:
        del request
        os.kill(os.getpid(), signal.SIGKILL)


class Hasty(Role):
    asks = (Die,)

    async def start(self) -> None:
        await self.ask(Die())


class Built(Request[int], frozen=True):
    """How often the role was built."""


class Stumbler(Role):
    """The second and the third time that it is built, its process dies of it; a file counts."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._counts = Path(context.options["counts"])
        with self._counts.open("a", encoding="utf-8") as counts:
            counts.write("x")
        if self._times() in (2, 3):
            os.kill(os.getpid(), signal.SIGKILL)

    def _times(self) -> int:
        return len(self._counts.read_text(encoding="utf-8"))

    async def built(self, request: Built) -> int:
        del request
        return self._times()


class Block(Request[None], frozen=True):
    """Handling it never gives the event loop back."""


class Blocker(Role):
    async def block(self, request: Block) -> None:
        del request
        while True:
            time.sleep(0.1)  # noqa: ASYNC251 - what must not be done


class Sum(Request[int], frozen=True):
    """A tree of questions: each is answered from two more, down to a depth."""

    route_by = "key"
    key: int
    depth: int
    width: int = 2


class Summer(Role):
    """Asks itself, which may be any replica; counts the leaves."""

    asks = (Sum,)

    async def sum(self, request: Sum) -> int:
        if not request.depth:
            return 1
        halves = [
            Sum(key=request.width * request.key + each, depth=request.depth - 1, width=request.width)
            for each in range(request.width)
        ]
        return sum(await asyncio.gather(*(self.ask(each) for each in halves)))


class Say(Request[None], frozen=True):
    text: str
    input: int | None = None


class Speaker(Role):
    async def say(self, request: Say) -> None:
        structlog.get_logger().warning(request.text, number=7, level="high")
        print("printed", request.text)  # noqa: T201 - as users do
