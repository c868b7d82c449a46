"""The account of a run: the records by which roles report what was bought and decided, what they add up to, and how it is asked for."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from microagents.chat import Usage
from microagents.elections.election import Ballot, ElectionId, Flagged, SampleId, Verdict
from microagents.messages import Request, Stream


class RecordSample(Struct, frozen=True, kw_only=True, tag=True):
    """What was read out of a sample, which need not be bought again."""

    id: SampleId
    ballot: Ballot | Flagged


class RecordReply(Struct, frozen=True, kw_only=True, tag=True):
    """The text of a reply that lost or was flagged: what somebody will want to look at."""

    id: SampleId
    text: str


class RecordDraws(Request[None], frozen=True, kw_only=True):
    """What was read in one turn of the loop: a message each would cost as much as an election."""

    records: tuple[RecordSample | RecordReply, ...]


class RecordCalls(Request[None], frozen=True, kw_only=True):
    """What a replica of the solver sent in one turn of the loop, and what came to its end: only who sends calls accounts for them."""

    source: str
    """The name of the replica."""
    sent: int = 0
    ended: int = 0
    """In flight no more: answered, cancelled, or failed."""
    billed: int = 0
    """Those of them that may have to be paid for."""
    usage: Usage
    """Of all of them; a call that was cancelled or timed out adds nothing, an unknown price makes the sum None."""


class RecordLost(Request[None], frozen=True, kw_only=True):
    """A replica of the solver has died with what it had in flight. One that takes its place has the same name, and begins with nothing."""

    source: str


class RecordOutage(Request[None], frozen=True, kw_only=True):
    """A provider does not deliver; ``error`` says why, None that it does again."""

    error: str | None


class RecordLimit(Request[None], frozen=True, kw_only=True):
    """A limit is reached, such as ``--max-calls 100``: the run ends after what is under way."""

    limit: str


class RecordDecision(Request[None], frozen=True, kw_only=True):
    """A verdict that the work goes on from, or that ends it undecided. The first one at a path counts, later ones are dropped."""

    id: ElectionId
    verdict: Verdict
    correct: bool | None
    """What the task's oracle says of the winner; None without an oracle."""
    done: int | None = None
    """How many steps of the input are done with it, in work that can be taken up after a step."""
    state: bytes = b""
    """The state, as JSON, in which the step was asked."""
    settled: str | None = None
    """Who decided what the vote did not: ``leader``, ``person``, or another model's spec."""
    reply: str = ""
    """Address of the reply class, by which a person's decision is read where the vote gave none."""
    choices: tuple[str, ...] = ()
    """The votes that such a decision may cast; empty where any may be."""


class RecordAnswer(Request[None], frozen=True, kw_only=True):
    """The reply to a request that was asked once."""

    id: ElectionId
    """Its place, and the digest of the request."""
    value: bytes
    """As JSON."""


class RecordProgress(Request[None], frozen=True, kw_only=True):
    """How far one input is."""

    input: int
    done: int
    total: int | None


InputOutcome = Literal["completed", "undecided", "failed"]
"""How an input among many ended."""


class InputEnding(Request[None], frozen=True, kw_only=True):
    """An input among many has ended; an earlier ending of it is replaced."""

    input: int
    outcome: InputOutcome
    reason: str | None = None
    """Why it did not complete, in one sentence; None when it did."""
    result: bytes | None = None
    """What it gave, as JSON."""


Record = RecordSample | RecordReply | RecordCalls | RecordLost | RecordDecision | RecordAnswer | RecordProgress | InputEnding
"""What the recorder keeps, in the order in which it gets it."""


class Account(Struct, kw_only=True):
    """What a run has done so far."""

    steps: int = 0
    """Steps done, over all inputs."""
    total_steps: int | None = None
    inputs: int = 1
    inputs_done: int = 0
    """How many of many inputs are completed."""
    inputs_failed: int = 0
    """How many of them failed or are undecided."""
    decided: int = 0
    errors: int | None = None
    """Decisions that the task's oracle calls wrong; None without an oracle."""
    calls: int = 0
    """Requests sent to a model that may have to be paid for."""
    in_flight: int = 0
    """Calls that are sent and have not come to their end yet."""
    lost_in_flight: int = 0
    """Calls in flight when their process was killed: they may be paid for, and are made again. As of the last it told of them."""
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
    """Elections that ended undecided and that nothing else has decided."""
    settled_at: dict[str, str] = field(default_factory=dict)
    """What no vote of the run's own models decided: by path, ``leader``, ``person``, or the model that was asked."""
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
    """Ask for the account of the run as far as it is recorded for good; ``final`` waits until all is, and adds the digests."""

    final: bool = False


class Recalled(Struct, frozen=True, kw_only=True):
    """What the journal holds of a decision."""

    question_digest: bytes
    outcome: str
    value: bytes | None
    """What was decided or answered, as JSON; None while undecided."""
    ballots: tuple[Ballot | Flagged, ...] = ()
    cost_usd: float | None = None
    """What its samples cost together; None where that is unknown, or where there are none."""
    changed: bool = False
    """Whether the run was changed on purpose since it began: then what is asked now may be another question."""


class Recall(Request[Recalled | None], frozen=True, kw_only=True):
    """Ask what was decided at a path, if anything was."""

    path: str


class Checkpoint(Struct, frozen=True, kw_only=True):
    """How far an input is, in work that can be taken up after a step."""

    done: int
    state: bytes
    """The state, as JSON, in which the last decided step was asked."""
    value: bytes
    """What was decided then, as JSON."""


class RecallCheckpoint(Request[Checkpoint | None], frozen=True, kw_only=True):
    """Ask how far an input is; None where it has to begin at the beginning."""

    input: int


class HasRecords(Request[bool], frozen=True, kw_only=True):
    """Ask whether there is anything to recall of an input: a new one has nothing."""

    input: int


class RecallFailedInputs(Request[list[InputEnding]], frozen=True, kw_only=True):
    """Ask which inputs among many ended otherwise than completed, and how."""


class RecallCompletedInputs(Request[list[int]], frozen=True, kw_only=True):
    """Ask which inputs among many are completed, and need not be done again."""


class OpenElection(Struct, frozen=True, kw_only=True):
    """An election that was not decided when the run was cut off."""

    id: ElectionId
    ballots: tuple[Ballot | Flagged, ...]
    """What was paid for, by seq."""


class RecallOpen(Request[list[OpenElection]], frozen=True, kw_only=True):
    """Ask for the elections that are not decided yet, with the ballots that need not be bought again."""


class Drain(Request[None], frozen=True, kw_only=True):
    """Launch no more draws, and answer once none is in flight."""


RunOutcome = Literal["completed", "stopped", "undecided", "interrupted", "failed", "running", "cut off"]
"""How a run ended. Only those who look on say `running`, `cut off` (by a crash) and `failed` (it raised)."""

Admission = Literal["elections", "draws", "nothing"]
"""What may be launched: anything, only draws of elections that are open already, or nothing any more."""


class FollowAdmission(Stream[Admission], frozen=True, kw_only=True):
    """Follow what may be launched, as it changes; until then anything may.

    Whoever follows leaves once nothing may be launched any more and nothing is under way: the end of the run waits for that.
    """
