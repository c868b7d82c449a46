"""Cells of a table: the votes on each field of a row, how far they agree, and what settled the row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

from microagents.elections.election import ESCALATED, OPEN_OUTCOMES, Ballot, Flagged
from microagents.journal.messages import InputEnding, Recalled
from microagents.journal.reading import Reader

SHARED = "asks the same as input "
"""Beginning of the reason of a row that took the result of an earlier one; the number of that follows."""
OURS = ("state", "why", "samples", "settled_by", "open")
"""Columns that are neither the input's nor the reply's."""


class TrustColumns:
    """The columns of ``--trust-columns`` for each input of a run.

    Args:
        reader: its journal.
        k: number of votes by which a field leads; None for a strategy without a k.
        settled: for elections without a decision how they were settled, by path.
        unvoted: fields of the reply without a vote.
    """

    def __init__(self, reader: Reader, k: int | None, settled: Mapping[str, str], unvoted: Collection[str]) -> None:
        self._reader = reader
        self._k = k or 1
        self._settled = settled
        self._unvoted = unvoted

    def of(self, number: int, ending: InputEnding | None) -> dict[str, Any]:
        """Return ``FIELD_agreement`` for each field of the reply, ``samples``, ``settled_by``, and ``open``, its open fields."""
        asked, is_shared = number, False
        if ending is not None and (ending.reason or "").startswith(SHARED):
            asked, is_shared = int((ending.reason or "").removeprefix(SHARED)), True
        path = f"{asked}/step/0"
        decision = self._reader.decision_at(path + ESCALATED) or self._reader.decision_at(path)
        if decision is None:
            return {"samples": 0, "settled_by": None, "open": None}
        agreement, unsettled = agreement_in(decision, self._k, self._unvoted)
        settled_by = self._settled_by(path, decision, is_certain=bool(unsettled))
        named = {f"{name}_agreement": votes for name, votes in agreement.items()}
        return {
            **named,
            "samples": len(decision.ballots),
            "settled_by": "shared" if is_shared else settled_by,
            "open": ", ".join(unsettled) if settled_by is None else None,
        }

    def _settled_by(self, path: str, decision: Recalled, *, is_certain: bool) -> str | None:
        """Say what settled an election; None if nothing did. A vote that ended before its margin was ended by a certificate."""
        settled = self._settled.get(path) or self._settled.get(path + ESCALATED)
        if settled == "person" or decision.outcome == "person":
            return "a person"
        if settled is not None:
            return settled
        if decision.outcome in OPEN_OUTCOMES:
            return None
        return "certificate" if is_certain else "vote"


def agreement_in(decision: Recalled, k: int, unvoted: Collection[str]) -> tuple[dict[str, str], list[str]]:
    """Count for each voted field of the replies of an election how many have the decided value, or else the most frequent one.

    Returns:
        For each field the number and the number of all valid replies, as ``5/6``; and the fields in which this value leads by less than k.
    """
    decided = {} if decision.value is None else msgspec.json.decode(decision.value)
    counts, behind = {}, []
    voted = {name: votes for name, votes in cells_in(decision.ballots).items() if name not in unvoted}
    for name, votes in voted.items():
        leader = decided.get(name, votes[0][0])
        own = sum(number for value, number in votes if value == leader)
        rivals = [number for value, number in votes if value != leader]
        counts[name] = f"{own}/{own + sum(rivals)}"
        if own - max(rivals, default=0) < k:
            behind.append(name)
    return counts, behind


def cells_in(ballots: Iterable[Ballot | Flagged]) -> dict[str, list[tuple[Any, int]]]:
    """Count the values of each field of valid replies, as JSON has them: most frequent first, then in order of launch."""
    replies = [msgspec.json.decode(each.value) for each in ballots if isinstance(each, Ballot)]
    found = {}
    for name in dict.fromkeys(chain.from_iterable(replies)):
        counts = Counter(_canonical(reply.get(name)) for reply in replies)
        found[name] = [(msgspec.json.decode(value), number) for value, number in counts.most_common()]
    return found


_canonical = msgspec.json.Encoder(order="deterministic").encode
