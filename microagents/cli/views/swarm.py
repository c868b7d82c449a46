"""The work of a swarm as text for the terminal: its plans, the picked replies with reasons, the faults, and the cost of each step."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len

from microagents.cli.views.lines import joined, one_line, shorten
from microagents.runs.words.money import money
from microagents.runs.words.summary import columns_of_stdout
from microagents.runs.words.verdict import counted
from microagents.systems.swarm.notes import LoopRecord, SwarmRecord, SwarmTurn

MIN_COLUMNS = 60
"""Minimum width of a line."""


def draw_swarm(record: SwarmRecord) -> str:
    """Draw the work as text. Control characters and line breaks from models and tasks are replaced."""
    columns = max(MIN_COLUMNS, columns_of_stdout())
    lines = [shorten(one_line(record.problem), columns)]
    for loop in record.loops:
        lines += _loop_lines(loop, columns)
    return joined(lines)


def _loop_lines(loop: LoopRecord, columns: int) -> Iterator[str]:
    yield _with_price(f"loop {loop.number}: {counted(len(loop.steps), 'step')}", loop.calls, loop.cost_usd, columns)
    yield from _turn_lines("plan", loop.plan, columns)
    for step in loop.steps:
        yield _with_price(f"  {step.number}. {one_line(step.step)}", step.calls, step.cost_usd, columns)
        for number, turn in enumerate(step.turns, 1):
            yield from _turn_lines("" if len(step.turns) == 1 else f"try {number}", turn, columns)
    if loop.whole is not None:
        yield from _turn_lines("whole", loop.whole, columns)


def _turn_lines(name: str, turn: SwarmTurn, columns: int) -> Iterator[str]:
    flags = "".join(f", {number} {flag}" for flag, number in sorted(turn.flags.items()))
    asked = f"{turn.copies} of {counted(turn.workers, 'worker')}{flags}"
    verdict = {None: "", True: "; passed", False: "; did not pass"}[turn.passed]
    if turn.picked is None:
        picked = "nothing picked"
    else:
        picked = one_line(bytes(turn.picked).decode())
    head = f"     {name}{' ' if name else ''}-> "
    tail = f"  {turn.by or 'nobody'}, {asked}{verdict}"
    yield f"{head}{shorten(picked, max(20, columns - cell_len(head) - cell_len(tail)))}{tail}"
    if turn.reason:
        yield shorten(f"        the judge: {one_line(turn.reason)}", columns)
    if turn.passed is False:
        yield shorten(f"        the verifier: {one_line(turn.feedback)}", columns)


def _with_price(text: str, calls: int, cost_usd: float | None, columns: int) -> str:
    tail = f"  {counted(calls, 'call')}, {money(cost_usd)}"
    return f"{shorten(text, columns - cell_len(tail))}{tail}"
