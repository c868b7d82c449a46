"""The questions of a run, built again: the journal keeps no prompts.

The question of a chain's step is built by the task, in the state that the recorded decisions lead to. Questions of the rungs that the step
climbed come from a replay of its climb, and all others from a replay of the work. A question counts only if its digest is the recorded one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from msgspec import Struct, structs

from microagents.actors.role import Messenger
from microagents.base.errors import InvalidUsage, MicroagentsError
from microagents.elections.count import Count
from microagents.elections.election import ESCALATED, Question, input_of
from microagents.journal.reading import Reader
from microagents.replies.reply_forms import decoder_of
from microagents.runs.inspection.climbs import step_of
from microagents.runs.inspection.replay import conducted, replay_of, replayed_question
from microagents.runs.plan import RunPlan, plan_of, settings_of
from microagents.systems.agents.agent import AgentTask
from microagents.systems.chains.chain import Chain, ChainConductor, ChainStep, Past
from microagents.systems.chains.lookahead import Lookahead, lookahead_in
from microagents.task import ChainTask, Task
from microagents.work.durable import Work
from microagents.work.elections import put_to

MOST_RIGHT = 500
"""Wrong steps whose right reply is given."""
RUNG_DEPTH = 3
"""Number of components in the place of a rung, such as step/17/judge."""


class RebuiltQuestion(Struct, frozen=True, kw_only=True):
    """A question that was built again as it was asked."""

    task: Task
    question: Question
    step: ChainStep | None
    """The step of a chain whose reply is asked for; None for any other question."""
    chain: Chain | None = None
    """The chain of the step."""


def asked_at(reader: Reader, path: str, digest: bytes) -> tuple[RebuiltQuestion | None, str | None]:
    """Return the question at a path, if it can be built again and has the recorded digest; else the reason."""
    unknown = "the prompt is not in the journal, and cannot be rebuilt"
    try:
        asked = _rebuilt(reader, path)
    except MicroagentsError as error:
        return None, f"{unknown}: {error}"
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        return None, f"{unknown}: the task raised {type(error).__name__}: {error}"
    if path.endswith(ESCALATED):
        other_model = reader.settled_at().get(path, settings_of(reader.experiment)["on_undecided"])
        asked = structs.replace(asked, question=put_to(asked.question, (other_model,)))
    if asked.question.id_at(path).question_digest != digest:
        return None, (
            f"{unknown}: the task as it is now asks another question here; its code, its options or this microagents differ from the "
            "run's"
        )
    return asked, None


def asked_at_step(reader: Reader, path: str) -> RebuiltQuestion | None:
    """Return the question of the step that a rung is about; None if it cannot be built again."""
    step = step_of(path)
    row = reader.decision_at(step)
    if row is None:
        return None
    return asked_at(reader, step, row.question_digest)[0]


def _rebuilt(reader: Reader, path: str) -> RebuiltQuestion:
    plan, of_input, place = plan_of(reader), input_of(path), path.removesuffix(ESCALATED)
    task, steps = plan.tasks[of_input], _steps_of(reader, plan, of_input)
    if steps is not None:
        chain, has_rungs = steps.chain(replay_of(reader, plan, place)), bool(plan.strategy.rungs)
        match place.split("/")[1:]:
            case ["step", number] if number.isdecimal():
                step = steps.step(int(number), chain)
                return RebuiltQuestion(task=task, question=step.question, step=step, chain=chain)
            case ["step", number, *rung] if number.isdecimal() and has_rungs:
                question = replayed_question(reader, plan, place, lambda messenger: steps.climb(int(number), messenger))
                # A rung asks for a reply to the step, what is below it for something else.
                asked = steps.step(int(number), chain) if len(rung) == 1 else None
                return RebuiltQuestion(task=task, question=question, step=asked, chain=chain)
            case ["rollout", *_, start, _] if start.isdecimal() and has_rungs:
                question = replayed_question(
                    reader, plan, place, lambda messenger: steps.roll_out(int(start), place, messenger)
                )
                return RebuiltQuestion(task=task, question=question, step=None)
    return RebuiltQuestion(task=task, question=replayed_question(reader, plan, place, conducted(of_input)), step=None)


def _steps_of(reader: Reader, plan: RunPlan, of_input: int) -> _Steps | None:
    """Return the steps of an input; None for other work, and for an agent, whose states follow from results of its calls, too."""
    task, kind = plan.tasks[of_input], plan.strategy.conductor
    is_chain = isinstance(task, ChainTask) and not isinstance(task, AgentTask)
    if is_chain and issubclass(kind, ChainConductor):
        return _Steps(reader, plan, kind, of_input)
    return None


class _Steps:
    """Steps of the chain of one input, in their recorded states."""

    def __init__(self, reader: Reader, plan: RunPlan, kind: type[ChainConductor[Any]], of_input: int) -> None:
        self._reader = reader
        self._plan = plan
        self._kind = kind
        self._input = of_input
        self._knows_inputs = plan.strategy.knows_inputs
        self._history = max((rung.history for rung in plan.strategy.rungs if isinstance(rung, Lookahead)), default=0)

    def chain(self, messenger: Messenger) -> Chain:
        conductor = self._kind(self._plan.context(), messenger)
        return conductor.chain(Work(conductor, self._input, recalls=True))

    def step(self, number: int, chain: Chain) -> ChainStep:
        return chain.step(number, self._state_at(number, chain))

    async def climb(self, number: int, messenger: Messenger) -> None:
        chain = self.chain(messenger)
        step = self.step(number, chain)
        # Until the climb ends the vote has no row. Only a judge needs its ballots.
        verdict = await chain.work.recall(step.election, step.question) or Count(step.election, step.question).verdict()
        await chain.climb(step, structs.replace(verdict, outcome="undecided"), [])

    async def roll_out(self, start: int, path: str, messenger: Messenger) -> None:
        chain = self.chain(messenger)
        lookahead = lookahead_in(self._reader.experiment.recipe.strategy_options)
        state = self._state_at(start, chain)
        await lookahead.rollout(chain, Past(number=start, state=state, reply=None), path.partition("/")[2])

    def _state_at(self, number: int, chain: Chain) -> Any:
        """Return the state in which a step was asked: the oracle's with known inputs, else that which the decisions before it lead to."""
        done, state = 0, None
        for done, state, reply in self.walked(chain):
            if done == number:
                return state
            if done >= number - self._history:  # rollouts of a climb start there
                chain.go_on(Past(number=done, state=state, reply=reply), reply)
        raise InvalidUsage(f"step {done} before it is not decided, so its state is unknown")

    def walked(self, chain: Chain) -> Iterator[tuple[int, Any, Any]]:
        """Yield number, state and decided reply of each step, up to the first without a decision; its reply is None.

        With known inputs the oracle leads on from such a step, to the end of the chain.

        Raises:
            InvalidUsage: the task's code raised.
        """
        decoder, decided = decoder_of(chain.reply_type), _decided(self._reader, self._input)
        following = next(decided, None)
        try:
            state = chain.start()
            for number in itertools.count():
                if self._knows_inputs and chain.is_done(state, number):
                    return
                reply = None
                if following is not None and following[0] == number:
                    reply, following = decoder.decode(following[1]), next(decided, None)
                yield number, state, reply
                lead = chain.oracle(state, number) if self._knows_inputs else reply
                if lead is None:
                    return
                state = chain.next_state(state, lead, number)
        except MicroagentsError:
            raise
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything
            raise InvalidUsage(f"the task raised {type(error).__name__}: {error}") from None


