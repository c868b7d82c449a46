"""A run whose first replies are nearly all flagged stops early: it says which flag, shows a reply, and says what to do."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Meta

from microagents import Call, Prompt, Reply, Result, RowTask, resume, run
from microagents.elections.election import Ballot, ElectionId, Flagged, SampleId
from microagents.journal.messages import RecordReply, RecordSample
from microagents.roles.first_replies import FirstReplies
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from microagents.tasks.drift import RING, Drift, Onward, Place


def verdict_of(flags: str) -> str | None:
    """The reason to stop after these replies; a letter for one that is flagged as malformed, a dot for a valid one."""
    first = FirstReplies([Drift(length=1)], "strict")
    for seq, flag in enumerate(flags):
        place = SampleId(election=ElectionId(path="0/step/0", question_digest=b""), seq=seq)
        first.add(
            RecordSample(
                id=place, ballot=Ballot(seq=seq, value=b"{}") if flag == "." else Flagged(seq=seq, flag="malformed")
            )
        )
        first.add(RecordReply(id=place, text=f"reply {seq}"))
        if (hopeless := first.hopeless()) is not None:
            return f"{seq + 1}: {hopeless[0]}"
    return None


@pytest.mark.parametrize(
    ("flags", "stopped_after"),
    [
        ("x" * 9, None),
        ("x" * 10, 10),
        ("x" * 9 + ".", None),
        ("." + "x" * 40, None),
        ("...." + "x" * 46, 50),
        ("....." + "x" * 60, None),
        ("." * 50 + "x" * 100, None),
    ],
)
def test_ten_of_ten_or_more_than_nine_tenths_of_fifty_are_hopeless(flags: str, stopped_after: int | None) -> None:
    verdict = verdict_of(flags)
    assert (None if verdict is None else int(verdict.partition(":")[0])) == stopped_after


def test_one_bad_input_of_many_stops_no_other() -> None:
    first = FirstReplies([Drift(length=1)] * 2, "strict")
    for seq in range(30):
        place = SampleId(election=ElectionId(path=f"{seq // 20}/step/0", question_digest=b""), seq=seq)
        first.add(RecordSample(id=place, ballot=Flagged(seq=seq, flag="malformed")))
        assert (first.hopeless() is None) == (seq < 20)


@pytest.mark.parametrize("flag", ["effects_together", "forbidden", "too_many_rounds", "unknown_tool"])
def test_a_flag_of_this_package_is_not_called_the_tasks_own(flag: str) -> None:
    first = FirstReplies([Drift(length=1)], "strict")
    for seq in range(10):
        place = SampleId(election=ElectionId(path="0/step/0", question_digest=b""), seq=seq)
        first.add(RecordSample(id=place, ballot=Flagged(seq=seq, flag=flag)))
    found = first.hopeless()
    assert found is not None
    assert "your flag" not in found[1]


async def hopeless(model: str, **options: Any) -> Result:
    return await run(Drift(length=5), models=model, strategy=Maker(speculate=False), **options)


def test_a_run_whose_replies_are_all_too_long_stops_with_a_dozen_calls_and_says_what_to_do(tmp_path: object) -> None:
    result = run_virtual(hopeless("sim:perfect@latency=1", runtime="linked", runs_dir=tmp_path, flag_above_tokens=20))
    assert result.outcome == "stopped"
    assert result.calls <= 13, "ten, and those in flight with them"
    assert result.reason is not None
    for words in ("were flagged (too_long 1", "the last one ends with", "--flag-above-tokens (0 turns the flag off)"):
        assert words in result.reason


async def test_a_stopped_run_goes_on_with_another_limit(tmp_path: object) -> None:
    stopped = await hopeless("sim:perfect", runs_dir=tmp_path, run_id="a", flag_above_tokens=20)
    assert stopped.outcome == "stopped"
    result = await resume("a", runs_dir=tmp_path, flag_above_tokens=0, accept_changes=["flag_above_tokens"])  # type: ignore[arg-type]
    assert (result.outcome, result.account.errors) == ("completed", 0)
    again = await resume("a", runs_dir=tmp_path)  # type: ignore[arg-type]
    assert again.calls == result.calls


class Choosy(Drift):
    """Wants what it cannot get."""

    def flag(self, state: Place, reply: Onward) -> str:  # noqa: ARG002
        return "nope"


async def bold(call: Call) -> str:
    """A right reply in bold, with text behind."""
    return f"**number = {(int(call.prompt.user.removeprefix('Number: ')) * 17 + 5) % RING}**. That is it."


async def mute(call: Call) -> str:  # noqa: ARG001
    """No reply to the question."""
    return "I would rather not."


@pytest.mark.parametrize(
    ("task", "model", "said", "unsaid"),
    [
        (Choosy(), "sim:perfect", "your flag 'nope' discards nearly every reply", "another model"),
        (Drift(), bold, "can be read with --reading last", "another model"),
        (Drift(), mute, "another model", "--reading"),
    ],
)
async def test_the_advice_names_the_cause(task: Drift, model: Any, said: str, unsaid: str) -> None:
    result = await run(task, models=model, runs_dir=None)
    assert result.reason is not None
    assert said in result.reason
    assert unsaid not in result.reason


class Json(Drift):
    """Asks for one object."""

    format = "json"


async def chatty(call: Call) -> str:
    """A right object, with text behind."""
    return f'{{"number": {(int(call.prompt.user.removeprefix("Number: ")) * 17 + 5) % RING}}} That is it.'


async def test_an_object_with_text_behind_is_read_as_the_advice_says() -> None:
    result = await run(Json(), models=chatty, runs_dir=None)
    assert "can be read with --reading last" in str(result.reason)
    assert (await run(Json(), models=chatty, runs_dir=None, reading="last")).outcome == "completed"


class Scored(Reply, frozen=True):
    score: Annotated[int, Meta(ge=1, le=5)]


class Scores(RowTask[Scored]):
    def prompt(self, row: dict[str, Any]) -> Prompt:
        return Prompt(system="How good is the film?", user=row["text"])


async def eight(call: Call) -> str:
    return "score = 4" if "good" in call.prompt.user else "score = 8"


@pytest.mark.parametrize("texts", [["bad"], ["good", "bad"]])
async def test_a_run_or_an_election_without_a_valid_reply_says_why_the_replies_are_malformed(texts: list[str]) -> None:
    result = await run([Scores(row={"text": text}) for text in texts], models=eight, max_draws=6 * len(texts))
    (failed,) = result.failed_inputs or ()
    assert "score = 8, but at most 5" in str(failed.reason)
