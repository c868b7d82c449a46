"""One reply is owed once: to a client that gave up and asks again, and to no other."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from microagents.base.errors import InvalidUsage, Stopped
from microagents.journal.messages import Account, RecordDecision, Written
from microagents.journal.reading import Reader, journal_of
from microagents.journal.store import Store
from microagents.web.endpoint.ledger import LEDGER, Ledger
from microagents.web.endpoint.server import Serving
from tests.doubles.acting import Acting
from tests.web.endpoint.test_agreement import read_all
from tests.web.endpoint.test_forwarding import ASKED, posted, saying, voted

WAIT_S = 20


async def until(is_so: Any) -> None:
    async with asyncio.timeout(WAIT_S):
        while not is_so():  # noqa: ASYNC110 - of what a server in another task has come to
            await asyncio.sleep(0.005)


async def left(served: Serving, double: Acting, body: dict[str, Any], requests: int) -> None:
    """Ask, and leave once the double has this many requests."""
    async with aiohttp.ClientSession() as session:
        asking = asyncio.create_task(session.post(f"{served.url}/v1/chat/completions", json=body))
        await until(lambda: len(double.requests) >= requests)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: served.debts.left == 1)


async def test_a_client_that_gives_up_and_asks_again_gets_the_election_that_it_began() -> None:
    async with voted(saying("x")) as (double, served):
        double.gate = asyncio.Event()
        await left(served, double, ASKED, 3)
        again = asyncio.create_task(posted(served, "chat/completions", ASKED))
        await until(lambda: not served.debts.left)
        double.gate.set()
        status, reply, _ = await again
        assert (status, len(double.requests)) == (200, 3)
        assert reply["usage"]["microagents"]["election"] == 1
        _, reply, _ = await posted(served, "chat/completions", ASKED)  # it was delivered, so this is another question
        assert reply["usage"]["microagents"]["election"] == 2


async def test_while_no_client_waits_no_further_sample_is_begun() -> None:
    different = [[("read", {"path": str(number)})] for number in range(100)]
    async with voted(saying(*different)) as (double, served):
        double.gate = asyncio.Event()
        await left(served, double, ASKED, 3)
        double.gate.set()
        await until(lambda: double.in_flight == 0)
        assert len(double.requests) == 3
        status, _, _ = await posted(served, "chat/completions", ASKED)
        assert (status, len(double.requests)) == (200, 12)


async def test_equal_requests_side_by_side_are_as_many_questions() -> None:
    async with voted(saying("x")) as (double, served):
        found = await asyncio.gather(*[posted(served, "chat/completions", ASKED) for _ in range(5)])
    assert sorted(reply["usage"]["microagents"]["election"] for _, reply, _ in found) == [1, 2, 3, 4, 5]
    assert len(double.requests) == 15


async def test_another_body_is_another_question() -> None:
    async with voted(saying("x")) as (double, served):
        double.gate = asyncio.Event()
        await left(served, double, ASKED, 3)
        double.gate.set()
        _, reply, _ = await posted(served, "chat/completions", {**ASKED, "user": "other"})
    assert reply["usage"]["microagents"]["election"] == 2


async def test_a_reply_that_could_not_be_written_is_owed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    write_eof, failures = web.Response.write_eof, [ConnectionResetError("the client is gone")]

    async def breaking(self: web.Response, data: bytes = b"") -> None:
        if "x-microagents-votes" in self.headers and failures:
            raise failures.pop()
        await write_eof(self, data)

    monkeypatch.setattr(web.Response, "write_eof", breaking)
    async with voted(saying("x")) as (double, served):
        with pytest.raises(aiohttp.ClientError):
            await posted(served, "chat/completions", ASKED)
        _, reply, _ = await posted(served, "chat/completions", ASKED)
    assert (reply["usage"]["microagents"]["election"], len(double.requests)) == (1, 3)


async def test_an_error_is_told_once_and_owed_to_nobody() -> None:
    async with voted(saying(400, 400, 400, "x", "x", "x")) as (_, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 400
        assert (await posted(served, "chat/completions", ASKED))[0] in (200, 400)


async def test_after_a_crash_a_client_that_asks_again_pays_for_no_reply_a_second_time(tmp_path: Path) -> None:
    different = [[("read", {"path": str(number)})] for number in range(100)]
    async with voted(saying(*different), runs_dir=tmp_path, run_id="first") as (double, served):
        double.gate = asyncio.Event()
        await left(served, double, ASKED, 3)
        double.gate.set()
        await until(lambda: double.in_flight == 0)
        await until(lambda: len(served.debts._owed[0].exchange.replies) == 3)
    assert (tmp_path / LEDGER).stat().st_mode & 0o777 == 0o600
    async with voted(saying("x"), runs_dir=tmp_path, run_id="second") as (double, served):
        status, reply, _ = await posted(served, "chat/completions", ASKED)
        assert (status, reply["usage"]["microagents"]["samples"]) == (200, 7)
        # The votes for the end: the three replies of the first server are not asked for again.
        assert len(double.requests) == 4
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
        assert len(double.requests) == 7  # it was delivered, so this is another question


async def test_a_reply_is_answered_once_its_decision_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("microagents.journal.commits.COMMIT_EVERY_S", 0.1)
    async with voted(saying("x"), runs_dir=tmp_path, run_id="served") as (_, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
        with Reader(journal_of(tmp_path, "served")) as reader:
            assert "0/request/1" in reader.of_input(0)[0]


async def test_no_reply_is_answered_whose_decision_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Store.commit

    def full(self: Store, records: Sequence[Written]) -> Account:
        if any(isinstance(each, RecordDecision) for each in records):
            raise Stopped("the disk is full")
        return commit(self, records)

    found: list[tuple[int, str]] = []

    async def answered() -> None:
        async with voted(saying("x"), runs_dir=tmp_path) as (_, served):
            assert (await posted(served, "chat/completions", ASKED))[0] == 200
            monkeypatch.setattr(Store, "commit", full)
            status, reply, _ = await posted(served, "chat/completions", ASKED)
            found.append((status, reply["error"]["message"]))

    with pytest.raises(Stopped, match="the disk is full"):  # the server cannot end its journal
        await answered()
    assert found == [(502, "the disk is full")]


async def test_a_delivered_reply_is_not_owed_after_a_restart(tmp_path: Path) -> None:
    for name in ("first", "second"):
        async with voted(saying("x"), runs_dir=tmp_path, run_id=name) as (double, served):
            assert (await posted(served, "chat/completions", ASKED))[0] == 200
            assert len(double.requests) == 3


async def test_replies_that_were_delivered_or_are_an_hour_old_leave_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for seq, question in enumerate((b"old", b"new")):
        debt, _ = ledger.take(question)
        ledger.keep(debt, question, seq, b"reply")
    ledger._db.execute("UPDATE owed SET at = at - 3600 WHERE question = ?", (b"old",))
    ledger.close()
    async with voted(saying("a private reply"), k=1, runs_dir=tmp_path) as (_, served):
        for number in range(12):
            assert (await posted(served, "chat/completions", {**ASKED, "user": str(number)}))[0] == 200
    assert b"private" not in read_all(str(tmp_path))
    ledger = Ledger(tmp_path)
    assert ledger.take(b"new")[1] == {1: b"reply"}
    assert ledger.take(b"old")[1] == {}
    ledger.close()


@pytest.mark.parametrize("made", ["CREATE TABLE cost (day, caller, units)", "not a database", None])
async def test_a_ledger_of_others_is_refused_in_one_sentence_and_left_as_it_is(
    made: str | None, tmp_path: Path
) -> None:
    path = tmp_path / LEDGER
    if made is None:
        os.mkfifo(path)
    elif made.startswith("CREATE"):
        with closing(sqlite3.connect(path)) as db:
            db.execute(made)
    else:
        path.write_text(made * 100)
    with pytest.raises(InvalidUsage, match=r"costs and owed replies cannot be kept in .*serve.ledger"):
        Ledger(tmp_path)
