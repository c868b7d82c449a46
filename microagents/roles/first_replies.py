"""The first replies of a run: if nearly all of them are flagged, more calls are wasted money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from microagents.elections.election import Flagged, Rejected, SampleId
from microagents.elections.red_flags import CUT_OFF, EMPTY, MALFORMED, ONLY_REASONING, REFUSED, TOO_LONG, is_shipped
from microagents.journal.messages import RecordReply, RecordSample
from microagents.replies.parsing import Malformed, parse
from microagents.replies.reply_forms import Reading
from microagents.task import Task

ALL_OF = 10
"""If this many first replies are all flagged, the run stops."""
SHARE_OF = 50
"""If more than `MAX_SHARE` of this many first replies are flagged, the run stops."""
MAX_SHARE = 0.9
MAX_SHOWN_CHARS = 200

_REMEDIES = {
    TOO_LONG: "resume with a higher --flag-above-tokens (0 turns the flag off) and --accept-change flag_above_tokens",
    CUT_OFF: "resume with a higher --max-output-tokens and --accept-change max_output_tokens",
    EMPTY: "take another model, or begin another run with a higher --max-output-tokens: reasoning may use it up",
    ONLY_REASONING: "the server takes the whole reply for reasoning: start it without its reasoning parser (vLLM, SGLang: "
    "--reasoning-parser), or switch thinking off (effort=none in the model's spec), and resume",
    MALFORMED: "look at the prompt and at whole replies with `try --one`, and make the reply's format simpler or take another model",
}
_READ_AS_LAST = (
    "the last one can be read with --reading last: resume with it and --accept-change reading, or look at whole replies with "
    "`try --one` and make the format simpler"
)
_OTHER_REMEDY = "look at the prompt and at whole replies with `try --one`, and change the prompt or take another model"


class FirstReplies:
    """Counts the flags of a run's first replies.

    Args:
        tasks: a task for each input. One of many may fail, and must not stop the others.
        reading: the reading of their replies.
    """

    def __init__(self, tasks: Sequence[Task], reading: Reading) -> None:
        self._tasks, self._reading = tasks, reading
        self._flagged_inputs: set[int] = set()
        """Inputs with flagged replies."""
        self._replies = 0
        self._flags: Counter[str] = Counter()
        self._flagged: SampleId | None = None
        """The last flagged reply, and its text."""
        self._text = ""
        self._why = ""

    def add(self, record: RecordSample | RecordReply) -> None:
        """Add the record of a reply, or the text of one."""
        if isinstance(record, RecordReply):
            self._text = record.text if record.id == self._flagged else self._text
        elif isinstance(record.ballot, Flagged) and record.ballot.flag == REFUSED:
            return  # it is no reply, and cost nothing
        elif self._replies < SHARE_OF and not isinstance(
            record.ballot, Rejected
        ):  # a rejected reply may still be mended
            self._replies += 1
            if isinstance(record.ballot, Flagged):
                self._flagged, self._why = record.id, record.ballot.why
                self._flags[record.ballot.flag] += 1
                self._flagged_inputs.add(record.id.election.input)

    def add_valid(self, replies: int) -> None:
        """Add valid replies."""
        self._replies += min(replies, SHARE_OF - self._replies)

    @property
    def is_over(self) -> bool:
        """Whether no more replies need to be counted."""
        return self._replies >= SHARE_OF or self._replies - self._flags.total() >= SHARE_OF * (1 - MAX_SHARE)

    def hopeless(self) -> tuple[str, str] | None:
        """Why the run should stop, and the remedy; None if it should go on."""
        flagged = self._flags.total()
        if len(self._flagged_inputs) < min(2, len(self._tasks)):
            return None
        if not (flagged == self._replies >= ALL_OF or (self._replies == SHARE_OF and flagged > MAX_SHARE * SHARE_OF)):
            return None
        names = ", ".join(f"{flag} {count}" for flag, count in self._flags.most_common())
        share = "all" if flagged == self._replies else f"{flagged} of them"
        text = " ".join(self._text.split())
        # Its end, since that is where the answer stands.
        if len(text) > MAX_SHOWN_CHARS:
            shown = f"ends with {text[-MAX_SHOWN_CHARS:]!r}"
        else:
            shown = f"is {text!r}"
        reason = f" ({self._why})" if self._why else ""
        why = f"of the first {self._replies} replies {share} were flagged ({names}), the last one {shown}{reason}"
        return why, self._remedy(self._flags.most_common(1)[0][0])

    def _remedy(self, flag: str) -> str:
        if flag == MALFORMED and self._is_read_as_last():
            return _READ_AS_LAST
        if flag in _REMEDIES:
            return _REMEDIES[flag]
        if is_shipped(flag):
            return _OTHER_REMEDY
        return f"your flag {flag!r} discards nearly every reply: look at whole replies with `try --one`, and correct flag()"

    def _is_read_as_last(self) -> bool:
        """Whether the other reading would read the last flagged reply."""
        task = self._tasks[0]
        reply = type(task).reply_type()
        if reply is None or self._reading != "strict":
            return False
        try:
            parse(self._text, reply, task.format, reading="last")
        except Malformed:
            return False
        return True
