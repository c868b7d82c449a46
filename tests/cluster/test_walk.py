"""The walk of cluster/README.md that needs no cloud, by its own commands: two nodes, a job that is stopped on its way, and goes on.

Ports, folders and the model are put in, nothing else of the commands is changed. The model is a server of ours, which tells when it is
asked.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.models.server import Connection, Server, reply, serving

ROOT = Path(__file__).parent.parent.parent
PYTHON = Path(sys.executable)
MARK = "TEST_WALK_OF_MICROAGENTS"
"""An environment variable that tells the processes of a walk from everybody else's."""
WAIT_S = 90
"""Bound of every wait for a process; none takes half of it."""
STEPS = 6
"""Lines in bookings.csv."""
KEPT_BACK = 4
"""The line whose replies the model keeps back until it is told: it is undecided when the job is stopped."""


class Clerk:
    """A model that adds up rightly."""

    def __init__(self) -> None:
        self.server: Server
        self.asked: Counter[str] = Counter()
        """How often each balance was asked to be carried on."""
        self.keeps_back = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def __call__(self, connection: Connection) -> None:
        question = self.server.received[-1].json["messages"][-1]["content"]
        balance, amount = re.findall(r": (-?\d+\.\d\d)$", question, re.MULTILINE)
        self.asked[balance] += 1
        if list(self.asked).index(balance) >= KEPT_BACK - 1:
            self.keeps_back.set()
            await self.may_go_on.wait()
        text = f'account = "other"\nbalance = "{Decimal(balance) + Decimal(amount)}"\nremark = ""'
        message = {"role": "assistant", "content": text, "refusal": None}
        usage = {"prompt_tokens": 50, "completion_tokens": 10}
        await reply({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})(
            connection
        )


class Command:
    """A command that was given, and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""
        self._spoke = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said += line.decode()
            self._spoke.set()
        await self.process.wait()
        self._spoke.set()

    async def until_said(self, words: str) -> None:
        """Wait for words; it must not end without them."""
        async with asyncio.timeout(WAIT_S):
            while words not in self.said:
                assert self.process.returncode is None, self.said
                self._spoke.clear()
                await self._spoke.wait()

    async def ended(self) -> str:
        """All that it says until its end."""
        async with asyncio.timeout(WAIT_S):
            await self._listening
        return self.said


class Shell:
    """Gives commands as a person does, in an environment of its own."""

    def __init__(self, environment: Mapping[str, str], replaced: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._replaced = replaced
        self.sessions: set[int] = set()
        """Of the commands that were given; what a node of Ray starts stays in its session."""

    def export(self, line: str) -> None:
        """Carry out a line of the form ``export NAME=VALUE``."""
        command, *assignments = shlex.split(line)
        assert command == "export"
        for assignment in assignments:
            variable, _, value = assignment.partition("=")
            self._environment[variable] = value

    @asynccontextmanager
    async def start(self, line: str, *more: str) -> AsyncIterator[Command]:
        """A command that may go on as long as the block."""
        for given, own in self._replaced.items():
            line = line.replace(given, own)
        name, *words = shlex.split(line)
        program = {
            "ray": [str(PYTHON), "-m", "ray.scripts.scripts"],
            "microagents": [str(PYTHON.with_name("microagents"))],
        }[name]
        process = await asyncio.create_subprocess_exec(
            *program,
            *words,
            *more,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
        )
        self.sessions.add(process.pid)
        command = Command(process)
        try:
            yield command
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await command.ended()

    async def run(self, line: str, *more: str) -> str:
        """What a command says; it must end well."""
        async with self.start(line, *more) as command:
            said = await command.ended()
            assert command.process.returncode == 0, said
            return said

    @asynccontextmanager
    async def node(self, line: str, *more: str) -> AsyncIterator[None]:
        """A node of Ray, which leaves with the block."""
        async with self.start(line, *more, "--block") as command:
            await command.until_said("Ray runtime started")
            yield


def end_what_is_left(shell: Shell, mark: str) -> None:
    """End what commands left behind, and nothing else: a driver has a session of its own, Ray's processes overwrite their environment."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            process = int(path.parent.name)
            if os.getsid(process) in shell.sessions or f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                os.kill(process, signal.SIGKILL)


