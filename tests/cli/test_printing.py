"""Stdout of every command has its results alone: whatever users' code prints goes to stderr."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.commands import started, write
from tests.forking import Forked

LOUD = """
import atexit
import os
import sys

from microagents.tasks.drift import Drift

def speak(where):
    print("python", where)
    print("first stream", where, file=sys.__stdout__, flush=True)
    os.write(1, b"descriptor\\n")
    os.system("echo process")

speak("at import")
atexit.register(print, "at exit")

class Loud(Drift):
    length: int = 2

    def prompt(self, state):
        speak("in a prompt")
        return super().prompt(state)

    def advance(self, state, reply):
        speak("in a step")
        return super().advance(state, reply)
"""
RUN = ("--model", "sim:perfect")
COMMANDS = {
    "run": ("run", "loud.py", *RUN, "--no-journal", "--json"),
    "try": ("try", "loud.py", *RUN, "--json"),
    "measure": ("measure", "loud.py", *RUN, "--steps", "4", "--json"),
    "compare": ("compare", "loud.py", *RUN, "--repeat", "2", "--json"),
    "plan": ("plan", "loud.py", "--p", "0.99", "--steps", "4", "--json"),
    "try --one": ("try", "loud.py", "--one", *RUN, "--json"),
    "show --graph": ("show", "loud.py", "--graph", "--json"),
    "resume": ("resume", "r", "--json"),
    "show": ("show", "r", "--json", "--trust-journal"),
    "show PATH": ("show", "r", "0/step/0", "--json", "--trust-journal"),
    "export": ("export", "r", "--trust-journal"),
}


@pytest.mark.slow
def test_what_users_code_prints_leaves_stdout_to_the_results_of_each_command() -> None:
    write("loud.py", LOUD)
    ran = started("run", "loud.py", *RUN, "--run-id", "r", "--max-calls", "3", "--json")
    assert (ran.json["outcome"], "at exit" in ran.err) == ("stopped", True)
    for name, words in COMMANDS.items():
        ran = started(*words)
        assert ran.out, (name, ran.err)
        for line in ran.out.splitlines():
            assert isinstance(json.loads(line), dict | list), name


@pytest.mark.slow
def test_a_process_that_a_users_code_leaves_behind_holds_no_pipe_of_the_results() -> None:
    os.mkfifo("held")  # the process ends once somebody has opened it
    write("lasting.py", LOUD.replace("echo process", "cat held &"))
    with (
        Path("errors").open("wb") as errors,
        Forked("run", "lasting.py", *RUN, "--no-journal", "--json", stderr=errors.fileno()) as process,
    ):
        assert process.stdout is not None
        assert json.load(process.stdout)["outcome"] == "completed"
    os.close(os.open("held", os.O_WRONLY))
