"""What a journal keeps: what is written, what is dropped, what it adds up to, and that an edit shows.

The store is fed by hand where the order of records matters; elsewhere whole runs write it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from microagents import (
    Conductor,
    InvalidUsage,
    MicroagentsError,
    Prompt,
    Reply,
    Strategy,
    Task,
    Work,
    run,
    run_sync,
)
from microagents.base.errors import Stopped, TaskFailed
from microagents.elections.election import Ballot, ElectionId, Flagged, SampleId, Verdict
from microagents.journal.books import Books
from microagents.journal.messages import (
    Account,
    InputEnding,
    Lost,
    Mark,
    OpenElection,
    Recall,
    Recalled,
    RecordCalls,
    RecordDecision,
    RecordProgress,
    RecordReply,
    RecordSample,
    ReplicaEnded,
    Written,
    answered,
)
from microagents.journal.reading import Reader
from microagents.journal.store import Store
from microagents.models.simulation.scripted import ScriptLine
from microagents.replies.reply_forms import write
from microagents.tasks.drift import Drift, Place
from tests.journal.walks import (
    JOURNAL,
    LENGTH,
    MODEL,
    RUNS,
    K,
    decisions,
    digests,
    go_on,
    on_disk,
    opened,
    problems,
    put,
    sql,
    undisturbed,
    walk,
    walked,
)

# -- a store that is fed by hand ---------------------------------------------------------------------------------------


@contextmanager
def store(path: Path | None = JOURNAL, *, inputs: int = 1) -> Iterator[Store]:
    """A store that is closed in order."""
    found = opened(path, inputs=inputs)
    try:
        yield found
    finally:
        found.close()


def cut_off(there: Store) -> None:
    """Leave a store as a process does that is killed, which takes a process of its own; so its holder is taken out by hand."""
    there._db.close()
    sql("UPDATE run SET content = json_set(content, '$.holder', NULL) WHERE part = 'lease'")


def election(at: str = "step/0", asked: bytes = b"a") -> ElectionId:
    return ElectionId(path=f"0/{at}", question_digest=asked.ljust(16, b"\0"))


def ballot(seq: int, number: int) -> Ballot:
    return Ballot(seq=seq, value=b'{"number":%d}' % number)


def counted(numbers: Sequence[int | None]) -> tuple[Ballot | Flagged, ...]:
    """Ballots for these numbers in order of launch; None is a reply that was flagged."""
    return tuple(
        [Flagged(seq=seq, flag="rude") if number is None else ballot(seq, number) for seq, number in enumerate(numbers)]
    )


def sampled(of: ElectionId, each: Ballot | Flagged) -> RecordSample:
    return RecordSample(id=SampleId(election=of, seq=each.seq), ballot=each)


def called(*, sent: int = 0, ended: int = 0, left: int | None = None, source: str = "Solver/0") -> RecordCalls:
    """What a solver tells of its calls, of which some are left in flight; all that come to their end are answered."""
    left = max(0, sent - ended) if left is None else left
    in_flight = {"sim:x": left} if left else {}
    return RecordCalls(
        source=source,
        in_flight=in_flight,
        calls=ended,
        input_tokens=10 * ended,
        output_tokens=20 * ended,
        cost_usd=0.5 * ended,
        cached_tokens=3 * ended,
    )


def decided(of: ElectionId, numbers: Sequence[int | None], outcome: Any = "decided", **more: Any) -> RecordDecision:
    """What a conductor tells of an election that was held."""
    values = [each.value for each in counted(numbers) if isinstance(each, Ballot)]
    tally = tuple([(value, values.count(value)) for value in dict.fromkeys(values)])
    leader = max(range(len(tally)), key=lambda place: tally[place][1], default=None)
    verdict = Verdict(outcome=outcome, leader=leader, tally=tally, ballots=counted(numbers))
    return RecordDecision(id=of, verdict=verdict, correct=True, **more)


def rows(table: str) -> int:
    (found,) = sql(f"SELECT count(*) FROM {table}")
    return int(found[0])


def books_of(journal: Path = JOURNAL) -> Account:
    with Reader(journal) as reader:
        return reader.account()


def recall(there: Store, path: str) -> Recalled:
    found = there.recall(Recall(path=path)).decision
    assert found is not None
    return found


def priced(numbers: Sequence[int | None], *costs: float | None) -> tuple[Ballot | Flagged, ...]:
    """The same ballots, with what each cost."""
    return tuple(
        [structs.replace(each, cost_usd=cost_usd) for each, cost_usd in zip(counted(numbers), costs, strict=True)]
    )


@pytest.mark.parametrize("cost", ["-1", "9e999", "'much'", "x'00'"])
@pytest.mark.parametrize("table", ["decision", "sample"])
def test_a_cost_that_is_none_is_damage(table: str, cost: str) -> None:
    with store() as there:
        there.commit([decided(election(), [7]), sampled(election("step/1"), ballot(0, 7))])
    sql(f"UPDATE {table} SET cost_usd = {cost}")
    with Reader(JOURNAL) as reader, pytest.raises(InvalidUsage, match="is not a journal, or it is damaged"):
        reader.of_input(0)


@pytest.mark.parametrize(
    "record",
    [
        RecordCalls(source="solver/0", unsettled_tokens=-1488),
        RecordCalls(source="solver/0", input_tokens=1 << 63),
        sampled(election("step/2"), structs.replace(ballot(0, 7), cost_usd=-1.0)),
        sampled(election("step/2"), Flagged(seq=0, flag="\ud800")),
        InputEnding(input=0, outcome="failed", reason="\ud800"),
    ],
    ids=["below nothing", "too large", "a cost below nothing", "no text", "no reason"],
)
def test_a_record_that_no_reader_takes_is_not_written_with_its_batch(record: Written) -> None:
    with store() as there:
        there.commit([decided(election(), [7])])
        with pytest.raises(Stopped, match="would make the journal unreadable"):
            there.commit([decided(election("step/1"), [7]), record])
    assert (problems(), rows("decision")) == ([], 1)


@pytest.mark.parametrize("when", ["in the same commit", "in a later commit", "after reopening"])
def test_a_second_decision_at_one_path_is_dropped_and_counted_once(when: str) -> None:
    first, second = decided(election(), [7, 7]), decided(election(asked=b"b"), [8, None, 8, 8])
    with store() as there:
        if when == "in the same commit":
            there.commit([first, second])
        elif when == "in a later commit":
            there.commit([first])
            there.commit([second])
        else:
            there.commit([first])
            there.close()
            with store() as again:
                again.commit([second])
    with store() as there:
        assert recall(there, "0/step/0").value == b'{"number":7}'
        account = there.books.account()
    once = Books(1)
    once.add(first)
    assert account == once.account()
    assert problems() == []


def test_open_elections_give_their_samples_back_by_seq_and_the_first_sample_of_an_id_counts() -> None:
    there = opened()
    first, other = priced([5, None, 6], 0.25, 0.5, None), election("step/1", b"b")
    there.commit([sampled(election(), first[2]), sampled(election(), first[0])])
    there.commit([sampled(election(), first[1]), sampled(other, ballot(4, 1)), sampled(election(), ballot(0, 99))])
    cut_off(there)
    with store() as again:
        found = {each.id: each for each in again.recall(Recall(with_open_elections=True)).open_elections}
    assert found == {
        election(): OpenElection(id=election(), ballots=first),
        other: OpenElection(id=other, ballots=(ballot(4, 1),)),
    }


def test_the_account_and_the_digests_after_reopening_are_those_before() -> None:
    with store() as there:
        there.commit([called(sent=3), *[sampled(election(), each) for each in counted([7, None, 7])]])
        there.commit(
            [decided(election(), [7, None, 7], done=1, state=b'{"a":1}'), RecordProgress(input=0, done=1, total=4)]
        )
        there.commit([decided(election("step/1"), [1, 2], "undecided"), called(ended=3)])
        there.commit(
            [
                decided(election("step/1/undecided"), [2], settled="sim:perfect"),
                answered(election("rate"), b"1"),
            ]
        )
        before, reached = there.books.account(), there.recall(Recall(path="0")).checkpoint
    with store() as again:
        assert again.books.account() == before
        assert again.recall(Recall(path="0")).checkpoint == reached
    assert books_of() == before
    assert digests(before)[0] != digests(before)[1]


PATHS = ["0/step/0", "0/step/1", "0/step/10", "0/b/7", "0/b", "1/step/0"]


def a_record(path: str, kind: str, number: int) -> Written:
    of, source = ElectionId(path=path, question_digest=bytes([number]) * 16), f"Solver/{number % 2}"
    match kind:
        case "sample":
            return sampled(of, ballot(number, 7))
        case "flagged":
            return sampled(of, Flagged(seq=number, flag="rude"))
        case "reply":
            return RecordReply(id=SampleId(election=of, seq=number), text="hm")
        case "decided" | "leader" | "undecided" | "sampled":
            return decided(of, [number, None, number, 9], kind, done=number, state=b'{"of":%d}' % of.input)
        case "once":
            return answered(ElectionId(path=f"{path}/once", question_digest=of.question_digest), b'"a"')
        case "progress":
            return RecordProgress(input=of.input, done=0, total=number)
        case "completed" | "failed":
            return InputEnding(input=of.input, outcome=kind, reason=None, result=f"{number}")
        case "calls":
            return RecordCalls(source=source, calls=number, input_tokens=number, cost_usd=0.25)
        case "in flight":
            return called(sent=number, source=source)
        case _:
            return Lost(calls=number)


records = st.builds(
    a_record,
    st.sampled_from(PATHS),
    st.sampled_from(
        [
            *("sample", "flagged", "reply", "decided", "leader", "undecided", "sampled", "once"),
            *("progress", "completed", "failed", "calls", "in flight", "lost"),
        ]
    ),
    st.integers(0, 3),
)


@pytest.mark.slow
@example(
    [
        [a_record("0/step/0", "decided", 0), a_record("0/step/0", "completed", 0)],
        [a_record("0/step/0", each, 0) for each in ("decided", "failed")],
    ]
)
@example(
    # an election of a known state that is undecided in two sittings, and decided in the third, after a later one
    [
        [a_record("0/step/0", "undecided", 0), a_record("0/step/1", "decided", 0)],
        "reopen",
        [a_record("0/step/0", "undecided", 0)],
        "reopen",
        [a_record("0/step/0", "decided", 0)],
    ]
)
@given(commits=st.lists(st.lists(records, max_size=6) | st.just("reopen"), max_size=12))
def test_however_records_are_cut_into_commits_and_sittings_they_add_up_to_the_same(
    commits: list[list[Written] | str],
) -> None:
    with TemporaryDirectory(dir=Path()) as folder, store(None, inputs=2) as reference:
        path = Path(folder, "r.sqlite")
        there = opened(path, inputs=2)
        for commit in commits:
            if isinstance(commit, str):
                there.close()
                there = opened(path, inputs=2)
                reference.books.totals.lose_all()
                continue
            for record in commit:
                reference.commit([record])
            there.commit(commit)
        there.commit([])  # what was lost in flight is written down with the next commit
        assert there.books.account() == reference.books.account()
        there.close()
        with store(path, inputs=2) as again:
            again.commit([])
            reference.books.totals.lose_all()
            assert again.books.account() == books_of(path) == reference.books.account()
            assert problems(path) == []
            for of_input in map(str, range(2)):
                assert again.recall(Recall(path=of_input)) == reference.recall(Recall(path=of_input))


def test_calls_in_flight_at_a_kill_are_counted_as_lost_at_reopening() -> None:
    there = opened()
    there.commit([called(sent=3), called(sent=2, source="Solver/1")])
    unbilled = RecordCalls(source="Solver/1", in_flight={"sim:x": 1})
    there.commit([called(ended=1, left=2), unbilled])
    cut_off(there)
    for _ in range(2):  # also where the sitting after it wrote nothing
        with store() as again:
            account = again.books.account()
            assert (account.in_flight, account.lost_in_flight, account.calls) == (0, 3, 1)
    with store() as again:
        again.commit([called(sent=2)])
        cut_off(again)
    with store() as again:
        assert again.books.account().lost_in_flight == 5


def test_what_one_replica_lost_is_counted_at_once_and_the_mark_at_reopening() -> None:
    with store() as there:
        there.commit([called(sent=3), called(sent=2, source="Solver/1"), Mark(most=Lost(calls=10, tokens=50))])
        there.commit([called(ended=1, left=2), Lost(calls=2, cost_usd=0.5), ReplicaEnded(source="Solver/0")])
        account = there.books.account()
        assert (account.in_flight, account.lost_in_flight, account.calls, account.unsettled_usd) == (2, 2, 1, 0.5)
        there.commit([called(ended=2, source="Solver/1"), Mark(most=Lost(calls=7, tokens=9))])
        cut_off(there)
    with Reader(JOURNAL) as reader:
        assert reader.account(is_cut_off=True).lost_in_flight == 2 + 7
    with store() as again:
        account = again.books.account()
        assert (account.in_flight, account.lost_in_flight, account.unsettled_tokens) == (0, 2 + 7, 9)


def test_the_death_of_an_actor_counts_once_however_many_roles_it_had() -> None:
    with store() as there:
        first = ReplicaEnded(source="Voter/1", actor="lane/1")
        there.commit([first, *(ReplicaEnded(source=f"{role}/1") for role in ("Solver", "RedFlagger"))])
        assert there.books.account().deaths == {"lane": 1}


def test_a_commit_that_fails_midway_leaves_nothing_of_its_records() -> None:
    there = opened()
    there.commit([sampled(election(), ballot(0, 7))])
    there._db.execute(
        "CREATE TEMP TRIGGER trap BEFORE INSERT ON reply BEGIN SELECT RAISE(ABORT, 'no room for texts'); END"
    )
    text = RecordReply(id=SampleId(election=election(), seq=0), text="hm")
    with pytest.raises(MicroagentsError, match="no room for texts"):
        there.commit([decided(election(), [7]), decided(election("step/1"), [8]), text])
    there._db.execute("DROP TRIGGER trap")
    with pytest.raises(MicroagentsError, match="no room for texts"):
        there.commit([decided(election(), [7])])  # the totals in memory have records that the file lacks
    there.close()
    assert (rows("decision"), rows("sample"), rows("reply")) == (0, 1, 0)
    assert (books_of().decided, problems()) == (0, [])


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_in_many_sittings_decides_what_it_decides_in_one() -> None:
    result = walk(max_calls=120)
    sittings = 1
    while result.outcome == "stopped":
        assert problems() == []
        before = result.account
        result, sittings = go_on(max_calls=before.calls + 120), sittings + 1
        assert result.account.calls > before.calls
    assert (result.outcome, digests(result.account), problems()) == ("completed", undisturbed(), [])
    assert (sittings > 5, result.account.lost_in_flight) == (True, 0)


class Stumbling(Drift):
    """A task of a user's own, which raises midway."""

    def advance(self, state: Place, reply: Any) -> Place:
        if state.steps_done == 50:
            raise ValueError("a stone")
        return super().advance(state, reply)


