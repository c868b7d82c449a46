"""A cascade: which models are asked about a row, and by which of them it is decided."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from microagents import Call, Model, ModelUnavailable, Prompt, Reply, RowTask, Sample, run_sync
from microagents.elections.promises import NEVER
from microagents.replies.reply_forms import write
from microagents.systems.chains.cascade import UNREACHED, Cascade

ROWS = 6
"""Number of rows; each takes three agreeing votes of a model."""


class Square(Reply, frozen=True):
    square: int


class Squares(RowTask[Square]):
    def prompt(self, row: dict[str, int]) -> Prompt:
        return Prompt(user=str(row["x"]))

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Square:  # noqa: ARG002 - the simulated model asks so
        return Square(square=int(prompt.user.split()[0]) ** 2)


class Cheap:
    """Is always right, and counts its calls."""

    spec = "cheap"

    def __init__(self) -> None:
        self.calls = 0

    async def complete(self, call: Call) -> str:
        self.calls += 1
        return write(Square(square=int(call.prompt.user.split()[0]) ** 2))


@pytest.mark.parametrize(
    ("cheap_from", "cheap_calls", "all_calls", "path"),
    [
        (1.0, 3 * ROWS, 3 * ROWS, "cheap"),
        (UNREACHED, 3 * ROWS, 6 * ROWS, "strong"),
        (NEVER, 0, 3 * ROWS, "strong"),
    ],
)
def test_a_cheap_model_from_which_no_row_is_taken_is_asked_about_labelled_rows_alone(
    cheap_from: float, cheap_calls: int, all_calls: int, path: str
) -> None:
    cheap = Cheap()
    result = run_sync(
        Squares.rows([{"x": x} for x in range(ROWS)]),
        models=cheap,
        strategy=Cascade(strong="sim:perfect", k=3, cheap_from=cheap_from),
        output="out.csv",
        trust_columns=True,
    )
    assert (result.outcome, cheap.calls, result.account.calls) == ("completed", cheap_calls, all_calls)
    with Path("out.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(each["square"], each["settled_by"], each["samples"]) for each in rows] == [
        (str(x**2), path, "3") for x in range(ROWS)
    ]


def test_the_strong_model_may_need_another_number_of_votes() -> None:
    tasks = Squares.rows([{"x": x} for x in range(ROWS)])
    for cheap_from, calls in ((UNREACHED, 3 + 5), (NEVER, 5)):
        strategy = Cascade(strong="sim:perfect", cheap_from=cheap_from, k=3, k_strong=5)
        assert run_sync(tasks, models=Cheap(), strategy=strategy).account.calls == calls * ROWS
    with pytest.raises(ValueError, match="k_strong = 9 votes cannot come from max_draws = 8 samples"):
        Cascade(strong="sim:perfect", k_strong=9, max_draws=8)


class Refusing(Model):
    """Refuses each question for its content."""

    spec = "refusing"

    async def complete(self, call: Call) -> Sample:
        raise ModelUnavailable("refused", f"content_filter of {call.id.seq}", 400)


@pytest.mark.parametrize("promise", ["", "kept"])
def test_of_a_refused_row_under_a_promise_no_other_model_is_proposed(promise: str) -> None:
    strong = f"{__file__}:Refusing"
    strategy = Cascade(strong=strong, cheap_from=NEVER, promise=promise)
    result = run_sync(Squares.rows([{"x": 3}]), models=strong, strategy=strategy, run_id="r")
    assert result.outcome == "refused"
    assert "decide it yourself (`microagents decide r 0/step/0 FIELD=VALUE`) and resume" in str(result.reason)
    assert ("--on-undecided" in str(result.reason)) == (not promise)


def test_a_row_that_is_open_under_a_promise_is_left_to_a_person_alone() -> None:
    strategy = Cascade(strong="sim:perfect", cheap_from=UNREACHED, strong_from=1.5, promise="kept", k=1, k_strong=1)
    reason = run_sync(Squares.rows([{"x": 3}]), models=Cheap(), strategy=strategy, run_id="r").reason or ""
    assert '0/step/0: no model is sure enough for the promise (1 x {"square":9}; 0 flagged; then strong: 1 x' in reason
    assert "say `microagents decide r 0/step/0 FIELD=VALUE`, and resume" in reason
    assert "--on-undecided" not in reason
