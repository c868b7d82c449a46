"""What a journal holds: decisions with their ballots, once each; and an account that fits them."""

from __future__ import annotations

import sqlite3
import zlib
from pathlib import Path
from typing import Any, ClassVar

import pytest

from microagents import Conductor, Deployment, FirstTo, Prompt, Reply, Request, Result, Role, Stopped, Strategy, Task, run_sync
from microagents.account import Record, RecordAnswer, RecordDecision, RecordInFlight, RecordReply, RecordSample
from microagents.chat import Usage
from microagents.elections import Ballot, ElectionId, Flagged, SampleId, Verdict
from microagents.errors import JournalMismatch
from microagents.journal.experiment import Experiment
from microagents.journal.reading import Reader
from microagents.journal.schema import MAX_TEXT_BYTES, log_bytes
from microagents.journal.store import Store
from microagents.tasks.drift import Drift

JOURNAL = Path("runs/r.sqlite")
MODEL = "sim:perfect@error=0.4,flag=0.1"
FORK, OTHER_FORK = b"f" * 16, b"o" * 16


def opened(*, in_order: bool = True) -> Store:
    return Store(JOURNAL, Experiment(run_id="r", identity={}, plan={}, inputs=1, in_order=in_order))


def sample(seq: int, value: str | None = '{"number":1}', *, step: int = 0, fork: bytes = FORK) -> RecordSample:
    ballot = Flagged(seq=seq, flag="empty") if value is None else Ballot(seq=seq, value=value.encode())
    usage = Usage(input_tokens=10, output_tokens=5, cost_usd=0.5)
    return RecordSample(id=SampleId(election=ElectionId(path=f"0/step/{step}", fork=fork), seq=seq), ballot=ballot, usage=usage)


def decision(
    *values: str | None, step: int = 0, outcome: Any = "decided", fork: bytes = FORK, settled: str | None = None
) -> RecordDecision:
    """The first valid value wins."""
    ballots = tuple(
        Flagged(seq=seq, flag="empty") if value is None else Ballot(seq=seq, value=value.encode()) for seq, value in enumerate(values)
    )
    valid = [value for value in values if value is not None]
    tally = tuple((value.encode(), valid.count(value)) for value in dict.fromkeys(valid))
    verdict = Verdict(outcome=outcome, leader=0 if valid else None, tally=tally, ballots=ballots)
    election = ElectionId(path=f"0/step/{step}", fork=fork)
    return RecordDecision(id=election, verdict=verdict, correct=None, done=step + 1, state=b"{}", settled=settled, reply="x:Y")


def held(table: str) -> int:
    with sqlite3.connect(JOURNAL) as db:
        count: int = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    db.close()
    return count


ONE, TWO = '{"number":1}', '{"number":2}'


# -- what is kept --------------------------------------------------------------------------------------------------------


def test_a_decision_carries_its_ballots_and_needs_no_sample() -> None:
    store = opened()
    store.commit([decision(ONE, None, TWO, ONE, ONE)])
    recalled = store.recall("0/step/0")
    store.close()
    assert recalled is not None
    assert (recalled.fork, recalled.outcome, recalled.value) == (FORK, "decided", ONE.encode())
    assert recalled.ballots == decision(ONE, None, TWO, ONE, ONE).verdict.ballots


def test_ballots_that_are_all_the_same_take_no_room() -> None:
    store = opened()
    store.commit([decision(ONE, ONE, ONE), decision(ONE, TWO, ONE, ONE, step=1)])
    store.close()
    with sqlite3.connect(JOURNAL) as db:
        rows = db.execute("SELECT path, outcome, counted, value, ballots FROM decisions").fetchall()
    db.close()
    assert rows == [("0/step/0", "decided", 3, ONE, None), ("0/step/1", "decided", 4, ONE, f"[true,{TWO},true,true]")]


def test_samples_are_kept_until_their_place_is_decided() -> None:
    store = opened()
    store.commit([sample(0), sample(1, None), sample(2, fork=OTHER_FORK), sample(0, step=1)])
    assert held("sample") == 4
    (first, second, third) = store.open_elections()
    assert (first.id, first.ballots) == (ElectionId(path="0/step/0", fork=FORK), (sample(0).ballot, sample(1, None).ballot))
    assert (second.id.fork, third.id.path) == (OTHER_FORK, "0/step/1")
    store.commit([decision(ONE)])
    assert [each.id.path for each in store.open_elections()] == ["0/step/1"]
    store.commit([sample(3), sample(4, fork=OTHER_FORK)])
    assert held("sample") == 1, "those that come late are paid for, and not kept"
    assert store.books.account().calls == 6
    store.close()


def test_the_first_sample_of_an_id_is_kept() -> None:
    store = opened()
    store.commit([sample(0, ONE)])
    store.commit([sample(0, TWO)])
    assert store.open_elections()[0].ballots == (sample(0, ONE).ballot,)
    store.close()


