"""The towers of Hanoi: 2^disks - 1 dependent steps, the task of MAKER's million-step run."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from random import Random
from typing import Annotated, TypedDict

import msgspec
from msgspec import Struct
from pydantic import Field

from microagents.replies.chat import Prompt
from microagents.replies.reply import Reply
from microagents.task import ChainTask

Move = tuple[int, int, int]
"""Disk, from peg, to peg."""
Pegs = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The disks of each peg, the top one last."""


class Towers(Struct, frozen=True, kw_only=True):
    """Positions of the disks, and the last move."""

    pegs: Pegs
    last: Move | None = None
    moves: int = 0


class HanoiStep(Reply, frozen=True):
    """The next move, and the pegs after it. Both are voted on: a right move with a wrong state must not win."""

    move: Move
    next_state: Pegs


class HanoiResult(TypedDict):
    """Result of all moves."""

    solved: bool
    """Whether every disk is on the last peg, in order."""
    moves: int
    pegs: list[list[int]]


class Hanoi(ChainTask[Towers, HanoiStep, HanoiResult]):
    """Move a tower of disks from the first peg to the third, one disk at a time, never a larger one onto a smaller one."""

    disks: Annotated[int, Field(ge=1, le=64)] = 10
    """Number of disks; n disks take 2^n - 1 steps."""

    @cached_property
    def cycle(self) -> tuple[int, int, int]:
        """Cyclic order of pegs for disk 1. It depends on the parity of the disks, so that the tower ends on the third peg."""
        if self.disks % 2 == 0:
            return (0, 1, 2)
        return (0, 2, 1)

    @cached_property
    def system(self) -> str:
        """Constant part of the prompt: the rules and the procedure."""
        return self._system("one step", "Give that one move as [disk, from peg, to peg], and the state after it.")

    def start(self) -> Towers:
        return Towers(pegs=(tuple(range(self.disks, 0, -1)), (), ()))

    def steps(self) -> int:
        return (1 << self.disks) - 1

    def done(self, state: Towers) -> bool:
        return state.moves == self.steps()

    def prompt(self, state: Towers) -> Prompt:
        # Lists, not tuples: models answer a prompt with tuples by tuples, which are malformed JSON.
        first, second, third = map(list, state.pegs)
        last = "none" if state.last is None else list(state.last)
        return Prompt(system=self.system, user=f"Previous move: {last}\nState: [{first}, {second}, {third}]")

    def rollout_prompt(self, state: Towers, horizon: int) -> Prompt:
        system = self._system(
            "several steps",
            f"Do this again and again, each time from the state after the move before. Number of moves to give: {horizon}, or fewer if "
            "fewer are left. Give each as [disk, from peg, to peg], and with it the state after it.",
        )
        return Prompt(system=system, user=f"{self.prompt(state).user}\nMoves left: {self.steps() - state.moves}")

    def state_in(self, prompt: Prompt) -> Towers:
        last, pegs, left = self._shown_in(prompt)
        return Towers(pegs=pegs, last=last, moves=self.steps() - (int(left) if left else self._moves_left(pegs)))

    def advance(self, state: Towers, reply: HanoiStep) -> Towers:
        return Towers(pegs=reply.next_state, last=reply.move, moves=state.moves + 1)

    def result(self, state: Towers) -> HanoiResult:
        goal = tuple(range(self.disks, 0, -1))
        return HanoiResult(solved=state.pegs[2] == goal, moves=state.moves, pegs=[*map(list, state.pegs)])

    def flag(self, state: Towers, reply: HanoiStep) -> str | None:  # noqa: ARG002 - the paper's parser sees only the reply
        """Flag a state that lacks a disk or repeats one, as the paper's parser does. Votes decide whether the move is legal."""
        if sorted(chain.from_iterable(reply.next_state)) == self._all_disks:
            return None
        return "disks_missing_or_twice"

    @cached_property
    def _all_disks(self) -> list[int]:
        return list(range(1, self.disks + 1))

    def oracle(self, state: Towers) -> HanoiStep:
        return self._next(state.last, state.pegs)

    def correct(self, state: Towers, reply: HanoiStep) -> bool:
        return self.oracle(state) == reply

    def expert(self, prompt: Prompt, reply: type[Reply]) -> HanoiStep:  # noqa: ARG002 - it has one kind of reply
        last, pegs, _ = self._shown_in(prompt)  # the procedure needs no number of moves, which takes longer than a step
        return self._next(last, pegs)

    def mistake(self, prompt: Prompt, right: Reply, rng: Random) -> HanoiStep:  # noqa: ARG002 - the right reply is enough
        """Make mostly another move, with the state that follows: LEAD's figure 10. Else move one disk more in the state."""
        assert isinstance(right, HanoiStep)
        disk, source, target = right.move
        kind = rng.randrange(3)
        if kind == 0:  # the turn of disk 1 taken for another's, or the other way round
            before = _moved(right.next_state, disk, target, source)
            other = self._next(right.move if disk == 1 else None, before)
            if other != right:
                return other
        if kind < 2:  # the wrong peg  # noqa: PLR2004 - two of three kinds
            peg = 3 - source - target
            return HanoiStep(move=(disk, source, peg), next_state=_moved(right.next_state, disk, target, peg))
        filled = [peg for peg in range(3) if right.next_state[peg]]
        peg = rng.choice(filled)
        top = right.next_state[peg][-1]
        return HanoiStep(move=right.move, next_state=_moved(right.next_state, top, peg, (peg + rng.choice((1, 2))) % 3))

    def _system(self, amount: str, wanted: str) -> str:
        first, second, third = self.cycle
        return (
            f"You carry out {amount} of the towers of Hanoi puzzle with {self.disks} disks. Disk 1 is the smallest, disk {self.disks} the "
            "largest. The three pegs are numbered 0, 1 and 2. A state lists the disks of each peg from bottom to top, so the last number "
            "of a list is the disk that can be moved.\n"
            "Rules: one disk moves at a time; only the top disk of a peg can move; no disk may lie on a smaller one.\n"
            f"Procedure: if the previous move did not move disk 1 (or there was none), move disk 1 one peg on in the cycle {first} -> "
            f"{second} -> {third} -> {first}. If the previous move did move disk 1, make the only legal move of another disk.\n"
            f"{wanted}"
        )

    def _shown_in(self, prompt: Prompt) -> tuple[Move | None, Pegs, str]:
        """Return the last move and the pegs that a prompt shows, and the moves left, or an empty text."""
        lines = [line.partition(": ") for line in prompt.user.split("\n")]
        shown = {name: value for name, _, value in lines}
        last = shown["Previous move"]
        return None if last == "none" else _read_move(last), _read_pegs(shown["State"]), shown.get("Moves left", "")

    def _moves_left(self, pegs: Pegs) -> int:
        """Count the moves from a legal position: a misplaced disk waits until smaller ones stand on the other two."""
        peg_of = {disk: peg for peg, disks in enumerate(pegs) for disk in disks}
        left, target = 0, 2
        for disk in range(self.disks, 0, -1):
            peg = peg_of.get(disk, target)
            if peg != target:
                left += 1 << (disk - 1)
                target = 3 - peg - target
        return max(left, 1)

    def _next(self, last: Move | None, pegs: Pegs) -> HanoiStep:
        """Apply the procedure. It gives a step even in states after a wrong decision, when no legal move may exist."""
        if 1 in pegs[0]:
            holder = 0
        elif 1 in pegs[1]:
            holder = 1
        else:
            holder = 2
        if last is None or last[0] != 1:
            return self._step(pegs, 1, holder, self._after(holder))
        one, two = _OTHERS[holder]
        if not (pegs[one] or pegs[two]):
            return self._step(pegs, 1, holder, self._after(holder))
        if not pegs[one] or (pegs[two] and pegs[two][-1] < pegs[one][-1]):
            one, two = two, one
        return self._step(pegs, pegs[one][-1], one, two)

    def _after(self, peg: int) -> int:
        return self.cycle[(self.cycle.index(peg) + 1) % 3]

    def _step(self, pegs: Pegs, disk: int, source: int, target: int) -> HanoiStep:
        return HanoiStep(move=(disk, source, target), next_state=_moved(pegs, disk, source, target))


_read_move = msgspec.json.Decoder(Move).decode
_read_pegs = msgspec.json.Decoder(Pegs).decode
_OTHERS = ((1, 2), (0, 2), (0, 1))


def _moved(pegs: Pegs, disk: int, source: int, target: int) -> Pegs:
    new = list(pegs)
    if pegs[source][-1] == disk:
        new[source] = pegs[source][:-1]
    else:  # only in states after a wrong decision
        new[source] = tuple(other for other in pegs[source] if other != disk)
    new[target] = (*pegs[target], disk)
    return (new[0], new[1], new[2])
