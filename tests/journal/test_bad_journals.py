"""Journals that are none, are damaged, or belong to something else: one sentence, and not a byte is changed."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from microagents import ChainTask, InvalidUsage, MicroagentsError, Prompt, Reply, Result, resume, run_sync
from microagents.base.errors import JournalMismatch
from microagents.journal import sitting
from microagents.journal.reading import Reader
from microagents.runs.inspection.runs import inspect_run
from microagents.tasks.drift import Drift
from microagents.tasks.hanoi import Hanoi
from tests.cli.commands import COMPLETED, PAPERS, WRONG_USAGE, Sitting, microagents
from tests.journal.walks import (
    JOURNAL,
    LENGTH,
    MODEL,
    PATIENTLY,
    RUNS,
    WALK,
    K,
    decisions,
    digests,
    go_on,
    on_disk,
    problems,
    put,
    sentence,
    sql,
    undisturbed,
    walk,
    walked,
)

SHORTER = 120
"""Length of a run that is taken up a hundred times."""
PLACES = 10
"""At so many places files are cut short, and bytes are changed."""


def opened() -> None:
    """Look at the journal without going on with it."""
    with Reader(JOURNAL):
        pass


EVERYONE: dict[str, Callable[[], object]] = {"look": opened, "run": walk, "resume": go_on}
everyone = pytest.mark.parametrize("who", EVERYONE)


def assert_refused(who: str, *said: str) -> None:
    """It is refused with one sentence that says all this, and left as it is."""
    before = on_disk()
    with pytest.raises(InvalidUsage) as raised:
        EVERYONE[who]()
    for words in said:
        assert words in sentence(raised.value)
    assert on_disk() == before


# -- no journal at all -------------------------------------------------------------------------------------------------


@everyone
@pytest.mark.parametrize(
    "content",
    [
        b"no journal",
        b"x" * 5000,
        b"SQLite format 3\0",
        b"SQLite format 3\0" + b"\0" * 200,
        b"SQLite format 3\0" + b"\xff" * 8192,
    ],
    ids=["short text", "long text", "magic alone", "magic and zeros", "magic and ones"],
)
def test_a_file_that_is_no_database_is_refused(who: str, content: bytes) -> None:
    put(content)
    assert_refused(who, "r.sqlite", "left as it is")


@everyone
@pytest.mark.parametrize(
    "statement", ["CREATE TABLE mine (x)", "PRAGMA application_id = 7; CREATE TABLE run (experiment)"]
)
def test_a_database_of_somebody_else_is_refused(who: str, statement: str) -> None:
    RUNS.mkdir()
    with closing(sqlite3.connect(JOURNAL)) as db:
        db.executescript(statement)
    assert_refused(who, "no journal of a run")


@everyone
def test_a_folder_of_that_name_is_refused(who: str) -> None:
    JOURNAL.mkdir(parents=True)
    (JOURNAL / "file").touch()
    assert_refused(who, "cannot be opened")


@everyone
@pytest.mark.parametrize(
    "statement",
    ["PRAGMA user_version = 99", "PRAGMA user_version = 3"],
    ids=["of later", "of before"],
)
def test_a_journal_of_another_version_is_refused(who: str, statement: str) -> None:
    put(walked(40))
    with closing(sqlite3.connect(JOURNAL)) as db:
        db.executescript(statement)
    assert_refused(
        who, "written by another version", "left as it is", "use the microagents that wrote it, or begin the run anew"
    )


@pytest.mark.slow
def test_an_empty_file_is_a_run_that_has_not_begun() -> None:
    put(b"")
    assert_refused("look", "nothing is recorded", "begin it again with the command that began it")
    assert_refused("resume", "nothing is recorded", "begin it again with the command that began it")
    assert (digests(walk().account), problems()) == (undisturbed(), [])


@pytest.mark.slow
def test_a_journal_whose_tables_were_never_made_is_a_run_that_has_not_begun() -> None:
    RUNS.mkdir()
    with closing(sqlite3.connect(JOURNAL)) as db:  # as it is for a moment while it is made
        db.execute("PRAGMA journal_mode = WAL")
    assert_refused("look", "r.sqlite")
    assert_refused("resume", "r.sqlite")
    assert (digests(walk().account), problems()) == (undisturbed(), [])


@pytest.mark.slow
@pytest.mark.parametrize("votes", ["exact", "semantic"])
def test_a_run_that_is_killed_before_its_first_record_is_begun_again_by_its_command(votes: str) -> None:
    words = ("run", f"{PAPERS}/relay.py:Relay", "-s", f"votes={votes}", "--model", "sim:perfect", "--run-id", "r")
    child = os.fork()
    if not child:
        vars(sitting)["writing"] = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        microagents(*words)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert "begin it again with the command that began it" in microagents("resume", "r").err
    assert microagents(*words).code == COMPLETED


# -- cut short ---------------------------------------------------------------------------------------------------------


def cuts(content: bytes) -> Iterator[bytes]:
    """Beginnings, evenly spread over its length from a small one on; the empty one is no part of them, nor is the whole."""
    for part in range(1, PLACES + 1):
        yield content[: len(content) * part // (PLACES + 1)]


@pytest.mark.slow
def test_a_journal_that_is_cut_short_anywhere_is_refused() -> None:
    walk()
    whole = JOURNAL.read_bytes()
    for cut in cuts(whole):
        put(cut)
        for who in EVERYONE:
            assert_refused(who, "r.sqlite", "begin another run")
    put(whole)
    assert (digests(walk().account), problems()) == (undisturbed(), [])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """The file and the log that a killed process left behind."""
    folder = tmp_path_factory.mktemp("killed")
    journal = folder / "r.sqlite"
    with Sitting(*PATIENTLY, "-o", f"length={SHORTER}", "--runs-dir", str(folder), hastily=True) as sitting:
        sitting.until_sent(300)
        sitting.end(signal.SIGKILL)
    left = journal.read_bytes(), Path(f"{journal}-wal").read_bytes()
    assert 10 <= len(decisions(journal)) < SHORTER
    return left


def assert_refused_or_a_beginning() -> bool:
    """It is refused and left as it is, or it is the beginning of the run that nothing happened to; gives which."""
    before = on_disk()
    try:
        found = problems()
        assert on_disk() == before
        result = go_on(durability="normal")
    except InvalidUsage as error:
        sentence(error)
        assert on_disk() == before
        return False
    assert found == []
    assert (result.outcome, digests(result.account), problems()) == ("completed", undisturbed(SHORTER), [])
    return True


@pytest.mark.slow
def test_a_log_that_is_cut_short_anywhere_gives_a_beginning_of_the_same_run(killed: tuple[bytes, bytes]) -> None:
    main, log = killed
    taken_up = 0
    for cut in [*cuts(log), log]:
        put(main, cut)
        taken_up += assert_refused_or_a_beginning()
    assert taken_up > PLACES / 2


# -- rows that nobody would write ---------------------------------------------------------------------------------------


USES: dict[str, Callable[[int], object]] = {
    "verify": lambda _: problems(),
    "show": lambda _: inspect_run(RUNS, "r").as_json(),
    "decisions": lambda _: list(inspect_run(RUNS, "r").decisions()),
    "resume": lambda _: go_on(),
    "run": lambda length: walk(length=length),
}


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "edit",
    [
        *("DELETE FROM run", "DELETE FROM run WHERE part = 'lease'", "DELETE FROM input"),
        *("DELETE FROM place", "UPDATE run SET content = '{'", "UPDATE run SET content = x'00ff'"),
        'UPDATE run SET content = replace(content, \'"task":"m\', \'"tisk":"m\')',
        "UPDATE run SET content = replace(content, '\"settings\"', '\"sittings\"')",
        "UPDATE run SET content = replace(content, '\"inputs\":1', '\"inputs\":0')",
        *(
            "UPDATE run SET content = json_set(content, '$.holder', 7)",
            "UPDATE run SET content = json_set(content, '$.totals', '[]')",
        ),
        *("UPDATE run SET content = json_set(content, '$.wall_s', 'long')", "UPDATE input SET input = 7"),
        *("UPDATE input SET content = 'text'", "UPDATE input SET state = NULL"),
        *(
            "UPDATE run SET content = json_set(content, '$.outcome', 'compleded')",
            "UPDATE run SET content = json_set(content, '$.result', '{')",
        ),
        *("UPDATE decision SET outcome = 99", "UPDATE decision SET value = NULL"),
        "UPDATE decision SET value = x'ff'",
        *("UPDATE decision SET ballots = 'true'", "UPDATE decision SET counted = 1 << 60"),
        *("UPDATE decision SET fork = 'text'", "UPDATE decision SET key = -key", "UPDATE place SET path = x'ff'"),
        *("UPDATE place SET path = 'a/step'", "DROP TABLE decision"),
        *("DROP TABLE log", "DROP VIEW decisions"),
    ],
)
def test_a_row_that_nobody_would_write_is_never_a_traceback(edit: str) -> None:
    raw = []
    for most in (None, 100):
        put(walked(40, most=most))
        sql(edit)
        content = JOURNAL.read_bytes()
        for name, use in USES.items():
            put(content)
            try:
                use(40)
            except MicroagentsError as error:
                sentence(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what must not be
                raw.append((name, repr(error)))
    assert raw == []


MANY = (Drift(length=3), Drift(length=5), Drift(length=4))


def many(**options: Any) -> Result:
    return run_sync(MANY, models=MODEL, k=K, run_id="r", runs_dir=RUNS, durability="normal", **options)


@cache
def many_walked(most: int | None) -> bytes:
    """The file of a run of many inputs, with a limit or to its end."""
    JOURNAL.unlink(missing_ok=True)
    many(max_calls=most, concurrency=1)
    return JOURNAL.read_bytes()


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM input WHERE input = 1",
        "UPDATE input SET options = '{\"length\": 0}'",
        *("UPDATE input SET options = x'ff'", "UPDATE input SET input = input + 1"),
        "UPDATE input SET outcome = 'compleded'",
        *("UPDATE input SET result = x'ff'", "UPDATE input SET input = input - 1"),
        "UPDATE run SET content = replace(content, '\"inputs\":3', '\"inputs\":0')",
        "UPDATE run SET content = replace(content, '\"listed\":true', '\"listed\":false')",
        "DROP TABLE input",
    ],
)
def test_a_row_of_many_inputs_that_nobody_would_write_is_never_a_traceback(edit: str) -> None:
    raw = []
    for most in (None, 40):
        put(many_walked(most))
        try:
            sql(edit)
        except sqlite3.IntegrityError:
            continue
        content = JOURNAL.read_bytes()
        uses: dict[str, Callable[[int], object]] = {**USES, "run": lambda _: many()}
        for name, use in uses.items():
            put(content)
            try:
                use(0)
            except MicroagentsError as error:
                sentence(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what must not be
                raw.append((name, repr(error)))
    assert raw == []


# -- another experiment ------------------------------------------------------------------------------------------------


class Other(Drift):
    """The same work under another name."""


class Tally(Struct, frozen=True, kw_only=True):
    """What is counted so far."""

    total: int = 0


def counting(number: Any = int, asks: str = "How many?", first: int = 0) -> Any:
    """A user's task, as it is before and after they edit their file: another class under the same name."""
    struct: Any = type(Reply)
    counted: Any = struct(
        "Counted", (Reply,), {"__module__": __name__, "__annotations__": {"many": number}}, frozen=True
    )

    class Counting(ChainTask[Tally, counted]):
        style: str = "plain"

        def start(self) -> Tally:
            return Tally(total=first)

        def done(self, state: Tally) -> bool:
            return state.total >= 5

        def prompt(self, state: Tally) -> Prompt:
            return Prompt(system=asks, user=f"{state.total}")

        def advance(self, state: Tally, reply: Any) -> Tally:  # noqa: ARG002 - one more each time
            return Tally(total=state.total + 1)

        def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:  # noqa: ARG002 - always the same
            return msgspec.convert({"many": 1}, reply)

    return Counting


