"""Staggered samples: the others begin with the first event of the first, so that they read its prompt from the provider's cache."""

from __future__ import annotations

import asyncio

import pytest

from microagents.base.errors import InvalidUsage
from tests.web.endpoint.test_forwarding import ASKED, posted, saying, voted
from tests.web.endpoint.test_owed import until


@pytest.mark.parametrize(("stagger", "begun"), [("", 3), (",stagger=off", 3), (",stagger=on", 1)])
async def test_the_other_samples_wait_for_the_first_to_begin(stagger: str, begun: int) -> None:
    async with voted(saying("x"), option=stagger) as (double, served):
        double.gate = asyncio.Event()
        asking = asyncio.create_task(posted(served, "chat/completions", {**ASKED, "stream": False}))
        await until(lambda: double.in_flight == begun)
        double.gate.set()
        assert (await asking)[0] == 200
    assert len(double.requests) == 3


async def test_a_first_sample_that_fails_lets_the_others_begin() -> None:
    async with asyncio.timeout(20), voted(saying(500, "x", "x", "x"), option=",stagger=on") as (_, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200


async def test_stagger_is_on_or_off() -> None:
    with pytest.raises(InvalidUsage, match="stagger='yes' is neither on nor off"):
        async with voted(saying("x"), option=",stagger=yes"):
            pass
