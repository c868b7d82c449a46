"""Requests of other processes to a live run: a file of JSON lines beside its journal, which the run empties once it has taken them.

One process writes a journal, so others leave here what they ask for. A request has an id: it takes effect once, and the journal records it
then. Whoever may write the file may be wrong, so every line is checked, and a bad one is ignored.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import socket
import stat
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from microagents.base.errors import InvalidUsage
from microagents.base.logs import log
from microagents.base.processes import lock_text
from microagents.journal.encoding import key_at
from microagents.journal.rows import Rows
from microagents.journal.statements import AS_TAKEN, OF_KEY, OF_PATH, OR_INSTEAD
from microagents.journal.tables import OPEN_CODES

ENDING = ".requests"
"""Added to the name of a journal."""
MAX_BYTES = 1 << 20
"""Size of the file at which no more requests are taken, until the run has taken those in it. To end the run there is room for as much
again."""
MAX_REQUEST_BYTES = 1 << 16
LOCK_S, LOCK_EVERY_S = 2.0, 0.01
"""Longest wait for other processes that leave requests, and interval of tries."""
MAX_COUNT, MAX_USD, MAX_S = 10**15, 1e9, 1e9
"""Largest limits of calls and tokens, of cost, and of time: products with them fit 64 bits, as messages and billionths of a dollar need."""


class Decide(Struct, frozen=True, kw_only=True, tag="decide", forbid_unknown_fields=True):
    """A person's decision of an election that is undecided or open."""

    path: Annotated[str, Meta(min_length=1, max_length=2000)]
    value: Annotated[str, Meta(max_length=MAX_REQUEST_BYTES)]
    """The reply, as JSON."""
    again: bool = False
    """Whether it replaces what a person has decided otherwise."""


class PauseRun(Struct, frozen=True, kw_only=True, tag="pause", forbid_unknown_fields=True, omit_defaults=True):
    """Send no call until the run is resumed, in this sitting and in later ones."""

    now: bool = False
    """Whether the calls in flight are cancelled; else they end."""


class ResumeRun(Struct, frozen=True, kw_only=True, tag="resume", forbid_unknown_fields=True):
    """End a pause."""


class EndRun(Struct, frozen=True, kw_only=True, tag="end", forbid_unknown_fields=True):
    """End this sitting of the run."""

    after: Literal["elections", "calls", "nothing"]
    """What is waited for: the open elections; the calls in flight; nothing, so that these are cancelled."""