def _decided(reader: Reader, of_input: int) -> Iterator[tuple[int, bytes]]:
    """Yield the decisions of the steps in order, each by its vote, a rung or another model."""
    rows = ((path.split("/")[1:], row) for path, row in reader.decisions(of_input))
    steps = ((place, row) for place, row in rows if place[0] == "step" and len(place) > 1)
    for number, group in groupby(steps, key=lambda each: each[0][1]):
        found = (row.value for place, row in group if len(place) <= RUNG_DEPTH and row.is_decision)
        value = next(found, None)
        if value is not None:
            yield int(number), value


def wrong_steps(reader: Reader, of_input: int, within_s: float) -> tuple[dict[int, Any], int | None]:
    """Return the steps of an input whose decisions the task's oracle refuses, and the number of steps that were judged in that time.

    Each stands with the right reply, as JSON-like values, as far as code knows it. The number is None for work whose steps no oracle
    judges, such as an agent's.

    Raises:
        InvalidUsage: the task's code cannot be found, or raised.
    """
    plan, ends_s = plan_of(reader), time.monotonic() + within_s
    steps = _steps_of(reader, plan, of_input)
    if steps is None:
        return {}, None
    chain, wrong, judged = steps.chain(replay_of(reader, plan)), dict[int, Any](), 0
    for number, state, reply in steps.walked(chain):
        if time.monotonic() > ends_s:
            break
        if reply is None:
            continue
        if chain.correct(state, reply, number) is False:
            wrong[number] = chain.right(state, number) if len(wrong) < MOST_RIGHT else None
        judged = number + 1
    return wrong, judged


def decided_steps(reader: Reader) -> Iterator[tuple[int, Any, Any]]:
    """Yield the decided steps of the chain of a run with one task: number, state and reply.

    Raises:
        InvalidUsage: the run has no such steps, the task's code cannot be found, or it raised.
    """
    plan = plan_of(reader)
    steps = _steps_of(reader, plan, 0)
    if plan.listed or steps is None:
        raise InvalidUsage(
            f"run {reader.experiment.run_id!r} did not decide the steps of one chain, so it has no states"
        )
    chain = steps.chain(replay_of(reader, plan))
    return (each for each in steps.walked(chain) if each[2] is not None)