def test_a_run_that_raised_is_closed_in_order_and_says_so() -> None:
    with pytest.raises(TaskFailed, match="a stone"):
        run_sync(Stumbling(length=LENGTH), models=MODEL, k=K, run_id="r")
    assert {path.name for path in RUNS.iterdir()} == {"r.sqlite", ".gitignore"}
    with Reader(JOURNAL) as reader:
        ending = reader.ending()
        assert ending is not None
        assert (ending.outcome, "a stone" in (ending.reason or "")) == ("failed", True)
        assert "Traceback" not in (ending.reason or "")
        assert ending.traceback.startswith("Traceback (most recent call last):\n")
        assert "ValueError: a stone" in ending.traceback
        assert reader.verify() == []
        assert reader.account().decided >= 50


@pytest.mark.parametrize("models", ["sim:perfekt", "nothing:at-all"])
def test_a_run_that_cannot_begin_leaves_no_journal_and_takes_none_away(models: str) -> None:
    with pytest.raises(InvalidUsage):
        walk(models=models)
    assert not JOURNAL.exists()
    walk(max_calls=100)
    before = sql("SELECT * FROM decision")
    with pytest.raises(InvalidUsage):
        walk(models=models, accept_changes=["model"])
    assert sql("SELECT * FROM decision") == before