@pytest.mark.parametrize("together", [True, False])
def test_the_first_decision_at_a_place_counts_and_no_other_does(*, together: bool) -> None:
    once, twice = [decision(ONE, ONE)], [decision(ONE, ONE), decision(TWO), decision(ONE, ONE, fork=OTHER_FORK)]
    store = opened()
    for records in [twice] if together else [[record] for record in twice]:
        store.commit(records)
    found = store.books.account_with_digests()
    store.close()
    with Reader(JOURNAL) as reader:
        assert [row.value for _, row in reader.decisions()] == [ONE.encode()]
        assert reader.verify() == []
    JOURNAL.unlink()
    right = opened()
    right.commit(once)
    assert right.books.account_with_digests() == found
    right.close()


def test_what_is_undecided_gives_way_to_a_decision_and_enters_no_digest() -> None:
    store = opened()
    store.commit([decision(ONE, None, TWO, outcome="undecided")])
    account = store.books.account()
    assert (account.undecided_at, account.valid, account.flagged, account.decided) == (("0/step/0",), 2, {"empty": 1}, 0)
    store.commit([decision(ONE, None, TWO, outcome="leader", settled="leader"), decision(ONE, step=1)])
    account = store.books.account_with_digests()
    store.close()
    assert (account.undecided_at, account.valid, account.flagged, account.decided) == ((), 3, {"empty": 1}, 2)
    assert account.settled_at == {"0/step/0": "leader"}
    JOURNAL.unlink()
    direct = opened()
    direct.commit([decision(ONE, None, TWO, outcome="leader", settled="leader"), decision(ONE, step=1)])
    assert direct.books.account_with_digests() == account
    direct.close()


def test_books_are_the_same_after_they_were_closed_and_opened() -> None:
    for in_order in (True, False):
        store = opened(in_order=in_order)
        answer = RecordAnswer(id=ElectionId(path="0/rate", fork=FORK), value=b"0.86")
        store.commit([sample(0), RecordInFlight(change=3), decision(ONE, TWO, ONE), answer, decision(None, outcome="undecided", step=1)])
        before = store.books.account_with_digests()
        store.close()
        again = opened(in_order=in_order)
        after = again.books.account_with_digests()
        again.close()
        assert (after.lost_in_flight, after.in_flight) == (2, 0), "three were launched, one was answered"
        before.lost_in_flight, before.in_flight = 2, 0
        assert after == before
        JOURNAL.unlink()


def test_texts_are_kept_deflated_and_cut() -> None:
    store = opened()
    election = ElectionId(path="0/step/0", fork=FORK)
    texts: list[Record] = [
        RecordReply(id=SampleId(election=election, seq=0), text="why not ä?"),
        RecordReply(id=SampleId(election=election, seq=1), text="x" * (MAX_TEXT_BYTES + 1)),
        RecordReply(id=SampleId(election=election, seq=2), text="\ud800"),
    ]
    store.commit(texts)
    store.close()
    with sqlite3.connect(JOURNAL) as db:
        rows = [(size, zlib.decompress(text).decode()) for size, text in db.execute("SELECT bytes, text FROM reply ORDER BY seq")]
    db.close()
    assert rows == [(11, "why not ä?"), (MAX_TEXT_BYTES, "x" * MAX_TEXT_BYTES), (1, "?")]


@pytest.mark.parametrize(
    "path", ["0/step/0", "0/step/99999999999", "0/step/007", "0/a", "0/5", "0/line/17/rate", "0/ä/3", "0/9" + "9" * 30]
)
def test_every_path_is_found_again(path: str) -> None:
    store = opened(in_order=False)
    store.commit([RecordAnswer(id=ElectionId(path=path, fork=FORK), value=b'"here"')])
    recalled = store.recall(path)
    store.close()
    assert recalled is not None
    assert recalled.value == b'"here"'
    with Reader(JOURNAL) as reader:
        assert [each for each, _ in reader.decisions()] == [path]


# -- runs ----------------------------------------------------------------------------------------------------------------


def walk(length: int = 200, **options: Any) -> Result:
    return run_sync(Drift(length=length), models=MODEL, k=2, run_id="r", **options)


def test_a_journal_changes_nothing_that_is_decided_or_counted() -> None:
    kept, unkept = walk(speculate=False), walk(speculate=False, runs_dir=None)
    assert kept.account == unkept.account
    assert kept.value == unkept.value


def test_a_finished_run_answers_at_once_and_buys_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = walk()
    monkeypatch.setenv("MICROAGENTS_PURCHASES", "purchases")
    again = walk()
    assert not Path("purchases").exists()
    assert again.as_json() == first.as_json()


def test_prompts_are_not_recorded_and_a_step_takes_little_room() -> None:
    run_sync(Drift(length=3000), models="sim:gpt-4.1-mini", run_id="r")
    content = JOURNAL.read_bytes()
    assert b"Multiply the number" not in content
    assert len(content) / 3000 < 150, "bytes a step"
    assert not log_bytes(JOURNAL)


