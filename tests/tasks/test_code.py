"""Programs of models: what they do stays in their process, and only one that comes to its end has passed."""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from microagents.tasks import confinement
from microagents.tasks.code import Code, Program
from microagents.tasks.confinement import Ending, is_supported, run_confined, wall

linux = pytest.mark.skipif(not is_supported(), reason="programs are confined on Linux only")
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
        "import os\ntry:\n    os.fork()",
        "try:\n    open('mine', 'w')",
        "import os\ntry:\n    os.unlink({file!r})",
        "import os, resource\ntry:\n    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)",
    ],
    ids=["socket", "fork", "write", "unlink", "limits"],
)
def test_what_would_leave_the_process_is_refused(attempt: str, tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_text("here", encoding="utf-8")
    assert run_confined(attempt.format(file=str(file)) + REFUSED, timeout_s=10) is Ending.PASSED
    assert file.read_text(encoding="utf-8") == "here"


@pytest.mark.slow
@linux
@pytest.mark.parametrize(
    ("program", "ending"),
    [
        ("import os; os._exit(0)", Ending.FAILED),
        (
            "import os\nfor each in range(3, 20):\n    try: os.write(each, b'x' * 99)\n    except OSError: pass",
            Ending.FAILED,
        ),
        ("text = 'x' * (1 << 30)", Ending.FAILED),
        ("while True: pass", Ending.TIMED_OUT),
        ("import time; time.sleep(60)", Ending.TIMED_OUT),
        ("import re, math, random, threading, collections, datetime, decimal, json, heapq, itertools", Ending.PASSED),
    ],
    ids=["exit", "foreign output", "memory", "busy", "asleep", "imports"],
)
def test_only_a_program_that_comes_to_its_end_in_time_has_passed(program: str, ending: Ending) -> None:
    assert run_confined(program, timeout_s=0.5 if ending is Ending.TIMED_OUT else 60) is ending


@pytest.fixture
def no_wall(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(confinement, "is_supported", lambda: False)
    wall.cache_clear()
    yield
    wall.cache_clear()


@pytest.mark.usefixtures("no_wall")
def test_where_nothing_can_be_confined_nothing_runs_and_nothing_is_scored() -> None:
    assert run_confined("1", timeout_s=1) is None
    assert TASK.correct(Program(code="def double(n):\n    return 2 * n")) is None


@pytest.mark.slow
@linux
@pytest.mark.parametrize(
    "bound", ["-v 480000", *(pytest.param(each, marks=pytest.mark.slow) for each in ("-n 40", "-s 1024", "-t 5"))]
)
def test_a_hard_limit_below_a_bound_does_not_fail_right_programs(bound: str) -> None:
    scored = (
        "from microagents.tasks.code import Code, Program\nright = Program(code='def f(): return 1')\n"
        "print(Code(text='f', test_list=['assert f() == 1']).correct(right))"
    )
    run = ["bash", "-c", f'ulimit {bound}; exec "$0" -c "$1"', sys.executable, scored]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=100, check=False)
    assert ended.stdout.strip() == "True", ended.stderr


@linux
def test_a_program_whose_process_ends_before_it_is_confined_is_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wall() is not None, "programs can be confined here in general"
    monkeypatch.setattr(confinement, "_CONFINED", Path(__file__).with_name("missing.py"))
    assert TASK.correct(Program(code="def double(n):\n    return 2 * n")) is None


def test_the_model_sees_the_first_assertion_only() -> None:
    assert "double(2)" in TASK.background()
    assert "double(-1)" not in TASK.background()


def test_layout_and_comments_are_no_difference_between_programs() -> None:
    assert Program(code="def f( n ):\n  return n  # done").vote() == Program(code="def f(n):\n    return n").vote()


def test_texts_that_are_no_programs_are_flagged() -> None:
    for code in ("def f(:", "(" * 10_000, "\x00"):
        assert TASK.flag(Program(code=code)) == "no_python"
    for code in (f"def f(): return {'+'.join(['1'] * 3000)}", f"x = {'-' * 3000}1"):
        assert TASK.flag(Program(code=code)) == "no_python", "Python reads it and cannot write it"
        assert Program(code=code).vote() == code
    assert TASK.flag(Program(code="1\n" * 20_000)) == "long_code"
    assert TASK.flag(Program(code="1")) is None


@linux
def test_the_mark_of_a_pass_is_in_no_frame_and_no_file_of_the_program() -> None:
    in_frames = "import sys, os\nframe = sys._getframe(1)\nos.write(frame.f_locals['answer'], frame.f_locals['token'])\nos._exit(0)"
    in_files = (
        "import os\nmark = open('program', 'rb').read(32)\n"
        "for each in range(3, 20):\n    try: os.write(each, mark)\n    except OSError: pass\nos._exit(0)"
    )
    assert [run_confined(program, timeout_s=60) for program in (in_frames, in_files)] == [Ending.FAILED] * 2


TIMERS = {
    "ignored": "signal.signal(signal.SIGALRM, signal.SIG_IGN)",
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    "handled": "signal.signal(signal.SIGXCPU, lambda *_: None)",
}


@pytest.mark.slow
@linux
@pytest.mark.parametrize("program", TIMERS.values(), ids=TIMERS)
@pytest.mark.parametrize("then", ["time.sleep(60)", "while True: pass"], ids=["asleep", "busy"])
def test_a_program_cannot_ignore_the_end_of_its_time(program: str, then: str) -> None:
    started = time.monotonic()
    assert (
        run_confined(f"import signal, time\ntry:\n    {program}\nexcept OSError:\n    pass\n{then}", timeout_s=0.5)
        is Ending.TIMED_OUT
    )
    assert time.monotonic() - started < 50


FCNTL = dict.fromkeys((0, 1, 2, 3, 1030), True)
FCNTL |= dict.fromkeys((4, 5, 6, 7, 8, 10, 15, 36, 37, 1024, 1025, 1026, 1031, 1033, 1036), False)
"""The commands of fcntl on Linux, and whether a program may give them."""


@linux
def test_fcntl_duplicates_and_reads_descriptors_and_does_nothing_else() -> None:
    call = (
        "import ctypes, os\nlibrary = ctypes.CDLL(None, use_errno=True)\nopened = os.open('/', os.O_RDONLY)\n"
        f"for command, may in {FCNTL}.items():\n    done = library.fcntl(opened, command, 1)\n"
        "    assert (done != -1) is may, (command, ctypes.get_errno())\n"
        "    assert may or ctypes.get_errno() == 1, command"
    )
    assert run_confined(call, timeout_s=10) is Ending.PASSED


SYSTEM_CALLS = {
    "ioctl": (16, 29), "prctl": (157, 167), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "memfd_create": (319, 279),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "keyctl": (250, 219), "io_uring_setup": (425, 425), "ptrace": (101, 117),
    "tgkill": (234, 131), "kill": (62, 129), "rt_sigqueueinfo": (129, 138), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "timer_create": (222, 107), "setitimer": (38, 103), "shmget": (29, 194), "mq_open": (240, 180), "bpf": (321, 280), "unshare": (272, 97),
    "mount": (165, 40), "chdir": (80, 49), "umask": (95, 166), "setpriority": (141, 140), "sched_setaffinity": (203, 122),
    "inotify_init1": (294, 26), "fanotify_init": (300, 262), "flock": (73, 32), "prlimit64": (302, 261), "setsid": (112, 157),
    "execve": (59, 221), "fork": (57, 1079), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "openat2": (437, 437),
}  # fmt: skip
"""Calls that reach beyond a process, and their numbers on x86-64 and on 64-bit ARM."""


@linux
def test_calls_that_reach_beyond_the_process_are_refused() -> None:
    place = 0 if platform.machine() == "x86_64" else 1
    numbers = {name: each[place] for name, each in SYSTEM_CALLS.items()}
    program = (
        "import ctypes\nlibrary = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, number in {numbers!r}.items():\n"
        "    assert library.syscall(number, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1, name\n"
        "for flags in (0x11, 0x10D00, 0x3D0F00 | 0x40000000, 0x3D0F00 | 0x20000):\n"  # a process, a bare thread, new namespaces
        f"    assert library.syscall({(56, 220)[place]}, flags, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 1, hex(flags)"
    )
    assert run_confined(program, timeout_s=10) is Ending.PASSED
