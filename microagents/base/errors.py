"""The errors of this package: one root, and leaves named for the state they report.

Data is kept in positional ``args``, so that every error can be sent between processes. ``str()`` is one sentence: the event, the state
that was kept, and the next step for the user.
"""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Self

OWN_FAILURES = (Exception, CancelledError, SystemExit, GeneratorExit)
"""Errors by which a user's code fails: `sys.exit` in it ends no program, and a cancellation may be of a future that it awaits."""


def in_own_words(said: str) -> str:
    """Say a fault that pydantic finds: "must be greater than 0" for its "Input should be greater than 0"."""
    kind, comma, own = said.partition(", ")
    if comma and kind in ("Value error", "Assertion failed"):
        return own
    if said == "Field required":
        return "is missing"
    _, should, wanted = said.partition(" should ")
    return f"must {wanted}" if should else said


def refusal(name: str, said: str, given: object) -> str:
    """State the demand on a value, from a message of pydantic such as "Input should be greater than 0"."""
    said = in_own_words(said)
    wanted = said.removeprefix("must ")
    if wanted == said:
        return f"{name}={given!r:.100}: {said[:1].lower()}{said[1:]}"
    return f"{name} must {wanted.partition(', not ')[0]}, not {given!r:.100}"


class MicroagentsError(Exception):
    """Root of all errors that this package raises on purpose."""

    sentence: ClassVar[str] = "{0}"
    """The message, with the args in braces."""

    traceback: str = ""
    """Traceback of a user's code, as Python prints it; empty for other errors. It survives the way between processes."""

    def __str__(self) -> str:
        return self.sentence.format(*self.args) if self.args else type(self).__name__


class InvalidUsage(MicroagentsError):
    """Request is wrong: an unknown name, an option out of range, a file that cannot be read. Nothing was started."""


class AlreadyDecided(InvalidUsage):
    """Another person has decided it otherwise."""


class Interrupted(MicroagentsError):
    """The caller ended a run before it began. Nothing was started."""


class InvalidDefinition(MicroagentsError, TypeError):
    """A class of the user (task, role, message or reply) is not well formed. Raised when the class is created."""


class NoHandler(MicroagentsError):
    """A role sends a message that no deployed role handles, or that its ``asks`` do not list."""


class RoleFailed(MicroagentsError):
    """A handler raised an error of another library or of user code; args: role, message, cause as text, traceback."""

    sentence = "role {0} failed on {1}: {2}"

    def __init__(self, role: str, message: str, cause: str, traceback: str = "") -> None:
        super().__init__(role, message, cause, traceback)
        self.traceback = traceback


class Aborted(RoleFailed):
    """Code of the user raised a `BaseException` that is no `Exception`, as test frameworks do. It ends the run, also one of many inputs."""


MAX_INPUTS = 10
"""Inputs that an error names."""


class PeerLost(MicroagentsError):
    """A replica of a role is lost for good: its process died too often, or cannot be placed; args: replica, cause."""

    sentence = "{0} is lost: {1}"

    def at_work_on(self, inputs: Sequence[int]) -> PeerLost:
        """Return the same error with the inputs that the replica was at work on: code of one of them may have ended its process."""
        replica, cause = self.args
        named = ", ".join(map(str, inputs[:MAX_INPUTS])) + (
            "" if len(inputs) <= MAX_INPUTS else f" and {len(inputs) - MAX_INPUTS:,} more"
        )
        return PeerLost(replica, f"{cause}; it was at work on input{'s' * (len(inputs) > 1)} {named}")


class TaskFailed(MicroagentsError):
    """A method of the task raised, or returned a wrong value; args: task and method, the failure as a predicate, traceback."""

    sentence = "{0} {1}"

    def __init__(self, method: str, failure: str, traceback: str = "") -> None:
        super().__init__(method, failure, traceback)
        self.traceback = traceback


class DeadlinePassed(MicroagentsError):
    """No reply came within the deadline of the caller; args: message, seconds."""

    sentence = "no reply to {0} within {1:g} s; the call was cancelled"


_OF_CONTENT = re.compile(r"content|context|length|too[ _]long|too[ _]large|safety|polic|moderat|filter", re.IGNORECASE)
_OF_ALL = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|not permitted|deprecated|\bparameter\b"
    r"|model_not_found|invalid_model|\bno (?:such )?model\b|\bmodel\b[^.]{0,80}\bnot (?:exist|found|available)"
    r"|api[ _]key|authenticat|credit balance|billing|insufficient_quota",
    re.IGNORECASE,
)
"""Refusals of a parameter, the model, the key or the account, which all requests share."""
_OF_MODERATION = re.compile(
    r"\b(?:input|prompt|content|request|message|text)s?\b[^.]{0,40}\bflagged|moderation|content[ _]?filter|guardrail",
    re.IGNORECASE,
)
_OF_ONE_REQUEST = (400, 413, 422, 451)
"""HTTP statuses by which a provider refuses one request for its content or its length, unless its words say otherwise."""
_FORBIDDEN = 403
"""HTTP status that is about the account, unless its words say that the content was moderated."""


