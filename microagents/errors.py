"""What can go wrong: one root error, leaves named by the state they report.

Data is kept in positional ``args``, so that every error survives a trip between processes; ``str()`` is one sentence that says what
happened, what was kept and what to do.
"""

from __future__ import annotations


class MicroagentsError(Exception):
    """The root of every error that this package raises on purpose."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__


class InvalidUsage(MicroagentsError):
    """The request itself is wrong: an unknown name, an option out of range, a file that cannot be read. Nothing was started."""


class InvalidDefinition(MicroagentsError, TypeError):
    """A class of the user's (task, role, message, reply) is not well formed; raised when the class is created."""


class NoHandler(MicroagentsError):
    """A role asks for a message that no deployed role handles, or one that it does not list in ``asks``."""


class RoleFailed(MicroagentsError):
    """A handler raised something that is not ours; args: role, message, cause as text."""

    def __init__(self, role: str, message: str, cause: str) -> None:
        super().__init__(role, message, cause)

    def __str__(self) -> str:
        role, message, cause = self.args
        return f"role {role} failed on {message}: {cause}"


class PeerLost(MicroagentsError):
    """A replica of a role cannot be had any more: its process died too often, or cannot be placed; args: replica, cause."""

    def __init__(self, replica: str, cause: str) -> None:
        super().__init__(replica, cause)

    def __str__(self) -> str:
        replica, cause = self.args
        return f"{replica} cannot be had: {cause}"


class TaskFailed(MicroagentsError):
    """A method of the task raised, or gave something else than it should; args: task and method, what happened."""

    def __init__(self, method: str, what: str) -> None:
        super().__init__(method, what)

    def __str__(self) -> str:
        method, what = self.args
        return f"{method} {what}"


class DeadlinePassed(MicroagentsError):
    """No reply within the time that the asker gave; args: message, seconds."""

    def __init__(self, message: str, timeout_s: float) -> None:
        super().__init__(message, timeout_s)

    def __str__(self) -> str:
        message, timeout_s = self.args
        return f"no reply to {message} within {timeout_s:g} s; the call was cancelled"


class ModelUnavailable(MicroagentsError):
    """A provider did not deliver a reply; args: kind, short message, HTTP status, retry-after in seconds, request id.

    ``kind`` says what to do: ``busy`` (429), ``server`` (5xx), ``network``, ``timeout`` and ``garbled`` (a body that cannot be read) are
    asked again; ``refused`` (key, model name or request not accepted) is not.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        status: int | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(kind, message, status, retry_after_s, request_id)

    @property
    def kind(self) -> str:
        """Why: busy, server, network, timeout, garbled or refused."""
        return str(self.args[0])

    @property
    def status(self) -> int | None:
        """The HTTP status; None where there was none."""
        status: int | None = self.args[2]
        return status

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind != "refused"

    @property
    def retry_after_s(self) -> float | None:
        """How long the provider asks us to wait, in seconds; None when it does not say."""
        wait: float | None = self.args[3]
        return wait

    def __str__(self) -> str:
        kind, message, status, _, request_id = self.args
        notes = [f"HTTP {status}"] * (status is not None) + [f"request {request_id}"] * (request_id is not None)
        return f"the model's provider answered {kind!r}: {message}" + (f" ({', '.join(notes)})" if notes else "")


class Stopped(MicroagentsError):
    """A limit, an outage or a full disk ended the run before its end; what was decided is kept."""


class NotSent(Stopped):
    """A call was not sent, since the run is coming to its end; args: the path of its election."""

    def __str__(self) -> str:
        (path,) = self.args
        return f"a draw for {path} was not sent: the run is coming to its end; what was decided until then holds; resume to go on"


class JournalMismatch(InvalidUsage):
    """The journal belongs to another experiment; args: field, what was recorded, what is given now."""

    def __init__(self, field: str, recorded: str, given: str) -> None:
        super().__init__(field, recorded, given)

    def __str__(self) -> str:
        field, recorded, given = self.args
        return (
            f"this run was started with {field}={recorded}, now it is {given}; nothing was changed; go on with what it was started with, "
            f"begin another run, or, if the change is meant, pass --accept-change {field}"
        )


class InputMismatch(JournalMismatch):
    """The journal was begun with another input; args: its number, what was recorded, what is given now."""

    def __init__(self, number: int, recorded: str, given: str) -> None:
        MicroagentsError.__init__(self, number, recorded, given)

    @property
    def input(self) -> int:
        """Which input, counted from 0."""
        return int(self.args[0])

    def __str__(self) -> str:
        number, recorded, given = self.args
        return (
            f"input {number} of this run was started as {recorded}, now it is {given}; nothing was changed; go on with the inputs that it "
            "was started with, begin another run, or, if the change is meant, pass --accept-change inputs"
        )


class TakenOver(MicroagentsError):
    """Another process writes this journal now; args: the run, who does."""

    def __init__(self, run_id: str, holder: str) -> None:
        super().__init__(run_id, holder)

    def __str__(self) -> str:
        run_id, holder = self.args
        return f"run {run_id} was taken over by {holder}, since this process had not been heard of; it wrote nothing since, nothing is lost"


class Undecided(MicroagentsError):
    """An election reached its cap without a winner; args: path, draws, tally as text."""

    def __init__(self, path: str, draws: int, tally: str) -> None:
        super().__init__(path, draws, tally)

    @property
    def path(self) -> str:
        """The place in the work, such as ``0/step/17``."""
        return str(self.args[0])

    def __str__(self) -> str:
        path, draws, tally = self.args
        return (
            f"the election at {path} is undecided after {draws} draws ({tally}); everything before it is decided; decide it yourself "
            "(`microagents decide`) and resume, or resume with --on-undecided and `leader` or the spec of a stronger model"
        )