@pytest.mark.slow
def test_the_view_of_decisions_has_the_paths_and_values_of_the_result() -> None:
    result = walk()
    columns = "path, json_extract(value, '$.number'), outcome, counted, ballots"
    seen = sql(f"SELECT {columns} FROM decisions ORDER BY CAST(substr(path, length('0/step/') + 1) AS INTEGER)")
    assert [(path, {"number": number}) for path, number, *_ in seen] == list(map(tuple, result.decisions()))
    assert [path for path, *_ in seen] == [f"0/step/{step}" for step in range(LENGTH)]
    assert {outcome for _, _, outcome, *_ in seen} == {"decided"}
    for _, _, _, number_counted, ballots in seen:
        assert ballots is None or len(msgspec.json.decode(ballots)) == number_counted
    assert sum(each[3] for each in seen) == result.account.valid + sum(result.account.flagged.values())


@pytest.mark.slow
def test_the_texts_of_flagged_and_losing_replies_are_there_and_no_others() -> None:
    result = walk(speculate=False)
    kept = {(path, seq): (flag, text) for path, seq, flag, text in texts()}
    wanted = set()
    for path, row in decisions().items():
        wanted |= {(path, each.seq) for each in row.ballots if isinstance(each, Flagged) or each.value != row.value}
    assert set(kept) == wanted
    assert len(wanted) > 300
    assert sum(flag == "empty" for flag, _ in kept.values()) == result.account.flagged["empty"]


