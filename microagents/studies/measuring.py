"""The strategy of a measurement: samples of random steps, judged by the oracle, and rollouts from them. Nothing is decided."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import nsmallest
from types import NoneType
from typing import Annotated, Any, NamedTuple

from msgspec import Raw, Struct, json, structs
from pydantic import BaseModel, ConfigDict, Field

from microagents.actors.ranges import OneOrMore, OneToMillion, OneToTenThousand
from microagents.actors.role import Strategy
from microagents.base.aio import TaskScope
from microagents.base.errors import InvalidUsage
from microagents.base.text_digests import digest_of
from microagents.base.user_code import called
from microagents.elections.certainty import decides_alone
from microagents.elections.election import AnyBallot, Ballot, Question, Verdict
from microagents.elections.rules import MARGIN, ORDERS, FirstToAheadBy, FirstValid, Rule, likeliest
from microagents.elections.step_rates import MAX_K
from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import decoder_of
from microagents.replies.rollouts import Rollout
from microagents.runs.accuracy import Pair, wrong_pairs
from microagents.systems.chains.chain import Chain, ChainConductor
from microagents.systems.chains.maker import Maker
from microagents.systems.chains.row_task import RowTask
from microagents.systems.questions.problem import Problem, answer_type_of, direct_prompt
from microagents.systems.questions.problem_conductor import is_problem
from microagents.task import ChainTask, Task
from microagents.work.durable import Work
from microagents.work.elections import encode_state

FIRST = 2
"""Number of samples of each step."""
ALL = 10
"""Number of samples of a step if one of the first is wrong or flagged, or if they differ."""
PILOT = "pilot"
"""Place of the votes on an input."""
VOTES_A_K = 2
"""Multiple of k that votes on a row take about: 20 fields that are right in .9 take 2.3."""


class HeldVotes(Struct, frozen=True, array_like=True):
    """A complete election on an input, judged."""

    k: int
    drawn: int
    """Number of samples, flagged ones included."""
    is_open: bool
    """Whether its cap ended it."""
    wrong: int
    """Number of parts of the decided reply that are wrong; 0 of an open one, and if nothing judges them."""


class MeasuredStep(Struct, frozen=True, array_like=True):
    """The samples of a step, judged."""

    number: int
    drawn: int
    """Number of samples, flagged ones included."""
    first_valid: int
    """Number of valid ones among the first `FIRST`."""
    votes: tuple[int, ...]
    """For each valid sample in launch order the number of its vote, by first appearance."""
    right: tuple[bool, ...] | None
    """For each vote whether it is right; None if nothing judges them."""
    mistakes: dict[str, int]
    """Number of wrong samples by the first field that is not the oracle's."""
    decided: int | None = None
    """Number of samples with the vote that an earlier run decided; None without one."""
    rollouts: tuple[tuple[bool | None, ...], ...] = ()
    """For each rollout from here whether each of its steps is right; None for a step that it does not give."""
    certain: int | None = None
    """Number of the first samples whose probability decides the step by itself; None if none has a probability."""
    likeliest: tuple[float, bool] | None = None
    """Mean probability of the likeliest option, and whether it is right; None if the model weighs no options."""
    wrong_fields: dict[str, tuple[int, int]] = {}
    """For each part of a vote by field the numbers of wrong samples: among the first ones, and among all. Empty if replies vote as a whole,
    or nothing judges them."""
    confused: tuple[Pair, ...] = ()
    """For each wrong field of a sample its right value and the given one."""
    held: HeldVotes | None = None
    """Votes on the input, with samples of their own; None if none were held."""
    names: tuple[int, ...] = ()
    """For each vote a number that it has with every model: of its digest."""
    length: int = 0
    """Bytes of the prompt."""

    @property
    def valid(self) -> int:
        """Number of samples without a red flag."""
        return len(self.votes)

    @property
    def errors(self) -> list[bool]:
        """Whether each valid sample is wrong, in launch order."""
        if self.right is None:
            return []
        return [not self.right[vote] for vote in self.votes]

    @property
    def wrong(self) -> int:
        """Number of wrong samples."""
        return sum(self.errors)


class Measured(Struct, frozen=True, kw_only=True):
    """Measurements of a run."""

    total: int
    """Number of steps of the task, or of inputs."""
    steps: tuple[MeasuredStep, ...]


