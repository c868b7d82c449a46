"""Results of a comparison: a row for each strategy, read from the result of its run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf
from statistics import fmean
from types import NoneType
from typing import Any, Literal

import msgspec
from msgspec import Struct

from microagents.actors.role import Strategy
from microagents.base.errors import InvalidUsage
from microagents.base.user_code import called
from microagents.elections.laws import Proportion, pass_k, wilson_interval
from microagents.journal.messages import verdict_of
from microagents.journal.reading import Reader
from microagents.runs.accuracy import Accuracy
from microagents.runs.inspection.rebuilding import wrong_steps
from microagents.runs.judging import judge_result
from microagents.runs.result import Result
from microagents.runs.task_list import dump_options
from microagents.runs.words.money import specs_in
from microagents.runs.words.summary import options_text
from microagents.studies.series import SeriesOutcome
from microagents.systems.chains.row_task import RowTask
from microagents.systems.questions.problem import Problem, answer_type_of
from microagents.task import Task

RowOutcome = Literal["completed", "undecided", "failed", "refused", "stopped", "interrupted"]
ENDED = ("completed", "undecided", "failed", "refused")
"""Outcomes of a row all of whose inputs have ended."""


class Row(Struct, frozen=True, kw_only=True):
    """Results of one strategy. The rate and all figures per input are None until all inputs have ended."""

    strategy: str
    k: int | None
    """None for a strategy without a k."""
    options: dict[str, Any]
    """All options of the strategy."""
    given: str
    """Options of only this row, such as ``transitions=1``; empty for none."""
    run_id: str
    solved: int | None
    """Number of inputs with a right result; None if code cannot judge results. Undecided and failed inputs are not solved."""
    completed: int
    """Number of inputs with a result, right or wrong."""
    repeat: int
    """Number of inputs."""
    judged: int
    """Number of inputs that are judged: all, or with gold columns the ones that have a gold value."""
    rate: float | None
    """Share of solved inputs among the judged ones."""
    low: float | None
    """Lower end of its 95 % Wilson interval."""
    high: float | None
    """Upper end of the interval."""
    pass_k: dict[int, Proportion]
    """Chance that all of k trials of one input succeed, without bias, for k = 2, 4, 8, ... up to its trials; empty if inputs are not
    repeated, or code cannot judge results."""
    accuracy: Accuracy | None
    """Accuracy of decided rows by field; None of other work, and if nothing judges it."""
    valid: float | None
    """Share of the samples without a red flag; None without samples."""
    agreement: float | None
    """Share of the votes for the decided reply; None if no election took several."""
    f1: float | None
    """Mean F1 of the answers, if the task has one; an undecided or failed input has 0."""
    undecided: int
    """Number of undecided inputs."""
    failed: int
    """Number of failed inputs."""
    argmax: int | None
    """Number of turns, over all inputs, that were decided by plurality; None if results do not report it."""
    calls: int
    calls_per_input: float | None
    tokens: int
    """Tokens of all prompts and replies."""
    tokens_per_input: float | None
    cost_usd: float | None
    """None if a price is unknown."""
    cost_per_input: float | None
    """US dollars."""
    wall_s: float
    outcome: RowOutcome
    reason: str | None
    """Why not all inputs are completed; None if they are."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Strategies compared on the same inputs."""

    outcome: SeriesOutcome
    """`completed` once all inputs of all rows have ended, solved or not."""
    reason: str | None
    """Why the comparison ended early, in one sentence; None if it is completed."""
    task: str
    options: dict[str, Any]
    """Options of the task."""
    models: dict[str, tuple[str, ...]]
    """Pools of model specs by role; ``""`` is the pool of every other role."""
    seed: int
    repeat: int
    """Number of inputs."""
    rows: tuple[Row, ...]
    """The rows that were begun, in the order of their strategies."""
    recorded_at: str | None = None
    """When the first of the recorded runs began that gave all rows; None if this call did a part of the work."""

    @property
    def title(self) -> str:
        """Strategies, tasks and models of a comparison."""
        models = ", ".join(specs_in(self.models))
        return f"{self.task}{options_text(self.options)}: {self.repeat:,} inputs; {models}, seed {self.seed}"

    def as_json(self) -> dict[str, Any]:
        """Return the object that ``--json`` prints."""
        written: dict[str, Any] = msgspec.to_builtins(self)
        return {**written, "models": list(self.models[""]) if len(self.models) == 1 else written["models"]}