def texts() -> list[tuple[str, int, str, bytes]]:
    """Path, seq, flag or value, and text of every reply that was kept."""
    found = sql(
        "SELECT decisions.path, seq, size, text FROM reply JOIN place ON place.id = reply.key >> 40 "
        "JOIN decisions ON decisions.path = place.path || '/' || ((reply.key & 1099511627775) - 1)"
    )
    ballots = {path: row.ballots for path, row in decisions().items()}
    kept = []
    for path, seq, length, deflated in found:
        text, each = zlib.decompress(deflated), ballots[path][seq]
        assert len(text) == length
        if isinstance(each, Ballot):
            assert str(msgspec.json.decode(each.value)["number"]).encode() in text
        kept.append((path, seq, each.flag if isinstance(each, Flagged) else "", text))
        assert (kept[-1][2] == "empty") == (text == b"")
    return kept


@pytest.mark.slow
def test_prompts_stand_nowhere_in_the_file() -> None:
    put(walked(most=700))
    held = JOURNAL.read_bytes() + b"".join(zlib.decompress(text) for (text,) in sql("SELECT text FROM reply"))
    prompt = Drift().prompt(Place())
    for asked in (prompt.system, *prompt.system.split(", "), prompt.user, "Number: "):
        assert asked.encode() not in held
    assert b"number" in held  # replies are found where they are looked for


