"""Tickets of the desk, written from docs/notebooks/benchmarks.md alone, without the engine, its rules and the desk's code."""

from __future__ import annotations

from collections import Counter
from random import Random

from msgspec import Struct

READS, DUE, DECLINED = (
    ("customer", "orders", "order", "payment", "policy"),
    ("refund", "status", "mail", "end"),
    ("status", "mail", "end"),
)
NAMES_ORDER = ("order", "payment", "refund", "status")
ALTERNATIVES = 9
WEIGHTS = {"unread refund": 4, "early end": 4, "wrong order": 2, "wrong amount": 2, "again": 1, "unknown tool": 1}


class Margins(Struct, frozen=True, kw_only=True):
    """By how many votes an action has to lead."""

    read: int = 1
    write: int = 2
    destructive: int = 4
    end: int = 3

    def of(self, tool: str) -> int:
        """That of an action with this tool."""
        return {"status": self.write, "refund": self.destructive, "mail": self.destructive, "end": self.end}.get(
            tool, self.read
        )


class Action(Struct, frozen=True):
    """A tool, and what its arguments amount to: nothing where they are right."""

    tool: str
    wrong: str = ""


UNKNOWN = Action("unknown")


def ticket(error: float, margins: Margins, random: Random, *, is_due: bool) -> tuple[bool, int]:
    """One ticket: whether the world is right at its end, and the calls of the model."""
    way = [Action(tool) for tool in READS + (DUE if is_due else DECLINED)]
    world: Counter[Action] = Counter()
    calls, last = 0, None
    while True:
        right = next(
            each
            for each in way
            if not world[each] and not (each.tool == "refund" and world[Action("refund", "amount")])
        )
        wrong = [_mistake(right, last, random) for _ in range(ALTERNATIVES)]
        votes: Counter[Action] = Counter()
        while not (leader := _decided(votes, margins)):
            calls += 1
            vote = random.choice(wrong) if random.random() < error else right
            if vote != UNKNOWN:
                votes[vote] += 1
        if leader.tool == "end":
            break
        # The order counts as paid back, whatever the amount.
        done = (
            Action("refund", "amount")
            if leader.tool == "refund" and "order" not in leader.wrong and leader.wrong
            else leader
        )
        world[done] += 1
        last = leader
    effects = {each: times for each, times in world.items() if each.tool not in READS}
    return effects == {each: 1 for each in way if each.tool in ("refund", "status", "mail")}, calls


def _decided(votes: Counter[Action], margins: Margins) -> Action | None:
    (leader, most), (_, second) = [*votes.most_common(2), (UNKNOWN, 0), (UNKNOWN, 0)][:2]
    return leader if most - second >= margins.of(leader.tool) else None


def _mistake(right: Action, last: Action | None, random: Random) -> Action:
    possible = {
        "unread refund": Action("refund", str(random.randrange(290))),
        "early end": Action("end", random.choice(("early, paid back", "early, declined")))
        if right.tool != "end"
        else None,
        "wrong order": Action(right.tool, random.choice(("first other order", "second other order")))
        if right.tool in NAMES_ORDER
        else None,
        "wrong amount": Action("refund", random.choice(("less", "more"))) if right.tool == "refund" else None,
        "again": last,
        "unknown tool": UNKNOWN,
    }
    kinds = [kind for kind, each in possible.items() if each]
    found = possible[random.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]]
    assert found is not None
    return found
