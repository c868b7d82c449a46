"""The ends of batches that their posts, or those parked for them, come to late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from microagents.base.errors import ModelUnavailable, NotSent, Parked, Stopped
from microagents.elections.sample_batches import SampleBatch
from microagents.models.http import batch_client as batches
from microagents.models.http.batch_client import BatchClient, BatchTerms
from microagents.models.sample_keys import HEADER
from microagents.runtimes.virtual import run_virtual


class Desk:
    """A provider of batches, a ledger, and a sender of single requests in one. Questions about a batch are refused."""

    def __init__(self) -> None:
        self.made = 0

    async def recall(self) -> Sequence[SampleBatch]:
        """Return no batches of earlier sittings."""
        return ()

    async def keep(self, batch: SampleBatch) -> int:
        """Number a batch."""
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
        """Refuse the question."""
        raise ModelUnavailable("refused", "no access", 403)

    async def close(self) -> None:
        """Close nothing."""


def with_client(working: Callable[[BatchClient, Desk], Any]) -> None:
    async def begun() -> None:
        desk: Any = Desk()
        terms = BatchTerms(kind="file", model="m", path="/v1", account="a", parks=True)
        client = BatchClient(
            desk, desk, terms, key_of=cast("Any", None), most_usd=lambda _: 0.0, prices=lambda _: (0.0, 0.0)
        )
        await client.attach(desk)
        try:
            async with asyncio.timeout(60):
                await working(client, desk)
        finally:
            await client.close()

    run_virtual(begun(), seed=0)


async def parked(client: BatchClient) -> str:
    """Post a request; returns the name of its batch."""
    with pytest.raises(Parked) as found:
        await client.post("/v1", {}, {HEADER: "r/0/q"})
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