@pytest.mark.slow
def test_a_step_takes_at_most_150_bytes() -> None:
    result = walk(length=2_000, models="sim:perfect", k=3, durability="normal")
    assert result.account.decided == 2_000
    assert JOURNAL.stat().st_size <= 150 * 2_000


class Sum(Reply, frozen=True):
    """A number of any length, and a word in any script."""

    total: int
    word: str


GREAT = Sum(total=-(3**200), word='naïve "\\ 日本語 \N{SNOWMAN}\U0001f3c1 \x7f')
SMALL = Sum(total=2**64, word="")


class Adding(Task):
    """Nothing but questions."""


class AddsUpConductor(Conductor[Adding, "AddsUp"]):
    """Two elections: one is decided against a loser, the other unanimously."""

    async def conduct(self, work: Work[Adding, AddsUp]) -> object:
        split = await work.elect("split", Prompt(user="?"), Sum)
        agreed = await work.elect("a/9", Prompt(user="?"), Sum)
        return [split.require(), agreed.require()]


class AddsUp(Strategy):
    """A strategy of two questions."""

    solves, conductor = (Adding,), AddsUpConductor


async def test_integers_over_64_bits_and_all_of_unicode_survive(tmp_path: Path) -> None:
    lines = [
        ScriptLine(path="0/split", seq=seq, text=write(each))
        for seq, each in enumerate([GREAT, SMALL, GREAT, GREAT, GREAT])
    ]
    lines += [ScriptLine(path="0/a/9", seq=seq, text=write(GREAT)) for seq in range(3)]
    script = tmp_path / "script"
    script.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    result = await run(Adding(), models=f"scripted:{script}", strategy=AddsUp(), run_id="r")
    great = {"total": GREAT.total, "word": GREAT.word}
    assert (result.value, {each.path: each.value for each in result.decisions()}) == (
        [great, great],
        {"0/a/9": great, "0/split": great},
    )
    small = decisions()["0/split"].ballots[1]
    assert isinstance(small, Ballot)
    assert msgspec.json.decode(small.value, type=Sum) == SMALL
    assert problems() == []
    sql("DELETE FROM run WHERE part = 'ending'")  # so that it is run again, and every call answers from the journal
    script.write_text("")
    again = await run(Adding(), models=f"scripted:{script}", strategy=AddsUp(), run_id="r")
    assert (again.value, digests(again.account), again.calls) == (result.value, digests(result.account), result.calls)


