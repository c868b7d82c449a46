"""A goal with a checklist, as the task `plan` takes it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from microagents.tasks.goal import Goal, Outcome


def test_a_goal_with_a_checklist_is_judged_by_the_checks_that_code_can_make() -> None:
    task = Goal(goal="Write a poem.", checklist='- it rhymes\n- check: contains "sea"\n- check: at most 5 words')
    assert "it rhymes" in task.statement()
    assert task.correct(Outcome(text="The sea is wide.")) is True
    assert task.correct(Outcome(text="The lake is wide.")) is False
    assert Goal(goal="Write a poem.").correct(Outcome(text="")) is None


@pytest.mark.parametrize(
    ("options", "said"),
    [({"goal": " "}, "goal is blank"), ({"goal": "x", "checklist": "- check: nice"}, "unknown check 'nice'")],
)
def test_a_goal_that_says_nothing_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Goal(**options)