def row_of(strategy: Strategy, given: str, result: Result, inputs: Sequence[Task]) -> Row:
    """Return the row of a strategy, from the result of its run.

    Args:
        strategy: the strategy.
        given: the options of only this row.
        result: the result of its run.
        inputs: its inputs.
    """
    account, outcome = result.account, result.outcome
    assert outcome in ("completed", "undecided", "failed", "refused", "stopped", "interrupted")
    repeat, completed = len(result.recorded), account.inputs_done
    failed = result.failed_inputs or ()
    results = [each for each in result.recorded if isinstance(each, dict)]
    verdicts = _verdicts(result, inputs)
    judging, solved = repeat, None
    if verdicts is not None:
        judging, solved = repeat - verdicts.count(None), verdicts.count(True)
    has_ended = completed + len(failed) == repeat
    rate = low = high = None
    if solved is not None and has_ended:
        rate, (low, high) = solved / judging, wilson_interval(solved, judging)
    turns = [each["argmax"] for each in results if isinstance(each.get("argmax"), list)]
    cost_usd, tokens = result.cost_usd, account.input_tokens + account.output_tokens
    return Row(
        strategy=result.strategy,
        k=strategy.deciding_votes,
        options=dump_options(strategy),
        given=given,
        run_id=result.run_id,
        solved=solved,
        completed=completed,
        repeat=repeat,
        judged=judging,
        rate=rate,
        low=low,
        high=high,
        pass_k={} if verdicts is None or not has_ended else _pass_k(inputs, verdicts),
        accuracy=result.accuracy,
        valid=_share(account.valid, account.valid + sum(account.flagged.values())),
        agreement=_share(account.votes - account.outvoted, account.votes * (account.votes > account.decided)),
        f1=_mean_f1(inputs, result.recorded) if has_ended else None,
        undecided=sum(each.outcome == "undecided" for each in failed),
        failed=sum(each.outcome in ("failed", "refused") for each in failed),
        argmax=sum(map(len, turns)) if turns else None,
        calls=result.calls,
        calls_per_input=result.calls / repeat if has_ended else None,
        tokens=tokens,
        tokens_per_input=tokens / repeat if has_ended else None,
        cost_usd=cost_usd,
        cost_per_input=cost_usd / repeat if has_ended and cost_usd is not None else None,
        wall_s=round(result.wall_s, 3),
        outcome=outcome,
        reason=result.reason,
    )


def _share(part: int, whole: int) -> float | None:
    if not whole:
        return None
    return part / whole


def _mean_f1(inputs: Sequence[Task], values: Sequence[Any]) -> float | None:
    """Return the mean F1 of the answers; None if an answer has none."""
    found: list[float | None] = []
    for task, value in zip(inputs, values, strict=True):
        if not isinstance(task, Problem):
            return None
        answer = value.get("answer") if isinstance(value, dict) else None
        reply = None if answer is None else msgspec.convert(answer, answer_type_of(task))
        found.append(0.0 if reply is None else called(task.f1, reply, gives=(float, int, NoneType)))
    known = [each for each in found if each is not None]
    if any(known) and len(known) == len(found):
        return fmean(known)
    return None


def _verdicts(result: Result, inputs: Sequence[Task]) -> list[bool | None] | None:
    """List which results are right: by gold values, their own ``correct`` or ``solved``, or their decisions; None if code cannot tell.

    Rows without a gold value are not judged.
    """
    if isinstance(inputs[0], RowTask) and inputs[0].gold:
        return [judge_result(task, value) for task, value in zip(inputs, result.recorded, strict=True)]
    verdicts, account = [verdict_of(each) for each in result.recorded], result.account
    if sum(each is not None for each in verdicts) == account.inputs_done:
        return [each is True for each in verdicts]
    if not inputs[0].oracle_judges_result or account.errors is None or account.checked < account.decided:
        return None
    wrong = _inputs_with_an_error(result) if account.errors else set[int]()
    if wrong is None:
        return None
    return [each is not None and number not in wrong for number, each in enumerate(result.recorded)]


def _inputs_with_an_error(result: Result) -> set[int] | None:
    """Return the inputs with a decision that the oracle refuses; None if the journal or the task's code is not there."""
    if result.journal is None:
        return None
    with Reader(result.journal) as reader, suppress(InvalidUsage):
        inputs = range(reader.experiment.inputs)
        return {number for number in inputs if wrong_steps(reader, number, inf)[0]}
    return None


def _pass_k(inputs: Sequence[Task], verdicts: Sequence[bool | None]) -> dict[int, Proportion]:
    trials: dict[bytes, list[bool]] = {}
    for task, is_right in zip(inputs, verdicts, strict=True):
        if is_right is None:
            continue
        trials.setdefault(msgspec.json.encode(dump_options(task), order="deterministic"), []).append(is_right)
    fewest = min(map(len, trials.values()))
    powers = {2**power for power in range(1, fewest.bit_length())}
    return {k: _passed([*trials.values()], k) for k in sorted({*powers, fewest} - {1})}


def _passed(trials: Sequence[Sequence[bool]], k: int) -> Proportion:
    shares = [pass_k(sum(each), len(each), k) for each in trials]
    if len(trials) > 1:
        low, high = wilson_interval(sum(shares), len(shares))
    else:
        low, high = (end**k for end in wilson_interval(sum(trials[0]), len(trials[0])))
    chance = fmean(shares)  # without bias, so it may lie outside: 1 of 5 gives 0 for k = 2, and at least .001
    return Proportion(share=chance, low=min(low, chance), high=max(high, chance))