# -- edits show --------------------------------------------------------------------------------------------------------


ONE = "(SELECT key FROM decision WHERE ballots {} NULL LIMIT 1 OFFSET 40)"
UNANIMOUS, SPLIT = ONE.format("IS"), ONE.format("IS NOT")


@pytest.mark.parametrize(
    ("edit", "shown"),
    [
        (
            f"UPDATE decision SET value = '{{\"number\":1}}' WHERE key = {UNANIMOUS}",
            {"decisions_sha256", "ballots_sha256"},
        ),
        (f"UPDATE decision SET value = '{{\"number\":1}}' WHERE key = {SPLIT}", {"decisions_sha256", "ballots_sha256"}),
        (f"UPDATE decision SET counted = counted + 1 WHERE key = {UNANIMOUS}", {"valid", "votes", "ballots_sha256"}),
        (f"UPDATE decision SET counted = counted + 1 WHERE key = {SPLIT}", {"counted"}),
        (
            f"UPDATE decision SET ballots = replace(ballots, 'true', '\"rude\"') WHERE key = {SPLIT}",
            {"flagged", "ballots_sha256"},
        ),
        (f"UPDATE decision SET ballots = NULL WHERE key = {SPLIT}", {"ballots_sha256"}),
        (f"UPDATE decision SET outcome = 2 WHERE key = {SPLIT}", {"decisions_sha256"}),
        (f"UPDATE decision SET outcome = 6 WHERE key = {SPLIT}", {"decided", "votes", "decisions_sha256"}),
        (
            f"DELETE FROM decision WHERE key = {SPLIT}",
            {"decided", "valid", "votes", "decisions_sha256", "ballots_sha256"},
        ),
        (
            "DELETE FROM decision WHERE key = (SELECT max(key) FROM decision)",
            {"decided", "decisions_sha256", "ballots_sha256"},
        ),
        (
            "INSERT INTO decision SELECT max(key) + 1, fork, outcome, counted, value, ballots, cost_usd, after_ms FROM decision",
            {"decided", "decisions_sha256"},
        ),
        (
            "UPDATE decision SET key = key + 1000 WHERE key = (SELECT max(key) FROM decision)",
            {"decisions_sha256", "ballots_sha256"},
        ),
        ("UPDATE place SET path = '0/stop'", {"decisions_sha256", "ballots_sha256"}),
        ("DELETE FROM place", {"decided", "decisions_sha256"}),
        (
            f"UPDATE run SET content = replace(content, '\"decided\":{LENGTH}', '\"decided\":9') WHERE part = 'account'",
            {"decided"},
        ),
        *[
            (
                f"UPDATE run SET content = json_set(content, '$.totals.account.{name}', '') WHERE part = 'account'",
                {name},
            )
            for name in ("decisions_sha256", "ballots_sha256")
        ],
    ],
)
def test_verify_names_what_an_edit_made_of_a_finished_run(edit: str, shown: set[str]) -> None:
    put(walked())
    assert problems() == []
    before = sql("SELECT * FROM decision"), sql("SELECT * FROM place, run")
    sql(edit)
    assert (sql("SELECT * FROM decision"), sql("SELECT * FROM place, run")) != before
    named = {problem.partition(" ")[0] for problem in problems()}
    assert shown <= named


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE input SET value = '{\"number\":7}'",
        "UPDATE input SET reached = reached - 1",
        'UPDATE input SET state = \'{"number":7,"steps_done":100}\'',
    ],
)
def test_a_chain_is_taken_up_only_where_its_last_decision_leads(edit: str) -> None:
    put(walked(most=700))
    sql(edit)
    with pytest.raises(InvalidUsage, match=r"begin another run|accept-change question"):
        go_on(max_calls=None)


# -- looking on --------------------------------------------------------------------------------------------------------


def looks(journal: Path, look: Callable[[Reader], object]) -> object:
    with Reader(journal) as reader:
        return look(reader)


@pytest.mark.parametrize(
    "look",
    [Reader.account, Reader.lease, Reader.ending, Reader.changes, Reader.verify, Reader.undecided],
    ids=lambda look: look.__name__,
)
def test_who_looks_on_changes_nothing(look: Callable[[Reader], object]) -> None:
    put(walked(most=200))
    before = on_disk()
    looks(JOURNAL, look)
    assert on_disk() == before
