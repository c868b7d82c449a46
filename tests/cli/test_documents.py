"""Documents in the terminal: what `show` draws, and the files that their texts are written into."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, structs
from structlog.testing import capture_logs

from microagents import InvalidUsage, Result, resume, run
from microagents.cli.views.document import MAX_OBJECTED, draw_document, short_names
from microagents.runs.driver import following
from microagents.systems.documents import Segment
from microagents.systems.documents.notes import DocumentRecord
from microagents.systems.documents.records import (
    RankRecord,
    SegmentOutcome,
    SegmentRecord,
    SubtaskRecord,
    ValidationRecord,
)
from tests.cli.commands import COMPLETED, STOPPED, WRONG, WRONG_USAGE, Ran, microagents, write

TWO = ("sim:perfect", "sim:o3-mini@error=0")
NAMES = ("sim:perfect", "openai:o3-mini", "sim:gpt@error=0.1")
LINES = """
    from pathlib import Path
    from microagents.systems.documents import Part, Parts, Segment, Validation, WorkedDocument

    class Lines(WorkedDocument):
        n: int = 3
        name: str = "lines.txt"

        def statement(self):
            return f"Write {self.n} lines."

        def output_path(self):
            return Path(self.name) if self.name else None

        def checks(self, text):
            return {"short": len(text) < 20, "links": None}

        def expert_segment(self, asked):
            have = asked.written.count("line")
            status = "complete" if have + 1 >= self.n else "ongoing"
            return Segment(justify="", text=f"line {have + 1}", status=status, mode="continue")

        def expert_validation(self, asked):
            return Validation(reason="", passes=True)

        def expert(self, prompt, reply):  # a single shot asks for the whole
            return reply(text="at once") if '"answer"' in prompt.user else super().expert(prompt, reply)

    class Late(Lines):
        def checks(self, text):
            Path(self.name).write_text("of another", encoding="utf-8")
            return {}
