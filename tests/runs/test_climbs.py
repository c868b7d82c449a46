"""The steps that climbed a ladder, read from the journal: how far, at what cost, and what would have been decided without."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from microagents.journal.sharded import reader_of
from microagents.runs.inspection.climbs import Climb, climbs_of
from tests.cli.commands import microagents, write

TORN = "sim:perfect@error=0.02,hard=0.2,hard_error=0.5,alternatives=1,price_out=1"
LADDER = ("-k", "6", "-s", "p=.95", "-s", "false_alarms=1", "--run-id", "r")


def ran(*words: str) -> dict[str, Any]:
    return microagents("run", *words, "--json").json


def climbs(of_input: int = 0) -> list[Climb]:
    with reader_of(Path("runs"), "r") as reader:
        return climbs_of(reader, of_input)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "words",
    [
        ("-s", "ladder=judge"),
        pytest.param(
            ("-s", f"ladder=model={TORN},lookahead,paraphrase", "-s", "reuse=false", "-s", "max_draws=20"),
            marks=pytest.mark.slow,
        ),
        ("-s", "known_inputs=true", "-s", "ladder=lookahead"),
    ],
    ids=["judge", "own rollouts", "known inputs"],
)
def test_what_the_climbs_have_drawn_and_what_the_steps_have_is_all_that_was_counted(words: tuple[str, ...]) -> None:
    account = ran("drift", "-o", "length=60", "--model", TORN, *LADDER, *words)
    found = climbs()
    assert sum(account["climbed"].values()) == sum(each.decided_by == each.rungs[-1].name for each in found) > 1
    with reader_of(Path("runs"), "r") as reader:
        steps = [row for row in (reader.decision_at(f"0/step/{number}") for number in range(60)) if row is not None]
    assert sum(each.samples for each in found) + sum(len(row.ballots) for row in steps) == account["valid"] + sum(
        account["flagged"].values()
    )
    assert all(each.samples == sum(rung.samples for rung in each.rungs) > 0 for each in found)
    costs = [
        cost for cost in (*(each.cost_usd for each in found), *(row.cost_usd for row in steps)) if cost is not None
    ]
    assert len(costs) == len(found) + len(steps)
    assert 0 < sum(costs) <= account["cost_usd"] + 1e-9


def test_a_climb_tells_what_would_have_been_decided_without_and_whether_it_differs() -> None:
    ran("drift", "-o", "length=60", "--model", TORN, *LADDER, "-s", "ladder=paraphrase,judge")
    found = climbs()
    assert {each.differs for each in found} == {True, False}
    for each in found:
        assert each.votes[0] == (each.without, max(count for _, count in each.votes))
        assert each.differs == (each.value != each.without)
        assert each.decided_by == each.rungs[-1].name
        assert [rung.outcome for rung in each.rungs[:-1]] == ["climbed"] * (len(each.rungs) - 1)


def test_rungs_are_in_the_order_of_the_ladder() -> None:
    ladder = f"ladder=model={TORN},judge,model={TORN},lookahead"
    ran("drift", "-o", "length=30", "--model", TORN, *LADDER, "-s", ladder, "-s", "margin=6", "-s", "max_draws=14")
    furthest = max((each.rungs for each in climbs()), key=len)
    assert [rung.name for rung in furthest] == ["model", "judge", "model-2", "lookahead"][: len(furthest)]
    assert len(furthest) > 1


def test_without_the_code_of_the_task_replies_are_compared_to_the_letter() -> None:
    write("mine.py", "from microagents.tasks.drift import Drift\nclass Mine(Drift):\n    pass\n")
    ran("mine.py:Mine", "-o", "length=30", "--model", TORN, *LADDER, "-s", "ladder=judge")
    found = climbs()
    del sys.modules["mine"]
    Path("mine.py").unlink()
    assert climbs() == found != []


OWN = """
    from msgspec import structs
    from microagents.systems.chains.maker import Maker
    from microagents.systems.chains.ladder import OtherModel

    class Own(Maker):
        @property
        def rungs(self):
            return (OtherModel(name="weak", spec=WEAK), OtherModel(name="expert", spec="sim:perfect"))
    """


def test_rungs_of_a_strategy_of_ones_own_are_listed_too() -> None:
    write("with_rungs.py", OWN.replace("WEAK", repr(TORN)))
    account = ran(
        *("drift", "-o", "length=30", "--model", TORN, "--strategy", "with_rungs.py:Own", "-k", "6"),
        *("-s", "max_draws=12", "--run-id", "r"),
    )
    assert {rung.name for each in climbs() for rung in each.rungs} == {"weak", "expert"}
    assert (
        len(climbs()) == sum(account["climbed"].values()) == len(microagents("show", "r", "--json").json["climbs"]) > 0
    )
    assert all(each.rungs[-1].name == each.decided_by for each in climbs())