def free_ports(number: int) -> list[int]:
    """Ports of this machine that nobody listens at, below those that the kernel and another Ray give away before they are taken here."""
    ports: list[int] = []
    while len(ports) < number:
        port = random.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports += [port] * (port not in ports)
    return ports


def small() -> list[str]:
    """What lets a node of Ray live beside others on a machine."""
    agent, client, metrics, runtime_env = free_ports(4)
    ports = [
        f"--dashboard-agent-listen-port={agent}",
        f"--metrics-export-port={metrics}",
        f"--runtime-env-agent-port={runtime_env}",
    ]
    workers = ["--min-worker-port=0", "--max-worker-port=0", f"--ray-client-server-port={client}"]
    return [*ports, *workers, "--num-cpus=1", "--object-store-memory=100000000"]


def walk() -> list[str]:
    """The commands of the README's section, in order."""
    (section,) = re.findall(
        r"^## Without a cloud$(.*?)^## ",
        (ROOT / "cluster" / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    return [line.strip() for line in section.splitlines() if line.startswith("    ")]


def refusal(url: str) -> int:
    """The status with which a stranger is turned away."""
    with pytest.raises(urllib.error.HTTPError) as refused, urllib.request.urlopen(url, timeout=WAIT_S):
        pass
    with refused.value:
        return refused.value.code


@pytest.mark.slow
@pytest.mark.timeout(6 * WAIT_S)
async def test_a_job_that_is_stopped_goes_on_when_it_is_submitted_again(tmp_path: Path) -> None:
    use_tokens, make_token, time_to_save, head, node, submit, stop, submit_again, show = walk()
    clerk, mark = Clerk(), uuid4().hex
    gcs, dashboard = free_ports(2)
    async with AsyncExitStack() as stack:
        # Short: a socket's path in it has a hundred characters at most.
        ray_folder = tempfile.mkdtemp(prefix="walk-", dir="/tmp")
        stack.callback(shutil.rmtree, ray_folder, ignore_errors=True)
        clerk.server = await stack.enter_async_context(serving(clerk))
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RAY_", "MICROAGENTS_", "OPENAI_"))
        }
        own = {
            MARK: mark,
            "HOME": str(tmp_path),
            "PATH": f"{PYTHON.parent}:{os.environ['PATH']}",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        shell = Shell(
            {**plain, **own},
            {
                "6379": str(gcs),
                "8265": str(dashboard),
                "docs/examples": str(ROOT / "docs" / "examples"),
                "/var/lib/microagents/runs": str(tmp_path / "runs"),
                "sim:gpt-4.1-mini": f"openai:clerk@base_url={clerk.server.url}/v1",
            },
        )

        stack.callback(end_what_is_left, shell, mark)

        async def shown() -> dict[str, Any]:
            account: dict[str, Any] = json.loads(await shell.run(show, "--json"))
            return account

        shell.export(use_tokens)
        await shell.run(make_token)
        shell.export(time_to_save)
        await stack.enter_async_context(
            shell.node(head, f"--dashboard-port={dashboard}", f"--temp-dir={ray_folder}", *small())
        )
        await stack.enter_async_context(shell.node(node, *small()))
        assert await asyncio.to_thread(refusal, f"http://127.0.0.1:{dashboard}/api/jobs/") == 401

        async with shell.start(submit) as submitted:
            reached, ended = asyncio.create_task(clerk.keeps_back.wait()), asyncio.create_task(submitted.ended())
            await asyncio.wait([reached, ended], return_when=asyncio.FIRST_COMPLETED)
            assert reached.done(), submitted.said
            await shell.run(stop)
            assert "was stopped" in await ended
        stopped = await shown()
        assert stopped["outcome"] == "interrupted"
        assert 0 < stopped["decided"] < STEPS
        before, clerk.asked = clerk.asked, Counter()

        clerk.may_go_on.set()
        assert "succeeded" in await shell.run(submit_again)
        finished = await shown()
        assert (finished["outcome"], finished["decided"], finished["errors"]) == ("completed", STEPS, 0)
        assert finished["result"] == {"line": STEPS, "balance": "632.36"}
        decided = list(before)[: stopped["decided"]]
        assert not set(decided) & set(clerk.asked), "what was decided is not asked again"
        assert len(decided) + len(clerk.asked) == STEPS
