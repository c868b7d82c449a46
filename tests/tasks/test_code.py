"""Programs of models: what they do stays in their process, and only one that comes to its end has passed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from microagents import InvalidUsage
from microagents.tasks import confinement
from microagents.tasks.code import Code, Program
from microagents.tasks.confinement import Ending, confines, run_confined

linux = pytest.mark.skipif(not confines(), reason="programs are confined on Linux only")
TASK = Code(text="Write a function that doubles.", test_list=("assert double(2) == 4", "assert double(-1) == -2"))


@linux
def test_a_function_is_right_if_it_passes_every_assertion() -> None:
    assert TASK.correct(Program(code="def double(n):\n    return 2 * n")) is True
    assert TASK.correct(Program(code="def double(n):\n    return n + 2")) is False
    assert Code(text="Write anything.").correct(Program(code="1")) is None


REFUSED = "\nexcept OSError:\n    pass\nelse:\n    raise AssertionError('allowed')"


@linux
@pytest.mark.parametrize(
    "attempt",
    [
        "import socket\ntry:\n    socket.socket()",
        "import os\ntry:\n    os.kill(os.getppid(), 0)",
        "import os\ntry:\n    os.fork()",
        "import subprocess\ntry:\n    subprocess.run(['true'])",
        "try:\n    open('mine', 'w')",
        "import os\ntry:\n    os.unlink({file!r})",
        "import os\ntry:\n    os.rename({file!r}, 'mine')",
        "import os, resource\ntry:\n    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)",
        "import ctypes\ntry:\n    if ctypes.CDLL(None).unlink({file!r}.encode()): raise OSError",
    ],
    ids=["socket", "kill", "fork", "subprocess", "write", "unlink", "rename", "limits", "ctypes"],
)
def test_what_would_leave_the_process_is_refused(attempt: str, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("here", encoding="utf-8")
    assert run_confined(attempt.format(file=str(file)) + REFUSED, timeout_s=10) is Ending.PASSED
    assert file.read_text(encoding="utf-8") == "here"


@linux
@pytest.mark.parametrize(
    ("program", "ending"),
    [
        ("import os; os._exit(0)", Ending.FAILED),
        ("raise SystemExit(0)", Ending.FAILED),
        ("import os\nfor each in range(3, 20):\n    try: os.write(each, b'x' * 99)\n    except OSError: pass", Ending.FAILED),
        ("text = 'x' * (1 << 30)", Ending.FAILED),
        ("while True: pass", Ending.TIMED_OUT),
        ("import time; time.sleep(60)", Ending.TIMED_OUT),
        ("print('x' * 10**7)", Ending.PASSED),
        ("import re, math, random, threading, collections, datetime, decimal, json, heapq, itertools", Ending.PASSED),
    ],
    ids=["exit", "SystemExit", "foreign output", "memory", "busy", "asleep", "printed", "imports"],
)
def test_only_a_program_that_comes_to_its_end_in_time_has_passed(program: str, ending: Ending) -> None:
    assert run_confined(program, timeout_s=0.5) is ending


def test_where_nothing_can_be_confined_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement, "confines", lambda: False)
    with pytest.raises(InvalidUsage, match=f"only on Linux .* and this is {sys.platform}"):
        run_confined("1", timeout_s=1)


def test_the_model_sees_the_first_assertion_only() -> None:
    assert "double(2)" in TASK.statement()
    assert "double(-1)" not in TASK.statement()


def test_layout_and_comments_are_no_difference_between_programs() -> None:
    assert Program(code="def f( n ):\n  return n  # done").vote() == Program(code="def f(n):\n    return n").vote()


def test_texts_that_are_no_programs_are_flagged() -> None:
    assert TASK.flag(Program(code="def f(:")) == "no_python"
    assert TASK.flag(Program(code="(" * 10_000)) == "no_python"
    assert TASK.flag(Program(code="\x00")) == "no_python"
    assert TASK.flag(Program(code="1\n" * 20_000)) == "long_code"
    assert TASK.flag(Program(code="1")) is None


@pytest.mark.parametrize("code", [f"def f(): return {'+'.join(['1'] * 3000)}", f"x = {'-' * 3000}1"], ids=["sum", "signs"])
def test_a_program_that_python_reads_but_cannot_write_is_flagged(code: str) -> None:
    assert TASK.flag(Program(code=code)) == "no_python"
    assert Program(code=code).vote() == code


@linux
def test_the_mark_of_a_pass_is_in_no_frame_and_no_file_of_the_program() -> None:
    in_frames = "import sys, os\nframe = sys._getframe(1)\nos.write(frame.f_locals['answer'], frame.f_locals['token'])\nos._exit(0)"
    in_files = (
        "import os\nmark = open('program', 'rb').read(32)\n"
        "for each in range(3, 20):\n    try: os.write(each, mark)\n    except OSError: pass\nos._exit(0)"
    )
    assert [run_confined(program, timeout_s=5) for program in (in_frames, in_files)] == [Ending.FAILED] * 2


@linux
def test_a_program_cannot_ignore_the_end_of_its_time() -> None:
    started = time.monotonic()
    ignoring = "import signal, time\ntry:\n    signal.signal(signal.SIGALRM, signal.SIG_IGN)\nexcept OSError:\n    pass\ntime.sleep(60)"
    assert run_confined(ignoring, timeout_s=0.5) is Ending.TIMED_OUT
    assert time.monotonic() - started < 8
