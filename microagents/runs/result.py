"""The result of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from microagents.errors import InvalidUsage
from microagents.journal.messages import Account, InputEnding, InputOutcome, RunOutcome
from microagents.journal.reading import Reader
from microagents.journal.schema import unreadable
from microagents.runs.settings import Settings


class FailedInput(Struct, frozen=True, kw_only=True):
    """An input among many that was tried and did not complete."""

    input: int
    """Its number, counted from 0."""
    outcome: InputOutcome
    reason: str | None


class Result(Struct, frozen=True, kw_only=True):
    """Outcome, value and account of a run, over all its sittings."""

    outcome: RunOutcome
    reason: str | None
    """Why it did not complete, in one sentence; None when it did."""
    value: Any
    """The task's ``result``, as JSON-like values; None when it did not complete. Of a list of inputs, the list of these."""
    run_id: str
    task: str
    strategy: str
    settings: Settings
    account: Account
    wall_s: float
    journal: Path | None
    """The file that records it; None for a run without one."""
    failed_inputs: tuple[FailedInput, ...] | None = None
    """Of a list of inputs, those that failed or are undecided; None for a run that was given one task and no list."""

    @property
    def calls(self) -> int:
        """Requests sent to models."""
        return self.account.calls

    @property
    def cost_usd(self) -> float | None:
        """Their cost in US dollars; None where a price is unknown."""
        return self.account.cost_usd

    def decisions(self) -> Iterator[tuple[str, Any]]:
        """Every decision by path, as JSON-like values; read from the journal.

        Raises:
            InvalidUsage: the run has none, or it is damaged.
        """
        if self.journal is None:
            raise InvalidUsage(f"run {self.run_id} kept no journal, so its decisions are gone; run it with a runs_dir")
        with Reader(self.journal) as reader:
            for path, row in reader.decisions():
                if row.value is not None:
                    yield path, _read(self.journal, row.value)

    def as_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints."""
        account, settings = self.account, self.settings
        inputs = (
            {}
            if self.failed_inputs is None
            else {
                "inputs": account.inputs,
                "inputs_done": account.inputs_done,
                "failed_inputs": msgspec.to_builtins(self.failed_inputs),
            }
        )
        return {
            "run_id": self.run_id,
            "outcome": self.outcome,
            "reason": self.reason,
            "task": self.task,
            "strategy": self.strategy,
            "models": settings.models[""] if len(settings.models) == 1 else settings.models,
            "seed": settings.seed,
            "runtime": settings.runtime,
            **inputs,
            "steps": account.steps,
            "decided": account.decided,
            "errors": account.errors,
            "calls": account.calls,
            "valid": account.valid,
            "flagged": account.flagged,
            "wasted_calls": account.wasted_calls,
            "votes_per_step": account.votes_per_step,
            "undecided_at": account.undecided_at,
            "settled_at": account.settled_at,
            "lost_in_flight": account.lost_in_flight,
            "input_tokens": account.input_tokens,
            "output_tokens": account.output_tokens,
            "cost_usd": account.cost_usd,
            "wall_s": round(self.wall_s, 3),
            "result": self.value,
            "journal": None if self.journal is None else str(self.journal),
            "decisions_sha256": account.decisions_sha256,
            "ballots_sha256": account.ballots_sha256,
        }


def results_of(endings: Iterable[InputEnding], inputs: int) -> tuple[list[Any], tuple[FailedInput, ...]]:
    """The results of many inputs in their order, None for one without a result; and the inputs that failed."""
    results: list[Any] = [None] * inputs
    failed = []
    for ended in endings:
        if ended.result is not None:
            results[ended.input] = msgspec.json.decode(ended.result)
        if ended.outcome != "completed":
            failed.append(FailedInput(input=ended.input, outcome=ended.outcome, reason=ended.reason))
    return results, tuple(failed)


def _read(journal: Path, value: bytes) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.MsgspecError as error:
        raise unreadable(journal, error) from None
