"""Studies of simulated models whose errors are known, and how a study stops and continues.

Every statistical test fixes its seed and asks for 99.9 % intervals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import msgspec
import pytest

from microagents import InvalidUsage
from microagents.base.errors import JournalMismatch
from microagents.models.model import ModelSpec
from microagents.models.simulation.scripted import ScriptLine
from microagents.models.simulation.simulated import SimulatedModel
from microagents.replies.chat import Prompt, system_with_instructions
from microagents.studies.flags import FlagFindings
from microagents.studies.study import Kind, StudyReport, study
from microagents.tasks.checkers import Checkers
from microagents.tasks.drift import Drift, Onward, Place
from microagents.tasks.multiplication import Multiplication

LENGTH, SAMPLES = 60, 40
TASK = Drift(length=LENGTH)
HARD = "sim:gpt-4.1-mini@error=0.05,flag=0.1,hard=0.1,hard_error=0.8"
OTHER = "sim:o3-mini@error=0.05,hard=0.1,hard_error=0.8"


class Over(Drift):
    """A chain without steps."""

    def done(self, state: Place) -> bool:  # noqa: ARG002 - a task
        """Always."""
        return True


def studied(kind: Kind, *models: str, task: Any = TASK, **options: Any) -> StudyReport:
    return asyncio.run(study(task, kind, models=models or [HARD], **{"samples": SAMPLES, **options}))


def hard_steps(spec: str) -> set[int]:
    """The steps that a simulated model finds hard."""
    model = SimulatedModel(ModelSpec.parse(spec), [TASK], 0)
    state, found = TASK.start(), set()
    for number in range(LENGTH):
        asked = TASK.prompt(state)
        if model.is_hard(Prompt(system=system_with_instructions(asked.system, Onward, TASK.format), user=asked.user)):
            found.add(number)
        state = TASK.advance(state, TASK.oracle(state))
    return found


def is_within(share: float, rate: float, n: int) -> bool:
    return abs(share - rate) <= 3.29 * sqrt(rate * (1 - rate) / n)


def test_hard_steps_and_the_rates_of_all_are_found() -> None:
    (model,) = studied("errors").models
    assert model.errors is not None
    hard = hard_steps(HARD)
    assert len(hard) > 2
    assert {each.step for each in model.errors.hardest(len(hard))} == hard
    assert model.errors.surely_hard <= model.errors.hard == len(hard)
    easy = [each for each in model.errors.steps if each.step not in hard]
    for group, rate in ((easy, 0.05), ([model.errors.steps[each] for each in hard], 0.8)):
        wrong, valid = sum(each.wrong for each in group), sum(each.valid for each in group)
        assert is_within(wrong / valid, rate, valid)
    assert sum(each.valid for each in model.errors.steps) == LENGTH * SAMPLES - model.flagged


def test_models_that_find_different_steps_hard_are_farther_apart_than_the_halves_of_each() -> None:
    found = studied("distance", HARD, OTHER).distances
    assert found is not None
    (own, between), (again, others) = found.matrix
    assert own is not None
    assert others is not None
    assert between == again
    assert between is not None
    assert max(own, others) < 0.3
    assert between > 0.6


def test_a_rollout_that_comes_from_before_gets_a_hard_step_right() -> None:
    ahead = "sim:perfect@hard=0.1,hard_error=0.8,hard_ahead=0"
    (model,) = studied("lookahead", ahead, horizon=4).models
    assert model.lookahead is not None
    alone, first, _, third, _ = model.lookahead.positions
    hard = {step for step, right in enumerate(alone.by_step) if right is not None and right < 0.5}
    assert hard == hard_steps(ahead)
    assert {step for step, right in enumerate(first.by_step) if right is not None and right < 0.5} == hard
    reached = [step for step in hard if not {step - 1, step - 2} & hard and step > 1]
    assert reached
    assert all(third.by_step[step] == 1.0 for step in reached)
    assert first.given_first is not None
    assert first.given_first.share == 1.0


def test_errors_of_checkers_are_of_the_board_rather_than_of_the_move() -> None:
    (model,) = studied("parts", "sim:perfect@error=0.2", task=Checkers(n=4)).models
    assert model.parts is not None
    move, board = model.parts.fields
    assert (move.name, board.name) == ("move", "board")
    assert board.errors_per_walk > 4 * move.errors_per_walk
    assert model.parts.whole.errors_per_walk == pytest.approx(move.errors_per_walk + board.errors_per_walk)
    assert model.parts.whole.majority is not None
    assert model.parts.whole.majority.share == 1.0


def test_other_studies_of_single_steps_use_the_same_samples() -> None:
    first = studied("errors").models[0]
    for kind in ("parts", "errors"):
        model = studied(kind).models[0]
        assert (model.run_id, model.calls) == (first.run_id, first.calls)


def test_a_limit_holds_for_all_models_together_and_the_same_study_continues() -> None:
    short, whole = Drift(length=20), 2 * 20 * SAMPLES
    stopped = studied("distance", HARD, OTHER, task=short, max_calls=whole - 100)
    assert (stopped.outcome, stopped.distances, len(stopped.models)) == ("stopped", None, 1)
    assert stopped.reason == f"--max-calls {whole - 100} is reached in {OTHER}"
    continued = studied("distance", HARD, OTHER, task=short)
    assert (continued.outcome, sum(each.calls for each in continued.models)) == ("completed", whole)
    assert continued.distances == studied("distance", HARD, OTHER, task=short, run_id="another").distances, (
        "the same as in one sitting"
    )


def test_the_name_of_another_study_is_refused() -> None:
    studied("errors", run_id="mine", samples=1)
    with pytest.raises(JournalMismatch, match=r"samples=1, now it is .*2"):
        studied("errors", run_id="mine", samples=2)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("errors", {"task": Multiplication(digits=2)}, "Multiplication is not a chain of steps"),
        ("distance", {}, "between two or more models"),
        ("distance", {"models": [HARD, HARD]}, "between two or more models"),
        ("distance", {"models": [HARD, OTHER], "samples": 1}, "samples must be at least 2 for a distance"),
        ("lookahead", {"horizon": LENGTH + 1}, "goes beyond the end: Drift has 60 steps"),
        ("lookahead", {"horizon": 0}, "horizon must be .*, not 0"),
        ("errors", {"horizon": 2}, "belongs to the study lookahead"),
        ("errors", {"samples": 0}, "samples must be .*, not 0"),
        ("error", {}, "did you mean 'errors'"),
        ("errors", {"models": []}, "at least one model"),
        ("errors", {"task": Over(length=3)}, "Over is done before its first step, so there is nothing to study"),
    ],
)
def test_a_study_that_cannot_be_is_refused_in_a_sentence(kind: Any, options: dict[str, Any], said: str) -> None:
    task, models = options.pop("task", TASK), options.pop("models", [HARD])
    with pytest.raises(InvalidUsage, match=said):
        asyncio.run(study(task, kind, models=models, **options))


def test_a_horizon_is_at_most_the_length_of_a_short_task() -> None:
    assert studied("lookahead", task=Drift(length=3), samples=1).horizon == 3


def recorded(replies: Callable[[int, int], Sequence[str]], length: int = 100) -> str:
    """A file of replies to each step of a drift, given its number and the right answer."""
    task, lines = Drift(length=length), []
    state = task.start()
    for number in range(length):
        state = task.advance(state, task.oracle(state))
        texts = replies(number, state.number)
        lines += [ScriptLine(path=f"0/step/{number}/sample", seq=seq, text=text) for seq, text in enumerate(texts)]
    Path("replies.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(lines))
    return "scripted:replies.jsonl"


def flags_of(model: str, samples: int = 4) -> FlagFindings:
    (found,) = studied("flags", model, task=Drift(length=100), samples=samples).models
    assert found.flags is not None
    return found.flags


def test_a_cap_is_advised_where_long_replies_are_wrong_and_what_flags_cost_is_counted() -> None:
    def replies(number: int, right: int) -> list[str]:
        wrong = f"{'Or else? ' * 200}\nnumber = {(right + 1) % 1009}"  # each time the same
        rambles = [wrong, wrong] if number % 5 == 0 else [f"number = {right}"] * 2
        return [*rambles, f"number = {right}", f"**number = {right}**"]

    found = flags_of(recorded(replies))
    lenient, strict, *caps = found.readings
    assert (lenient.valid, lenient.wrong, lenient.right_flagged) == (400, 40, 0)
    assert (strict.valid, strict.wrong, strict.right_flagged) == (300, 40, 100), "bold text is no line of the form"
    assert (lenient.both_wrong, lenient.collisions) == (20, 20)
    assert lenient.both_if_independent == pytest.approx(1.0)
    short = next(each for each in caps if each.gains)
    assert (short.wrong, short.both_wrong, short.collisions) == (0, 0, 0)
    assert found.advice.startswith("the strict form costs right replies and shows no gain; flag replies of more than ")


def test_no_cap_is_advised_where_long_replies_are_right_as_often_as_short_ones() -> None:
    def replies(number: int, right: int) -> list[str]:
        return [f"{'So. ' * (7 * number % 50)}\nnumber = {(right + (number % 10 == each)) % 1009}" for each in range(4)]

    found = flags_of(recorded(replies))
    assert not any(each.gains for each in found.readings)
    assert found.advice == "the strict form shows no gain, and costs nothing; no length flag gains: leave it off"


def test_the_strict_form_gains_where_what_it_refuses_is_wrong() -> None:
    def replies(number: int, right: int) -> list[str]:
        last = f"number = {right + 1}\nWait, that is wrong." if number % 3 == 0 else f"number = {right}"
        return [f"number = {right}"] * 3 + [last]

    assert flags_of(recorded(replies)).advice == "the strict form gains; no length flag gains: leave it off"
