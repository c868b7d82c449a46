"""What a task may say of replies: its own red flag."""

from __future__ import annotations

from pathlib import Path

import pytest

from microagents import InvalidUsage, Reply, RoleFailed, run
from microagents.runs.inspection import decide
from microagents.tasks.drift import Drift, Onward, Place

ERRING = "sim:perfect@error=0.3"
ON_EVERY_RUNTIME = pytest.mark.parametrize("runtime", ["local", "linked", pytest.param("ray", marks=pytest.mark.slow)])


class Parity(Drift):
    """Every step turns an odd number even and an even one odd, so code knows half of the wrong replies."""

    def flag(self, state: Place, reply: Onward) -> str | None:
        return "same_parity" if reply.number % 2 != self.oracle(state).number % 2 else None


class OldForm(Drift):
    """A flag as in version 0.1.0: it takes the reply alone."""

    def flag(self, reply: Reply) -> str | None:  # type: ignore[override]
        return "odd" if getattr(reply, "number", 0) % 2 else None


class Stumbling(Drift):
    def flag(self, state: Place, reply: Onward) -> str | None:
        raise KeyError(f"{state.number} and {reply.number}")


@ON_EVERY_RUNTIME
async def test_a_tasks_own_flag_sees_the_state_and_discards_the_reply_under_its_name(runtime: str) -> None:
    task = Parity(length=30)
    result = await run(task, models=ERRING, k=2, runtime=runtime, runs_dir=None)
    plain = await run(Drift(length=30), models=ERRING, k=2, runs_dir=None)
    assert (result.outcome, result.account.errors) == ("completed", 0)
    assert result.account.flagged["same_parity"] > 0
    assert plain.account.flagged == {}


async def test_a_flag_of_version_0_1_0_that_takes_the_reply_alone_still_works() -> None:
    result = await run(OldForm(length=1), models="sim:perfect", runs_dir=None)  # the right reply is 22
    assert (result.outcome, result.account.flagged) == ("completed", {})
    result = await run(OldForm(length=2), models="sim:perfect", runs_dir=None)  # then 379
    assert (result.outcome, result.account.undecided_at) == ("undecided", ("0/step/1",))


async def test_what_a_flag_raises_ends_the_run_with_its_name() -> None:
    with pytest.raises(RoleFailed, match=r"KeyError.*1 and 22"):
        await run(Stumbling(length=3), models="sim:perfect", runs_dir=None)


async def test_a_person_cannot_decide_for_a_reply_that_the_task_flags_in_this_state(tmp_path: Path) -> None:
    result = await run(Parity(length=9), models="sim:perfect@error=0.5,alternatives=1", k=99, run_id="a", runs_dir=tmp_path)
    assert result.account.undecided_at == ("0/step/0",)
    right = Parity().oracle(Place()).number
    with pytest.raises(InvalidUsage, match=r"red-flags .* as 'same_parity'"):
        decide(tmp_path, "a", "0/step/0", f'{{"number": {right + 1}}}')
    assert decide(tmp_path, "a", "0/step/0", f'{{"number": {right + 2}}}') == Onward(number=right + 2)
