"""The command in processes that are forked from one that has imported the package: they start in a hundredth of a second, not in one."""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import json
import os
import socket
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).with_name("microagents"))
REQUEST_BYTES, MOST_FILES, HIGH = 2**20, 8, 500
HASTILY = "from microagents.journal import commits; commits.COMMIT_EVERY_S = 0; "
PACED = "from microagents.models.simulation.simulated import Purchases; Purchases.line_bytes = 4095; "
SET_CHILD_SUBREAPER = 36
"""Of prctl: an orphan below this process becomes its child."""
USUAL = ("cli.commands.run", "cli.views.display", "runtimes.local", "tasks.drift", "tasks.hanoi")


@cache
def server() -> socket.socket:
    """The process to fork, for as long as this one lives."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        words = [sys.executable, "-c", f"import {__name__} as forking; forking.main()", str(theirs.fileno())]
        process = subprocess.Popen(words, pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[1])

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


class Forked(subprocess.Popen[str]):
    """A child of this process that runs ``microagents WORDS``; ``hastily``, it makes no pause between commits.

    ``paced``, each line about a call fills a page of a pipe.
    """

    def __init__(self, *words: str, hastily: bool = False, paced: bool = False, **given: Any) -> None:
        self._before = hastily * HASTILY + paced * PACED
        super().__init__(words, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **given})

    def _execute_child(self, words: tuple[str, ...], *given: Any) -> None:
        if sys.platform != "linux":  # elsewhere no process can take in an orphan
            plain = [sys.executable, "-c", f"{self._before}from microagents.cli import main; main()", *words]
            super()._execute_child(plain, *given)  # type: ignore[misc]
            return
        passed, cwd, env, pipes = given[3], given[4], given[5], given[9:15]
        umask = os.umask(0)
        os.umask(umask)
        asked: dict[str, Any] = {"words": words, "cwd": str(cwd or Path.cwd()), "umask": umask}
        asked |= {"before": self._before, "numbers": [0, 1, 2, *passed]}
        asked |= {"env": {**(os.environ if env is None else env)}}
        standard = [n if pipe == -1 else pipe for n, pipe in enumerate((pipes[0], pipes[3], pipes[5]))]
        prctl = ctypes.CDLL(None).prctl
        control = server()
        prctl(SET_CHILD_SUBREAPER, 1)
        try:
            socket.send_fds(control, [json.dumps(asked).encode()], [*standard, *passed])
            self.pid = int(control.recv(REQUEST_BYTES))
        finally:
            prctl(SET_CHILD_SUBREAPER, 0)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined] # of its base, which types do not show


def serve(control: socket.socket) -> None:
    """Fork for each request; return in the process that runs the command."""
    while True:
        text, files, _, _ = socket.recv_fds(control, REQUEST_BYTES, MOST_FILES)
        if not text:
            os._exit(0)
        reading, writing = os.pipe()
        between = os.fork()
        if not between:
            pid = os.fork()
            if pid:
                os.write(writing, str(pid).encode())
                os._exit(0)  # now the command's process is an orphan, and a child of the one that asked
            for number in (control.detach(), reading, writing):
                os.close(number)
            become(json.loads(text), files)
            return
        os.waitpid(between, 0)
        control.send(os.read(reading, REQUEST_BYTES))
        for number in (*files, reading, writing):
            os.close(number)


def become(asked: dict[str, Any], files: list[int]) -> None:
    """Take on the files, folder, environment and words of a request."""
    high = [fcntl.fcntl(number, fcntl.F_DUPFD, HIGH) for number in files]
    for number in files:
        os.close(number)
    for number, wanted in zip(high, asked["numbers"], strict=True):
        os.dup2(number, wanted)
        os.close(number)
    os.chdir(asked["cwd"])
    os.umask(asked["umask"])
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.argv = [COMMAND, *asked["words"]]
    sys.path[0] = str(Path(COMMAND).parent)
    exec(asked["before"], {})


def main() -> None:
    """Be the process to fork, and in each child the command."""
    command = import_module("microagents.cli").main
    for usual in USUAL:
        import_module(f"microagents.{usual}")
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    command()
