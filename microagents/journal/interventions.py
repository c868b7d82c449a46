"""Interventions of other processes in a run: requests while it is live, a person's decision, and the removal of its journal."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec import structs

from microagents.base.errors import AlreadyDecided, InvalidUsage
from microagents.journal.books import AccountRecord, Totals
from microagents.journal.contents import folder_of, remove_folder
from microagents.journal.creating import create_file
from microagents.journal.encoding import SIBLINGS, UNREADABLE
from microagents.journal.inbox import leave_request, requests_of
from microagents.journal.lease import read_lease
from microagents.journal.opening import connect, error_text, holds_nothing, watch_unclear
from microagents.journal.reading import Reader
from microagents.journal.requests import (
    Ask,
    Decide,
    log_changes,
    log_request,
    now,
    refusal_of,
    request_of,
    this_user,
)
from microagents.journal.rows import Rows
from microagents.journal.sharded import FOLDER as SHARDS
from microagents.journal.statements import number_of_tables, writing

MAX_TAKING_S, LOOK_EVERY_S = 5.0, 0.1
"""Longest wait for a live run to take a request, and interval of looks at it."""


@contextmanager
def _alone(journal: Path) -> Iterator[Rows]:
    """Keep every process from taking the lease while the body changes the journal; `InvalidUsage` if the run is running."""
    watch_unclear([journal])
    db = connect(journal)
    try:
        with writing(db):
            rows = Rows(db)
            read_lease(rows, journal).refuse_if_held(journal.stem)
            yield rows
    finally:
        db.close()


@contextmanager
def _changing(journal: Path, subject: str) -> Iterator[tuple[Rows, Totals]]:
    """Let the body change rows and totals of a journal that no process writes.

    Raises:
        InvalidUsage: the run is running, or the journal cannot be written.
    """
    try:
        with _alone(journal) as found:
            recorded = found.only(AccountRecord)
            yield found, recorded.totals
            found.set_part(structs.replace(recorded, saved_at=now()))
    except sqlite3.Error as error:
        raise InvalidUsage(
            f"the {subject} cannot be written: {error_text(journal, error)}; nothing was changed"
        ) from None


@contextmanager
def _empty(journal: Path) -> Iterator[None]:
    """Keep every process from beginning a run in a file without tables; `InvalidUsage` if one has just done so."""
    with closing(create_file(journal)) as db:
        db.execute("BEGIN IMMEDIATE")  # never committed: SQLite refuses to commit into a file that has lost its name
        if number_of_tables(db):
            raise InvalidUsage(f"run {journal.stem} has just begun, so it was kept")
        yield


def decide_in(journal: Path, ask: Decide) -> None:
    """Record a person's decision for the next `resume`.

    Raises:
        AlreadyDecided: a person has decided otherwise.
        InvalidUsage: the run is running, or the journal cannot be written.
    """
    with _changing(journal, "decision") as (rows, totals):
        refused = refusal_of(rows, ask)
        if refused is None:
            log_request(rows, totals, request_of(ask), None)
    if refused is not None:
        raise AlreadyDecided(refused)


def forget_unsettled(journal: Path) -> str | None:
    """Count calls no more that may have been billed without a reply; returns the count in words, or None if there was none.

    Raises:
        InvalidUsage: the run is running, or the journal cannot be written.
    """
    with _changing(journal, "account") as (rows, totals):
        account = totals.account
        totals.lose_all()
        calls = account.lost_in_flight
        if not (calls or account.unsettled_usd or account.unsettled_tokens or account.unpriced):
            return None
        counted = f"{calls} lost calls, ${account.unsettled_usd:.6f} and {account.unsettled_tokens} tokens"
        account.lost_in_flight, account.unsettled_usd, account.unsettled_tokens, account.unpriced = 0, 0.0, 0, 0
        log_changes(rows, totals, [("unsettled calls", counted, f"forgotten by {this_user()}")])
    return counted


def remove(journal: Path) -> list[Path]:
    """Remove a journal, the files that SQLite keeps beside it, requests and output of its run; returns the removed ones.

    Raises:
        InvalidUsage: the run is running, or the journal cannot be removed. Nothing was removed.
    """
    removed = []
    try:
        with _empty(journal) if holds_nothing(journal) else _alone(journal):
            beside = [
                each.with_name(each.name + suffix) for each in (journal, requests_of(journal)) for suffix in SIBLINGS
            ]
            for path in (journal, *beside, requests_of(journal), output_of(journal)):
                if os.path.exists(path):
                    path.unlink()
                    removed.append(path)
        folders = [folder_of(journal), journal.with_suffix(SHARDS)]
        removed += [folder for folder in folders if remove_folder(journal, folder)]
    except (OSError, *UNREADABLE) as error:
        kept = "" if removed else ", so it was kept"
        raise InvalidUsage(f"run {journal.stem} cannot be removed{kept}: {error_text(journal, error)}") from None
    return removed


def output_of(journal: Path) -> Path:
    """Return the file with the output of a run that was detached from its terminal."""
    return journal.with_suffix(".log")


def ask_live(journal: Path, ask: Ask, why: str = "") -> bool:
    """Leave a request to a live run, and wait at most `MAX_TAKING_S` until it has taken it; returns whether it has."""
    request = request_of(ask, why)
    leave_request(journal, request)
    until_s = time.monotonic() + MAX_TAKING_S
    while time.monotonic() < until_s:
        # Opened anew each time: while a reader is connected, a run that ends cannot close its journal.
        with Reader(journal) as reader:
            is_live = not reader.lease().is_free
            taken, refused = reader.request_effect(request.id)
        if refused is not None:
            kind = AlreadyDecided if isinstance(ask, Decide) else InvalidUsage
            raise kind(f"run {journal.stem} did not take the request: {refused}")
        if taken or not is_live:  # else the next sitting takes it
            return taken
        time.sleep(LOOK_EVERY_S)
    return False