class SetRun(Struct, frozen=True, kw_only=True, tag="set", forbid_unknown_fields=True, omit_defaults=True):
    """Change settings on which no decision depends. None lifts a bound."""

    concurrency: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | UnsetType | None = UNSET
    max_calls: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | UnsetType | None = UNSET
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | UnsetType | None = UNSET
    max_cost_usd: Annotated[float, Meta(gt=0, le=MAX_USD)] | UnsetType | None = UNSET
    max_time_s: Annotated[float, Meta(gt=0, le=MAX_S)] | UnsetType | None = UNSET
    max_outage_s: Annotated[float, Meta(ge=0, le=MAX_S)] | UnsetType = UNSET
    resend_stragglers: bool | UnsetType = UNSET
    lanes: Annotated[str, Meta(pattern="^(auto|[1-9][0-9]*)$")] | UnsetType | None = UNSET

    @property
    def changed(self) -> dict[str, Any]:
        """New values by the name of the setting."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}


Ask = Decide | PauseRun | ResumeRun | EndRun | SetRun
"""What may be asked of a run. Another kind joins here, and has its own function in `EFFECTS`."""


class LiveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to a live run."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    who: Annotated[str, Meta(max_length=200)]
    at: Annotated[str, Meta(max_length=40)]
    """When it was made, in UTC."""
    why: Annotated[str, Meta(max_length=2000)] = ""
    ask: Ask


class TakenRequest(Struct, frozen=True, kw_only=True):
    """A request that a run has taken."""

    kind: str
    """Tag of what was asked for."""
    who: str
    why: str
    asked_at: str
    """When it was made, in UTC."""
    at: str
    """When it took effect, in UTC."""
    payload: str
    """What was asked for, as JSON."""
    refused: str | None
    """Why it has no effect; None if it has."""


def _decide(rows: Rows, request: LiveRequest, ask: Decide, _is_left: bool) -> str | None:  # noqa: FBT001 - as in `EFFECTS`
    key = key_at(rows.db, ask.path)
    row = None if key is None else rows.first("decision", OF_KEY, (key,))
    if row is not None and row[2] not in OPEN_CODES:
        return f"{ask.path} is decided already"
    return record_decision(rows, ask, request.who, request.at)


def _set(rows: Rows, _request: LiveRequest, ask: SetRun, _is_left: bool) -> str | None:  # noqa: FBT001 - as in `EFFECTS`
    *before, experiment = rows.only("run")
    recorded = msgspec.json.decode(str(experiment))
    recorded["recipe"]["settings"] |= ask.changed
    rows.set_only("run", (*before, msgspec.json.encode(recorded).decode()))
    return None


EFFECTS: dict[type[Struct], Callable[[Rows, LiveRequest, Any, bool], str | None]] = {
    Decide: _decide,
    PauseRun: lambda *_: None,  # its row in the table of requests is what lasts
    ResumeRun: lambda *_: None,
    EndRun: lambda _rows, _request, _ask, is_left: "the sitting that it was meant for had ended" if is_left else None,
    SetRun: _set,
}
"""For each kind of request what it writes, in the transaction that records the request; each returns why it has no effect, or None.
The last argument is whether it was left before this sitting."""


def take_effect(rows: Rows, request: LiveRequest, *, is_left: bool) -> str | None:
    """Record a request with its effect, in the caller's transaction; returns why it has none, or None."""
    refused = EFFECTS[type(request.ask)](rows, request, request.ask, is_left)
    ask = msgspec.json.encode(request.ask).decode()
    kind = str(type(request.ask).__struct_config__.tag)
    rows.insert("request", [(request.id, kind, request.who, request.why, request.at, ask, refused, now())])
    return refused


def taken_requests(rows: Rows) -> list[TakenRequest]:
    """Return the requests that a run has taken, in their order."""
    found = []
    for _, kind, who, why, asked, payload, refused, at in rows.select("request", AS_TAKEN):
        msgspec.json.decode(payload, type=Ask)  # a damaged payload fails here, not in the caller
        found.append(TakenRequest(kind=kind, who=who, why=why, asked_at=asked, at=at, payload=payload, refused=refused))
    return found


def said_by(request: LiveRequest | TakenRequest | None) -> str | None:
    """By whom something was asked for, and why; None without a request."""
    return None if request is None else f"by {request.who}{request.why and f' ({request.why})'}"


def pause_among(taken: Iterable[TakenRequest]) -> TakenRequest | None:
    """Return the request by which a run is paused; None if it is not."""
    last = None
    for each in taken:
        if each.kind in ("pause", "resume") and each.refused is None:
            last = each
    return last if last is not None and last.kind == "pause" else None


def record_decision(rows: Rows, ask: Decide, who: str, at: str) -> str | None:
    """Write a person's decision, in the caller's transaction; returns why it has no effect, or None."""
    before = None if ask.again else rows.first("person", OF_PATH, (ask.path,))
    if before is not None and before[1] != ask.value:
        return (
            f"{before[2]} has decided {ask.path!r} already, at {before[3]}, as {before[1]:.200}; nothing was changed; to replace that, "
            "decide once more (with --again)"
        )
    rows.insert("person", [(ask.path, ask.value, who, at)], OR_INSTEAD)
    return None


def request_of(ask: Ask, why: str = "") -> LiveRequest:
    """A new request of this user."""
    return LiveRequest(id=uuid4().hex, who=this_user(), at=now(), why=why, ask=ask)


