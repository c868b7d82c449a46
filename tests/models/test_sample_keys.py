"""Idempotency keys: what a request says about the sample that it draws."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from microagents.actors.role import Context
from microagents.elections.election import ElectionId, SampleId
from microagents.models.model import open_model
from microagents.models.sample_keys import key_of
from microagents.systems import Maker
from microagents.tasks.drift import Drift
from tests.doubles.simulated.sample_keys import read_key
from tests.models import server as scripted
from tests.models.server import serving
from tests.models.wires import WIRES, Provider, a_call


@pytest.mark.parametrize("provider", WIRES, ids=lambda provider: provider.name)
async def test_a_request_names_the_sample_that_it_draws_and_no_part_of_its_prompt(provider: Provider) -> None:
    async with serving(scripted.reply(provider.good())) as server:
        context = Context(run_id="my run", seed=0, tasks=[Drift()], strategy=Maker())
        model = open_model(f"{provider.name}:m@base_url={server.url}", context)
        call = a_call()
        for asked in (call, structs.replace(call, attempt=1), structs.replace(call, temperature=0.2)):
            await model.complete(asked)
        await model.close()
    keys = [request.headers["idempotency-key"] for request in server.received]
    assert [key.rpartition("/")[0] for key in keys] == [f"my%20run/0/step/66/0/0/{attempt}" for attempt in (0, 1, 0)]
    assert len(set(keys)) == 3
    assert server.received[0].headers["accept-encoding"] == "gzip, deflate"


@example(at="\ud800/\n", digest=b"", seq=0, rejected=0, attempt=0)
@given(at=st.text(), digest=st.binary(), seq=st.integers(0), rejected=st.integers(0), attempt=st.integers(0))
def test_a_key_is_read_as_it_was_made(at: str, digest: bytes, seq: int, rejected: int, attempt: int) -> None:
    sample = SampleId(election=ElectionId(path=f"3/{at}", question_digest=digest), seq=seq)
    key = key_of(
        "a run", structs.replace(a_call(), id=sample, rejected=rejected, attempt=attempt), {"temperature": 0.1}
    )
    assert key.isascii()
    assert key.isprintable()
    assert read_key(key) == (sample, rejected, attempt)


@pytest.mark.parametrize("key", ["", "r/0/step/xyz/0/0/0/ab", "r/step/66/0/0/0/ab", "a/b/c/d/e/f/g"])
def test_a_foreign_key_names_nothing(key: str) -> None:
    assert read_key(key) is None
