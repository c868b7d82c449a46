"""Calibrations on many inputs, each one question: a direct answer to a problem, or a chain of one step."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from msgspec import structs

from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.base.user_code import called
from microagents.elections.rules import FirstValid, Rule
from microagents.studies.sampling.calibration import FIRST, Calibrated, CalibratedStep, judged_samples, sampled
from microagents.studies.sampling.study import right_reply
from microagents.systems.chains.chain import Chain, ChainConductor
from microagents.systems.questions.problem import Problem, answer_type_of, direct_prompt
from microagents.systems.questions.problem_conductor import is_problem
from microagents.task import ChainTask, Task
from microagents.work.durable import Work


class InputCalibrationConductor(ChainConductor["InputCalibration"]):
    """Draws the samples of an input."""

    async def conduct(self, work: Work[ChainTask[Any, Any], InputCalibration]) -> Calibrated:
        """Sample the only question of the input."""
        work.progress(0, 1)
        step = await (_answered(work) if is_problem(work) else _asked(work))
        work.progress(1, 1)
        numbers = work.strategy.numbers
        return Calibrated(total=work.strategy.of, steps=(structs.replace(step, number=numbers[work.input]),))


class InputCalibration(Strategy):
    """Two samples of the only question of each input, and eight more of inputs with an error, a flag or a difference."""

    solves = (Problem, ChainTask)
    conductor = InputCalibrationConductor

    numbers: tuple[int, ...]
    """For each input its number among all inputs that were given."""
    of: int
    """Number of inputs that they were chosen from."""

    def expected_calls(self, task: Task) -> float | None:  # noqa: ARG002 - of any task
        """Count the first samples."""
        return float(FIRST)

    @cached_property
    def default_rule(self) -> Rule:
        """The rule of every sample: no vote."""
        return FirstValid(1)


async def _asked(work: Work[ChainTask[Any, Any], InputCalibration]) -> CalibratedStep:
    sampling = structs.replace(work.task.sampling, first_temperature=work.task.sampling.temperature)
    chain = Chain(work, max_draws=FIRST, sampling=sampling)
    state = chain.start()
    return await sampled(chain, 0, state, right_reply(chain, state, 0))


async def _answered(work: Work[Any, InputCalibration]) -> CalibratedStep:
    task = work.task
    sampling = structs.replace(task.sampling, first_temperature=task.sampling.temperature)

    async def drawn(at: str, count: int) -> list[Any]:
        return await work.sample(
            f"answer/{at}", direct_prompt(task), answer_type_of(task), n=count, max_draws=count, sampling=sampling
        )

    def is_right(reply: Any) -> bool:
        verdict: bool | None = called(task.correct, reply)
        if verdict is None:
            raise InvalidUsage(f"{type(task).__name__}.correct cannot judge an answer, so it cannot be calibrated")
        return verdict

    return await judged_samples(0, drawn, is_right, lambda _: "answer", task.vote_of)
