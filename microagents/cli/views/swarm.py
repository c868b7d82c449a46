"""The work of a swarm as a tree for the terminal: its plans, the picked replies with reasons, the faults, and the cost of each step."""

from __future__ import annotations

from rich.tree import Tree

from microagents.cli.views.lines import branch, draw, flags_text
from microagents.runs.words.money import Price
from microagents.runs.words.verdict import counted
from microagents.systems.swarm.notes import LoopRecord, StepRecord, SwarmRecord, SwarmTurn


def draw_swarm(record: SwarmRecord, price: Price) -> str:
    """Draw the work as text. Control characters and line breaks from models and tasks are replaced."""
    loops = [_loop(each, price) for each in record.loops]
    return draw(branch(record.problem, below=loops))


def _loop(loop: LoopRecord, price: Price) -> Tree:
    head = (
        f"loop {loop.number}: {counted(len(loop.steps), 'step')}, {counted(loop.calls, 'call')}, {price(loop.cost_usd)}"
    )
    below = [_turn("plan", loop.plan), *[_step(each, price) for each in loop.steps]]
    if loop.whole is not None:
        below.append(_turn("whole", loop.whole))
    return branch(head, below=below)


def _step(step: StepRecord, price: Price) -> Tree:
    turns = [_turn(f"try {number}", turn) for number, turn in enumerate(step.turns, 1)]
    if len(turns) == 1:
        turns = [_turn("", step.turns[0])]
    told = f"{counted(step.calls, 'call')}, {price(step.cost_usd)}"
    return branch(f"{step.number}. {step.step}", told=told, below=turns)


def _turn(name: str, turn: SwarmTurn) -> Tree:
    verdict = {None: "", True: "; passed", False: "; did not pass"}[turn.passed]
    picked = bytes(turn.picked or b"nothing picked").decode()
    asked = f"{turn.copies} of {counted(turn.workers, 'worker')}{flags_text(turn.flags)}"
    lines = [f"{name} -> {picked}".lstrip(), f"{turn.by or 'no persona'}, {asked}{verdict}"]
    lines += [f"the judge: {turn.reason}"] * bool(turn.reason)
    lines += [f"the verifier: {turn.feedback}"] * (turn.passed is False)
    return branch(*lines)
