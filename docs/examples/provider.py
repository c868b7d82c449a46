"""Models of your own: a program on this machine as a class, and an async function."""

import asyncio
import re
import shlex
from asyncio.subprocess import PIPE

from microagents import Call, Model, ModelUnavailable, Sample, Usage


class Program(Model):
    """microagents run ledger.py:Ledger -o bookings=@bookings.csv --model 'provider.py:Program@command=python bookkeeper.py'"""

    priced = True

    def __init__(self, command: str) -> None:  # the options of the spec
        self._command = command

    async def complete(self, call: Call) -> Sample:
        """One attempt. A failure is raised as ModelUnavailable; the solver then tries again."""
        process = await asyncio.create_subprocess_exec(*shlex.split(self._command), stdin=PIPE, stdout=PIPE)
        try:
            written, _ = await process.communicate(f"{call.prompt.system}\n\n{call.prompt.user}\n".encode())
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode:
            raise ModelUnavailable("server", f"{self._command!r} ended with exit code {process.returncode}")
        return Sample(text=written.decode(errors="replace"), usage=Usage(cost_usd=0.0), model=self._command)


async def calculator(call: Call) -> str:
    """microagents run ledger.py:Ledger -o bookings=@bookings.csv --model provider.py:calculator"""
    balance, amount = re.findall(r": (-?\d+)\.(\d\d)$", call.prompt.user, re.MULTILINE)
    cents = sum(int("".join(each)) for each in (balance, amount))
    return f'account = "other"\nbalance = {cents / 100:.2f}'
