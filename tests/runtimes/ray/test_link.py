"""The link to a Ray actor, on a stand-in for the actor that says when a delivery ends: which moment that is, is what matters here."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Self

import msgspec
import pytest
from structlog.testing import capture_logs

from microagents import Context, Deployment
from microagents.runtimes.ray import actor_group, starting
from microagents.runtimes.ray.actor_group import ActorGroup
from microagents.runtimes.ray.calls import NEVER_RAN
from microagents.runtimes.ray.host import ENOUGH_BYTES, Delivery, RayLink
from microagents.runtimes.ray.placement import ActorSlot
from microagents.runtimes.ray.starting import ActorStarter
from microagents.systems import Maker
from tests.runtimes.crowd import Summer


class Actor:
    """Keeps what is delivered, and ends deliveries when it is told to, in a thread as Ray does."""

    def __init__(self) -> None:
        self.frames: list[list[bytes]] = []
        self._calls: list[Future[None]] = []

    @property
    def deliver(self) -> Self:
        return self

    def remote(self, data: bytes) -> Self:
        self.frames.append(msgspec.msgpack.decode(data, type=Delivery).frames)
        self._calls.append(Future())
        return self

    def future(self) -> Future[None]:
        return self._calls[-1]

    def end(self, number: int, error: Exception | None = None) -> None:
        end = self._calls[number].set_result if error is None else self._calls[number].set_exception
        thread = threading.Thread(target=end, args=(error,))
        thread.start()
        thread.join()


async def test_what_finds_no_place_leaves_together_once_a_delivery_ends_though_nothing_is_sent_any_more() -> None:
    actor = Actor()
    link = RayLink("asker", 0, actor)
    for batch in (b"1", b"2", b"3", b"4"):
        link.send("peer", batch)
    assert actor.frames == [[b"1"], [b"2"]]
    actor.end(1)
    await asyncio.sleep(0)
    assert actor.frames[2:] == [[b"3", b"4"]]


@pytest.mark.parametrize("error", [None, RuntimeError("the peer died")], ids=["well", "dead"])
async def test_a_delivery_that_ends_makes_place_at_once_for_what_is_sent_next(error: Exception | None) -> None:
    actor = Actor()
    link = RayLink("asker", 0, actor)
    for number in range(5):
        link.send("peer", b"%d" % number)
        actor.end(number, error)
    assert len(actor.frames) == 5


async def test_a_delivery_takes_no_more_frames_once_it_is_large() -> None:
    actor = Actor()
    link = RayLink("asker", 0, actor)
    large = b"x" * ENOUGH_BYTES
    for batch in (b"1", b"2", large, b"3", b"4"):
        link.send("peer", batch)
    actor.end(0)
    await asyncio.sleep(0)
    assert actor.frames[2:] == [[large]]
    actor.end(2)
    await asyncio.sleep(0)
    assert actor.frames[3:] == [[b"3", b"4"]]


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
