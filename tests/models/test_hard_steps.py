"""Hard steps of the simulated model: asked alone, and within rollouts that reach them from steps before.

Every statistical test fixes its seeds and asks for the stated rate to be in a 99.9 % interval, so that it would fail for one set of seeds
in 1,000 for each of its rates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path

import pytest

from microagents import run
from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage, TaskFailed
from microagents.models.model import Call
from microagents.models.simulation.simulated import SimulatedModel
from microagents.replies.chat import Prompt, Sample
from microagents.replies.parsing import parse
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import Format, system_with_instructions, write
from microagents.replies.rollouts import MAX_OUTPUT_TOKENS, Rollout, rollout_of
from microagents.runs.inspection.runs import runs_in
from microagents.systems import Lead, Maker
from microagents.task import ChainTask
from microagents.tasks.drift import RING, Drift, Onward, Place
from tests.models.simulation import DRIFT, call, model, replies

HORIZON = 8
UNCUT = 100_000
"""A cap that no simulated rollout reaches."""
AHEAD = rollout_of(Onward, HORIZON)


def is_within(hits: int, n: int, rate: float) -> bool:
    """Whether a rate is in the 99.9 % interval of a count."""
    return abs(hits - n * rate) <= 3.29 * sqrt(n * rate * (1 - rate))


def alone(number: int, task: Drift = DRIFT) -> Prompt:
    asked = task.prompt(Place(number=number))
    return Prompt(system=system_with_instructions(asked.system, Onward, task.format), user=asked.user)


def step_call(number: int, seq: int = 0) -> Call:
    return call(seq, prompt=alone(number), path=f"0/step/{number}", cap=UNCUT)


def rollout_call(number: int, seq: int = 0, *, rollout: type[Rollout] = AHEAD, task: Drift = DRIFT) -> Call:
    asked = task.rollout_prompt(Place(number=number), rollout.horizon)
    prompt = Prompt(system=system_with_instructions(asked.system, rollout, task.format), user=asked.user)
    return call(seq, prompt=prompt, reply=rollout, path=f"0/ahead/{number}", cap=UNCUT)


def numbers_of(sample: Sample, rollout: type[Rollout] = AHEAD, form: Format = "lines") -> list[int]:
    """Where the steps of a rollout lead."""
    return [step.number for step in parse(sample.text, rollout, form).steps]


def onward(number: int) -> int:
    return DRIFT.oracle(Place(number=number)).number


def walks(asked: SimulatedModel, starts: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Rollouts from these numbers: for each step, the number before and after it."""
    for start, sample in zip(starts, replies(asked, [rollout_call(start) for start in starts]), strict=True):
        reached = numbers_of(sample)
        yield [*zip([start, *reached], reached, strict=False)]


# -- rates -------------------------------------------------------------------------------------------------------------


def first_errors(spec: str, seeds: int, starts: int) -> dict[tuple[bool, int], list[bool]]:
    """Of rollouts by many models, up to the first error: whether each step is wrong, by hardness and by the number of steps before it."""
    found = defaultdict[tuple[bool, int], list[bool]](list)
    for seed in range(seeds):
        asked = model(spec, seed=seed)
        for walk in walks(asked, range(seed, RING, RING // starts)):
            for before, (number, reached) in enumerate(walk):
                wrong = reached != onward(number)
                found[asked.is_hard(alone(number)), before].append(wrong)
                if wrong:
                    break
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "seeds", "hard", "rates"),
    [
        ("sim:perfect@hard=0.2", 30, True, [0.65, 0.375] + [0.1] * 6),
        ("sim:perfect@hard=0.2,hard_error=0.9,hard_ahead=0.3", 30, True, [0.9, 0.6, 0.3]),
        ("sim:perfect@error=0.05,decay=0.02", 30, False, [0.05 + 0.02 * before for before in range(HORIZON)]),
    ],
)
def test_a_rollout_errs_less_at_hard_steps_and_more_at_others_the_earlier_it_starts(
    spec: str, seeds: int, *, hard: bool, rates: list[float]
) -> None:
    found = first_errors(spec, seeds=seeds, starts=40)
    for before, rate in enumerate(rates):
        wrong = found[hard, before]
        assert is_within(sum(wrong), len(wrong), rate), before
        assert not (hard and any(found[False, before]))


# -- the same steps are hard, and the same wrong reply is likely ----------------------------------------------------------------------

