"""Shards in processes of this machine."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from microagents.base.errors import PeerLost
from microagents.base.user_code import import_folders
from microagents.shards.one_shard import ShardEnding


class ShardPool(Protocol):
    """Does shards, each in a process of its own."""

    async def do(self, whole: Path, shard: int) -> ShardEnding:
        """Do a shard to its end.

        Raises:
            PeerLost: its process died.
        """

    def interrupt(self) -> None:
        """Let all shards end after their calls in flight."""


class ShardProcesses:
    """Does each shard in a process of this machine, which ends by itself if this one dies."""

    def __init__(self) -> None:
        self._processes: dict[int, Process] = {}
        self._is_ended = False

    async def do(self, whole: Path, shard: int) -> ShardEnding:
        """Do a shard to its end.

        Raises:
            PeerLost: its process died.
        """
        # -P: no file of the working folder stands in for a package. Ctrl-C of the terminal is for this process alone.
        words = (sys.executable, "-P", "-m", "microagents.shards.one_shard", str(whole), str(shard), *import_folders())
        process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, start_new_session=True)
        self._processes[shard] = process
        assert process.stdin is not None
        assert process.stdout is not None
        if self._is_ended:  # while it was begun
            process.stdin.close()
        try:
            said = await process.stdout.read()
            code = await process.wait()
        finally:
            del self._processes[shard]
            with suppress(ProcessLookupError):
                process.kill()
        try:
            return msgspec.json.decode(said, type=ShardEnding)
        except msgspec.MsgspecError:
            raise PeerLost(f"shard {shard}", f"its process ended with code {code}") from None

    def interrupt(self) -> None:
        """Let all shards end after their calls in flight."""
        self._is_ended = True
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()
