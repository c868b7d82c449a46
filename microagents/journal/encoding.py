"""The encoding of rows: keys of places, ballots, decisions and texts of replies."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence

import msgspec
from msgspec import structs

from microagents.base.errors import Unwritable
from microagents.elections.election import NO_FACTS, AnyBallot, Ballot, Flagged, Rejected, SampleFacts
from microagents.journal.messages import Recalled, RecordDecision, RecordReply, RecordSample
from microagents.journal.statements import ID_OF_PLACE, LAST_PLACE, one
from microagents.journal.tables import (
    DECIDED_CODE,
    NUMBER_BITS,
    OPEN_CODES,
    OUTCOMES,
    DecidedRow,
    PlaceRow,
    ReplyRow,
    SampleRow,
)

MAX_TEXT_BYTES = 64 * 1024
"""Longer texts of replies are cut."""
SIBLINGS = ("-wal", "-shm", "-journal")
"""Endings of the files that SQLite keeps beside a journal."""
UNREADABLE = (
    sqlite3.Error,
    msgspec.MsgspecError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""Errors that reading raises if a journal contains values that this program never writes."""

REJECTED_SEQ = 1 << 32
"""Added to the seq of a sample for each of its replies that `verify` rejected: the number of the row of such a reply."""

MAX_DIGITS = 12
"""Numbers in paths have fewer digits, so they fit 40 bits."""
MAX_CACHED_PLACES = 16_384


class Places:
    """Integer keys for paths: ``0/step/17`` is number 17 at the place ``0/step``.

    Keys of one place ascend with the numbers, so SQLite appends the steps of a chain and fills its pages.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._ids: dict[str, int] = {}
        self.new: list[PlaceRow] = []
        """Places to insert with the next commit."""
        self._last: int = one(db, LAST_PLACE)

    def key(self, path: str) -> int:
        """Return the key of a path. A new place gets an id and joins `new`."""
        place, number = _split(path)
        return (self._id(place) << NUMBER_BITS) + number

    def written(self) -> None:
        """Note that the new places are in the file."""
        self.new.clear()
        # Safe only now: a place in neither the cache nor the file would get a second id.
        if len(self._ids) > MAX_CACHED_PLACES:
            self._ids.clear()

    def _id(self, place: str) -> int:
        found = self._ids.get(place)
        if found is None:
            found = one(self._db, ID_OF_PLACE, (place,))
            if found is None:
                found = self._last = self._last + 1
                self.new.append(PlaceRow(id=found, path=place))
            self._ids[place] = found
        return found


def _split(path: str) -> tuple[str, int]:
    """Return the place of a path, and its last component plus one; 0 if it is not a number."""
    place, _, last = path.rpartition("/")
    # A component such as "007" stays in the place: the path could not be restored from the number 7.
    if last.isdecimal() and last.isascii() and (last == "0" or last[0] != "0") and len(last) < MAX_DIGITS:
        return place, int(last) + 1
    return path, 0


def key_at(db: sqlite3.Connection, path: str) -> int | None:
    """Return the key of a path; None if nothing was ever recorded at its place."""
    place, number = _split(path)
    found: int | None = one(db, ID_OF_PLACE, (place,))
    if found is None:
        return None
    return (found << NUMBER_BITS) + number


def joined(place: str, key: int) -> str:
    """Return the path of a key, given its place."""
    number = key & ((1 << NUMBER_BITS) - 1)
    if number:
        return f"{place}/{number - 1}"
    return place


def place_of(key: int) -> int:
    """Return the id of the place of a key."""
    return key >> NUMBER_BITS


def path_range(path: str) -> tuple[str, str]:
    """Bounds of all paths below a path, such as an input's: inclusive start, exclusive end."""
    return f"{path}/", f"{path}{chr(ord('/') + 1)}"


def key_range(place_id: int) -> tuple[int, int]:
    """Bounds of all keys of a place: inclusive start, exclusive end."""
    return place_id << NUMBER_BITS, (place_id + 1) << NUMBER_BITS


def written_ballots(ballots: Sequence[AnyBallot], value: bytes | None) -> str | None:
    """Ballots as a JSON array in launch order, without their turns; None if all of them are votes for the decided value."""
    entries = []
    for each in ballots:
        counted = each
        if isinstance(each, Ballot) and each.facts.turn is not None:
            counted = structs.replace(each, facts=structs.replace(each.facts, turn=None))
        entries.append(written_entry(counted, value))
    if value is not None and all(entry == "true" for entry in entries):
        return None
    return "[" + ",".join(entries) + "]"


