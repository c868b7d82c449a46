"""The red-flagger: discards unreliable replies, and reads ballots from the others."""

from __future__ import annotations

from microagents.actors.role import Context, Messenger, Role, eager
from microagents.base.foreign_text import visible
from microagents.base.messages import resolve
from microagents.elections.election import Ballot, Flagged, Screen, input_of
from microagents.elections.red_flags import MALFORMED, NO_SUCH_CHOICE, flag_unread, refusal_in
from microagents.replies.chat import CheckedReply, Reply, encode_reply
from microagents.replies.parsing import Malformed, parse
from microagents.task import Task, flag_of

MAX_WHY = 120
"""Characters of the reason why a reply is malformed."""
MAX_JUDGED = 64
"""Number of replies whose flag is remembered: the ballots of an election are mostly for the same few replies."""


class RedFlagger(Role):
    """Flags a sample, or reads a ballot from it. It screens replies, it does not solve the task."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._judged: dict[tuple[int, str, bytes, bytes], str | None] = {}
        """The task's own flag of the last replies: by input, class, state and JSON."""

    @eager
    async def screen(self, request: Screen) -> Ballot | Flagged:
        """Screen a sample. The order of flags is: cut off, too long, empty, malformed, no such choice, its own flaw, the task's."""
        seq, cost_usd = request.id.seq, request.sample.usage.cost_usd
        path, mass = request.id.election.path, None if request.sample.fallback else request.sample.mass
        of_input = input_of(path)
        task = self.context.tasks[of_input]
        try:
            screened = _reply_or_flag(request, task)
        except Malformed as error:
            why = visible(str(error)[:MAX_WHY])
            return Flagged(seq=seq, flag=MALFORMED, cost_usd=cost_usd, mass=mass, why=why)
        if isinstance(screened, str):
            said = refusal_in(request.sample)
            return Flagged(seq=seq, flag=screened, cost_usd=cost_usd, mass=mass, said=said)
        value = encode_reply(screened)
        # A state is read and a flag is asked for once an answer, not once a ballot: 7 us a step of a tower.
        judged, key = self._judged, (of_input, request.reply, request.state, value)
        if key not in judged:
            flag = flag_of(task, screened, request.state, at=path)
            if len(judged) >= MAX_JUDGED:
                del judged[next(iter(judged))]
            judged[key] = flag
        flag = judged[key]
        if flag is not None:
            return Flagged(seq=seq, flag=flag, cost_usd=cost_usd, mass=mass)
        sample = request.sample
        return Ballot(
            seq=seq, value=value, cost_usd=cost_usd, shares=sample.shares, fallback=sample.fallback, mass=mass
        )


def _reply_or_flag(request: Screen, task: Task) -> Reply | str:
    """Return the reply in a sample, or the name of its red flag, the task's own left out.

    Raises:
        Malformed: the text has no reply.
    """
    flag = flag_unread(request.sample, request.flag_above_tokens)
    if flag is not None:
        return flag
    form, kind = "json" if request.sample.shares else task.format, resolve(request.reply, Reply)
    read: Reply | str | None
    try:
        read = parse(request.sample.text, kind, form, request.reading)
    except Malformed:
        read = task.read_words(request.sample.text, kind)
        if read is None:
            raise
    if isinstance(read, str):
        return read
    reply = task.as_declared(read)
    if request.choices and reply.vote() not in request.choices:
        return NO_SUCH_CHOICE
    if isinstance(reply, CheckedReply) and (flaw := reply.flaw()) is not None:
        return flaw
    return reply
