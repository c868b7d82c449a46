"""One byte for each step of an input, for a picture of all of them."""

from __future__ import annotations

import msgspec

from microagents.journal.encoding import key_range
from microagents.journal.rows import Rows
from microagents.journal.tables import NUMBER_BITS, OUTCOMES

MAX_STEPS = 1 << 24
"""A row that claims a higher number is damaged: the bytes of all steps before it would exhaust the memory."""
MAX_SAMPLES = 15
"""Highest number of samples that a byte has; more are written as this."""
FLAGGED, OUTVOTED = 16, 32
UNDECIDED, CLIMBED, SETTLED = 1 << 6, 2 << 6, 3 << 6
_STATES = [
    {"undecided": UNDECIDED, "contested": CLIMBED, "leader": SETTLED, "person": SETTLED}.get(name, 0)
    for name in OUTCOMES
]
_entries = msgspec.json.Decoder(list[msgspec.Raw])


def read_overview(rows: Rows, of_input: int) -> bytes:
    """For each step a byte: its samples, whether one was flagged or outvoted, and whether the vote decided; 0 for a step without a row.

    Raises:
        ValueError: rows are missing, or have values that no run writes.
    """
    rows.check("decision")  # the sum of all checksums: to check a million rows one by one takes seconds
    place = rows.first("place", "WHERE path = ?", (f"{of_input}/step",))
    if place is None:
        return b""
    start, end = key_range(place[0])
    found = bytearray()
    query = "SELECT key, outcome, counted, ballots FROM decision WHERE key > ? AND key < ? ORDER BY key"
    for key, outcome, counted, ballots in rows.db.execute(query, (start, end)):
        number = (key & ((1 << NUMBER_BITS) - 1)) - 1
        if number >= MAX_STEPS:
            raise ValueError(f"there is no step {number}")
        if number > len(found):
            found.extend(bytes(number - len(found)))
        byte = min(counted, MAX_SAMPLES) | _STATES[outcome]
        found.append(byte if ballots is None else byte | _marks(ballots))
    return bytes(found)


def _marks(ballots: str) -> int:
    entries = [bytes(each) for each in _entries.decode(ballots)]
    is_flagged = any(each.startswith(b'"') for each in entries)
    is_outvoted = any(each.startswith(b"{") for each in entries)
    return FLAGGED * is_flagged | OUTVOTED * is_outvoted
