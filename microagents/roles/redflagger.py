"""The red-flagger: discards unreliable replies, and reads ballots from the others."""

from __future__ import annotations

import msgspec

from microagents.actors import Role, eager
from microagents.chat import CheckedReply, Reply
from microagents.elections.election import Ballot, Flagged, Screen
from microagents.elections.red_flags import MALFORMED, NO_SUCH_CHOICE, flag_unread
from microagents.messages import resolve
from microagents.parsing import Malformed, parse
from microagents.task import Task, flag_of


class RedFlagger(Role):
    """Flags a sample, or reads a ballot from it. It screens replies, it does not solve the task."""

    @eager
    async def screen(self, request: Screen) -> Ballot | Flagged:
        """Screen a sample. The order of flags is: cut off, too long, empty, malformed, no such choice, its own flaw, the task's."""
        seq, cost_usd = request.id.seq, request.sample.usage.cost_usd
        task = self.context.tasks[request.id.election.input]
        screened = _reply_or_flag(request, task)
        if isinstance(screened, Reply):
            return Ballot(seq=seq, value=msgspec.json.encode(screened), cost_usd=cost_usd, shares=request.sample.shares)
        return Flagged(seq=seq, flag=screened, cost_usd=cost_usd)


def _reply_or_flag(request: Screen, task: Task) -> Reply | str:
    """The reply in a sample, or the name of its red flag."""
    flag = flag_unread(request.sample, request.flag_above_tokens)
    if flag is not None:
        return flag
    try:
        form = "json" if request.sample.shares else task.format
        reply = parse(request.sample.text, resolve(request.reply, Reply), form, request.reading)
    except Malformed:
        return MALFORMED
    if request.choices and reply.vote() not in request.choices:
        return NO_SUCH_CHOICE
    if isinstance(reply, CheckedReply) and (flaw := reply.flaw()) is not None:
        return flaw
    return flag_of(task, reply, request.state, at=request.id.election.path) or reply
