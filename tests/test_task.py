"""What a task may say of replies: its own red flag, and what is wrong with them."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
import structlog
from structlog.testing import capture_logs

from microagents import Call, InvalidUsage, Prompt, Reply, run
from microagents.base.errors import TaskFailed
from microagents.base.foreign_text import fenced_in
from microagents.runs.inspection.runs import decide
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.task import near_misses
from microagents.tasks.drift import RING, Drift, Onward, Place

ERRING = "sim:perfect@error=0.3"
ON_EVERY_RUNTIME = pytest.mark.parametrize("runtime", ["local", "linked", "ray"])


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
    result = await run(task, models=ERRING, k=4, runtime=runtime, runs_dir=None)
    plain = await run(Drift(length=30), models=ERRING, k=4, runs_dir=None)
    assert (result.outcome, result.account.errors) == ("completed", 0)
    assert result.account.flagged["same_parity"] > 0
    assert plain.account.flagged == {}


async def test_a_flag_of_version_0_1_0_that_takes_the_reply_alone_still_works() -> None:
    result = await run(OldForm(length=1), models="sim:perfect", runs_dir=None)  # the right reply is 22
    assert (result.outcome, result.account.flagged) == ("completed", {})
    result = await run(OldForm(length=2), models="sim:perfect", runs_dir=None)  # then 379
    assert result.outcome == "stopped"
    assert "odd" in str(result.reason)


async def test_what_a_flag_raises_ends_the_run_with_its_name() -> None:
    with pytest.raises(
        TaskFailed, match=r"Stumbling\.flag raised KeyError\('1 and 22'\) at 0/step/0 \(test_task\.py:\d+\)"
    ):
        await run(Stumbling(length=3), models="sim:perfect", runs_dir=None)


async def test_a_person_cannot_decide_for_a_reply_that_the_task_flags_in_this_state(tmp_path: Path) -> None:
    result = await run(
        Parity(length=9), models="sim:perfect@error=0.5,alternatives=1", k=99, run_id="a", runs_dir=tmp_path
    )
    assert result.account.undecided_at == ("0/step/0",)
    right = Parity().oracle(Place()).number
    with pytest.raises(InvalidUsage, match=r"red-flags .* as 'same_parity'"):
        decide(tmp_path, "a", "0/step/0", f'{{"number": {right + 1}}}')
    assert decide(tmp_path, "a", "0/step/0", f'{{"number": {right + 2}}}').reply == Onward(number=right + 2)


class Checked(Drift):
    """Code knows every wrong reply, and says so."""

    verified: ClassVar[list[tuple[int, int]]] = []

    async def verify(self, state: Place, reply: Onward) -> str | None:
        self.verified.append((state.number, reply.number))
        return self._fault(state, reply)

    def _fault(self, state: Place, reply: Onward) -> str | None:
        return None if reply == self.oracle(state) else f"{reply.number} is not what follows"


class CheckedInThread(Checked):
    """The same by a plain method."""

    def verify(self, state: Place, reply: Onward) -> str | None:  # type: ignore[override]
        assert threading.current_thread() is not threading.main_thread()
        return self._fault(state, reply)


class CheckedSlowly(Checked):
    async def verify(self, state: Place, reply: Onward) -> str | None:
        await asyncio.sleep(5)
        return self._fault(state, reply)


class Refusing(Drift):
    """Finds whatever its option says wrong with every reply."""

    feedback: Any

    def verify(self, state: Place, reply: Onward) -> str | None:
        if self.feedback == "raise":
            raise KeyError(f"{state.number} and {reply.number}")
        found: str | None = self.feedback
        return found


async def test_a_reply_that_fails_is_asked_again_with_the_feedback_in_the_place_of_its_seq() -> None:
    calls: list[Call] = []

    async def model(call: Call) -> str:
        calls.append(call)
        return "number = 23" if call.rejected == 0 and call.id.seq == 0 else "number = 22"

    result = await run(Checked(length=1), models=model, k=2, runs_dir=None)
    assert (result.calls, result.account.valid, result.account.flagged, result.account.wasted_calls) == (3, 2, {}, 1)
    again = calls[-1]
    assert [(call.id.seq, call.rejected, call.temperature) for call in calls] == [(0, 0, 0.0), (1, 0, 0.1), (0, 1, 0.1)]
    assert again.prompt.system == calls[0].prompt.system
    assert again.prompt.user.startswith(calls[0].prompt.user)
    assert "number = 23\nIt was checked, and it is wrong:\n<feedback " in again.prompt.user
    (feedback,) = fenced_in(again.prompt.user, "feedback")
    assert "23 is not what follows" in feedback


async def test_a_sample_that_fails_each_time_is_flagged_after_three_calls() -> None:
    result = await run(
        Refusing(length=1, feedback="no"), models="sim:perfect", strategy=Maker(k=1, max_draws=2), runs_dir=None
    )
    assert (result.outcome, result.calls) == ("undecided", 6)
    assert "2 flagged" in str(result.reason)


async def test_a_run_ends_early_where_no_reply_can_be_mended_but_not_where_each_needs_it() -> None:
    hopeless = await run(Refusing(length=99, feedback="no"), models="sim:perfect", speculate=False, runs_dir=None)
    assert hopeless.outcome == "stopped"
    assert "replies all were flagged (unverified" in str(hopeless.reason)
    assert hopeless.calls < 300, "a step alone would take 300"

    async def model(call: Call) -> str:
        return f"number = {(int(call.prompt.user.split()[1]) * 17 + (5 if call.rejected else 6)) % RING}"

    mended = await run(Checked(length=20), models=model, k=2, runs_dir=None)
    assert (mended.outcome, mended.calls, mended.account.flagged) == ("completed", 80, {})


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["local", "linked"])
async def test_decisions_and_ballots_are_the_same_however_the_work_is_done(runtime: str) -> None:
    undisturbed = await run(Checked(length=60), models=ERRING, k=2, speculate=False, runs_dir=None)
    other = await run(CheckedInThread(length=60), models=ERRING, k=2, runtime=runtime, runs_dir=None)
    assert undisturbed.account.errors == 0
    assert undisturbed.account.flagged["unverified"] > 0
    assert other.account.flagged == undisturbed.account.flagged
    assert (other.account.decisions_sha256, other.account.ballots_sha256) == (
        undisturbed.account.decisions_sha256,
        undisturbed.account.ballots_sha256,
    )


async def test_equal_replies_to_one_question_are_verified_once() -> None:
    Checked.verified.clear()
    await run(Checked(length=10), models="sim:perfect", k=3, runs_dir=None)
    assert len(Checked.verified) == len(set(Checked.verified)) == 10


def test_the_next_steps_do_not_wait_for_a_slow_verification() -> None:
    async def timed(task: Drift) -> float:
        result = await run(task, models="sim:perfect@latency=1,sigma=0", k=2, runs_dir=None)
        assert result.outcome == "completed"
        return asyncio.get_running_loop().time()

    plain, slow = run_virtual(timed(Drift(length=20))), run_virtual(timed(CheckedSlowly(length=20)))
    assert slow == pytest.approx(plain + 5, abs=1)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("sitting", range(1, 14, 3))
async def test_a_resumed_run_does_not_buy_rejected_replies_again(sitting: int, tmp_path: Path) -> None:
    """With one call in flight at a time, a limit falls behind every kind of call: some replies are rejected by then."""
    options: dict[str, Any] = {
        "models": ERRING,
        "k": 2,
        "speculate": False,
        "concurrency": 1,
        "run_id": "a",
        "runs_dir": tmp_path,
    }
    undisturbed = await run(Checked(length=6), **{**options, "runs_dir": None})
    stopped = await run(Checked(length=6), **options, max_calls=sitting)
    assert (stopped.outcome, stopped.calls) == ("stopped", sitting)
    resumed = await run(Checked(length=6), **options, max_calls=None)
    assert (resumed.outcome, resumed.calls, resumed.account.flagged) == (
        "completed",
        undisturbed.calls,
        undisturbed.account.flagged,
    )
    assert resumed.account.ballots_sha256 == undisturbed.account.ballots_sha256


@pytest.mark.parametrize(
    ("feedback", "said"),
    [
        ("raise", r"Refusing\.verify raised KeyError\('1 and 22'\)"),
        (False, r"Refusing\.verify must give None or a text that says what is wrong, not False"),
        ("  ", r"must give None or a text"),
    ],
)
async def test_what_goes_wrong_in_a_verification_ends_the_run_in_one_sentence(feedback: object, said: str) -> None:
    with pytest.raises(TaskFailed, match=said):
        await run(Refusing(length=2, feedback=feedback), models="sim:perfect", runs_dir=None)


class Cancelling(Drift):
    """Its verification ends as if it were cancelled."""

    async def verify(self, state: Place, reply: Onward) -> str | None:  # noqa: ARG002 - the interface
        raise asyncio.CancelledError


async def test_a_verification_that_raises_cancelled_error_ends_the_run() -> None:
    with pytest.raises(TaskFailed, match=r"Cancelling\.verify raised CancelledError"):
        await run(Cancelling(length=2), models="sim:perfect", runs_dir=None)


class Misspelt(Drift):
    """Methods that override nothing: four by mistake, the others on purpose."""

    def orcale(self, state: Place) -> Onward:
        return self.oracle(state)

    def verfy(self, state: Place, reply: Onward) -> str | None:  # noqa: ARG002
        return None

    def dificulty(self, prompt: Prompt, reply: type[Reply]) -> float:  # noqa: ARG002
        return 0.1

    def roll_out_prompt(self, state: Place, horizon: int) -> Prompt:  # noqa: ARG002
        return self.prompt(state)

    def flags(self, state: Place, reply: Onward) -> list[str]:  # noqa: ARG002
        return []

    def steps_left(self) -> int:
        return self.length

    def step(self) -> int:
        return 0

    def correctly(self, state: Place, reply: Onward) -> bool:  # noqa: ARG002
        return True

    def variance(self, number: int) -> int:
        return number

    def oracles(self, state: Place, number: int) -> list[Onward]:  # noqa: ARG002
        return []


async def test_a_method_that_looks_like_a_misspelt_one_is_warned_of_when_a_run_begins() -> None:
    with capture_logs() as logs:
        await run([Misspelt(length=1), Misspelt(length=2)], models="sim:perfect", runs_dir=None)
    assert [log["event"] for log in logs] == [
        f"Misspelt.{name} overrides nothing; did you mean {near}?"
        for name, near in (
            ("orcale", "oracle"),
            ("verfy", "verify"),
            ("dificulty", "difficulty"),
            ("roll_out_prompt", "rollout_prompt"),
        )
    ]


def test_a_task_that_is_spelt_well_has_no_method_that_looks_misspelt() -> None:
    assert [*near_misses(Drift), *near_misses(Parity), *near_misses(OldForm)] == []


async def test_a_library_logs_nothing_unless_its_program_configures_a_log(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    structlog.reset_defaults()
    await run(Misspelt(length=1), models="sim:perfect", runs_dir=None)
    assert capfd.readouterr() == ("", "")
    assert [(each.name, each.levelname) for each in caplog.records] == [("microagents", "WARNING")] * 4, (
        "of the standard library's logging"
    )
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stdout))
    await run(Misspelt(length=1), models="sim:perfect", runs_dir=None)
    assert capfd.readouterr().out.count("overrides nothing") == 4
