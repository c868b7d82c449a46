"""Staggered samples: the others begin with the first event of the first, so that they read its prompt from the provider's cache."""

from __future__ import annotations

import asyncio

import pytest

from tests.web.endpoint.test_forwarding import ASKED, posted, saying, voted
from tests.web.endpoint.test_owed import until


@pytest.mark.parametrize("is_staggered", [False, True])
async def test_the_other_samples_wait_for_the_first_to_begin(*, is_staggered: bool) -> None:
    async with voted(saying("x"), is_staggered=is_staggered) as (double, served):
        double.gate = asyncio.Event()
        asking = asyncio.create_task(posted(served, "chat/completions", {**ASKED, "stream": False}))
        await until(lambda: double.in_flight == (1 if is_staggered else 3))
        double.gate.set()
        assert (await asking)[0] == 200
    assert len(double.requests) == 3


async def test_a_first_sample_that_fails_lets_the_others_begin() -> None:
    async with asyncio.timeout(20), voted(saying(500, "x", "x", "x"), is_staggered=True) as (_, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