CHANGES: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "task": (
        {"task": Other(length=LENGTH)},
        "task",
        "microagents.tasks.drift:Drift",
        "tests.journal.test_bad_journals:Other",
    ),
    "kind of task": (
        {"task": Hanoi(disks=3)},
        "task",
        "microagents.tasks.drift:Drift",
        "microagents.tasks.hanoi:Hanoi",
    ),
    "option": ({"task": Drift(length=LENGTH + 1)}, "task.length", f"{LENGTH}", f"{LENGTH + 1}"),
    "k": ({"k": 5}, "strategy.k", f"{K}", "5"),
    "model": ({"models": "sim:perfect"}, "model", MODEL, "sim:perfect"),
    "pool": ({"models": [MODEL, "sim:perfect"]}, "model", MODEL, f"{MODEL}, sim:perfect"),
    "a role's model": ({"models": {"": [MODEL], "solver": ["sim:perfect"]}}, "model solver", "nothing", "sim:perfect"),
    "seed": ({"seed": 7}, "seed", "0", "7"),
    "known inputs": ({"known_inputs": True}, "strategy.known_inputs", "false", "true"),
}


def again(options: dict[str, Any]) -> object:
    given = {"task": Drift(length=LENGTH), "models": MODEL, "k": K, "run_id": "r", **options}
    return run_sync(given.pop("task"), **given)