def written_entry(ballot: AnyBallot, decided: bytes | None = None) -> str:
    """Write a ballot or a flagged sample as JSON.

    An entry is ``true`` for the decided value, a string for a red flag, an array of the flag and facts for one that has some, an array
    for a reply with more than its value (``true`` for the decided one), and any other JSON for a different reply. This is unambiguous: a
    reply is a struct, so its JSON is neither `true` nor a string nor an array.
    """
    if isinstance(ballot, Flagged) and ballot.facts:
        return _array_of(ballot.flag, ballot.facts)
    if isinstance(ballot, Flagged):
        return _json(ballot.flag)
    value = b"true" if ballot.value == decided else ballot.value
    if not (ballot.shares or ballot.facts):
        return value.decode()
    return _array_of(msgspec.Raw(value), ballot.shares, ballot.facts)


def _array_of(*parts: object) -> str:
    """Write parts as a JSON array, without the empty ones at the end."""
    kept = list(parts)
    while not kept[-1]:
        kept.pop()
    return _json(kept)


def _json(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        raise Unwritable("a sample", "a text of it is not UTF-8") from None


class _WrittenFlag(msgspec.Struct, array_like=True):
    flag: str
    facts: SampleFacts = NO_FACTS


class _WrittenReply(msgspec.Struct, array_like=True):
    value: msgspec.Raw
    shares: dict[str, float] = {}
    facts: SampleFacts = NO_FACTS


_entries = msgspec.json.Decoder(list[msgspec.Raw])
_reply = msgspec.json.Decoder(_WrittenReply)


def read_entry(seq: int, entry: bytes, *, cost_usd: float | None = None, decided: bytes | None = None) -> AnyBallot:
    """Return a sample from its entry.

    Raises:
        msgspec.MsgspecError: the entry is none that this program writes.
    """
    if entry.startswith(b'"'):
        return Flagged(seq=seq, flag=msgspec.json.decode(entry, type=str), cost_usd=cost_usd)
    if entry.startswith(b'["'):
        read = msgspec.json.decode(entry, type=_WrittenFlag)
        return Flagged(seq=seq, flag=read.flag, cost_usd=cost_usd, facts=read.facts)
    reply = _reply.decode(entry) if entry.startswith(b"[") else _WrittenReply(msgspec.Raw(entry))
    value = bytes(reply.value)
    if value == b"true" and decided is not None:
        value = decided
    return Ballot(seq=seq, value=value, cost_usd=cost_usd, shares=reply.shares, facts=reply.facts)


def recalled(row: DecidedRow) -> Recalled:
    """Decode the row of a decision or an answer.

    Raises:
        ValueError, IndexError, msgspec.MsgspecError: the row contains values that this program never writes.
    """
    winner = None if row.value is None else row.value.encode()
    if row.ballots is None:
        entries = [b"true"] * row.counted
    else:
        entries = [bytes(each) for each in _entries.decode(row.ballots)]
    decoded = tuple(read_entry(seq, entry, decided=winner) for seq, entry in enumerate(entries))
    return Recalled(
        question_digest=row.fork,
        outcome=OUTCOMES[row.outcome],
        value=winner,
        ballots=decoded,
        cost_usd=row.cost_usd,
        after_ms=row.after_ms,
    )


def reply_row(key: int, record: RecordReply) -> ReplyRow:
    """Return the row of a reply's text, which is cut to `MAX_TEXT_BYTES`."""
    plain = record.text.encode("utf-8", "replace")[:MAX_TEXT_BYTES]
    of = record.id
    return ReplyRow(key=key, fork=of.election.question_digest, seq=of.seq, size=len(plain), text=zlib.compress(plain))


def decision_row(key: int, record: RecordDecision, after_ms: int) -> DecidedRow:
    """Return the row of a decision or an answer."""
    verdict = record.verdict
    outcome = DECIDED_CODE if verdict.outcome == "decided" else OUTCOMES.index(verdict.outcome)
    value = None if outcome in OPEN_CODES else verdict.winner
    return DecidedRow(
        key=key,
        fork=record.id.question_digest,
        outcome=outcome,
        counted=len(verdict.ballots),
        value=None if value is None else value.decode(),
        ballots=written_ballots(verdict.ballots, value),
        cost_usd=_amount(verdict.cost_usd),
        after_ms=after_ms,
    )


def sample_row(key: int, record: RecordSample) -> SampleRow:
    """Return the row of a paid sample."""
    ballot, seq = record.ballot, record.ballot.seq
    if isinstance(ballot, Rejected):  # each rejected reply has a row, with the cost so far
        seq += len(ballot.replies) * REJECTED_SEQ
        value = msgspec.json.encode(ballot.replies[-1]).decode()
    else:
        value = written_entry(ballot)
    fork, cost_usd = record.id.election.question_digest, _amount(ballot.cost_usd)
    return SampleRow(key=key, fork=fork, seq=seq, value=value, cost_usd=cost_usd)


def _amount(cost_usd: float | None) -> float | None:
    """Return a cost as SQLite gives it back: the checksum of an int, or of -0.0, is another one."""
    if cost_usd is None:
        return None
    return float(cost_usd) + 0.0