class GivenState(BaseModel):
    """A state in which a step is asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    """Number of the step, counted from 0."""
    state: Any
    """As JSON has it."""
    reply: Any = None
    """The reply that an earlier run decided there, as JSON has it; None if there is none."""


class MeasuringConductor(ChainConductor["Measuring"]):
    """Draws the samples."""

    async def conduct(self, work: Work[ChainTask, Measuring]) -> Measured:
        """Sample the chosen steps side by side, at most ``window`` at a time; of many inputs the only question of each."""
        strategy, of_inputs = work.strategy, work.strategy.numbers
        if is_problem(work):
            return Measured(total=strategy.of or 1, steps=(await _answer(work),))
        chain = Chain(work)
        if of_inputs:
            state = chain.start()
            is_by_gold = isinstance(work.task, RowTask) and bool(work.task.gold)
            right = chain.oracle(state, 0) if strategy.judged and not is_by_gold else None
            number = of_inputs[work.input]
            only = await _measured(chain, _Step(0, state, right), holds_votes=number in strategy.pilot)
            return Measured(total=strategy.of or 1, steps=(structs.replace(only, number=number),))
        total = max(strategy.of or 0, chain.total or 0) or sum(1 for _ in _walk(chain))
        count = min(strategy.steps, total)
        window = count if work.role.context.is_in_batches else strategy.window
        chosen = None if strategy.states else chosen_among(total, count, work.role.context.seed)
        open_steps: deque[asyncio.Task[MeasuredStep]] = deque()
        done: list[MeasuredStep] = []
        work.progress(0, count)
        async with TaskScope() as scope:
            for step in _given(chain, strategy) if strategy.states else _walk(chain):
                if chosen is None or step.number in chosen:
                    open_steps.append(scope.start(_measured(chain, step)))
                while open_steps and (len(open_steps) >= window or len(done) + len(open_steps) == count):
                    done.append(await open_steps.popleft())
                    work.progress(len(done), count)
                if len(done) == count:
                    break
        return Measured(total=total, steps=tuple(done))


class Measuring(Strategy):
    """Samples of random steps: two of each, and ten of steps with an error, a flag or a difference. The oracle judges them."""

    solves = (ChainTask, Problem)
    conductor = MeasuringConductor
    changes_no_decision = ("window",)
    measures_masses = True
    asks_at_once = True

    steps: OneToMillion = 1_000
    """Number of steps that are sampled, at most all of the task."""
    draws: Annotated[int | None, Field(ge=2, le=10_000)] = None
    """Number of samples of every step; None for two, and ten if they are not both right."""
    rollouts: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Number of rollouts from each step."""
    horizon: OneToTenThousand = 8
    """Number of steps in a rollout."""
    window: OneOrMore = 64
    """Number of steps that are open at a time."""
    states: tuple[GivenState, ...] = ()
    """States of the chosen steps; none for the oracle's."""
    numbers: tuple[int, ...] = ()
    """For each of many inputs its number among all that were given; none for the steps of one chain."""
    of: Annotated[int | None, Field(ge=1)] = None
    """Number of states or inputs that they were chosen from; None for all steps of the task."""
    judged: bool = True
    """Whether the oracle judges the samples. Without one, only their agreement is measured."""
    pilot: tuple[int, ...] = ()
    """Numbers of the inputs on which votes are held, too."""
    k: Annotated[int, Field(ge=1, le=MAX_K)] = Maker().k
    """Lead that decides these votes."""

    def expected_calls(self, task: Task) -> float | None:
        """Count the first samples of every step, its rollouts, and twice k votes for each election that is held."""
        each = (self.draws or FIRST) + self.rollouts
        if self.numbers:
            return each + VOTES_A_K * self.k * len(self.pilot) / len(self.numbers)
        total = self.of or (called(task.steps, gives=(int, NoneType)) if isinstance(task, ChainTask) else None)
        return float(each * (self.steps if total is None else min(self.steps, total)))

    @property
    def draws_rollouts(self) -> bool:
        """Whether rollouts are asked for."""
        return self.rollouts > 0

    @cached_property
    def default_rule(self) -> Rule:
        """The rule of every sample: no vote."""
        return FirstValid(1)


class _Step(NamedTuple):
    """A step of a chain in a state."""

    number: int
    state: Any
    right: Reply | None
    """The oracle's reply; None if nothing judges the samples, or gold values do."""
    decided: Any = None
    """The reply that an earlier run decided."""


class _Judged(NamedTuple):
    """The verdict on a reply."""

    wrong: str | None
    """Its first wrong field; empty if it is right, None if nothing judges it."""
    parts: Mapping[str, bool] = {}
    """Whether each part of a vote by field is wrong; empty if replies vote as a whole."""
    pairs: Sequence[Pair] = ()
    """Its wrong fields with the right values and its own."""


