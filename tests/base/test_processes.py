"""Whether a process lives: its pid, and its start, in the table of processes that this one sees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from microagents.base.processes import ProcessIdentity, ProcessState

HERE = ProcessIdentity.here()


@pytest.mark.parametrize("name", ["plain", "with blank", "a) R 1 2 (b"])
def test_a_process_is_known_by_its_start_until_it_has_ended_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    program.symlink_to(Path(sys.executable).resolve())
    states: list[ProcessState] = []
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        there = ProcessIdentity.of(process.pid)
        states.append(there.state())
        states.append(msgspec.structs.replace(there, started=HERE.started).state())
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        states.append(there.state())
        remedy = there.remedy()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        states.append(there.state())
    states.append(there.state())
    assert states == ["running", "dead", "stopped", "dead", "dead"], "a later process of its number; a zombie"
    assert remedy == (
        f"process {process.pid} is stopped: continue it (kill -CONT {process.pid}) or end it (kill -9 {process.pid})"
    )


LOOK = """
import sys, msgspec
from microagents.base.processes import ProcessIdentity
there = msgspec.json.decode(sys.argv[1], type=ProcessIdentity)
print(there.state(), ProcessIdentity.here().table == there.table)
"""


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="only root makes namespaces")
@pytest.mark.parametrize(
    ("unshared", "state"),
    [
        pytest.param(["--uts"], "running", marks=pytest.mark.slow),
        (["--pid", "--fork"], "unknown"),
        pytest.param(["--pid", "--fork", "--mount-proc"], "unknown", marks=pytest.mark.slow),
        pytest.param(["--time", "--boottime", "1000"], "unknown", marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_a_process_is_looked_up_only_in_its_own_table(unshared: list[str], state: ProcessState) -> None:
    """With another host name it can be; with other pids, an other /proc or another clock it cannot."""
    words = ["unshare", *unshared, sys.executable, "-c", LOOK, msgspec.json.encode(HERE).decode()]
    said = subprocess.run(words, capture_output=True, check=True, text=True, timeout=60)
    assert said.stdout.split() == [state, str(state == "running")]