class ModelUnavailable(MicroagentsError):
    """A provider did not deliver a reply; args: kind, short message, HTTP status, retry-after in seconds, request id, address.

    Calls are retried after ``busy`` (429), ``server`` (5xx), ``network``, ``timeout`` and ``garbled`` (a body that cannot be read). They
    are not retried after ``refused`` (key, model name or request not accepted).
    """

    def __init__(  # noqa: PLR0917 - an error is sent between processes by its arguments
        self,
        kind: str,
        message: str,
        status: int | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
        address: str | None = None,
    ) -> None:
        super().__init__(kind, message, status, retry_after_s, request_id, address)
        self.kind = kind
        """Kind of failure: busy, server, network, timeout, garbled or refused."""
        self.status = status
        """HTTP status; None if no response arrived."""
        self.retry_after_s = retry_after_s
        """Seconds that the provider asks to wait; None if it asks for none."""

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind != "refused"

    @property
    def is_unread(self) -> bool:
        """Whether a reply came, and cannot be read."""
        return self.kind == "garbled"

    @property
    def is_of_content(self) -> bool:
        """Whether the request is refused for its content or its length, so that others may be accepted."""
        said = str(self.args[1])
        if self.kind != "refused" or _OF_ALL.search(said):
            return False
        return self.status in _OF_ONE_REQUEST or (self.status == _FORBIDDEN and _OF_MODERATION.search(said) is not None)

    @property
    def words(self) -> str:
        """The provider's own words, with the HTTP status, the address that was asked, and the name of the request."""
        _, message, status, _, request_id, address = self.args
        notes = [f"HTTP {status}"] * (status is not None) + [address] * (address is not None)
        notes += [f"request {request_id}"] * (request_id is not None)
        return str(message) + (f" ({', '.join(notes)})" if notes else "")

    def __str__(self) -> str:
        return f"the model's provider answered {self.kind!r}: {self.words}"


class Stopped(MicroagentsError):
    """A limit, an outage or a full disk stopped the run before its work was done. All decisions are kept."""


class Unwritable(Stopped):
    """A record was not written, since no reader would take the journal with it; args: the record, why."""

    sentence = (
        "{0} would make the journal unreadable ({1}), so it was not written; everything before it is kept; this is a defect: report it, "
        "and resume the run"
    )


class JournalGone(Stopped):
    """The journal of a live run was taken away; args: its path, the event, a sentence on the saved part, the copy if it is whole."""

    def __init__(self, path: str, event: str, kept: str = "", copy: str | None = None) -> None:
        super().__init__(path, event, kept, copy)

    def saved(self, kept: str, copy: Path | None = None) -> JournalGone:
        """Return the same error after the attempt to save the journal."""
        path, event, *_ = self.args
        return JournalGone(path, event, kept, None if copy is None else str(copy))

    @property
    def is_final(self) -> bool:
        """Whether it names the saved part."""
        return bool(self.args[2])

    @property
    def copy(self) -> Path | None:
        """The copy from which the run can be resumed; None without one."""
        if self.args[3] is None:
            return None
        return Path(self.args[3])

    def __str__(self) -> str:
        path, event, kept, _ = self.args
        return f"the journal {path!r} was taken away: {event}; the run was stopped at once{kept and '; '}{kept}"


class NotSent(Stopped):
    """A call was not sent, because the run is ending; args: the path of its election."""

    sentence = "a draw for {0} was not sent, because the run is ending; all decisions so far are kept; resume the run to continue"


class Parked(MicroagentsError):
    """The work on an input waits for a batch; args: its name. It is done again once the batch has ended, and takes its results."""

    sentence = "waits for batch {0}"


class NotMade(MicroagentsError):
    """A tool did nothing: it refused the call before it changed the world. For functions that agents call to raise."""


class JournalMismatch(InvalidUsage):
    """Journal belongs to another experiment; args: field, recorded value, value given now, perhaps the remedy."""

    sentence = "this run was started with {0}={1}, now it is {2}; nothing was changed; {3}"
    remedy: ClassVar[str] = (
        "use the recorded value again, begin another run, or pass --accept-change {0} to accept the change"
    )
    """The usual one."""

    def with_remedy(self, remedy: str) -> Self:
        """Return the same error for work that cannot accept the change, with a remedy."""
        return type(self)(*self.args[:3], remedy)

    def __str__(self) -> str:
        field, recorded, given, *remedy = self.args
        return self.sentence.format(field, recorded, given, "".join(remedy) or self.remedy.format(field))