@pytest.mark.parametrize(
    ("change", "most"), [(change, (None, 100)[number % 2]) for number, change in enumerate(CHANGES)]
)
def test_a_journal_of_another_experiment_is_refused_by_field_with_both_values(change: str, most: int | None) -> None:
    options, field, recorded, given = CHANGES[change]
    put(walked(most=most))
    before = on_disk()
    with pytest.raises(JournalMismatch) as raised:
        again(options)
    assert raised.value.args == (field, recorded, given)
    for words in (f"{field}={recorded}", given, f"--accept-change {field}", "nothing was changed"):
        assert words in sentence(raised.value)
    assert on_disk() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "edited"),
    [
        ("reply", {"number": Annotated[int, Meta(ge=0)]}),
        ("reply", {"number": Literal[1, 2]}),
        ("prompt", {"asks": "How many, please?"}),
        ("prompt", {"first": 1}),
    ],
    ids=["a bound", "a type", "system", "the first state"],
)
def test_a_task_whose_reply_or_prompt_was_edited_is_refused(field: str, edited: dict[str, Any]) -> None:
    run_sync(counting()(), models="sim:perfect", run_id="r")
    before = on_disk()
    with pytest.raises(JournalMismatch) as raised:
        run_sync(counting(**edited)(), models="sim:perfect", run_id="r")
    found, recorded, given = raised.value.args
    assert found == field
    assert recorded != given
    assert f"{field}={recorded}, now it is {given}" in sentence(raised.value)
    assert on_disk() == before
    assert run_sync(counting()(), models="sim:perfect", run_id="r").outcome == "completed"


