"""Requests to a run, and the log of its journal: the requests with their effects, decisions of persons among them, and accepted changes."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from microagents.base.largest import MAX_COUNT, MAX_S, MAX_USD
from microagents.elections.election import OPEN_OUTCOMES
from microagents.journal.books import Totals
from microagents.journal.experiment import Change, RunRecord
from microagents.journal.queries import read_decision
from microagents.journal.rows import Rows, checksum
from microagents.journal.statements import BY_TIME, OF_KIND
from microagents.journal.tables import LogRow
from microagents.replies.persons import ANSWERED

MAX_REQUEST_BYTES = 1 << 16
CHANGE = "change"
"""Kind of an accepted change in the log, beside the tags of requests."""


class Decide(Struct, frozen=True, kw_only=True, tag="decide", forbid_unknown_fields=True):
    """A person's decision of an election that is undecided or open."""

    path: Annotated[str, Meta(min_length=1, max_length=2000)]
    value: str
    """The reply, as JSON: of any length where the run has ended, else within `MAX_REQUEST_BYTES` with the rest of the request."""
    again: bool = False
    """Whether it replaces what a person has decided otherwise."""


class PauseRun(Struct, frozen=True, kw_only=True, tag="pause", forbid_unknown_fields=True, omit_defaults=True):
    """Send no call until the run is resumed, in this sitting and in later ones."""

    now: bool = False
    """Whether the calls in flight are cancelled; else they end."""


class ResumeRun(Struct, frozen=True, kw_only=True, tag="resume", forbid_unknown_fields=True):
    """End a pause."""


class EndRun(Struct, frozen=True, kw_only=True, tag="end", forbid_unknown_fields=True, omit_defaults=True):
    """End this sitting of the run."""

    after: Literal["elections", "calls", "nothing"]
    """What is waited for: the open elections; the calls in flight; nothing, so that these are cancelled."""
    cancels_batches: bool = False
    """Whether the open batches are cancelled at their provider, and not left for the next sitting."""


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
"""What may be asked of a run. Another kind joins here, and has its effect in `take_effect`."""


class LiveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to a live run."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    who: Annotated[str, Meta(max_length=200)]
    at: Annotated[str, Meta(max_length=40)]
    """When it was made, in UTC."""
    why: Annotated[str, Meta(max_length=2000)] = ""
    ask: Ask


def take_effect(rows: Rows, totals: Totals, request: LiveRequest, *, is_left: bool) -> str | None:
    """Record a request with its effect, in the caller's transaction; returns why it has none, or None.

    Args:
        rows: the rows of the run.
        totals: its totals.
        request: the request. For a pause and its end the row in the log is all that lasts.
        is_left: whether it was left before this sitting.
    """
    refused = None
    match request.ask:
        case Decide() as ask:
            refused = refusal_of(rows, ask)
        case SetRun() as ask:
            recorded = rows.only(RunRecord)
            recorded.experiment.recipe.settings.update(ask.changed)
            rows.set_part(recorded)
        case EndRun() if is_left:
            refused = "the sitting that it was meant for had ended"
    log_request(rows, totals, request, refused)
    return refused


def log_request(rows: Rows, totals: Totals, request: LiveRequest, refused: str | None) -> None:
    """Record a request, and why it has no effect, if so, in the caller's transaction."""
    payload = msgspec.json.encode(request.ask).decode()
    kind = str(type(request.ask).__struct_config__.tag)
    place = request.ask.path if isinstance(request.ask, Decide) else ""
    row = LogRow(
        id=request.id,
        kind=kind,
        place=place,
        who=request.who,
        why=request.why,
        asked_at=request.at,
        payload=payload,
        refused=refused,
        at=now(),
    )
    _log(rows, totals, row)


def _log(rows: Rows, totals: Totals, row: LogRow) -> None:
    rows.insert([row])
    totals.rows += checksum(row)


