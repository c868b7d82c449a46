"""LEAD: easy steps by the agreement of a few samples, and hard ones by rollouts that started a few steps before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from microagents import InvalidUsage, Result, run
from microagents.journal.reading import Reader
from microagents.models.model import Call
from microagents.replies.reply_forms import write
from microagents.replies.rollouts import Rollout
from microagents.runs.strategies import strategy_of
from microagents.runtimes.virtual import run_virtual
from microagents.systems.chains.lead import Lead
from microagents.tasks.drift import Drift, Onward

LENGTH, HARD, WRONG = 20, 7, 1000
RIGHT = [1]
"""The right numbers along the way, the first before any step."""
for _ in range(2 * LENGTH):
    RIGHT.append((RIGHT[-1] * 17 + 5) % 1009)
HARD_STEPS = "sim:perfect@error=0.05,flag=0.05,hard=0.1,hard_error=0.7"

Steps = list[int] | str
Rollouts = Callable[[int, int, list[int]], Steps]
"""What a rollout says, given its start, its number, and the right numbers; a text stands for itself."""


def as_it_is(start: int, number: int, right: list[int]) -> Steps:  # noqa: ARG001 - rollouts differ in these
    return right


class Puzzler:
    """A model that is wrong at some steps when it is asked for these alone."""

    def __init__(self, wrong: Mapping[int, Callable[[int], int]], rollouts: Rollouts = as_it_is) -> None:
        self.wrong = wrong
        self.rollouts = rollouts
        self.asked: Counter[str] = Counter()
        """Number of calls by the path of their election."""

    async def complete(self, call: Call) -> str:
        path = call.id.election.path
        self.asked[path] += 1
        match path.split("/")[1:]:
            case ["step", number, *_]:
                right = RIGHT[int(number) + 1]
                return write(
                    Onward(number=self.wrong[int(number)](call.id.seq) if int(number) in self.wrong else right)
                )
            case [*_, start, number]:
                assert issubclass(call.reply, Rollout)
                first = int(start) + 1
                said = self.rollouts(int(start), int(number), RIGHT[first : first + call.reply.horizon])
                return (
                    said
                    if isinstance(said, str)
                    else write(call.reply(steps=tuple(Onward(number=each) for each in said)))
                )
        raise AssertionError(path)

    @property
    def drawn(self) -> list[tuple[int, int]]:
        """The rollouts that were drawn: start and number."""
        return sorted(
            (int(path.split("/")[-2]), int(path.split("/")[-1])) for path in self.asked if "/rollout/" in path
        )


def torn(seq: int) -> int:
    """Replies of which one is right."""
    return RIGHT[HARD + 1] if seq == 0 else WRONG


async def led(model: Puzzler, *, task: Drift | None = None, on_undecided: str = "stop", **options: Any) -> Result:
    return await run(
        task or Drift(length=LENGTH), models=model, strategy=Lead(**options), run_id="r", on_undecided=on_undecided
    )


def rollout_flags(path: str = f"0/step/{HARD}/lookahead") -> list[str | None]:
    """What became of the rollouts of a step, in launch order: None for a vote."""
    with Reader(Path("runs/r.sqlite")) as reader:
        row = reader.decision_at(path)
    assert row is not None
    return [getattr(each, "flag", None) for each in row.ballots]


async def test_a_step_on_which_samples_differ_is_decided_by_rollouts_from_it_and_from_the_steps_before() -> None:
    model = Puzzler({HARD: torn})
    result = await led(model, history=3, margin=3, horizon=5)
    assert (result.outcome, result.account.errors, result.account.climbed) == ("completed", 0, {"lookahead": 1})
    assert model.drawn == [(HARD - 2, 0), (HARD - 1, 0), (HARD, 0)], "a round of one rollout from each start"
    assert (result.account.decided, result.account.steps) == (LENGTH, LENGTH)
    assert result.calls - result.account.wasted_calls == 8 * LENGTH + 3


async def test_a_horizon_reaches_past_the_end() -> None:
    model = Puzzler({LENGTH - 1: torn}, lambda _, __, right: right)
    assert (await led(model)).outcome == "completed"

    def to_the_end(start: int, _number: int, right: list[int]) -> Steps:
        return right[: LENGTH - start]

    shorter = await run(Drift(length=LENGTH), models=Puzzler({LENGTH - 1: torn}, to_the_end), strategy=Lead(horizon=8))
    assert (shorter.outcome, shorter.account.errors, shorter.account.flagged) == ("completed", 0, {})


@pytest.mark.parametrize(
    ("said", "flag"),
    [
        (lambda right: right[:4], "ends_early"),
        (lambda right: [WRONG, *right[1:]], "contradicts"),
        (lambda _: "steps = [1, 2]", "malformed"),
    ],
)
async def test_a_rollout_that_cannot_count_is_flagged_by_name_and_others_take_its_place(
    said: Callable[[list[int]], Steps], flag: str
) -> None:
    model = Puzzler(
        {HARD: torn}, lambda start, number, right: said(right) if (start, number) == (HARD - 2, 0) else right
    )
    result = await led(model, history=3)
    assert (result.outcome, result.account.errors) == ("completed", 0)
    assert rollout_flags() == [None, None, flag, None]


async def test_a_rollout_that_contradicts_a_decided_step_votes_where_it_is_to_count_as_in_the_paper() -> None:
    def astray(start: int, _number: int, right: list[int]) -> Steps:
        return [WRONG, *right[1:]] if start == HARD - 2 else right

    model = Puzzler({HARD: torn}, astray)
    result = await led(model, history=3, contradicting="count")
    assert (result.outcome, result.account.errors, len(model.drawn)) == ("completed", 0, 3)
    assert rollout_flags() == [None] * 3


async def test_rollouts_are_reused_for_later_steps_and_drawn_anew_without() -> None:
    hard = {HARD: torn, HARD + 1: lambda seq: RIGHT[HARD + 2] if seq == 0 else WRONG}
    reusing, anew = Puzzler(hard), Puzzler(hard)
    first, second = [
        await run(Drift(length=LENGTH), models=model, strategy=Lead(reuse=model is reusing))
        for model in (reusing, anew)
    ]
    assert reusing.drawn == [(HARD - 2, 0), (HARD - 1, 0), (HARD, 0), (HARD + 1, 0)]
    assert len(anew.drawn) == 6
    assert first.value == second.value
    assert first.account.samples == second.account.samples - 2


@pytest.mark.slow
async def test_decisions_are_the_same_on_every_runtime_guessed_or_not() -> None:
    task = Drift(length=50)
    options: dict[str, Any] = {"models": HARD_STEPS, "strategy": "lead", "seed": 2}
    usual = await run(task, **options)
    other = await run(task, **options, runtime="linked", speculate=False)
    assert usual.account.climbed["lookahead"] >= 3
    assert (other.account.decisions_sha256, other.account.ballots_sha256) == (
        usual.account.decisions_sha256,
        usual.account.ballots_sha256,
    )


@pytest.mark.slow
def test_decisions_do_not_depend_on_the_order_of_tasks() -> None:
    model = f"{HARD_STEPS},latency=0.5,sigma=1"
    found = {
        run_virtual(
            run(Drift(length=25), models=model, strategy="lead", seed=2, runs_dir=None), seed=seed
        ).account.decisions_sha256
        for seed in range(3)
    }
    assert len(found) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"horizon": 2, "history": 3}, r"a rollout of horizon = 2 steps does not reach a step from history = 3 starts"),
        ({"margin": 0}, "margin must be an integer of at least 1, not .0."),
        ({"ladder": "judge"}, "the ladder 'judge' has no lookahead"),
        ({"ladder": "lookahead,pray"}, "there is no rung named 'pray'"),
        ({"ladder": "model=,lookahead"}, "there is no rung named 'model='"),
        ({"samples": 200}, "samples = 200 cannot come from max_draws = 100 draws"),
    ],
)
def test_options_that_cannot_work_are_refused_in_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        strategy_of("lead", Drift(), {name: str(value) for name, value in options.items()})