"""
TEXT = "line 1\nline 2\nline 3\n"


@pytest.fixture(autouse=True)
def task_file() -> None:
    write("lines.py", LINES)


def wrote(*words: str, task: str = "lines.py:Lines") -> Ran:
    models = [word for each in TWO for word in ("--model", each)]
    return microagents("run", task, *models, "--run-id", "r", *words)


def contents(name: str) -> str:
    return Path(name).read_text(encoding="utf-8")


def is_there(name: str) -> bool:
    return Path(name).exists()


def remove(name: str) -> None:
    Path(name).unlink()


def segment(text: str = "a line", mode: str = "continue") -> Segment:
    assert mode in ("continue", "override")
    return Segment(justify="", text=text, status="ongoing", mode="override" if mode == "override" else "continue")


def draft(
    agent: int, outcome: SegmentOutcome, votes: str, *, reason: str = "it is wrong", mode: str = "continue"
) -> SegmentRecord:
    """A segment with a vote of each agent: + for, - against, ? without a valid judgement."""
    validations = [
        ValidationRecord(
            agent=number,
            passes=None if each == "?" else each == "+",
            reason=reason,
            missing="flagged" if each == "?" else "",
        )
        for number, each in enumerate(votes)
    ]
    return SegmentRecord(agent=agent, outcome=outcome, segment=segment(mode=mode), validations=validations)


def subtask(at: str = "write", **fields: object) -> SubtaskRecord:
    record = SubtaskRecord(at=at, objective=f"the objective of {at}", parents=(), depth=at.count("/part/"))
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def document(*subtasks: SubtaskRecord, text: str = "") -> DocumentRecord:
    return DocumentRecord(agents=NAMES, subtasks=subtasks, text=text, calls=0, cost_usd=None)


def drawn(*subtasks: SubtaskRecord) -> list[str]:
    return draw_document(document(*subtasks)).splitlines()


# -- what is drawn -----------------------------------------------------------------------------------------------------


def test_each_subtask_has_a_line_with_its_state_and_number() -> None:
    lines = drawn(
        subtask(state="split"),
        subtask("write/part/1", state="done", author=1, rounds=[[draft(1, "passed", "+++")]]),
        subtask("write/part/2", state="writing", parents=("write/part/1",)),
        subtask("write/part/3", parents=("write/part/1", "write/part/2")),
    )
    assert lines == [
        *("split whole the objective of write", "depth 0"),
        "done 1 the objective of write/part/1",
        "depth 1; 1 round; by o3-mini, approved by 3 of 3",
        *("writing 2 the objective of write/part/2", "depth 1; after 1"),
        *("waiting 3 the objective of write/part/3", "depth 1; after 1, 2"),
    ]


def test_the_approvals_are_those_of_the_segments_that_make_up_the_chosen_version() -> None:
    rounds = [
        [draft(0, "passed", "++-")],
        [draft(0, "failed", "+--"), draft(1, "passed", "+++")],
        [draft(0, "passed", "++-", mode="override")],
        [draft(0, "forced", "+--")],
    ]
    lines = drawn(subtask(state="done", author=0, rounds=rounds, agreed=False, complete=False, summary="short"))
    facts = " ".join(lines[1:3])
    assert facts.endswith("by perfect, approved by 2, 1 of 3; NOT AGREED; INCOMPLETE; summarized for later authors")


def test_a_discarded_segment_has_the_objections_below_it_with_agent_and_reason() -> None:
    lines = drawn(subtask(state="writing", rounds=[[draft(0, "failed", "+-?"), draft(1, "passed", "+++")]]))
    assert [line.lstrip("├└│─ ") for line in lines[1:]] == [
        "depth 0; 1 round; 1 of 2 segments discarded; perfect discarded, 1 of 3 approve; o3-mini passed, 3 of",
        *("3 approve", "round 1: perfect discarded, 1 of 3 approve"),
        *("o3-mini: it is wrong", "gpt: no valid judgement"),
    ]


def test_of_many_objections_the_last_are_kept() -> None:
    rounds = [[draft(0, "failed", "---"), draft(1, "passed", "++-")] for _ in range(20)]
    lines = drawn(subtask(state="writing", rounds=rounds))
    heads = [line for line in lines if "round 1" in line or "round 20" in line]
    assert (len(heads), "round 15: " in heads[0]) == (MAX_OBJECTED, True)
    assert lines[-1].endswith("and 28 earlier segments with objections; --json has them all")


def test_refused_splits_and_rankings_are_shown() -> None:
    rankings = [
        RankRecord(agent=0, best=1),
        RankRecord(agent=2, best=1),
        RankRecord(agent=1, best=None),
        RankRecord(agent=None, best=0),
    ]
    lines = drawn(
        subtask(
            state="done", refused_splits=["the subtasks are 1", "the subtasks are 1", "the\nend"], rankings=rankings
        )
    )
    assert [line.lstrip("├└│─ ") for line in lines[2:]] == [
        *("split refused 2 times: the subtasks are 1", "split refused: the end"),
        *("ranked best: o3-mini by perfect, gpt", "no valid ranking by o3-mini"),
        "ranked best: perfect by the neutral ranker",
    ]


def test_what_models_write_reaches_the_terminal_neither_raw_nor_at_full_length() -> None:
    nasty = "\x1b[2J\x07\r\x9b31m\u202e\ndone     whole " + "x" * 1000
    record = subtask(state="writing", rounds=[[draft(0, "failed", "-++", reason=nasty)]], refused_splits=[nasty])
    record.objective = nasty
    lines = drawn(record)
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= 100
    assert not any(line.startswith("done") for line in lines)


def test_names_of_agents_are_short_where_that_tells_them_apart() -> None:
    assert short_names(["sim:a@error=0.1", "openai:b/c"]) == ["a", "b/c"]
    assert short_names(["sim:a (1 of 2)", "sim:a (2 of 2)"]) == ["a (1 of 2)", "a (2 of 2)"]
    assert short_names(["sim:a@error=0.1", "openai:a"]) == ["sim:a@error=0.1", "openai:a"]
    assert short_names(["sim:a@error=0.1, openai:b"]) == ["sim:a@error=0.1, openai:b"]


def test_show_draws_a_document_and_gives_all_of_it_as_json() -> None:
    assert wrote().code == WRONG
    lines = microagents("show", "r").out.partition("\n\n")[2].splitlines()
    assert lines == [
        "done whole Write 3 lines.",
        "depth 0; 3 rounds; by perfect, approved by 2, 2, 2 of 2",
    ]
    assert microagents("show", "r").rows["result"].startswith("a text of 21 characters, 6 words; checks FAILED: short;")
    (record,) = microagents("show", "r", "--json").json["solution"]["subtasks"]
    assert (record["state"], len(record["rounds"])) == ("done", 3)


# -- following a run ---------------------------------------------------------------------------------------------------


def lines_of_three(**options: object) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    import lines  # type: ignore[import-not-found]  # noqa: PLC0415 - written by the fixture

    return lines.Lines(**options)


async def followed(on_solution: following.OnSolution, terminate: asyncio.Event, latency: float = 0.002) -> Result:
    task = lines_of_three(n=100)
    models = [f"{each.replace('@error=0', '')}@latency={latency}" for each in TWO]
    result: Result = await run(
        task,
        models=models,
        strategy="seqcv",
        run_id="r",
        on_solution=on_solution,
        terminate=terminate,
    )
    return result


@pytest.fixture
def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "READ_EVERY_S", 0.0)
    monkeypatch.setattr(following, "READ_SHARE", 1.0)


@pytest.mark.usefixtures("read_at_once")
async def test_the_text_grows_in_the_part_file_and_callbacks_get_the_same_record() -> None:
    enough, seen = asyncio.Event(), []

    def look(solution: Struct) -> bool:
        assert isinstance(solution, DocumentRecord)
        if solution.text:
            seen.append(solution.text)
            assert contents("lines.txt.part") == solution.text
        if len(seen) > 2:
            enough.set()
        return True

    assert (await followed(look, enough, latency=0.05)).outcome == "interrupted"
    assert seen[0].startswith("line 1\n")
    assert contents("lines.txt.part").startswith(seen[-1])
    assert not is_there("lines.txt")


@pytest.mark.usefixtures("read_at_once")
async def test_another_process_that_closes_the_journal_takes_nothing_from_the_writer() -> None:
    """The reads during a run must not release the writer's locks."""
    enough, walls = asyncio.Event(), []
    close = (
        "import sqlite3; db = sqlite3.connect('runs/r.sqlite'); db.execute('SELECT * FROM run').fetchall(); db.close()"
    )

    def look(_: Struct) -> bool:
        walls.append(is_there("runs/r.sqlite-wal"))
        if len(walls) == 2:
            subprocess.run([sys.executable, "-c", close], check=True, timeout=60)
            walls.append(is_there("runs/r.sqlite-wal"))
            enough.set()
        return True

    await followed(look, enough, latency=0.05)
    assert walls[:3] == [True, True, True]


