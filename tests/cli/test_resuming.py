"""Runs that end early, and go on: by a kill, a signal, a limit or an undecided election; what is seen of them meanwhile; what is refused.

What a run bought is asked of the seller, never of the journal under test.
"""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import Any

import pytest

from microagents.journal.messages import Account
from microagents.journal.reading import Reader
from tests.cli.commands import (
    COMPLETED,
    FAILED,
    INTERRUPTED,
    OVER,
    STOPPED,
    UNDECIDED,
    WRONG,
    WRONG_USAGE,
    Ran,
    Sitting,
    microagents,
    shopping,
    started,
    write,
)
from tests.forking import COMMAND
from tests.journal.seal import sealed

NOISY = ("--model", "sim:perfect@error=0.4,flag=0.1,latency=0.002,sigma=1,price_out=1", "-k", "2")
"""Guesses go wrong, and a kill finds calls in flight."""
STEPWISE = ("drift", "-o", "length=30", *NOISY, "--no-speculate")
SLOW = ("drift", "-o", "length=1", "--model", "sim:perfect@latency=0.7,sigma=0", "-k", "2")
"""Two calls that are in flight for so long that much can happen meanwhile."""
QUICK = (
    *("drift", "-o", "length=30", "--model", "sim:perfect@error=0.4,flag=0.1,price_out=1", "-k", "2"),
    "--no-speculate",
)
STALEMATE = ("drift", "-o", "length=60", "--model", "sim:perfect@error=0.02,alternatives=1", "-s", "max_draws=3")
"""Undecided wherever one of three replies is wrong."""
EXPERT = "sim:perfect@tokens=9"
"""A model for what stays undecided."""

CASES = {
    "drift": ("drift", "-o", "length=40", *NOISY),
    "known inputs": ("drift", "-o", "length=60", *NOISY, "-s", "known_inputs=true", "-s", "window=6"),
    "own strategy": ("drift", "-o", "length=15", *NOISY, "--strategy", "aside.py:Aside"),
}

ASIDE = """
    from asyncio import gather

    from microagents import Conductor, Deployment, Request, Role, Strategy, Work
    from microagents.systems import Maker
    from microagents.tasks.drift import RING, Drift, Onward, Place

    class Turns(Request[int], frozen=True):
        round: int

    class Wheel(Role):
        async def turns(self, request: Turns) -> int:
            return request.round % 3 + 1

    class AsideConductor(Conductor[Drift, "Aside"]):
        asks = (Turns,)

        async def conduct(self, work: Work[Drift, "Aside"]) -> dict[str, int]:
            number = 1
            for at in range(work.task.length):
                turns = await work.once(f"round/{at}/turns", Turns(round=at))
                asked = [work.task.prompt(Place(number=number + turn)) for turn in range(turns)]
                drafts = await work.sample(f"round/{at}/draft", asked, Onward, n=2)
                decisions = await gather(*[work.elect(f"round/{at}/turn/{turn}", each, Onward) for turn, each in enumerate(asked)])
                replies = [*drafts, *[decision.require() for decision in decisions]]
                number = sum(reply.number for reply in replies) % RING
                work.progress(at + 1, work.task.length)
            return {"number": number}

    class Aside(Maker):
        conductor = AsideConductor

        def deployments(self) -> list[Deployment]:
            return [*super().deployments(), Deployment(role=Wheel)]
    """
"""No chain: it is run again from its start, and all that it asked before answers from the journal."""


@pytest.fixture(autouse=True)
def own_strategy() -> None:
    write("aside.py", ASIDE)


@cache
def undisturbed(*words: str) -> dict[str, Any]:
    """The same run without anything in its way."""
    ran = microagents("run", *words, "--no-journal", "--json")
    assert ran.code in OVER, ran.err
    return ran.json


def digests(shown: dict[str, Any]) -> tuple[str, str]:
    return shown["decisions_sha256"], shown["ballots_sha256"]


def assert_undisturbed(shown: dict[str, Any], *words: str) -> None:
    """A run came to the end that the same run comes to without anything in its way."""
    assert shown["outcome"] == "completed"
    assert shown["result"] == undisturbed(*words)["result"]
    assert digests(shown) == digests(undisturbed(*words))


def assert_one_sentence(ran: Ran, *said: str, code: int = WRONG_USAGE) -> None:
    """The command ended with one sentence on stderr that says all this."""
    assert "Traceback" not in ran.err
    assert (ran.code, ran.out) == (code, "")
    (sentence,) = ran.err.splitlines()
    assert sentence.startswith("microagents: ")
    for words in said:
        assert words in sentence


def show(run: str, *words: str) -> dict[str, Any]:
    return microagents("show", run, "--json", *words).json


def rows_of(run: str, query: str) -> list[Any]:
    """What a journal holds."""
    with closing(sqlite3.connect(f"file:runs/{run}.sqlite?mode=ro", uri=True)) as db:
        return db.execute(query).fetchall()


def edit(run: str, statement: str) -> None:
    """Change a journal behind its back, with its digests."""
    with closing(sqlite3.connect(f"runs/{run}.sqlite", isolation_level=None)) as db:
        assert db.execute(statement).rowcount
    sealed(Path(f"runs/{run}.sqlite"))


