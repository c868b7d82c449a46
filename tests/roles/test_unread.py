"""Questions of which no reply can be read: the election ends long before its cap, and says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from microagents import Call, Result, Sample, run
from microagents.elections.count import UNREADABLE
from microagents.models.model import Model
from microagents.runs.driver.begin import new_plan
from microagents.runtimes.virtual import run_virtual
from microagents.systems import Maker
from tests.roles.test_refusals import BAD, ROWS, Label, Labels, labels


class Silent(Model):
    """Gives the bad row one text for as many samples, then another one; valid replies to the other rows."""

    def __init__(self, first: str, then: str, until: int) -> None:
        self.spec = "silent"
        self.asked = 0
        self._first, self._then, self._until = first, then, until

    async def complete(self, call: Call) -> Sample:
        if not call.prompt.user.startswith(f"text {BAD}"):
            return Sample(text='label = "good"')
        self.asked += 1
        return Sample(text=self._first if call.id.seq < self._until else self._then)


class Cut(Silent):
    """Ends its replies to the bad row for a reason that is not known."""

    async def complete(self, call: Call) -> Sample:
        sample = await super().complete(call)
        return Sample(text=sample.text, finish="stop" if sample.text else "other")


class Judged(Labels):
    def flag(self, state: dict[str, Any], reply: Label) -> str | None:  # noqa: ARG002
        return "wrong" if reply.label == "bad" else None


def elected(rows: Sequence[Labels], model: Silent) -> Result[Any]:
    return run_virtual(run(rows, models=[model], strategy=Maker(k=2), runs_dir=None))


@pytest.mark.parametrize(
    ("kind", "text", "flag"), [(Silent, "", "empty"), (Silent, "I think so", "malformed: "), (Cut, "", "other")]
)
def test_a_row_of_which_no_reply_can_be_read_ends_before_its_cap(kind: type[Silent], text: str, flag: str) -> None:
    model = kind(text, text, 0)
    result = elected(labels(), model)
    assert (result.account.inputs_done, model.asked) == (ROWS - 1, UNREADABLE)
    assert result.failed_inputs is not None
    (failed,) = result.failed_inputs
    said = f"after {UNREADABLE} draws (no valid reply; {UNREADABLE} flagged, mostly {flag}"
    assert (failed.outcome, said in str(failed.reason)) == ("undecided", True), failed.reason


def test_a_row_with_one_reply_that_can_be_read_goes_on_to_its_decision() -> None:
    model = Silent("", 'label = "bad"', UNREADABLE - 1)
    assert elected(labels(), model).outcome == "completed"
    assert model.asked == UNREADABLE + 1


def test_the_only_row_of_a_shard_is_one_of_many_as_in_one_process() -> None:
    alone = new_plan(labels()[:1], "sim:perfect", {})
    assert not alone.context().is_of_many
    assert structs.replace(alone, of_inputs=ROWS).context().is_of_many


def test_replies_that_the_task_itself_flags_are_drawn_to_the_cap() -> None:
    model = Silent('label = "bad"', 'label = "good"', UNREADABLE + 5)
    judged = [Judged(row=each.row) for each in labels()]
    assert elected(judged, model).outcome == "completed"
    assert model.asked == UNREADABLE + 7