async def _measured(chain: Chain, step: _Step, *, holds_votes: bool = False) -> MeasuredStep:
    (number, state, right, _), strategy, rollouts = step, chain.work.strategy, []
    known = called(chain.task.right_fields, state, gives=dict, at=number) if strategy.judged else {}

    groups = [names for names in chain.task.fields_of_vote(chain.reply_type) if not known.keys().isdisjoint(names)]

    def judge(reply: Any) -> _Judged:
        if not strategy.judged:
            return _Judged(None)
        pairs = wrong_pairs(reply, known)
        wrong = [name for name, *_ in pairs]
        parts = {" and ".join(names): not set(wrong).isdisjoint(names) for names in groups}
        if _is_right(chain, state, reply, number, right):
            return _Judged("", parts)
        return _Judged([*wrong, "vote"][0], parts, pairs)

    async with TaskScope() as scope:
        if strategy.rollouts:
            several: Prompt = called(chain.task.rollout_prompt, state, strategy.horizon, gives=Prompt, at=number)
            places = [f"step/{number}/rollout/{strategy.horizon}-{each}" for each in range(strategy.rollouts)]
            rollouts = [scope.start(chain.rollout(place, several, strategy.horizon)) for place in places]
        asked, at = chain.asked(state, number), f"step/{number}"
        found = await _sampled(
            chain.work, number, at, asked, chain.reply_type, judge=judge, state=state, decided=step.decided
        )
        held = await _held(chain, step, judge) if holds_votes else None
        await scope.join()
    valid = [reply for each in rollouts if isinstance(reply := each.result(), Rollout)]
    judged = tuple([_judged(chain, step, each, strategy.horizon) for each in valid])
    return structs.replace(found, rollouts=judged, held=held)


async def _held(chain: Chain, step: _Step, judge: Callable[[Any], _Judged]) -> HeldVotes:
    """Hold an election on an input, as a run would."""
    work, k = chain.work, chain.work.strategy.k
    asked, written = chain.asked(step.state, step.number), Raw(encode_state(step.state))
    cap = Maker(k=k).max_draws
    question = work.question(asked, chain.reply_type, rule=FirstToAheadBy(k), max_draws=cap, state=written)
    verdict = await _recorded(work, PILOT, question)
    drawn, winner = len(verdict.ballots), verdict.winner
    if winner is None or drawn == cap:
        return HeldVotes(k=k, drawn=drawn, is_open=True, wrong=0)
    judged = judge(decoder_of(chain.reply_type).decode(winner))
    return HeldVotes(k=k, drawn=drawn, is_open=False, wrong=max(sum(judged.parts.values()), bool(judged.wrong)))


def _judged(chain: Chain, step: _Step, rollout: Rollout, horizon: int) -> tuple[bool | None, ...]:
    """Judge each step in the state that the right ones before it lead to; a wrong one counts as if the oracle had replied."""
    state, verdicts = step.state, list[bool | None]()
    for number in range(step.number, step.number + horizon):
        if chain.is_done(state, number):
            break
        reply = rollout.steps[len(verdicts)] if len(verdicts) < len(rollout.steps) else None
        right = right_reply(chain, state, number)
        verdicts.append(None if reply is None else _is_right(chain, state, reply, number, right))
        state = chain.next_state(state, reply if verdicts[-1] else right, number)
    return tuple(verdicts)


def chosen_among(total: int, count: int, seed: int) -> set[int]:
    """Choose random steps: fewer are a part of more, so that a larger measurement asks the same steps and others."""
    return set(nsmallest(count, range(total), key=lambda number: digest_of(f"{seed}/{number}", 8)))


def right_reply(chain: Chain, state: Any, number: int) -> Any:
    """Ask the oracle for the reply to a step.

    Raises:
        InvalidUsage: there is none.
    """
    reply = chain.oracle(state, number)
    if reply is None:
        raise InvalidUsage(
            f"{type(chain.task).__name__} has no oracle for step {number}, so its replies cannot be judged"
        )
    return reply


def _is_right(chain: Chain, state: Any, reply: Reply, number: int, right: Reply | None) -> bool:
    """Return whether a reply is right: by the task, or else by the oracle's reply."""
    verdict = chain.correct(state, reply, number)
    if verdict is None and right is not None:
        return chain.task.vote_of(reply) == chain.task.vote_of(right)
    return verdict is not False


def _walk(chain: Chain) -> Iterator[_Step]:
    """Walk the steps of the oracle."""
    state, number = chain.start(), 0
    while not chain.is_done(state, number):
        right = right_reply(chain, state, number)
        yield _Step(number, state, right)
        state, number = chain.next_state(state, right, number), number + 1


def _given(chain: Chain, strategy: Measuring) -> Iterator[_Step]:
    for each in strategy.states:
        state = chain.read_state(json.encode(each.state))
        right = right_reply(chain, state, each.number) if strategy.judged else None
        if each.reply is None:
            decided = None
        else:
            decided = decoder_of(chain.reply_type).decode(json.encode(each.reply))
        yield _Step(each.number, state, right, decided)