def kept(run: str) -> set[str]:
    """The samples that are recorded for good and belong to no decision yet, as ``path fork seq``."""
    place = "place.path || '/' || ((key & ((1 << 40) - 1)) - 1)"
    query = f"SELECT {place} || ' ' || lower(hex(fork)) || ' ' || seq FROM sample JOIN place ON place.id = key >> 40"
    return {sample for (sample,) in rows_of(run, query)}


def contents() -> dict[str, str]:
    """Digests of all journals; an index of a log is no part of one, and is made by whoever looks."""
    files = sorted(path for path in Path("runs").iterdir() if path.suffix != ".sqlite-shm")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# -- a run that is over --------------------------------------------------------------------------------------------------------------


def test_a_run_that_is_over_answers_again_without_a_call_and_to_the_letter() -> None:
    words = ("run", *QUICK, "--run-id", "over")
    first, before = microagents(*words, "--json"), contents()
    for again in (words, ("resume", "over")):
        ran, bought = shopping(*again, "--json")
        assert (ran.code, ran.json) == (first.code, first.json)
        assert bought.sent == []
        assert contents() == before


# -- kills ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "again", "kills"),
    [
        ("drift", "resume", 1),
        pytest.param("own strategy", "run", 2, marks=pytest.mark.slow),
        pytest.param("known inputs", "run", 1, marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_comes_to_the_same_end_and_buys_nothing_that_was_recorded_again(
    case: str, again: str, kills: int
) -> None:
    words, random = CASES[case], Random(f"{case} {again}")
    begin = ("run", *words, "--run-id", "killed", "--json")
    go_on = begin if again == "run" else ("resume", "killed", "--json")
    command, calls, sent, lost = begin, 0, 0, 0
    decided: set[str] = set()
    samples: set[str] = set()
    for _ in range(kills):
        with Sitting(*command, paced=True) as sitting:
            sitting.until_sent(random.randrange(1, max(2, (undisturbed(*words)["calls"] - calls) // 2)))
            assert sitting.end(signal.SIGKILL).code == -signal.SIGKILL
        assert not bought_again(sitting.sent, decided, samples)
        shown = show("killed")
        assert shown["outcome"] == "cut off"
        assert sent + len(sitting.sent) <= shown["calls"] + shown["lost_in_flight"]
        sent, lost, calls = (
            sent + len(sitting.sent),
            lost + len(sitting.sent) - (shown["calls"] - calls),
            shown["calls"],
        )
        decided = {path for (path,) in rows_of("killed", "SELECT path FROM decisions WHERE outcome <> 'undecided'")}
        samples = kept("killed")
        command = go_on
    ran, bought = shopping(*go_on)
    assert not bought_again(bought.sent, decided, samples)
    assert_undisturbed(ran.json, *words)
    assert lost >= 0
    assert sent + len(bought.sent) <= ran.json["calls"] + min(lost, ran.json["lost_in_flight"])
    assert microagents("show", "killed", "--verify").code == COMPLETED


def bought_again(sent: Sequence[str], decided: set[str], samples: set[str]) -> list[str]:
    """What need not have been bought: it was recorded before."""
    return [sample for sample in sent if sample.partition(" ")[0] in decided or sample in samples]


@pytest.mark.slow
def test_a_run_that_was_killed_while_its_journal_was_made_can_be_begun_again() -> None:
    Path("runs").mkdir()
    with closing(sqlite3.connect("runs/early.sqlite")) as db:
        db.execute("PRAGMA journal_mode = WAL")
    assert microagents("run", *STEPWISE, "--run-id", "early").code in OVER


def cut_off(db: sqlite3.Connection, *statements: str) -> None:
    """Leave the files in ``killed`` as a kill amid a transaction would: changed pages are in the file, and what they held beside it."""
    db.execute("PRAGMA cache_size = 1")
    db.execute("BEGIN IMMEDIATE")
    for statement in statements:
        db.execute(statement)
    shutil.copytree("runs", "killed")
    db.execute("ROLLBACK")
    assert [path.stat().st_size > 0 for path in Path("killed").glob("*.sqlite-journal")] == [True]


@pytest.mark.slow
def test_a_transaction_that_was_cut_off_without_a_write_ahead_log_is_rolled_back() -> None:
    """As on a network file system, where journals have no such log."""
    microagents("run", *STEPWISE, "--run-id", "cut", "--max-calls", "40")
    with closing(sqlite3.connect("runs/cut.sqlite", isolation_level=None)) as db:
        cut_off(db, "UPDATE decision SET value = ballots", "CREATE TABLE more AS SELECT hex(randomblob(99999)) AS text")
    assert microagents("show", "cut", "--runs-dir", "killed").code == COMPLETED
    ran = microagents("resume", "cut", "--max-calls", "999", "--trust-journal", "--runs-dir", "killed", "--json")
    assert_undisturbed(ran.json, *STEPWISE)


# -- signals -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [STEPWISE, pytest.param(CASES["known inputs"], marks=pytest.mark.slow)],
    ids=["step by step", "known inputs"],
)
def test_ctrl_c_waits_for_the_calls_in_flight_and_none_is_bought_twice(words: tuple[str, ...]) -> None:
    """These runs drop no guess, so that every call that was sent is needed."""
    with Sitting("run", *words, "--run-id", "stopped", paced=True) as sitting:
        sitting.until_sent(undisturbed(*words)["calls"] // 3)
        ran = sitting.end(signal.SIGINT)
    assert (ran.code, ran.err) == (INTERRUPTED, "")
    assert ran.rows["go on"] == "microagents resume stopped"
    shown = show("stopped")
    assert shown["outcome"] == "interrupted"
    assert sorted(sitting.billed) == sorted(sitting.sent), "all of them were waited for"
    assert shown["calls"] == len(sitting.sent)
    counted = rows_of("stopped", "SELECT coalesce(sum(counted), 0) FROM decisions WHERE outcome <> 'undecided'")[0][0]
    assert counted + len(kept("stopped")) == len(sitting.sent), "all of them are recorded"
    ran, bought = shopping("resume", "stopped", "--json")
    assert_undisturbed(ran.json, *words)
    sent = [*sitting.sent, *bought.sent]
    assert max(Counter(sent).values()) == 1
    assert len(sent) == ran.json["calls"]
    assert ran.json["lost_in_flight"] == 0


@pytest.mark.slow
def test_ctrl_c_buys_no_call_that_only_waited_for_its_turn() -> None:
    words = (
        *(
            "drift",
            "-o",
            "length=60",
            "--model",
            "sim:perfect@latency=0.01,sigma=0",
            "-k",
            "2",
            "-s",
            "known_inputs=true",
        ),
        *("--concurrency", "2"),
    )
    with Sitting("run", *words, "--run-id", "stopped", "--json", paced=True) as sitting:
        sitting.until_sent(10)
        ran = sitting.end(signal.SIGINT)
    assert ran.code == INTERRUPTED
    assert len(sitting.sent) < 60


def left_at_once(*words: str) -> bytes:
    """What a command says in a terminal that is left by a second Ctrl-C while its first two calls are in flight."""
    terminal, stderr = pty.openpty()
    try:
        with Sitting(*words, stderr=stderr) as sitting:
            os.close(stderr)
            sitting.until_sent(2)
            sitting.send(signal.SIGINT)
            said = b""
            while b"Ctrl-C again leaves at once" not in said:
                said += os.read(terminal, 4096)
            ran = sitting.end(signal.SIGINT)
        said += os.read(terminal, 4096)
    finally:
        os.close(terminal)
    assert (ran.code, ran.out, sitting.billed) == (INTERRUPTED, "", [])
    assert b"Traceback" not in said
    assert said.rpartition(b"\x1b[?25")[2].startswith(b"h"), "the cursor is shown again"
    return said


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_at_once_and_the_run_goes_on_later() -> None:
    said = left_at_once("run", *SLOW, "--run-id", "left")
    assert b"run left was left at once, and its recorded decisions are kept; go on: microagents resume left" in said
    assert_undisturbed(microagents("resume", "left", "--json").json, *SLOW)


@pytest.mark.slow
def test_a_second_ctrl_c_names_the_same_command_where_it_has_many_runs() -> None:
    said = left_at_once("compare", "drift", "-o", "length=1", "--model", "sim:perfect@latency=60")
    assert b"the comparison was left at once, and its recorded decisions are kept; the same command continues" in said


@pytest.mark.slow
def test_ctrl_c_while_modules_are_imported_ends_the_command_without_a_word(tmp_path: Path) -> None:
    # Python imports this module before the package: it interrupts the process while the package is imported.
    (tmp_path / "sitecustomize.py").write_text(
        dedent("""
        import os, signal, sys
        class Interrupting:
            def find_spec(self, name, path=None, target=None):
                if name == "microagents.work.conductor":
                    os.kill(os.getpid(), signal.SIGINT)
        sys.meta_path.insert(0, Interrupting())
        """)
    )
    ran = subprocess.run(
        [COMMAND, "list"], env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (INTERRUPTED, b"", b"")


@pytest.mark.slow
def test_sigterm_saves_at_once_and_the_run_goes_on_later() -> None:
    with Sitting("run", *SLOW, "--run-id", "ended", "--json") as sitting:
        sitting.until_sent(2)
        ran = sitting.end(signal.SIGTERM)
    assert (ran.code, ran.err, sitting.billed) == (INTERRUPTED, "", [])
    assert (ran.json["outcome"], ran.json["calls"]) == ("interrupted", 2)
    assert ran.json == show("ended")
    ran, bought = shopping("resume", "ended", "--json")
    assert_undisturbed(ran.json, *SLOW)
    assert (len(bought.sent), ran.json["calls"]) == (2, 4)


@pytest.mark.parametrize(
    "words",
    [("-k", "5"), ("--model", "sim:perfect"), ("-o", "length=9")],
    ids=lambda words: words[0],
)
def test_an_option_of_the_experiment_is_refused_with_the_command_that_changes_it(words: tuple[str, ...]) -> None:
    microagents("run", *QUICK, "--max-calls", "9", "--run-id", "kept")
    assert_one_sentence(
        microagents("resume", "kept", *words), "microagents run TASK ... --run-id kept --accept-change FIELD"
    )
    assert "--model" not in microagents("resume", "--help").out


# -- limits --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "higher"),
    [
        (("--max-calls", "40"), ("--max-calls", "9999")),
        pytest.param(("--max-cost", "0.02"), ("--max-cost", "99"), marks=pytest.mark.slow),
        pytest.param(("--max-tokens", "9000"), ("--max-tokens", "inf"), marks=pytest.mark.slow),
        pytest.param(("--max-time", "0.1"), ("--max-time", "99"), marks=pytest.mark.slow),
    ],
    ids=["calls", "cost", "tokens", "time"],
)
def test_a_limit_stops_a_run_and_a_higher_one_takes_it_on(limit: tuple[str, str], higher: tuple[str, str]) -> None:
    words = CASES["drift"]
    ran, first = shopping("run", *words, "--run-id", "limited", *limit)
    assert ran.code == STOPPED, ran.err
    assert ran.rows["why"].startswith(f"{' '.join(limit)} is reached")
    assert "; all decisions so far are kept; resume " in ran.rows["why"]
    go_on, _, proposed = ran.rows["go on"].partition(f" {limit[0]} ")
    assert go_on == "microagents resume limited"
    if limit[0] != "--max-time":
        assert float(proposed) >= 2 * float(limit[1])
    shown = show("limited")
    assert (shown["outcome"], shown["calls"]) == ("stopped", len(first.sent))
    assert shown["steps"] < shown["decided"] + 1 < undisturbed(*words)["decided"]
    if limit[0] != "--max-time":
        again, bought = shopping("resume", "limited")
        assert (again.code, bought.sent) == (STOPPED, []), "the limit still holds"
    ran, second = shopping("resume", "limited", *higher, "--json")
    assert ran.code in OVER
    assert_undisturbed(ran.json, *words)
    assert ran.json["calls"] == len(first.sent) + len(second.sent)


def test_a_limit_of_cost_without_a_price_says_what_to_do_and_is_lifted() -> None:
    write(
        "unpriced.py",
        """
        async def count(call):
            return f"number = {(int(call.prompt.user.removeprefix('Number: ')) * 17 + 5) % 1009}"
        """,
    )
    words = ("drift", "-o", "length=3", "--model", "unpriced.py:count", "--run-id", "free")
    ran = microagents("run", *words, "--max-cost", "1", "--json")
    assert_one_sentence(
        ran,
        "the price of 'unpriced.py:count' is unknown, so --max-cost 1 cannot be kept",
        "give the class or function priced = True",
    )
    assert not [*Path("runs").glob("*.sqlite")]
    assert microagents("run", *words, "--max-calls", "3").code == STOPPED
    assert_one_sentence(microagents("resume", "free", "--max-cost", "1"), "so --max-cost 1 cannot be kept")
    assert microagents("resume", "free", "--max-calls", "inf").code == COMPLETED


# -- what stays undecided ------------------------------------------------------------------------------------------------------------


def stalemate(run: str = "stuck") -> str:
    """A run that ended undecided; gives where."""
    ran = microagents("run", *STALEMATE, "--run-id", run, "--json")
    assert (ran.code, ran.json["outcome"], ran.json["settled_at"]) == (UNDECIDED, "undecided", {})
    (path,) = ran.json["undecided_at"]
    assert path in ran.json["reason"]
    assert path == f"0/step/{ran.json['decided']}"
    return str(path)


def led(*words: str) -> dict[str, Any]:
    """The run that takes the leader wherever it ends undecided."""
    return microagents("run", *STALEMATE, "--run-id", "led", "--on-undecided", "leader", "--json", *words).json


def test_a_leader_that_is_taken_is_marked_wherever_the_run_is_seen() -> None:
    path = stalemate()
    ran = microagents("resume", "stuck", "--on-undecided", "leader")
    assert ran.code == COMPLETED
    shown = show("stuck")
    assert shown["undecided_at"] == []
    assert set(shown["settled_at"].values()) == {"leader"}
    assert next(iter(shown["settled_at"])) == path
    assert f"not decided by the vote: {path} by leader" in ran.rows["marked"]
    assert ran.rows["marked"] == microagents("show", "stuck").rows["marked"]
    marked = rows_of("stuck", "SELECT path FROM decisions WHERE outcome = 'leader' ORDER BY rowid")
    assert [path for (path,) in marked] == [*shown["settled_at"]]


@pytest.mark.slow
def test_leaders_taken_on_a_resume_lead_where_leaders_taken_at_once_lead() -> None:
    stalemate()
    ran = microagents("resume", "stuck", "--on-undecided", "leader", "--json")
    assert ran.code == COMPLETED
    assert digests(ran.json) == digests(led())
    assert ran.json["settled_at"] == led()["settled_at"]
    assert len(led()["settled_at"]) > 1


def stalemate_side_by_side() -> list[str]:
    """A run with known inputs that ended undecided; gives where."""
    ran = microagents("run", *STALEMATE, "-s", "known_inputs=true", "--run-id", "stuck", "--json")
    assert (ran.code, ran.json["steps"]) == (UNDECIDED, 60)
    paths = ran.json["undecided_at"]
    assert len(paths) > 1
    return [*paths]


@pytest.mark.slow
def test_with_known_inputs_a_person_may_decide_place_after_place() -> None:
    places = stalemate_side_by_side()
    while places:
        assert microagents("decide", "stuck", places.pop(0), '{"number": 7}').code == COMPLETED
        ran, bought = shopping("resume", "stuck", "--json")
        assert (ran.code, ran.json["undecided_at"], bought.sent) == (UNDECIDED if places else WRONG, places, [])


@pytest.mark.slow
def test_another_model_that_is_asked_is_marked_by_its_spec() -> None:
    path = stalemate()
    ran = microagents("resume", "stuck", "--on-undecided", EXPERT)
    assert ran.code == COMPLETED
    shown = show("stuck")
    assert shown["undecided_at"] == []
    assert set(shown["settled_at"].values()) == {EXPERT}
    assert next(iter(shown["settled_at"])) == f"{path}/undecided"
    assert f"{path}/undecided by {EXPERT}" in ran.rows["marked"]
    outcomes = dict(rows_of("stuck", "SELECT path, outcome FROM decisions"))
    assert (outcomes[path], outcomes[f"{path}/undecided"]) == ("undecided", "decided")
    at_once = microagents("run", *STALEMATE, "--on-undecided", EXPERT, "--json").json
    assert digests(shown) == digests(at_once)
    assert shown["calls"] == at_once["calls"]


UNSURE = "sim:perfect@flag=1"
"""A second model that decides nothing either."""


def test_where_the_other_model_decides_nothing_either_the_run_ends_undecided_and_a_person_decides_there() -> None:
    ran = microagents("run", *STALEMATE, "--run-id", "stuck", "--on-undecided", UNSURE, "--json")
    assert ran.code == UNDECIDED
    (path,) = ran.json["undecided_at"]
    assert path == f"0/step/{ran.json['decided']}/undecided"
    assert microagents("decide", "stuck", path, '{"number": 5}').code == COMPLETED
    assert microagents("resume", "stuck", "--json").json["settled_at"] == {path: "person"}


def test_a_persons_decision_takes_the_run_on_and_is_marked_as_a_persons() -> None:
    path = stalemate()
    ran = microagents("decide", "stuck", path, '{"number": 5}')
    assert (ran.code, ran.err) == (COMPLETED, "")
    assert ran.out.startswith(f'{path} of run stuck is decided by you: {{"number": 5}}; go on: ')
    assert "microagents resume stuck" in ran.out
    shown = microagents("resume", "stuck", "--on-undecided", "leader", "--json").json
    assert shown["outcome"] == "completed"
    assert shown["settled_at"][path] == "person"
    assert shown["errors"] >= 1, "5 is wrong by the task's own oracle"
    assert rows_of("stuck", f"SELECT outcome, value FROM decisions WHERE path = '{path}'") == [
        ("person", '{"number":5}')
    ]
    assert f"{path} by person" in microagents("show", "stuck").rows["marked"]
    assert microagents("show", "stuck", "--verify").code == COMPLETED


def test_a_person_may_think_again_until_the_run_goes_on() -> None:
    path = stalemate()
    for number in (5, 6):
        assert microagents("decide", "stuck", path, f'{{"number": {number}}}').code == COMPLETED
    microagents("resume", "stuck", "--on-undecided", "leader")
    assert rows_of("stuck", f"SELECT value FROM decisions WHERE path = '{path}'") == [('{"number":6}',)]
    assert_one_sentence(
        microagents("decide", "stuck", path, '{"number": 7}'), f"'{path}' is not undecided", "no election is undecided"
    )


def test_only_what_is_undecided_can_be_decided() -> None:
    undecided = stalemate()
    before = contents()
    for written in ("0/step/0", "0/step/59", "", "%s/undecided"):
        path = written.replace("%s", undecided)
        ran = microagents("decide", "stuck", path, '{"number": 5}')
        assert_one_sentence(ran, f"{path!r} is not undecided", f"undecided is {undecided}")
    assert contents() == before


NO_REPLIES = {
    "": "truncated",
    '{"number": 5': "truncated",
    "{}": "missing required field `number`",
    '{"number": "5"}': "Expected `int`, got `str`",
    '{"number": 5} and more': "trailing",
}


def test_a_person_decides_by_a_reply_that_a_model_could_have_given() -> None:
    path = stalemate()
    before = contents()
    for value, said in NO_REPLIES.items():
        ran = microagents("decide", "stuck", path, value)
        assert_one_sentence(ran, "is no Onward", said, '{"number": <integer>}')
    assert contents() == before


# -- looking on ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that is over, one that is undecided, and one that was cut off."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(tmp_path_factory.mktemp("three"))
        microagents("run", *QUICK, "--run-id", "over")
        microagents("run", *STALEMATE, "--run-id", "stuck")
        with Sitting("run", *SLOW, "--run-id", "killed", paced=True) as sitting:
            sitting.until_sent(2)
            sitting.end(signal.SIGKILL)
        return Path("runs").resolve()


@pytest.fixture
def three_runs(three: Path) -> None:
    shutil.copytree(three, "runs")


@pytest.mark.slow
@pytest.mark.usefixtures("three_runs")
def test_list_shows_every_run_of_a_folder() -> None:
    ran = microagents("list")
    assert (ran.code, ran.err) == (COMPLETED, "")
    over, stuck, killed = ran.out.splitlines()
    assert re.match(
        rf"over    completed, WRONG +\S+ \S+  drift +sim:perfect  {show('over')['calls']:,} calls .* of 30 steps WRONG",
        over,
    )
    assert re.match(r"stuck   undecided +\S+ \S+  drift .* 1 decision undecided, the first at 0/step/", stuck)
    assert re.match(r"killed  cut off +\S+ \S+  drift .* cut off after 0 of ", killed)


@pytest.mark.slow
@pytest.mark.usefixtures("three_runs")
def test_list_as_json_shows_of_each_run_what_show_shows() -> None:
    assert json.loads(microagents("list", "--json").out) == [show(run) for run in ("over", "stuck", "killed")]


def test_a_folder_without_runs_is_listed_as_such() -> None:
    ran = microagents("list")
    assert (ran.code, ran.out, ran.err) == (COMPLETED, "there is no run in 'runs'\n", "")
    assert microagents("list", "--json").out == "[]\n"
    assert not Path("runs").exists()


def test_a_broken_file_does_not_hide_the_runs_beside_it() -> None:
    microagents("run", *QUICK, "--run-id", "over")
    whole = Path("runs/over.sqlite").read_bytes()
    Path("runs/note.txt").write_text("no run")
    Path("runs/folder.sqlite").mkdir()
    for name, held in {"empty": b"", "text": b"a diary " * 99, "half": whole[: len(whole) // 2]}.items():
        Path(f"runs/{name}.sqlite").write_bytes(held)
    with closing(sqlite3.connect("runs/other.sqlite")) as db:
        db.execute("CREATE TABLE song (name TEXT)")
    ran = microagents("list")
    assert (ran.code, ran.err) == (COMPLETED, "")
    lines = {line.split()[0]: line for line in ran.out.splitlines()}
    assert lines.keys() == {"over", "folder", "empty", "text", "half", "other"}
    assert "completed" in lines["over"]
    rows = {row.pop("run_id"): row for row in json.loads(microagents("list", "--json").out)}
    assert rows.keys() == lines.keys()
    for name in lines.keys() - {"over"}:
        assert rows[name].keys() == {"error"}
        assert rows[name]["error"] in lines[name]
        for command in ("show", "resume"):
            assert_one_sentence(microagents(command, name), rows[name]["error"])


@pytest.mark.usefixtures("three_runs")
@pytest.mark.parametrize(
    ("run", "outcome"),
    [
        pytest.param("over", "completed, WRONG", marks=pytest.mark.slow),
        pytest.param("stuck", "undecided", marks=pytest.mark.slow),
        ("killed", "cut off"),
    ],
)
def test_show_tells_how_far_a_run_is_and_does_not_change_a_byte(run: str, outcome: str) -> None:
    before = contents()
    ran = microagents("show", run)
    assert (ran.code, ran.err) == (COMPLETED, "")
    assert next(iter(ran.rows)) == outcome
    go_on = {"stuck": "microagents decide stuck", "killed": "microagents resume killed"}
    assert ran.rows.get("go on") == go_on.get(run)
    shown = show(run)
    assert shown.keys() == undisturbed(*QUICK).keys()
    assert (shown["run_id"], shown["outcome"]) == (run, outcome.removesuffix(", WRONG"))
    assert microagents("show", run, "--verify", "--json").json == shown | {"verified": True}
    microagents("list")
    assert contents() == before


@pytest.mark.slow
def test_a_run_that_goes_on_is_looked_at_and_let_alone() -> None:
    slow = tuple("length=3" if word == "length=1" else word for word in SLOW)
    keys = undisturbed(*slow).keys()
    with Sitting("run", *slow, "--run-id", "slow", "--json", paced=True) as sitting:
        sitting.until_sent(2)
        shown = microagents("show", "slow")
        assert (shown.code, next(iter(shown.rows))) == (COMPLETED, "running")
        assert f"process {sitting.process.pid} " in shown.rows["why"]
        assert "go on" not in shown.rows
        assert show("slow").keys() == keys
        assert show("slow")["outcome"] == "running"
        assert microagents("list").out.split()[:2] == ["slow", "running"]
        assert_one_sentence(microagents("decide", "slow", "0/step/0", '{"number": 5}'), "neither undecided nor open")
        for words in (("resume", "slow"), ("run", *slow, "--run-id", "slow")):
            ran, bought = shopping(*words)
            assert_one_sentence(ran, f"process {sitting.process.pid} ", "microagents show slow")
            assert bought.sent == []
        ended = sitting.end()
    assert (ended.code, ended.err) == (COMPLETED, "")
    assert_undisturbed(ended.json, *slow)


@pytest.mark.slow
def test_a_run_that_goes_on_is_not_called_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit falls between the two reads; only from inside can it be made to."""
    account = Reader.account
    with Sitting("run", "drift", "-o", "length=2000", *NOISY, "--run-id", "quick") as sitting:

        def recorded() -> int:
            return int(rows_of("quick", "SELECT count(*) FROM decision")[0][0])

        def slowly(reader: Reader, *, is_cut_off: bool = False) -> Account:
            found, before = account(reader, is_cut_off=is_cut_off), recorded()
            while recorded() == before:
                sitting.until_sent(len(sitting.sent) + 5)
            return found

        sitting.until_sent(50)
        monkeypatch.setattr(Reader, "account", slowly)
        ran = microagents("show", "quick", "--verify")
    assert (ran.code, ran.err) == (COMPLETED, "")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            """UPDATE decision SET value = '{"number":1}' WHERE key = (SELECT max(key) FROM decision)""",
            "decisions_sha256 is recorded as",
        ),
        (
            "DELETE FROM decision WHERE key = (SELECT max(key) FROM decision)",
            "decided is recorded as 30, its rows make 29",
        ),
    ],
)
def test_verify_finds_a_row_that_was_changed(statement: str, said: str) -> None:
    microagents("run", *QUICK, "--run-id", "over")
    ran = microagents("show", "over", "--verify")
    assert (ran.code, ran.out.splitlines()[-1].split(":")[0]) == (COMPLETED, "verified")
    edit("over", statement)
    ran = microagents("show", "over", "--verify")
    assert ran.code == FAILED
    assert "verified" not in ran.out
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert microagents("show", "over", "--verify", "--json").json["verified"] is False
    assert microagents("show", "over").code == COMPLETED, "it is still shown"


# -- what cannot be gone on with -----------------------------------------------------------------------------------------------------


MINE = """
    from microagents.tasks.drift import Drift

    class Mine(Drift):
        length: int = 60
    """
MINE_STUCK = ("mine.py:Mine", *STALEMATE[3:], "--run-id", "mine")


@pytest.mark.slow
def test_a_run_of_a_users_file_goes_on_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("mine.py", MINE)
    assert microagents("run", *MINE_STUCK).code == UNDECIDED
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    runs = str(tmp_path / "runs")
    assert_one_sentence(microagents("resume", "mine"), "there is no run 'mine'")
    ran = microagents("show", "mine", "--runs-dir", runs)
    assert ran.rows["go on"] == f"microagents decide mine --runs-dir {runs}"
    ran = started("resume", "mine", "--runs-dir", "../runs", "--on-undecided", "leader", "--json", cwd=elsewhere)
    assert (ran.code, ran.err) == (COMPLETED, "")
    assert digests(ran.json) == digests(led())
    assert [path.name for path in elsewhere.iterdir()] == ["runs"], "that of the run it is compared with"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (None, ["mine.py' is not there"]),
        ("class Yours: pass", ["'Mine' is not there"]),
        (MINE.replace("length", "breadth"), ["started with code=", "--accept-change code"]),
        (MINE + "    size: int\n", ["needs size"]),
    ],
    ids=["file gone", "class gone", "other options", "another option"],
)
def test_a_run_whose_task_is_not_there_any_more_is_refused(changed: str | None, said: list[str]) -> None:
    write("mine.py", MINE)
    assert microagents("run", *MINE_STUCK).code == UNDECIDED
    before = show("mine")
    if changed is None:
        Path("mine.py").unlink()
    else:
        write("mine.py", changed)
    sys.modules.pop("mine")
    assert_one_sentence(microagents("resume", "mine"), *said)
    assert show("mine") == before, "it can still be looked at"


# -- folders and files ---------------------------------------------------------------------------------------------------------------


def test_a_folder_of_runs_that_is_made_is_ignored_by_git_and_one_that_was_there_is_left_alone() -> None:
    Path("there").mkdir()
    for folder in ("runs", "a/b", "there"):
        assert microagents("run", "drift", "-o", "length=1", "--runs-dir", folder, "--run-id", "x").code == COMPLETED
    assert Path("runs/.gitignore").read_text() == Path("a/b/.gitignore").read_text() == "*\n"
    assert not Path("a/.gitignore").exists()
    assert [path.name for path in Path("there").iterdir()] == ["x.sqlite"]
    Path("runs/.gitignore").unlink()
    microagents("run", "drift", "-o", "length=1", "--run-id", "y")
    assert not Path("runs/.gitignore").exists()


# -- changes on purpose --------------------------------------------------------------------------------------------------------------


def test_another_margin_is_refused_unless_it_is_meant() -> None:
    stalemate()
    words, before = ("run", *STALEMATE, "--run-id", "stuck"), show("stuck")
    assert_one_sentence(
        microagents(*words, "-k", "1"),
        "strategy.k=3",
        "now it is 1",
        "--accept-change strategy.k",
        "nothing was changed",
    )
    assert show("stuck") == before
    ran = microagents(*words, "-k", "1", "--accept-change", "strategy.k", "--json")
    assert ran.code in OVER
    assert (ran.json["steps"], ran.json["settled_at"]) == (60, {})
    (told,) = [line for line in microagents("show", "stuck").out.splitlines() if line.startswith("changed on purpose")]
    assert told.endswith("strategy.k from 3 to 1")
    assert microagents("show", "stuck", "--verify").code == COMPLETED
    assert_one_sentence(microagents(*words), "strategy.k=1", "now it is 3")


COUNT = """
    from microagents import ChainTask, Prompt, Reply

    # A class of replies.
    class One(Reply, frozen=True):
        number: int

    def last():
        return 40

    class Count(ChainTask[int, One]):
        def start(self):
            return 0

        def done(self, state):
            return state >= last()

        def prompt(self, state):
            return Prompt(user="one")

        def advance(self, state, reply):
            return state + 1

        def expert(self, prompt, reply):
            return One(number=1)
    """


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("old", "new"), [("return state + 1", "return state + 2"), ("40", "41")])
def test_changed_code_is_refused_on_a_resume_unless_it_is_meant(old: str, new: str) -> None:
    write("count.py", COUNT)
    sys.modules.pop("count", None)
    stopped = microagents("run", "count.py", "--run-id", "c", "--model", "sim:perfect", "-k", "1", "--max-calls", "9")
    assert stopped.code == STOPPED
    before = show("c")
    for words in (("resume", "c"), ("run", "count.py", "--run-id", "c", "--model", "sim:perfect", "-k", "1")):
        write("count.py", COUNT.replace(old, new))
        sys.modules.pop("count")
        said = ("code=", "now it is", "nothing was changed", "was edited", "--accept-change code")
        assert_one_sentence(microagents(*words, "--max-calls", "99"), *said)
    assert show("c") == before
    ran = microagents("resume", "c", "--max-calls", "99", "--accept-change", "code", "--json")
    assert (ran.code, ran.json["result"] > 40 or new == "return state + 2") == (COMPLETED, True)
    assert "changed on purpose" in microagents("show", "c").out


def test_another_prompt_is_refused_on_a_resume_unless_it_is_meant() -> None:
    write("mine.py", MINE)
    microagents("run", *MINE_STUCK)
    polite = """
        def prompt(self, state):
            asked = super().prompt(state)
            return type(asked)(system="Please. " + asked.system, user=asked.user)
    """
    write("mine.py", MINE + polite)
    sys.modules.pop("mine")
    words = ("resume", "mine", "--on-undecided", "leader")
    assert_one_sentence(microagents(*words), "prompt=", "now it is", "--accept-change prompt")
    accepted = ("--accept-change", "prompt", "--accept-change", "code")
    assert microagents(*words, *accepted).code == COMPLETED
    assert "changed on purpose" in microagents("show", "mine").out


# -- the environment -----------------------------------------------------------------------------------------------------------------


TORN = (
    *("drift", "-o", "length=30", "-k", "6", "--model"),
    "sim:perfect@error=0.02,hard=0.2,hard_error=0.5,alternatives=1,price_out=1",
)
LADDER = ("-s", "p=.95", "-s", "false_alarms=1", "-s", "max_draws=14", "--run-id", "climbed")


def test_a_step_that_no_rung_of_the_ladder_decided_stays_undecided_when_nothing_is_new() -> None:
    judge = ("--model", "judge=sim:perfect@error=0.45,price_out=1", "-s", "ladder=judge", "-s", "margin=9")
    first, again = microagents("run", *TORN, *LADDER, *judge, "--json"), microagents("resume", "climbed", "--json")
    assert (first.code, again.code) == (UNDECIDED, UNDECIDED)
    for name in ("undecided_at", "calls", "decisions_sha256", "ballots_sha256"):
        assert again.json[name] == first.json[name]


def outcome_at(path: str) -> str:
    return str(dict(rows_of("climbed", "SELECT path, outcome FROM decisions"))[path])


@pytest.mark.slow
def test_with_a_higher_cap_failed_rungs_of_an_undecided_step_are_tried_again() -> None:
    run = microagents("run", *TORN, *LADDER, "-s", "ladder=lookahead", "-s", "margin=7", "--json").json
    (path,) = run["undecided_at"]
    rung = f"{path}/lookahead"
    assert outcome_at(rung) == "undecided"
    assert "predictions of rollouts" in microagents("show", "climbed", rung).out
    assert_one_sentence(microagents("decide", "climbed", rung, '{"number": 5}'), "not undecided")
    again = microagents("resume", "climbed", "-s", "max_draws=60", "--json").json
    assert again["decided"] == again["steps"]
    assert outcome_at(rung) == "inferred"
    assert again["climbed"]["lookahead"] > run["climbed"].get("lookahead", 0)
    assert microagents("show", "climbed", "--verify").code == COMPLETED


@pytest.mark.slow
def test_a_kill_in_the_first_moments_leaves_a_small_limit_to_go_on_with() -> None:
    """What was allotted and may have been sent counts at its most, but never at more than the limit."""
    words = (
        *("run", "hanoi", "-o", "disks=3", "--model", "sim:gpt-4.1-mini@latency=0.5,sigma=0", "--run-id", "a"),
        *("--max-cost", "0.05"),
    )
    for _ in range(2):
        with Sitting(*words, paced=True) as sitting:
            sitting.until_sent(1)
            sitting.end(signal.SIGKILL)
    left = json.loads(microagents("show", "a", "--json").out)
    assert 0 < left["unsettled_usd"] <= 0.05
    assert left["calls"] == 0
    ran = microagents("resume", "a", "--forget-unsettled")
    assert (ran.code, "no longer counted: " in ran.err) == (COMPLETED, True), ran
    shown = microagents("show", "a", "--verify")
    assert (shown.code, "unsettled calls from" in shown.out) == (0, True)
