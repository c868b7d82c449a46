"""Allotments of calls: no call is sent before the journal says that it may be, and what was allotted and not sent stays small."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from microagents import Stopped
from microagents.journal.messages import AllotCalls
from microagents.journal.reading import Reader
from microagents.roles.solver.call_allotment import LEAST, CallAllotment
from microagents.runtimes.virtual import run_virtual
from tests.journal.test_store import called
from tests.journal.walks import JOURNAL, opened, sql

COMMIT_S = 0.025
"""From the request for a block to its grant."""


class Journal:
    """Allots calls, as a keeper does."""

    def __init__(self, answer: Callable[[], Awaitable[None]] | None = None) -> None:
        self.asked: list[int] = []
        self.granted = 0
        self._answer = answer

    async def ask(self, request: AllotCalls) -> int:
        self.asked.append(request.calls)
        if self._answer is None:
            await asyncio.sleep(COMMIT_S)
        else:
            await self._answer()
        self.granted += request.calls
        return request.calls


def allotment_of(journal: Journal, first: int = LEAST) -> CallAllotment:
    return CallAllotment("Solver/0", journal.ask, first)


def test_no_call_is_sent_before_it_is_allotted() -> None:
    async def sent() -> list[int]:
        may = asyncio.Event()

        async def grants() -> None:
            await may.wait()

        journal, found = Journal(grants), []
        allotment = allotment_of(journal)
        calls = [asyncio.ensure_future(allotment.take()) for _ in range(10)]
        for _ in range(3):
            await asyncio.sleep(1)
            found.append(sum(call.done() for call in calls))
            may.set()
        await asyncio.gather(*calls)
        await allotment.close()
        return found

    assert run_virtual(sent()) == [0, 10, 10]


def test_a_call_that_is_cancelled_while_it_waits_takes_nothing() -> None:
    async def left() -> float:
        journal = Journal()
        allotment = allotment_of(journal)
        calls = [asyncio.ensure_future(allotment.take()) for _ in range(LEAST)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.wait(calls)
        found = journal.granted - allotment._left
        await allotment.close()
        return found

    assert run_virtual(left()) == LEAST - 1


def test_a_journal_that_cannot_be_written_lets_no_call_be_sent() -> None:
    async def refused() -> None:
        async def fails() -> None:
            raise Stopped("the journal cannot be written")

        allotment = allotment_of(Journal(fails))
        for _ in range(2):
            with pytest.raises(Stopped):
                await allotment.take()
        await allotment.close()

    run_virtual(refused())


# -- in the books ------------------------------------------------------------------------------------------------------


def test_a_killed_process_leaves_its_calls_in_flight_and_its_allotment_as_lost() -> None:
    there = opened()
    there.commit(
        [AllotCalls(source="Solver/0", calls=10), called(sent=7, ended=4), AllotCalls(source="Solver/1", calls=5)]
    )
    there._db.close()
    sql("UPDATE run SET content = json_set(content, '$.holder', NULL) WHERE part = 'lease'")
    with Reader(JOURNAL) as reader:
        assert reader.account(is_cut_off=True).lost_in_flight == (7 - 4) + (10 - 7) + 5
    again = opened()
    assert (again.books.account().lost_in_flight, again.books.totals.leased) == (11, {})
    again.close()
