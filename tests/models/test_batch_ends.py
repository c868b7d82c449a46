"""The ends of batches that their posts, or those parked for them, come to late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

from microagents.base.errors import ModelUnavailable, NotSent, Parked, Stopped
from microagents.elections.sample_batches import SampleBatch
from microagents.models.http import batch_client as batches
from microagents.models.http.batch_client import BatchClient, BatchTerms
from microagents.models.http.batch_wires import OnResult
from microagents.models.http.sending import Response
from microagents.models.sample_keys import HEADER
from microagents.runtimes.virtual import run_virtual


class Desk:
    """A provider of batches, a ledger, and a sender of single requests in one. Questions about a batch may be refused."""

    def __init__(self) -> None:
        self.made = 0
        self.is_refusing, self.is_full, self.is_closed = True, False, False

    async def recall(self) -> Sequence[SampleBatch]:
        """Return no batches of earlier sittings."""
        return ()

    async def keep(self, batch: SampleBatch) -> int:
        """Number a batch, unless the disk is full."""
        if self.is_full:
            raise Stopped("the disk is full")
        return batch.number or 1

    def line(self, line: bytes, body: Any) -> bytes:
        """Write a line."""
        return line + repr(body).encode()

    async def prepare(self, batch: SampleBatch, lines: Sequence[bytes]) -> bytes:  # noqa: ARG002
        """Upload lines."""
        return b"".join(lines)

    async def create(self, request: bytes) -> str:  # noqa: ARG002
        """Make a batch."""
        self.made += 1
        return f"batch-{self.made}"

    async def poll(self, name: str) -> float | None:  # noqa: ARG002
        """Refuse the question, or say that the batch has ended."""
        if self.is_refusing:
            raise ModelUnavailable("refused", "no access", 403)
        return None

    async def results(self, batch: SampleBatch, on_result: OnResult) -> None:
        """Give a reply to each line."""
        for line in batch.ids():
            on_result(line, Response(status_code=200, headers={}, content=b"{}", found={}))

    async def close(self) -> None:
        """Close the connections."""
        self.is_closed = True


def with_client(working: Callable[[BatchClient, Desk], Any]) -> None:
    async def begun() -> None:
        desk: Any = Desk()
        terms = BatchTerms(kind="file", model="m", path="/v1", account="a", parks=True)
        client = BatchClient(
            desk, desk, terms, key_of=cast("Any", None), most_usd=lambda _: 0.0, prices=lambda _: (0.1, 0.0)
        )
        await client.attach(desk)
        try:
            async with asyncio.timeout(60):
                await working(client, desk)
        finally:
            with suppress(Stopped):
                await client.close()
        assert desk.is_closed

    run_virtual(begun(), seed=0)


async def parked(client: BatchClient, key: str = "r/0/q") -> str:
    """Post a request; returns the name of its batch."""
    with pytest.raises(Parked) as found:
        await client.post("/v1", {}, {HEADER: key})
    (name,) = found.value.args
    return cast("str", name)


def test_a_row_that_waits_for_a_batch_that_has_failed_meanwhile_hears_of_it() -> None:
    async def working(client: BatchClient, desk: Desk) -> None:
        name = await parked(client)
        await asyncio.sleep(2 * batches.MOMENT_S)
        assert desk.made == 1
        with pytest.raises(Stopped, match="no access"):
            await client.end_of(name)

    with_client(working)


def test_nothing_waits_for_a_batch_or_makes_one_once_the_run_ends() -> None:
    async def working(client: BatchClient, desk: Desk) -> None:
        name = await parked(client)
        client.let_go(cancels=False)
        with pytest.raises(NotSent):
            await client.end_of(name)
        await asyncio.sleep(2 * batches.MOMENT_S)
        assert desk.made == 0, "lines that were gathered before the end are not bought after it"

    with_client(working)


def test_a_full_disk_at_the_end_leaves_no_connection_open() -> None:
    async def working(client: BatchClient, desk: Desk) -> None:
        desk.is_refusing = False
        name, _ = await parked(client, "r/0/q"), await parked(client, "r/1/q")
        await client.end_of(name)
        await client.post("/v1", {}, {HEADER: "r/0/q"})  # the other result stays unclaimed
        desk.is_full = True

    with_client(working)
