"""A task's reading of replies: from its class to the red-flagger, into the digest of questions, and into the identity of a run."""

from __future__ import annotations

import pytest

from microagents import Call, run
from microagents.base.errors import InvalidDefinition, JournalMismatch
from microagents.replies.reply_forms import Reading
from microagents.tasks.ask import Ask
from microagents.tasks.drift import RING, Drift


class Loose(Drift):
    """A walk whose replies may stand in any text."""

    reading = "last"


class Changed(Drift):
    """A walk that is read in another way later."""


async def bold(call: Call) -> str:
    """A right reply, every other one in bold and with text behind."""
    number = (int(call.prompt.user.removeprefix("Number: ")) * 17 + 5) % RING
    return f"**number = {number}**.\n\nThat is it." if call.id.seq % 2 else f"number = {number}"


@pytest.mark.parametrize("runtime", ["local", "linked"])
async def test_the_reading_of_a_task_reaches_the_red_flagger_on_every_runtime(runtime: str) -> None:
    strict = await run(Drift(length=3), models=bold, k=2, runtime=runtime, runs_dir=None)
    loose = await run(Loose(length=3), models=bold, k=2, runtime=runtime, runs_dir=None)
    assert (strict.account.errors, strict.account.flagged, strict.account.votes_per_step) == (0, {"malformed": 3}, 2)
    assert (loose.account.errors, loose.account.flagged, loose.account.votes_per_step) == (0, {}, 2)


async def test_a_run_is_not_resumed_with_another_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    await run(Changed(length=3), models="sim:perfect", run_id="read")
    monkeypatch.setattr(Changed, "reading", "last")
    with pytest.raises(JournalMismatch, match="was started with reading=strict, now it is last"):
        await run(Changed(length=3), models="sim:perfect", run_id="read")


@pytest.mark.parametrize(("base", "reading"), [(Drift, "lsat"), (Ask, "last")])
def test_an_unknown_reading_is_refused_when_the_task_is_defined(base: type[Drift | Ask], reading: Reading) -> None:
    with pytest.raises(
        InvalidDefinition,
        match=rf"reading of .*Odd must be 'strict', or 'last' for 'lines', not '{reading}' for '(lines|json)'",
    ):
        type("Odd", (base,), {"reading": reading, "__module__": __name__})
