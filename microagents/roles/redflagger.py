"""The red-flagger: discards unreliable replies, and reads ballots from the others."""

from __future__ import annotations

from contextlib import suppress

from msgspec import structs

from microagents.actors.role import Context, Messenger, Role, eager
from microagents.base.foreign_text import visible
from microagents.base.messages import resolve
from microagents.elections.election import AnyBallot, Ballot, Flagged, SampleFacts, Screen, Wanted, input_of
from microagents.elections.red_flags import MALFORMED, NO_SUCH_CHOICE, flag_unread, refusal_in
from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply import CheckedReply, Reply
from microagents.replies.reply_forms import encode_reply
from microagents.replies.tool_calls import LOOKED_UP, Calls, how_many
from microagents.replies.turns import Turn
from microagents.task import Task, flag_of

MAX_WHY = 120
"""Characters of the reason why a reply is malformed."""
MAX_JUDGED = 64
"""Number of replies whose flag is remembered: the ballots of an election are mostly for the same few replies."""


class RedFlagger(Role):
    """Flags a sample, or reads a ballot from it. It screens replies, it does not solve the task."""

    def __init__(self, context: Context, messenger: Messenger) -> None:
        super().__init__(context, messenger)
        self._judged: dict[tuple[int, bytes, str, bytes, bytes], str | None] = {}
        """The task's own flag of the last replies: by input, hand-offs, class, state and JSON."""

    @eager
    async def screen(self, request: Screen) -> AnyBallot | Wanted:
        """Screen a sample. The order of flags is: cut off, too long, empty, malformed, no such choice, its own flaw, the task's."""
        seq, usage = request.id.seq, request.sample.usage
        sample, cost_usd, path = request.sample, usage.cost_usd, request.id.election.path
        # A fallback's masses are of another law.
        facts = SampleFacts(
            mass=None if sample.fallback else sample.mass, cached=usage.cached, fallback=sample.fallback
        )
        of_input = input_of(path)
        task = self.context.task_of(of_input, request.handed)
        try:
            screened = _screened(request, task)
        except Malformed as error:
            why = visible(str(error)[:MAX_WHY])
            return Flagged(seq=seq, flag=MALFORMED, cost_usd=cost_usd, facts=facts, why=why)
        if isinstance(screened, str):
            facts = structs.replace(facts, said=refusal_in(sample))
            return Flagged(seq=seq, flag=screened, cost_usd=cost_usd, facts=facts)
        if isinstance(screened, Turn):
            return Wanted(seq=seq, turn=screened, cost_usd=cost_usd)
        value = encode_reply(screened)
        # A state is read and a flag is asked for once an answer, not once a ballot: 7 us a step of a tower.
        judged, key = self._judged, (of_input, request.handed, request.reply, request.state, value)
        if key not in judged:
            flag = flag_of(task, screened, request.state, at=path)
            if len(judged) >= MAX_JUDGED:
                del judged[next(iter(judged))]
            judged[key] = flag
        flag = judged[key]
        if flag is not None:
            return Flagged(seq=seq, flag=flag, cost_usd=cost_usd, facts=facts)
        if sample.turn is not None and sample.turn.items and isinstance(screened, Calls):
            turn = structs.replace(sample.turn, calls=tuple(screened.calls))
            facts = structs.replace(facts, turn=turn)
        return Ballot(seq=seq, value=value, cost_usd=cost_usd, shares=sample.shares, facts=facts)


def _screened(request: Screen, task: Task) -> Reply | Turn | str:
    """Return the reply in a sample, its look-ups, or the name of its red flag, the task's own left out.

    Raises:
        Malformed: the text has no reply.
    """
    sample, kind = request.sample, resolve(request.reply, Reply)
    flag = flag_unread(sample, request.flag_above_tokens)
    if flag is not None:
        return flag
    if task.looks_up and not issubclass(kind, Calls):
        wanted = _wanted(request, task)
        if wanted is not None:
            return wanted
    read = _read(request, task, kind)
    if isinstance(read, str):
        return read
    reply = task.as_declared(read)
    if request.choices and reply.vote() not in request.choices:
        return NO_SUCH_CHOICE
    if isinstance(reply, CheckedReply) and (flaw := reply.flaw()) is not None:
        return flaw
    return reply


def _read(request: Screen, task: Task, kind: type[Reply]) -> Reply | str:
    """Read a reply from the turn or the text of a sample, or the name of its red flag.

    Raises:
        Malformed: the text has no reply.
    """
    sample = request.sample
    if sample.turn is not None and issubclass(kind, Calls):
        return kind(calls=list(sample.turn.calls))
    form, text = "json" if sample.shares else task.format, sample.text
    try:
        return parse(text, kind, form, request.reading)
    except Malformed:
        read = task.read_words(text, kind)
        if read is None:
            raise
        return read


def _wanted(request: Screen, task: Task) -> Turn | str | None:
    """Return the look-ups of a reply as a turn, with their arguments as declared; the red flag of its calls; None for a reply without."""
    sample = request.sample
    asked: Turn | Calls | None = sample.turn
    if asked is None and "calls" in sample.text:
        with suppress(Malformed):
            asked = parse(sample.text, Calls, task.format, request.reading)
    if asked is None:
        return None
    calls = [task.toolbox.as_declared(call) for call in asked.calls]
    flags = [how_many(calls), *(task.toolbox.flag_of(call.tool, call.arguments) for call in calls)]
    flag = next((each for each in flags if each is not None), None)
    if flag is not None:
        return flag
    said = sample.turn or Turn(role="assistant")
    return structs.replace(said, calls=tuple(calls), label=LOOKED_UP)
