"""The channel between dispatchers: each batch once and in order, whatever the link does to frames."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from microagents.runtimes.channel import Channel
from microagents.runtimes.virtual import run_virtual

RESEND_S, ACKNOWLEDGE_S = 0.25, 0.02


class Ends:
    """Two channels, and a link between them that a seed makes delay, reorder, repeat and drop."""

    def __init__(self, seed: int, *, dropped: float = 0.3, repeated: float = 0.2, delay_s: float = 0.1) -> None:
        self.random = Random(seed)
        self.dropped, self.repeated, self.delay_s = dropped, repeated, delay_s
        self.arrived: dict[str, list[bytes]] = {"left": [], "right": []}
        self.frames = 0
        pace = {"resend_s": RESEND_S, "acknowledge_s": ACKNOWLEDGE_S}
        self.left = Channel(lambda data: self._carry(self.right, data), self.arrived["left"].append, **pace)
        self.right = Channel(lambda data: self._carry(self.left, data), self.arrived["right"].append, **pace)

    def _carry(self, to: Channel, data: bytes) -> None:
        self.frames += 1
        for _ in range(1 + (self.random.random() < self.repeated)):
            if self.random.random() >= self.dropped:
                asyncio.get_running_loop().call_later(self.random.uniform(0, self.delay_s), to.receive, data)


@pytest.mark.parametrize("seed", range(4))
def test_every_batch_arrives_once_and_in_order_both_ways(seed: int) -> None:
    async def talk() -> Ends:
        ends = Ends(seed)
        for number in range(40):
            ends.left.send(b"l%d" % number)
            ends.right.send(b"r%d" % number)
            await asyncio.sleep(ends.random.uniform(0, 0.05))
        await asyncio.sleep(100 * RESEND_S)
        return ends

    ends = run_virtual(talk(), seed=seed)
    assert ends.arrived == {"left": [b"r%d" % n for n in range(40)], "right": [b"l%d" % n for n in range(40)]}


def test_over_a_link_without_faults_nothing_is_sent_twice_and_silence_falls() -> None:
    async def talk() -> tuple[int, int]:
        ends = Ends(0, dropped=0, repeated=0, delay_s=0.001)
        for _ in range(10):
            ends.left.send(b"x")
            await asyncio.sleep(3 * ACKNOWLEDGE_S)
        frames = ends.frames
        await asyncio.sleep(100 * RESEND_S)
        return frames, ends.frames

    frames, later = run_virtual(talk())
    assert (frames, later) == (20, 20), "ten batches and ten acknowledgements"


def test_whoever_waits_until_all_has_arrived_hears_of_it_though_acknowledgements_are_lost_too() -> None:
    async def talk(seed: int) -> None:
        ends = Ends(seed)
        ends.left.send(b"x")
        async with asyncio.timeout(1000 * RESEND_S):
            await ends.left.flush()

    for seed in range(25):
        run_virtual(talk(seed), seed=seed)


def test_a_closed_channel_sends_nothing_again() -> None:
    async def talk() -> int:
        ends = Ends(0, dropped=1)
        ends.left.send(b"x")
        ends.left.close()
        await asyncio.sleep(10 * RESEND_S)
        return ends.frames

    assert run_virtual(talk()) == 1
