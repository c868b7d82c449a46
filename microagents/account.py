"""The account of a run: what was bought and decided so far, and the messages by which roles report it to the recorder."""

from __future__ import annotations

from msgspec import Struct, field

from microagents.chat import Usage
from microagents.elections import ElectionId, Verdict
from microagents.messages import Request


class RecordCalls(Request[None], frozen=True, kw_only=True):
    """Calls that were sent to models and may have to be paid for, whether their replies arrived or not."""

    calls: int
    usage: Usage
    """Of all of them; a call that was cancelled or timed out adds nothing, an unknown price makes the sum None."""


class RecordOutage(Request[None], frozen=True, kw_only=True):
    """A provider does not deliver; ``error`` says why, None that it does again."""

    error: str | None


class RecordDecision(Request[None], frozen=True, kw_only=True):
    """A verdict that the work goes on from, or that ends it undecided."""

    id: ElectionId
    verdict: Verdict
    correct: bool | None
    """What the task's oracle says of the winner; None without an oracle."""


class RecordAnswer(Request[None], frozen=True, kw_only=True):
    """The reply to a request that a conductor asked once."""

    path: str
    value: bytes
    """As JSON."""


class RecordProgress(Request[None], frozen=True, kw_only=True):
    """How far one input is."""

    input: int
    done: int
    total: int | None


class Account(Struct, kw_only=True):
    """What a run has done so far; the recorder's own while it counts, a copy for whoever asks."""

    steps: int = 0
    """Steps done, over all inputs."""
    total_steps: int | None = None
    decided: int = 0
    errors: int | None = None
    """Decisions that the task's oracle calls wrong; None without an oracle."""
    calls: int = 0
    """Requests sent to a model that may have to be paid for."""
    valid: int = 0
    """Valid ballots counted."""
    flagged: dict[str, int] = field(default_factory=dict)
    """Counted red flags by name."""
    votes: int = 0
    """Valid ballots in the decisive prefixes of decided elections."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None once a call's price is unknown."""
    undecided_at: tuple[str, ...] = ()
    outage: str | None = None
    """Why calls are being tried again right now; None while providers deliver."""
    decisions_sha256: str = ""
    ballots_sha256: str = ""

    @property
    def wasted_calls(self) -> int:
        """Calls whose reply no decision needed."""
        return self.calls - self.valid - sum(self.flagged.values())

    @property
    def votes_per_step(self) -> float | None:
        """Valid ballots per decided election; None before the first decision."""
        return self.votes / self.decided if self.decided else None


class Report(Request[Account], frozen=True, kw_only=True):
    """Ask for the account of the run; its digests take time where decisions form a tree."""

    digests: bool = False
