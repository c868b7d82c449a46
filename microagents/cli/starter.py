"""The files that `microagents init` writes: a task to begin with, and its test."""

from __future__ import annotations

from string import Template

TASK = Template('''\
"""Work out the days of a plan, one entry a step. Put your own work in its place."""

import re
from datetime import date, timedelta

from microagents import ChainTask, Prompt, Reply
from msgspec import Struct

PLAN = """\\
order the parts: 12 days
wait for the delivery: 45 days
assemble: 9 days
test: 21 days
ship: 5 days
"""


class Due(Reply, frozen=True):
    """What the model fills in at each step. Replies with equal fields are votes for the same."""

    day: date


class Stage(Struct, frozen=True):
    """What one step hands to the next."""

    line: int
    day: date


class ${Name}(ChainTask[Stage, Due]):
    """Its fields are options: microagents run ${name}.py -o first=2026-03-01 -o plan=@plan.txt"""

    plan: str = PLAN
    """The plan: what is to be done and how many days it takes, one entry a line."""
    first: date = date(2026, 1, 31)
    """The day on which the plan begins."""

    def start(self) -> Stage:
        return Stage(line=0, day=self.first)

    def done(self, state: Stage) -> bool:
        return state.line == len(self.plan.splitlines())

    def prompt(self, state: Stage) -> Prompt:
        entry = self.plan.splitlines()[state.line]
        rule = "You keep a schedule. Name the day on which an entry is finished."
        return Prompt(system=rule, user=f"Begins on: {state.day}\\nEntry: {entry}")

    def advance(self, state: Stage, reply: Due) -> Stage:
        return Stage(line=state.line + 1, day=reply.day)

    def oracle(self, state: Stage) -> Due:
        """Optional: the right reply, if code knows it. A run counts wrong decisions by it, and known_inputs needs it."""
        return self.expert(self.prompt(state), Due)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Due:
        """Optional: lets the simulated model do the task, from the text of the prompt alone."""
        day, days = re.findall(r"Begins on: (.+)\\nEntry: .*?(\\d+) days", prompt.user)[0]
        return Due(day=date.fromisoformat(day) + timedelta(days=int(days)))
''')
TEST = Template('''\
"""The task on the simulated model, which errs on purpose: voting finds the right days."""

from datetime import date

import ${name}
from ${name} import Due, Stage
from microagents import ChainTask, run_sync

# The task of the file, whatever you call it.
kinds = [each for each in vars(${name}).values() if isinstance(each, type) and issubclass(each, ChainTask)]
(Task,) = [each for each in kinds if not each.missing_methods()]


def test_the_plan_ends_on_the_right_day() -> None:
    result = run_sync(Task(), models="sim:gpt-4.1-mini@error=0.2", k=4, runs_dir=None)
    assert result.outcome == "completed"
    assert result.account.errors == 0
    assert result.value == Stage(line=5, day=date(2026, 5, 3))


def test_a_wrong_day_is_found_out() -> None:
    task = Task(plan="rest: 30 days", first=date(2026, 1, 31))
    assert task.correct(task.start(), Due(day=date(2026, 3, 2)))
    assert not task.correct(task.start(), Due(day=date(2026, 2, 28)))
''')
OWN_NAMES = ("ChainTask", "Due", "Prompt", "Reply", "Stage", "Struct")
"""Names that the task's file has already."""