@pytest.mark.slow
@pytest.mark.usefixtures("read_at_once")
async def test_a_callback_that_wants_no_more_is_not_called_again_and_one_that_raises_ends_the_run() -> None:
    calls = []

    def once(solution: Struct) -> bool:
        calls.append(solution)
        return False

    assert (await followed(once, asyncio.Event())).outcome == "completed"
    assert len(calls) == 1

    def fail(_: Struct) -> bool:
        raise ZeroDivisionError

    remove("lines.txt")
    remove("runs/r.sqlite")
    with pytest.raises(ZeroDivisionError):
        await followed(fail, asyncio.Event())


# -- the output file ---------------------------------------------------------------------------------------------------


def test_an_output_that_exists_is_kept_and_nothing_is_started() -> None:
    Path("lines.txt").write_text("mine", encoding="utf-8")
    ran = wrote()
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    (sentence,) = ran.err.splitlines()
    assert (
        f"the output '{Path.cwd() / 'lines.txt'}' exists; it was kept, and nothing was started; name another"
        in sentence
    )
    assert contents("lines.txt") == "mine"
    assert not list(Path.cwd().glob("runs/*"))


@pytest.mark.parametrize("folder", ["missing", "lines.py"])
def test_a_folder_that_cannot_be_written_is_refused_before_the_start(folder: str) -> None:
    ran = wrote("-o", f"name={folder}/lines.txt")
    assert ran.code == WRONG_USAGE
    assert f"{folder}/lines.txt' cannot be written: " in ran.err
    assert not list(Path.cwd().glob("runs/*"))


