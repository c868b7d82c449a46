"""Roles that only exist to go wrong, or to ask each other, in processes of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import structlog

from microagents import Request, Role


class Die(Request[None], frozen=True):
    """Handling it kills the process."""


class Mortal(Role):
    """Dies of what it is asked."""

    async def die(self, request: Die) -> None:
        del request
        os.kill(os.getpid(), signal.SIGKILL)


class Block(Request[None], frozen=True):
    """Handling it never gives the event loop back."""


class Blocker(Role):
    """Blocks its event loop."""

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
            Sum(key=request.width * request.key + each, depth=request.depth - 1, width=request.width) for each in range(request.width)
        ]
        return sum(await asyncio.gather(*(self.ask(each) for each in halves)))


class Say(Request[None], frozen=True):
    """Log something."""

    text: str


class Speaker(Role):
    """Logs and prints."""

    async def say(self, request: Say) -> None:
        structlog.get_logger().warning(request.text, number=7)
        print("printed", request.text)  # noqa: T201 - what must not reach the driver's stdout