def this_user() -> str:
    """Name of the user, and of the machine."""
    return f"{getpass.getuser()}@{socket.gethostname()}"[:200]


def now() -> str:
    """Return the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def requests_of(journal: Path) -> Path:
    """Return the file of requests to the run of a journal."""
    return journal.with_name(journal.name + ENDING)


def leave_request(journal: Path, request: LiveRequest) -> None:
    """Add a request to the file, durably.

    Raises:
        InvalidUsage: it cannot be written, or too many are there.
    """
    path, line = requests_of(journal), msgspec.json.encode(request) + b"\n"
    most = MAX_BYTES * (2 if isinstance(request.ask, EndRun) else 1)
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            _check(file)
            os.fchmod(file, 0o600)  # a umask may have taken the owner's rights, too
            _lock(file, path)
            size = os.fstat(file).st_size
            if len(line) > MAX_REQUEST_BYTES:
                raise OSError(f"a request may take {MAX_REQUEST_BYTES:,} bytes, and this one has {len(line):,}")
            if size + len(line) > most:
                raise OSError("the run has not taken the many requests that are in it")
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"  # of a process that was killed
            os.write(file, b"\n" * torn + line)
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        raise InvalidUsage(f"the request cannot be written to {str(path)!r}: {error}; nothing was changed") from None


def _lock(file: int, path: Path) -> None:
    end_s = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end_s:
                raise OSError(lock_text([path])) from None
            time.sleep(LOCK_EVERY_S)
        else:
            return


def _check(file: int) -> None:
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise OSError("it is not a plain file that only this user may write")


class Inbox:
    """Requests to a run that the journal has not recorded yet. It knows the ids of the recorded ones."""

    def __init__(self, journal: Path, known: set[str]) -> None:
        self.known = known
        self._path = requests_of(journal)
        self._seen: tuple[int, int, int] | None = None
        """Inode, size and time of the file when it was last read."""
        self._is_bad = False
        """Whether a bad line was logged."""

    @property
    def has_changed(self) -> bool:
        """Whether the file is not as it was when it was last read."""
        return self._state() != self._seen

    def new(self) -> list[LiveRequest]:
        """Read the requests that are not known, in the order in which they were made."""
        state = self._state()
        if state is None or state == self._seen:
            return []
        self._seen = state
        try:
            file = self._open(os.O_RDONLY)
            try:
                found = self._unknown(file)
            finally:
                os.close(file)
        except OSError as error:
            self._warn(str(error))
            return []
        if not found:
            self.clear()
        return found

    def clear(self) -> None:
        """Empty the file if all requests in it are known, so that it always has room for new ones."""
        try:
            file = self._open(os.O_RDWR)
            try:
                # If it fails, a request is being written: the file is emptied after it.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file).st_size and not self._unknown(file):
                    os.ftruncate(file, 0)
                    self._seen = self._state()
            finally:
                os.close(file)
        except OSError:  # it is read again, and the ids of the recorded requests are known
            return

    def _open(self, flags: int) -> int:
        file = os.open(self._path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check(file)
        except OSError:
            os.close(file)
            raise
        return file

    def _unknown(self, file: int) -> list[LiveRequest]:
        """Read the requests that are not known from an open file."""
        *lines, _ = os.pread(file, 2 * MAX_BYTES, 0).split(b"\n")  # a last line without its end is being written
        found: dict[str, LiveRequest] = {}
        for line in filter(None, lines):
            try:
                request = msgspec.json.decode(line[: MAX_REQUEST_BYTES + 1], type=LiveRequest)
                msgspec.json.encode(request).decode()  # text that is not UTF-8 could not be recorded
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                self._warn(str(error))
                continue
            if request.id not in self.known:
                found.setdefault(request.id, request)
        return list(found.values())

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = os.lstat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _warn(self, why: str) -> None:
        if not self._is_bad:
            self._is_bad = True
            log().warning("a request to this run is ignored", file=str(self._path), why=why[:200])
