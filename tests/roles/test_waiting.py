"""Calls wait unsent for a connection: they are not booked, their timeout does not run, and those of the oldest input go first."""

from __future__ import annotations

import asyncio

import pytest

from microagents import InvalidUsage, ModelUnavailable, Result, run
from microagents.models.http import provider as http
from microagents.models.model import Call, Model
from microagents.replies.chat import Sample, Usage
from microagents.replies.reply_forms import write
from microagents.runtimes.virtual import run_virtual
from microagents.tasks.drift import Drift, Onward
from tests.models import server as scripted
from tests.models.server import Connection, serving


class Narrow(Model):
    """Says what Drift expects, after a second, and takes a limited number of calls at a time."""

    priced = True
    throttled_as = None

    def __init__(self, width: int) -> None:
        self.max_in_flight = width
        self.running = self.most = self.sent = 0

    async def complete(self, call: Call) -> Sample:
        self.sent += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(1.0)
        finally:
            self.running -= 1
        number = int(call.prompt.user.removeprefix("Number: "))
        return Sample(text=write(Onward(number=(number * 17 + 5) % 1009)), usage=Usage(output_tokens=5, cost_usd=1.0))


@pytest.mark.slow
def test_a_run_that_is_interrupted_at_two_thirds_has_two_thirds_of_its_results() -> None:
    inputs, steps = 60, 4
    model = Narrow(30)

    async def interrupted() -> Result:
        interrupt = asyncio.Event()
        asyncio.get_running_loop().call_later(inputs * steps * 3 / 30 * 2 / 3, interrupt.set)
        tasks = [Drift(length=steps)] * inputs
        return await run(tasks, models=model, runtime="linked", runs_dir=None, interrupt=interrupt)

    result = run_virtual(interrupted())
    assert result.outcome == "interrupted"
    assert model.most == 30
    assert result.account.inputs_done >= inputs * 0.6
    assert result.account.calls == model.sent


def test_no_call_that_waits_when_a_run_ends_is_sent_or_booked() -> None:
    model = Narrow(4)

    async def interrupted() -> tuple[Result, float]:
        interrupt = asyncio.Event()
        asyncio.get_running_loop().call_later(2.5, interrupt.set)
        result = await run([Drift(length=5)] * 50, models=model, runs_dir=None, interrupt=interrupt)
        return result, asyncio.get_running_loop().time()

    result, took_s = run_virtual(interrupted())
    assert (result.outcome, result.account.calls, model.sent) == ("interrupted", 12, 12)
    assert took_s < 4


@pytest.mark.slow
async def test_the_timeout_of_a_call_starts_when_it_has_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "connections_allowed", lambda: 2)
    replied = scripted.reply({"choices": [{"message": {"content": "number = 22"}, "finish_reason": "stop"}]})

    async def late(connection: Connection) -> None:
        await asyncio.sleep(0.1)
        await replied(connection)

    async with serving(late) as server:
        model = f"openai:m@base_url={server.url}/v1,timeout_s=1"
        result = await run([Drift(length=1)] * 8, models=model, runs_dir=None)
        received = len(server.received)
    assert result.outcome == "completed"
    assert result.account.calls == received == 24, "all waited for 1.2 s in sum, and none timed out"
    assert result.account.repeated == {}
    assert result.account.unmeasured == 24


class Out(Narrow):
    """Is out for half an hour, from the third second on."""

    async def complete(self, call: Call) -> Sample:
        if 3 <= asyncio.get_running_loop().time() < 1803:
            raise ModelUnavailable("server", "overloaded", 529)
        return await super().complete(call)


@pytest.mark.slow
def test_an_outage_of_half_an_hour_is_waited_out_and_costs_nothing() -> None:
    model = Out(30)
    result = run_virtual(run([Drift(length=10)] * 4, models=model, runs_dir=None, max_cost_usd=360.0))
    assert (result.outcome, result.account.errors) == ("completed", 0)
    assert result.account.calls == model.sent == result.cost_usd
    assert result.account.repeated["server"] > 100


@pytest.mark.parametrize("width", [0, True])
async def test_a_number_of_calls_that_lets_none_through_is_refused_before_the_run(width: object) -> None:
    with pytest.raises(InvalidUsage, match="max_in_flight of the model"):
        await run(Drift(length=1), models=Narrow(width), runs_dir=None)  # type: ignore[arg-type]