ALWAYS = "sim:perfect@hard=0.25,hard_error=1,hard_ahead=1"


def test_a_rollout_errs_at_the_steps_that_are_hard_alone_in_the_same_way_and_continues_from_there() -> None:
    asked = model(ALWAYS)
    said = [
        parse(sample.text, Onward).number for sample in replies(asked, [step_call(number) for number in range(RING)])
    ]
    assert [reached != onward(number) for number, reached in enumerate(said)] == [
        asked.is_hard(alone(number)) for number in range(RING)
    ]
    for walk in walks(asked, range(0, RING, 9)):
        assert [reached for _, reached in walk] == [said[number] for number, _ in walk]


# -- the text of a rollout -----------------------------------------------------------------------------------------------------------


def test_a_rollout_about_very_many_steps_rambles_beyond_every_limit_and_not_for_ever() -> None:
    bad = replies(
        model("sim:perfect@flag=1"), [rollout_call(number, rollout=rollout_of(Onward, 2_000)) for number in range(8)]
    )
    assert MAX_OUTPUT_TOKENS < max(sample.usage.output_tokens or 0 for sample in bad) <= 2 * MAX_OUTPUT_TOKENS


def test_a_rollout_is_charged_for_the_reasoning_of_one_step_and_for_all_its_steps() -> None:
    asked, reasoning = model("sim:perfect@price_out=1e6"), list[int]()
    for horizon in (1, 8, 64):
        rollout = rollout_of(Onward, horizon)
        (sample,) = replies(asked, [rollout_call(5, rollout=rollout)])
        assert len(numbers_of(sample, rollout)) == horizon
        assert sample.usage.cost_usd == sample.usage.output_tokens == len(sample.text) // 4
        reasoning.append(len(sample.text) - len(write(parse(sample.text, rollout))))
    assert reasoning == pytest.approx([4 * 400] * 3, rel=1)


# -- where it ends -------------------------------------------------------------------------------------------------------------------


class Broken(Drift):
    """A walk with code that fails at some numbers."""

    fails_at: int
    method: str

    def _check(self, method: str, number: int) -> None:
        if (method, number) == (self.method, self.fails_at):
            raise KeyError(number)

    def prompt(self, state: Place) -> Prompt:
        self._check("prompt", state.number)
        return super().prompt(state)

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Onward:
        self._check("expert", self.state_in(prompt).number)
        return super().expert(prompt, reply)

    def advance(self, state: Place, reply: Onward) -> Place:
        self._check("advance", reply.number)
        return super().advance(state, reply)

    def done(self, state: Place) -> bool:
        self._check("done", state.number)
        return super().done(state)


@pytest.mark.parametrize("method", ["prompt", "expert", "advance", "done"])
def test_where_the_tasks_code_fails_a_rollout_ends(method: str) -> None:
    (sample,) = replies(model("sim:perfect", Broken(fails_at=526, method=method)), [rollout_call(5)])
    assert numbers_of(sample) == [90, 526]


def test_code_that_fails_at_the_first_step_fails_the_run() -> None:
    with pytest.raises(TaskFailed, match=r"Broken\.expert raised KeyError"):
        replies(model("sim:perfect", Broken(fails_at=5, method="expert")), [rollout_call(5)])


def test_a_task_that_cannot_read_its_state_back_is_told_which_method_to_define() -> None:
    class Mute(ChainTask[Place, Onward]):
        expert = Drift.expert

    with pytest.raises(InvalidUsage, match=r"Mute has no `state_in`.* define the method"):
        replies(model("sim:perfect", Mute()), [rollout_call(5)])


@pytest.mark.parametrize(
    "strategy",
    [Lead(), Maker(ladder="lookahead")],
    ids=lambda each: type(each).__name__,
)
async def test_a_strategy_with_rollouts_is_refused_before_the_first_call_where_they_cannot_be_simulated(
    strategy: Strategy, tmp_path: Path
) -> None:
    class Mute(Drift):
        state_in = ChainTask.state_in

    with pytest.raises(InvalidUsage, match=r"Mute has no `state_in`.* define the method"):
        await run(Mute(length=40), models="sim:perfect@error=0.3", strategy=strategy, runs_dir=tmp_path, run_id="r")
    assert "r" not in dict(runs_in(tmp_path))
    assert (await run(Mute(length=4), models="sim:perfect", runs_dir=None)).outcome == "completed"