async def _answer(work: Work[Any, Measuring]) -> MeasuredStep:
    """Sample direct answers to a problem, which its `correct` judges."""
    task, numbers = work.task, work.strategy.numbers

    def judge(reply: Any) -> _Judged:
        verdict: bool | None = called(task.correct, reply)
        if verdict is None:
            raise InvalidUsage(f"{type(task).__name__}.correct cannot judge an answer, so it cannot be measured")
        return _Judged("" if verdict else "answer")

    number = numbers[work.input] if numbers else 0
    return await _sampled(work, number, "answer", direct_prompt(task), answer_type_of(task), judge=judge)


def blocks(drawn: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks in which the samples of a step are drawn: 2, 8, 10, 10, ...

    So a measurement with more draws finds the blocks of one with fewer in its journal.
    """
    start, end = 0, min(FIRST, drawn)
    while start < drawn:
        yield start, end
        start, end = end, min(drawn, ALL * (1 + end // ALL))


async def _sampled(
    work: Work[Any, Measuring],
    number: int,
    at: str,
    asked: Prompt,
    reply: type[Reply],
    *,
    judge: Callable[[Any], _Judged],
    state: Any = None,
    decided: Any = None,
) -> MeasuredStep:
    """Draw the samples of a step and judge them."""
    strategy, vote_of, decode = work.strategy, work.task.vote_of, decoder_of(reply).decode
    sampling = structs.replace(work.task.sampling, first_temperature=work.task.sampling.temperature)

    async def drawn(start: int, end: int) -> list[AnyBallot]:
        count = end - start
        question = work.question(asked, reply, rule=FirstValid(count), sampling=sampling, max_draws=count, state=state)
        return [*(await _recorded(work, f"{at}/{start}-{end}", question)).ballots]

    first = await drawn(0, FIRST)
    replies = [decode(each.value) for each in first if isinstance(each, Ballot)]
    first_valid = len(replies)
    is_clean = (
        first_valid == FIRST and not any(judge(each).wrong for each in replies) and len(set(map(vote_of, replies))) == 1
    )
    count = strategy.draws or (FIRST if is_clean or not strategy.judged else ALL)
    for block in [*blocks(count)][1:]:
        replies += [decode(each.value) for each in await drawn(*block) if isinstance(each, Ballot)]
    votes = [vote_of(each) for each in replies]
    kinds = dict(zip(votes, replies, strict=True))
    order = {vote: place for place, vote in enumerate(kinds)}
    verdicts = {vote: judge(each) for vote, each in kinds.items()}
    judged = [verdicts[vote] for vote in votes]
    parts = [each.parts for each in judged]
    wrong_fields = {
        name: (sum(each[name] for each in parts[:first_valid]), sum(each[name] for each in parts))
        for name in (parts[0] if parts else ())
    }
    if strategy.judged:
        right = tuple([not each.wrong for each in verdicts.values()])
    else:
        right = None
    numbered = tuple([order[vote] for vote in votes])
    return MeasuredStep(
        number=number,
        drawn=count,
        first_valid=first_valid,
        votes=numbered,
        right=right,
        mistakes=dict(Counter(each.wrong for each in judged if each.wrong)),
        decided=None if decided is None else votes.count(vote_of(decided)),
        certain=_certain(first),
        likeliest=None if right is None else _likeliest(first, [right[vote] for vote in numbered]),
        wrong_fields=wrong_fields,
        confused=tuple(itertools.chain.from_iterable(each.pairs for each in judged)),
        names=tuple(map(_name_of, kinds)),
        length=asked.size,
    )


async def _recorded(work: Work[Any, Measuring], at: str, question: Question) -> Verdict:
    """Hold an election, and record its samples: nothing is decided."""
    place = work.election_id(at, question)
    verdict = await work.hold(place, question)
    work.record_sample(place, verdict)
    return verdict


def _name_of(vote: Hashable) -> int:
    return int.from_bytes(digest_of(repr(vote), 6))


def _certain(ballots: Sequence[AnyBallot]) -> int | None:
    if all(each.facts.mass is None for each in ballots):
        return None
    return sum(
        isinstance(each, Ballot) and each.facts.mass is not None and decides_alone(each.facts.mass, MARGIN)
        for each in ballots
    )


def _likeliest(ballots: Sequence[AnyBallot], right: Sequence[bool]) -> tuple[float, bool] | None:
    """Return the mean probability of the likeliest option, and whether it is right; None unless there is a sample of each order."""
    weighed = [each for each in ballots if isinstance(each, Ballot) and each.shares]
    if not len({each.seq % ORDERS for each in weighed}) == ORDERS == len(weighed):
        return None
    led = {likeliest(each.shares): verdict for each, verdict in zip(weighed, right, strict=False)}
    means = {option: sum(each.shares.get(option, 0.0) for each in weighed) / ORDERS for option in led}
    return means[likeliest(means)], led[likeliest(means)]
