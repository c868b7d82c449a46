"""Links on Ray, with a stand-in for the actor that says when and how a delivery ends."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from itertools import permutations
from typing import Self

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, ObjectStoreFullError
from structlog.testing import capture_logs

from microagents import Context, Deployment
from microagents.base.errors import PeerLost
from microagents.runtimes.ray import actor_group, links, starting
from microagents.runtimes.ray.actor_group import ActorGroup
from microagents.runtimes.ray.calls import NEVER_RAN
from microagents.runtimes.ray.links import (
    ENOUGH_BYTES,
    STORED_BYTES,
    Arrivals,
    Delivery,
    RayLink,
    UpLink,
    decode_delivery,
)
from microagents.runtimes.ray.placement import ActorSlot
from microagents.runtimes.ray.starting import ActorStarter
from microagents.systems import Maker
from tests.runtimes.crowd import Summer


class Actor:
    """Keeps what is delivered, and ends deliveries when it is told to, in a thread as Ray does."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self._calls: list[Future[None]] = []

    @property
    def deliver(self) -> Self:
        return self

    def remote(self, data: bytes) -> Self:
        self.deliveries.append(decode_delivery(data))
        self._calls.append(Future())
        return self

    def future(self) -> Future[None]:
        return self._calls[-1]

    async def end(self, number: int, error: Exception | None = None) -> None:
        """End a delivery, and let the link go on."""
        call = self._calls[number]
        end = call.set_result if error is None else call.set_exception
        thread = threading.Thread(target=end, args=(error,))
        thread.start()
        thread.join()
        await asyncio.sleep(0.01)

    @property
    def batches(self) -> list[list[bytes]]:
        return [each.batches for each in self.deliveries]


async def linked(*batches: bytes) -> tuple[Actor, RayLink]:
    """Send batches over a link; the first two of them are on their way."""
    actor = Actor()
    link = RayLink("asker", 0, actor)
    for batch in batches:
        link.send(batch)
        await asyncio.sleep(0)
    return actor, link


async def test_batches_that_find_no_place_leave_together_once_a_delivery_ends_though_nothing_more_is_sent() -> None:
    actor, _ = await linked(b"1", b"2", b"3", b"4")
    assert actor.batches == [[b"1"], [b"2"]]
    await actor.end(1)
    assert actor.batches[2:] == [[b"3", b"4"]]


async def test_a_delivery_takes_no_more_batches_once_it_is_large() -> None:
    large = b"x" * ENOUGH_BYTES
    actor, _ = await linked(b"1", b"2", large, b"3", b"4")
    await actor.end(0)
    await actor.end(2)
    assert actor.batches[2:] == [[large], [b"3", b"4"]]


async def test_a_delivery_that_finds_ray_s_store_full_waits_for_room_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([ObjectStoreFullError("full"), PeerLost("Ray", "it is slow"), None])

    async def aside(_: object, data: bytes) -> bytes:
        if (error := next(answers)) is not None:
            raise error
        return bytes(bytearray(data))

    monkeypatch.setattr(links, "AGAIN_S", 0.0)
    monkeypatch.setattr(links, "aside", aside)
    large = b"x" * STORED_BYTES
    actor, _ = await linked(large)
    async with asyncio.timeout(5):
        while not actor.deliveries:  # noqa: ASYNC110 - the stand-in tells nobody
            await asyncio.sleep(0)
    assert actor.batches == [[large]]


async def test_a_delivery_that_may_not_have_arrived_is_made_again_at_once_and_counts_once_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(links, "AGAIN_S", 0.0)
    actor, link = await linked(b"1", b"2", b"3")
    await actor.end(0, ActorUnavailableError("it cannot be reached", None))
    flushing = asyncio.create_task(link.flush())
    for number in (1, 2, 3):
        assert not flushing.done()
        await actor.end(number)
    assert flushing.done()
    assert actor.batches == [[b"1"], [b"2"], [b"1"], [b"3"]]
    for order in permutations(actor.deliveries):
        arrivals = Arrivals()
        assert [batch for each in order for batch in arrivals.take(each)] == [b"1", b"2", b"3"]


async def test_batches_to_an_actor_that_has_died_are_dropped_and_keep_no_caller_waiting() -> None:
    actor, link = await linked(b"1", b"2", b"3")
    for number in (0, 1):
        await actor.end(number, ActorDiedError())
    await link.flush()
    assert actor.batches == [[b"1"], [b"2"]]


async def test_a_collection_that_has_not_arrived_is_given_again_and_counts_for_no_flush() -> None:
    link = UpLink()
    link.send(b"1")
    flushing = asyncio.create_task(link.flush())
    await asyncio.sleep(0)
    first = await link.take(0)
    assert first == ([b"1"], [])
    link.send(b"2")
    assert await link.take(0) == first
    assert not flushing.done()
    assert await link.take(1) == ([b"2"], [])
    await flushing


class Starting(ActorStarter):
    """Starts nothing."""

    def __init__(self) -> None:
        pass

    async def find_nodes_again(self) -> None:
        pass


async def test_a_successor_that_was_to_start_on_the_node_that_was_lost_is_no_second_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start(slot: ActorSlot) -> None:
        assert slot.incarnation

    monkeypatch.setattr(starting, "LOOK_S", 0.0)
    monkeypatch.setattr(actor_group, "MAX_DEATHS", 1)
    context = Context(run_id="r", seed=0, tasks=[], strategy=Maker())
    group = ActorGroup(context, [Deployment(role=Summer)], Starting())
    monkeypatch.setattr(group, "_start_process", start)
    group._is_started.set()  # without a Ray there is no other way
    (slot,) = group.slots.values()
    with capture_logs() as logs:
        for cause in ("it could not be reached", *[f"its node has died. {NEVER_RAN} - it was cancelled"] * 3):
            await group._replace(slot, cause)
    assert [each["cause"] for each in logs] == ["it could not be reached"]
    assert slot.incarnation == 4
