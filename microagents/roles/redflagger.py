"""The red-flagger: discards unreliable replies, and reads ballots out of the others."""

from __future__ import annotations

import msgspec

from microagents.actors import Role
from microagents.chat import Malformed, Reply, parse
from microagents.elections.election import Ballot, Flagged, Screen
from microagents.elections.red_flags import MALFORMED, NO_SUCH_CHOICE, flag_unread
from microagents.errors import TaskFailed
from microagents.messages import resolve
from microagents.task import Task

MAX_FLAG_CHARS = 60


class RedFlagger(Role):
    """Flags a sample by name, or reads a ballot out of it. It screens, it does not solve."""

    async def screen(self, request: Screen) -> Ballot | Flagged:
        """Flags in this order: cut off, too long, empty, malformed, no such choice, the task's own."""
        flag = flag_unread(request.sample, request.flag_above_tokens)
        if flag is not None:
            return Flagged(seq=request.id.seq, flag=flag)
        task = self.context.tasks[request.id.election.input]
        try:
            reply = parse(request.sample.text, resolve(request.reply, Reply), task.format)
        except Malformed:
            return Flagged(seq=request.id.seq, flag=MALFORMED)
        if request.choices and reply.vote() not in request.choices:
            return Flagged(seq=request.id.seq, flag=NO_SUCH_CHOICE)
        flag = task.flag(reply)
        if flag is not None:
            return Flagged(seq=request.id.seq, flag=_named(task, flag))
        return Ballot(seq=request.id.seq, value=msgspec.json.encode(reply))


def _named(task: Task, flag: object) -> str:
    if not isinstance(flag, str) or not flag.isprintable() or not 0 < len(flag) <= MAX_FLAG_CHARS:
        raise TaskFailed(f"{type(task).__name__}.flag()", f"must give None or a short name, not {flag!r:.100}")
    return flag