def log_changes(rows: Rows, totals: Totals, changes: Iterable[Change]) -> None:
    """Record accepted changes of the experiment, in the caller's transaction."""
    who, at = this_user(), now()
    for field, *values in changes:
        payload = msgspec.json.encode(values).decode()
        _log(rows, totals, LogRow(kind=CHANGE, place=field, who=who, asked_at=at, payload=payload, at=at))


def logged_changes(rows: Rows) -> list[tuple[str, str, str, str]]:
    """Return the accepted changes, in their order: time, field, value before, value after."""
    return [
        (row.at, row.place, *msgspec.json.decode(row.payload, type=tuple[str, str]))
        for row in rows.select(LogRow, f"{OF_KIND} {BY_TIME}", (CHANGE,))
    ]


def taken_requests(rows: Rows) -> list[LogRow]:
    """Return the requests that a run has taken, in their order."""
    found = [row for row in rows.select(LogRow, BY_TIME) if row.kind != CHANGE]
    for row in found:
        msgspec.json.decode(row.payload, type=Ask)  # a damaged payload fails here, not in the caller
    return found


def said_by(request: LiveRequest | LogRow | None) -> str | None:
    """By whom something was asked for, and why; None without a request."""
    if request is None:
        return None
    return f"by {request.who}{request.why and f' ({request.why})'}"


def pause_among(taken: Iterable[LogRow]) -> LogRow | None:
    """Return the request by which a run is paused; None if it is not."""
    last = None
    for each in taken:
        if each.kind in ("pause", "resume") and each.refused is None:
            last = each
    if last is not None and last.kind == "pause":
        return last
    return None


class PersonDecision(Struct, frozen=True, kw_only=True):
    """A person's decision of an election."""

    value: str
    """The reply, as JSON."""
    who: str
    at: str
    """When it was made, in UTC."""


def settlement(
    path: str, settled: Mapping[str, str], persons: Mapping[str, PersonDecision]
) -> tuple[str | None, str | None]:
    """Return how an undecided election was settled, with the name of a person in place of `person`, and the time of a person's decision."""
    by, person = settled.get(path), persons.get(path)
    if by != "person" or person is None:
        return by, None
    return person.who, person.at


def persons_in(rows: Rows) -> dict[str, PersonDecision]:
    """Return the decisions of persons, by path; the last one at a path counts."""
    found = {}
    for row in rows.select(LogRow, f"{OF_KIND} {BY_TIME}", ("decide",)):
        ask = msgspec.json.decode(row.payload, type=Decide)
        if row.refused is None:
            found[ask.path] = PersonDecision(value=ask.value, who=row.who, at=row.asked_at)
    return found


def refusal_of(rows: Rows, ask: Decide) -> str | None:
    """Return why a person's decision has no effect; None if it has."""
    found = read_decision(rows, ask.path)
    if found is not None and found.outcome not in OPEN_OUTCOMES:
        return f"{ask.path} is decided already; nothing was changed"
    before = None if ask.again else persons_in(rows).get(ask.path)
    if before is None or before.value == ask.value:
        return None
    return decided_already(ask.path, before)


def decided_already(path: str, before: PersonDecision) -> str:
    """Say that a person has decided otherwise. A customer's answer cannot be replaced."""
    replaced = "" if path.endswith(ANSWERED) else "; to replace that, name RUN and PATH to `microagents decide`"
    return f"{before.who} has decided {path!r} already, at {before.at}, as {before.value:.200}; nothing was changed{replaced}"


def request_of(ask: Ask, why: str = "") -> LiveRequest:
    """A new request of this user."""
    return LiveRequest(id=uuid4().hex, who=this_user(), at=now(), why=why, ask=ask)


def this_user() -> str:
    """Name of the user, and of the machine."""
    return f"{getpass.getuser()}@{socket.gethostname()}"[:200]


def now() -> str:
    """Return the time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