@pytest.mark.slow
def test_an_option_that_is_long_is_told_apart_by_its_digest() -> None:
    run_sync(counting()(style="a" * 1000), models="sim:perfect", run_id="r")
    with pytest.raises(JournalMismatch) as raised:
        run_sync(counting()(style="a" * 999 + "b"), models="sim:perfect", run_id="r")
    assert len(sentence(raised.value)) < 600
    assert raised.value.args[1] != raised.value.args[2]


def test_a_mismatch_ends_the_command_with_one_sentence_and_the_code_of_wrong_usage() -> None:
    put(walked(most=100))
    ran = microagents(*WALK, "--seed", "7")
    assert ran.code == WRONG_USAGE
    assert "seed=0, now it is 7" in ran.reason


@pytest.mark.slow
def test_a_change_that_is_accepted_is_written_down_and_what_is_decided_stays() -> None:
    put(walked(most=200))
    before = decisions()
    result = walk(k=3, accept_changes=["strategy.k"])
    assert (result.outcome, problems()) == ("completed", [])
    assert before.items() <= decisions().items()
    assert len(before) < len(decisions()) == LENGTH
    with Reader(JOURNAL) as reader:
        assert [change[1:] for change in reader.changes()] == [("strategy.k", "2", "3")]
    assert walk(k=3).account == result.account
    with pytest.raises(JournalMismatch):
        walk(k=2)


@pytest.mark.slow
def test_a_change_of_several_fields_needs_each_to_be_accepted() -> None:
    put(walked(most=200))
    for accepted in ([], ["k"], ["seed"], ["length"]):
        with pytest.raises(JournalMismatch):
            walk(k=3, seed=1, accept_changes=accepted)
    assert walk(k=3, seed=1, accept_changes=["k", "seed"]).outcome == "completed"
    with Reader(JOURNAL) as reader:
        assert {change[1] for change in reader.changes()} == {"strategy.k", "seed"}


@pytest.mark.slow
def test_a_completed_run_goes_on_where_an_accepted_change_makes_it_longer() -> None:
    walk(length=40)
    before = decisions()
    result = walk(length=60, accept_changes=["length"])
    assert (result.outcome, digests(result.account), problems()) == ("completed", undisturbed(60), [])
    assert before.items() <= decisions().items()


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../r", "a/b", "/etc/passwd", ".hidden", ".", "..", "", "a\\b", "a\0b", "a\nb", "a" * 300, "\ud800"]
)
def test_a_run_id_is_no_path(name: str, tmp_path: Path) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: walk(run_id=name),
        lambda: asyncio.run(resume(name)),
        lambda: inspect_run(RUNS, name),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidUsage) as raised:
            attempt()
        sentence(raised.value)
    assert list(tmp_path.iterdir()) == []


def names_of(rows: Sequence[tuple[Any, ...]]) -> set[str]:
    return {name for (name,) in rows}


@pytest.mark.slow
def test_tables_of_a_newer_minor_kind_do_no_harm() -> None:
    """Somebody may add a table or an index of their own to look things up."""
    put(walked(most=200))
    sql("CREATE TABLE notes (path TEXT, text TEXT)")
    sql("CREATE INDEX by_value ON decision (value)")
    assert {"notes", "by_value"} <= names_of(sql("SELECT name FROM sqlite_master"))
    assert digests(go_on(max_calls=None).account) == undisturbed()
    assert problems() == []
