"""The end of a run with calls of tools that are under way and change the world: it waits for them, and their inputs go on."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from microagents.base.aio import TaskScope
from microagents.base.errors import MicroagentsError
from microagents.journal.messages import RecallDecidedInputs
from microagents.roles.executor import EndEffects
from microagents.runtimes.dispatcher import RoleMessenger


async def inputs_that_go_on(messenger: RoleMessenger, *, has_journal: bool) -> list[int]:
    """Wait for the effects under way; returns the inputs whose work can go on, since such a call or a person has said what was unknown.

    Work goes on from its records, so without a journal there are none.
    """
    ended = await _end_effects(messenger)
    return sorted({*ended, *await messenger.ask(RecallDecidedInputs())}) if has_journal else []


async def leave_effects(messenger: RoleMessenger) -> None:
    """Wait for the effects under way at the end of a run, whatever has ended it."""
    with suppress(
        MicroagentsError
    ):  # the executor is lost, or the journal cannot be written: the run has ended for that already
        await _end_effects(messenger)


async def _end_effects(messenger: RoleMessenger) -> list[int]:
    scope = TaskScope()
    try:
        executors = range(messenger.replicas(EndEffects))
        ended = await asyncio.gather(*[scope.start(messenger.ask_replica(each, EndEffects())) for each in executors])
    finally:
        await scope.close()
    return [each for inputs in ended for each in inputs]