def test_a_completed_run_writes_its_output_again_only_if_it_is_missing() -> None:
    wrote()
    Path("lines.txt").write_text("corrected by hand", encoding="utf-8")
    assert microagents("resume", "r").code == WRONG
    assert contents("lines.txt") == "corrected by hand"
    Path("lines.txt").unlink()
    ran = microagents("resume", "r")
    assert (ran.code, ran.rows["result"].partition(",")[0]) == (WRONG, str(Path.cwd() / "lines.txt"))
    assert contents("lines.txt") == TEXT


def test_a_completed_run_is_answered_without_the_code_of_its_task() -> None:
    wrote()
    Path("lines.txt").unlink()
    Path("lines.py").unlink()
    del sys.modules["lines"]
    assert microagents("resume", "r").code == WRONG
    assert not Path("lines.txt").exists()


def test_an_output_that_appears_during_the_run_is_kept_and_the_text_is_left_beside_it() -> None:
    with pytest.MonkeyPatch.context() as patched, capture_logs() as logs:
        patched.setattr("microagents.cli.command.log_to_stderr", lambda: None)
        ran = wrote(task="lines.py:Late")
    assert ran.code == COMPLETED
    assert ran.rows["result"].startswith('{"answer"')
    assert contents("lines.txt") == "of another"
    assert contents("lines.txt.part") == TEXT
    (log,) = logs
    assert (log["log_level"], log["text"]) == ("warning", str(Path.cwd() / "lines.txt.part"))


@pytest.mark.slow
def test_a_run_that_is_stopped_leaves_its_verified_text_and_goes_on_with_it() -> None:
    assert wrote("--max-calls", "8", "--concurrency", "1").code == STOPPED
    assert contents("lines.txt.part") == "line 1\n"
    assert not Path("lines.txt").exists()
    assert microagents("resume", "r", "--max-calls", "100").code == WRONG
    assert (contents("lines.txt"), Path("lines.txt.part").exists()) == (TEXT, False)


@pytest.mark.slow
def test_each_of_many_inputs_writes_its_output_and_completed_ones_are_not_in_the_way() -> None:
    inputs = '{"name": "a.txt"}\n{"name": "b.txt", "n": 1}\n{"name": ""}\n'
    Path("items.jsonl").write_text(inputs, encoding="utf-8")
    ran = wrote("--inputs", "items.jsonl", "--max-calls", "8", "--concurrency", "1")
    assert ran.code == STOPPED
    before = sorted(path.name for path in Path.cwd().glob("*.txt"))
    ran = microagents("resume", "r", "--max-calls", "100")
    assert ran.code == WRONG, ran.err
    assert before != ["a.txt", "b.txt"]
    assert (contents("a.txt"), contents("b.txt")) == (TEXT, "line 1\n")


def test_two_inputs_with_one_output_are_refused() -> None:
    Path("items.jsonl").write_text('{"n": 1}\n{"n": 2}\n', encoding="utf-8")
    ran = wrote("--inputs", "items.jsonl")
    assert (ran.code, "inputs 0 and 1 share the output" in ran.err) == (WRONG_USAGE, True)


@pytest.mark.slow
def test_a_comparison_writes_no_output() -> None:
    models = [word for each in TWO for word in ("--model", each)]
    ran = microagents(
        "compare", "lines.py:Lines", *models, "--strategy", "seqcv", "--strategy", "single-shot", "--run-id", "c"
    )
    assert ran.code == COMPLETED, ran.err
    assert not Path("lines.txt").exists()


async def test_in_python_the_result_names_the_output() -> None:
    task = lines_of_three()
    result = await run(task, models=TWO, run_id="r")
    assert result.outputs == (Path.cwd() / "lines.txt",)
    assert (await resume("r")).outputs == result.outputs
    assert structs.replace(result, outputs=()).as_json() == {
        key: value for key, value in result.as_json().items() if key != "outputs"
    }
    with pytest.raises(InvalidUsage, match="exists; it was kept"):
        await run(task, models=TWO, run_id="another")