class InputMismatch(JournalMismatch):
    """Journal was started with another input; args: number of the input, recorded options, options given now, perhaps the remedy."""

    sentence = "input {0} of this run was started as {1}, now it is {2}; nothing was changed; {3}"
    remedy = "use the recorded inputs again, begin another run, or pass --accept-change inputs to accept the change"

    @property
    def input(self) -> int:
        """Number of the input, from 0."""
        return int(self.args[0])


class TakenOver(MicroagentsError):
    """Another process has taken over this journal; args: run id, the other process."""

    sentence = (
        "run {0} was taken over by {1}, because this process did not renew its lease in time; every commit is kept; watch the run with "
        "`microagents show {0}`"
    )


class Undecided(MicroagentsError):
    """An election reached its cap without a winner; args: path, draws, tally as text."""

    sentence = (
        "the election at {0} is undecided after {1} draws ({2}); all decisions so far are kept; decide it yourself "
        "(`microagents decide RUN {0} FIELD=VALUE`) and resume, or resume with --on-undecided and `leader` or the spec of a stronger model"
    )

    @property
    def path(self) -> str:
        """Path of the election, such as ``0/step/17``."""
        return str(self.args[0])

    def in_run(self, run_id: str) -> str:
        """Return the message, with the name of the run in its command."""
        return str(self).replace("`microagents decide RUN ", f"`microagents decide {run_id} ")

    def __str__(self) -> str:
        return super().__str__().replace(" after 1 draws ", " after 1 draw ")


def agreement(votes: Iterable[int]) -> str:
    """Say how often the models of a pool gave their replies, each one reply only; takes the votes of each reply."""
    return " and ".join(f"{each} of {each}" for each in votes)


class Contested(Undecided):
    """The models of a pool contradict each other; args: path, number of draws, tally, votes of each reply in words."""

    sentence = (
        "the election at {0} is contested after {1} draws: each model of the pool gave one reply only, in {3} votes, and the replies "
        "differ ({2}); all decisions so far are kept; decide it yourself (`microagents decide RUN {0} FIELD=VALUE`) and resume, or resume "
        "with --on-undecided and the spec of a third model"
    )


_REFUSED = (
    "{2}: the provider refused {0} at every draw ({1} so far), before any valid reply; all decisions so far are kept; change the input, or "
    "decide it yourself (`microagents decide RUN {0} FIELD=VALUE`) and resume"
)


class Refused(Undecided):
    """Providers refuse a question for its content; args: path, number of draws, the words of the last refusal."""

    sentence = f"{_REFUSED}, or resume with --on-undecided and the spec of another model"

    @property
    def may_concern_all(self) -> bool:
        """Whether the words do not say that the content is the reason, so that the same server may refuse each request."""
        said, status, _ = str(self.args[2]).rpartition(" (HTTP ")
        return bool(status) and _OF_CONTENT.search(said) is None

    @property
    def of_all(self) -> ModelUnavailable:
        """The failure that it is if the server has accepted no request."""
        return ModelUnavailable("refused", str(self.args[2]))


class RefusedUnderPromise(Refused):
    """A refusal where a promise lets no other model answer."""

    sentence = _REFUSED


class EndedEarly(Undecided):
    """Replies with many steps each ended before the work was done; args: path of the last one, number of replies, what is missing."""

    sentence = (
        "the work is not done at the end of reply {1}, at {0}: {2}; all replies so far are kept; take a strategy that asks for one step "
        "at a time, such as maker, or a model that gives longer replies"
    )


class NeedsPerson(Undecided):
    """A person has to say how the work continues; args: path, why, the possible answers."""

    def __str__(self) -> str:
        path, why, first, *others = self.args
        step, instead = path.partition("/call/")[0], "".join(f", or `{each}` instead" for each in others)
        return f"{path}: {why}; everything so far is kept; say `microagents decide RUN {step} {first}`{instead}, and resume"


def read_failure(error: Exception) -> str:
    """Say why a file could not be read. Without the file's name, which every message has already."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)


@contextmanager
def refusing(file: str, remedy: str = "") -> Iterator[None]:
    """Refuse a file that cannot be read, written or parsed in one sentence.

    Args:
        file: its name, and the words for the failure, such as ``'a.toml' cannot be read``.
        remedy: words after the reason.

    Raises:
        InvalidUsage: it cannot.
    """
    try:
        yield
    except (OSError, ValueError, RecursionError) as error:  # RecursionError: of 100,000 brackets
        raise InvalidUsage(f"{file}: {read_failure(error)}{remedy}") from None