def test_decisions_are_read_from_the_journal_in_order() -> None:
    result = walk(30)
    decisions = list(result.decisions())
    assert [path for path, _ in decisions] == [f"0/step/{step}" for step in range(30)]
    assert decisions[-1][1]["number"] == result.value["number"]


EDITS = {
    "a value": "UPDATE decision SET value = '{\"number\":3}' WHERE key = (SELECT max(key) FROM decision)",
    "ballots": "UPDATE decision SET ballots = '[true]' WHERE key = (SELECT min(key) FROM decision)",
    "a count": "UPDATE decision SET counted = counted + 1, ballots = NULL WHERE key = (SELECT max(key) FROM decision)",
    "a row less": "DELETE FROM decision WHERE key = (SELECT max(key) FROM decision)",
    "an outcome": "UPDATE decision SET outcome = 3 WHERE key = (SELECT max(key) FROM decision)",
    "the account": "UPDATE account SET totals = replace(totals, '\"decided\":50', '\"decided\":51')",
}


@pytest.mark.parametrize("edit", EDITS)
def test_verify_sees_what_does_not_fit(edit: str) -> None:
    walk(50)
    with Reader(JOURNAL) as reader:
        assert reader.verify() == []
    with sqlite3.connect(JOURNAL) as db:
        assert db.execute(EDITS[edit]).rowcount == 1
    db.close()
    with Reader(JOURNAL) as reader:
        assert reader.verify() != []


# -- durable calls of any conductor --------------------------------------------------------------------------------------


class Word(Reply, frozen=True):
    word: str
    number: int = 10**40


class Words(Task):
    """Work that is no chain."""

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Word:  # noqa: ARG002 - it has one kind of reply
        return Word(word=f"{prompt.user} ä")


class Look(Request[str], frozen=True):
    what: str


class Desk(Role):
    looked: ClassVar[list[str]] = []

    async def look(self, request: Look) -> str:
        self.looked.append(request.what)
        return f"{request.what} seen"


class WordsConductor(Conductor[Words, "Plan"]):
    asks = (Look,)
    stops_at: ClassVar[int] = 99
    asked: ClassVar[str] = "word"

    async def conduct(self) -> list[str]:
        found = []
        for part in range(4):
            seen = await self.once(f"part/{part}/look", Look(what=f"{self.asked} {part}"))
            drawn = await self.sample(f"part/{part}/drafts", Prompt(user=seen), Word, n=2)
            chosen = await self.elect(f"part/{part}", Prompt(user=drawn[0].word), Word, rule=FirstTo(2))
            found.append(chosen.require().word)
            if part == self.stops_at:
                raise Stopped("here")
        return found


class Plan(Strategy):
    solves, conductor = (Words,), WordsConductor

    def deployments(self) -> list[Deployment]:
        return [*super().deployments(), Deployment(role=Desk)]


def words(**options: Any) -> Result:
    return run_sync(Words(), models="sim:perfect@flag=0.2", strategy=Plan(), run_id="r", **options)


@pytest.mark.parametrize("runtime", ["local", "linked"])
@pytest.mark.parametrize("stops_at", [0, 2])
def test_a_run_that_is_taken_up_asks_nobody_again(runtime: str, stops_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    right = words(runs_dir="undisturbed")
    Desk.looked.clear()
    monkeypatch.setenv("MICROAGENTS_PURCHASES", "purchases")
    monkeypatch.setattr(WordsConductor, "stops_at", stops_at)
    assert words(runtime=runtime).outcome == "stopped"
    monkeypatch.setattr(WordsConductor, "stops_at", 99)
    result = words(runtime=runtime)
    assert result.value == right.value == [f"word {part} seen ä ä" for part in range(4)]
    assert Desk.looked == [f"word {part}" for part in range(4)]
    assert Path("purchases").read_text().count("sent") == right.calls == result.calls
    assert result.account.decisions_sha256 == right.account.decisions_sha256
    assert result.account == right.account
    with Reader(JOURNAL) as reader:
        assert reader.verify() == []


def test_another_question_at_a_place_that_is_decided_is_refused_unless_it_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WordsConductor, "stops_at", 1)
    words()
    monkeypatch.setattr(WordsConductor, "stops_at", 99)
    monkeypatch.setattr(WordsConductor, "asked", "thing")
    with pytest.raises(JournalMismatch, match="--accept-change question"):
        words()
    result = words(accept_changes=["question"])
    assert result.value == ["word 0 seen ä ä", "word 1 seen ä ä", "thing 2 seen ä ä", "thing 3 seen ä ä"]


def test_sampling_counts_no_decision_and_gives_what_there_is() -> None:
    result = words()
    assert result.account.decided == 4
    assert result.account.votes == 8
    assert result.account.valid == 16
