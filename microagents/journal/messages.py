"""The messages of the keeper: records of samples, calls and decisions, the account they add up to, and requests for both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

from microagents.base.messages import Batched, Request, Stream, address_of
from microagents.base.plain_values import reply_in
from microagents.elections.admission import Admission
from microagents.elections.certainty import MassAudit
from microagents.elections.election import (
    OPEN_OUTCOMES,
    AnyBallot,
    Ballot,
    ElectionId,
    ElectionOutcome,
    Flagged,
    Rejected,
    SampleId,
    Verdict,
)
from microagents.elections.sample_batches import BatchSums, SampleBatch
from microagents.replies.chat import Prompt, Usage
from microagents.replies.media import Media
from microagents.replies.persons import PersonReply

NO_DECISION = (*OPEN_OUTCOMES, "sampled", "climbed", "once")
"""Outcomes that are not counted as decided."""


class RecordSample(Struct, frozen=True, kw_only=True, tag=True):
    """Ballot or the red flag of a paid sample, or its rejected replies, so that a resumed run does not pay for them again."""

    id: SampleId
    ballot: AnyBallot | Rejected


class RecordReply(Struct, frozen=True, kw_only=True, tag=True):
    """Text of a reply, for later inspection: as ``keep_texts`` says, of one that lost or was flagged."""

    id: SampleId
    text: str


class RecordFile(Struct, frozen=True, kw_only=True, tag=True):
    """A picture or a file of a prompt, which is kept beside the journal."""

    file: Media
    data: bytes


Outcome = Literal["replied", "refused", "failed"]
"""How a call to a throttled model may end: with a reply, with 429, or with a failure of the provider or the network."""


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a lease: of a call, or of its wait."""

    holder: int = 0
    number: int
    """Number of the lease; 0 if it has ended before."""
    parked: dict[str, int] = {}
    """Amounts that it leaves to a batch until the reply is taken; negative ones are given back then."""
    spent: dict[str, int] = {}
    """What it has used up for good, by bound; more than it held makes a debt."""
    unknown: tuple[str, ...] = ()
    """Bounds of which this is unknown, and counted at the most."""
    outcome: Outcome | None = None
    """For the throttle of its model."""
    wait_s: float | None = None
    """The wait that a refusal asked for."""
    unread: str = ""
    """The error of a reply that could not be read; else empty."""


class CallSums(Struct, kw_only=True):
    """Sums over calls to models: those of one report, or of a whole run."""

    calls: int = 0
    """Calls that have ended, and that the provider may bill."""
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Input tokens that providers read from their caches."""
    cache_write_tokens: int = 0
    """Input tokens that providers wrote into their caches for a higher price."""
    cost_usd: float | None = 0.0
    """Cost of all calls; None once the price of one is unknown. A call without a reply adds an estimated cost, but no tokens."""
    unanswered: int = 0
    """Calls that were cancelled or timed out before their reply arrived. They may be billed."""
    estimated_usd: float = 0.0
    """The part of the cost that is estimated: unanswered calls count as much as an average one."""
    unsettled_usd: float = 0.0
    """What unanswered and lost calls may have cost beyond ``cost_usd``, at most, while a limit of tokens or cost was given."""
    unsettled_tokens: int = 0
    """Most tokens that they may have used beyond the counted ones."""
    unpriced: int = 0
    """Unanswered and lost calls under a limit whose price is unknown: their model states no maximum, and has told no cost yet. The first
    price settles them, so the number of a report may be negative."""
    unmeasured: int = 0
    """Replies of unknown length, to which the flag ``too_long`` could not be applied."""
    miscounted: int = 0
    """Replies whose stated usage cannot be right, so that their calls count at the most that they can have used."""
    joined: int = 0
    """Samples that came in the request of another one, so that they are no calls."""
    repeated: dict[str, int] = field(default_factory=dict)
    """Calls that were sent again, by the reason: ``busy``, ``server``, ``network``, ``timeout``, ``garbled``, or ``straggler``."""
    refused: dict[str, dict[str, str | None]] = field(default_factory=dict)
    """Parameters that models refuse, by the spec of the model, each with the one that is sent instead; None for none."""
    limits: dict[str, dict[str, int]] = field(default_factory=dict)
    """Limits a minute that providers stated, by the spec of the model and by what they limit, such as ``output tokens``."""

    def add(self, later: CallSums) -> None:
        """Add the sums over later calls."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(later, name))
        if self.cost_usd is None or later.cost_usd is None:
            self.cost_usd = None
        else:
            self.cost_usd += later.cost_usd
        # New dicts, since copies of an account share the ones before.
        self.repeated = dict(Counter(self.repeated) + Counter(later.repeated))
        for spec, refused in later.refused.items():
            self.refused = {**self.refused, spec: {**self.refused.get(spec, {}), **refused}}
        self.limits = {**self.limits, **later.limits}


_SUMMED = [each.name for each in structs.fields(CallSums) if each.type in (int, float)]
"""Numbers that are known of every call."""


class RecordCalls(CallSums, kw_only=True, tag=True):
    """Calls that one replica of the solver sent or ended in one iteration of the event loop. No other role counts calls."""

    source: str
    """Name of the replica."""
    in_flight: dict[str, int] = field(default_factory=dict)
    """Calls of the replica in flight then, by the spec of the model."""
    took_s: dict[str, list[float]] = field(default_factory=dict)
    """Seconds that answered calls took, by the spec of the model, without models that answer at once."""
    ended: list[Ended] = field(default_factory=list)
    """Ends of the leases of its calls."""

    def add_report(self, later: RecordCalls) -> None:
        """Add a later report of the same replica."""
        self.add(later)
        for spec, took_s in later.took_s.items():
            self.took_s.setdefault(spec, []).extend(took_s)
        self.in_flight = later.in_flight
        self.ended += later.ended


class KeepBatch(Request[int], frozen=True, kw_only=True):
    """Record a batch, or its change. The reply is its number, once it is durable."""

    batch: SampleBatch


class Lost(Struct, frozen=True, kw_only=True):
    """Calls that may have been sent without a record of their end, at most: their replica died. They may be billed."""

    calls: int = 0
    tokens: int = 0
    """Most tokens that they can have used; 0 if tokens are not limited."""
    cost_usd: float = 0.0
    """Most that they can have cost; 0 if cost is not limited."""
    unpriced: int = 0
    """Calls among them under a limit of cost whose price is unknown."""


class Mark(Struct, frozen=True, kw_only=True):
    """The most that is granted to calls and not recorded. It is durable before the calls are sent, and lost if the process is killed."""

    most: Lost


class CallsOver(Struct, frozen=True, kw_only=True):
    """All solvers of the sitting have ended, so no call is in flight."""


class ReplicaEnded(Struct, frozen=True, kw_only=True, tag=True):
    """A replica has ended. Another one may take its name."""

    source: str
    """Name of the replica."""
    actor: str = ""
    """Name of its actor in the first of the messages about an actor that died: deaths are counted by actor."""


class RecordOutage(Struct, frozen=True, kw_only=True, tag=True):
    """A provider has stopped or resumed delivering replies."""

    error: str | None
    """Why it does not deliver; None once it delivers again."""


class RecordDecision(Struct, frozen=True, kw_only=True, tag=True):
    """A verdict, or the answer to a `once`. The first decision at a path counts; later ones are dropped."""

    id: ElectionId
    verdict: Verdict
    correct: bool | None = None
    """Whether the task's oracle agrees with the winner; None without an oracle."""
    done: int | None = None
    """Steps of the input that are done with this decision; None in work that cannot resume after a step."""
    state: bytes = b""
    """The state before the step, as JSON."""
    settled: str | None = None
    """How an undecided election was settled: ``leader``, ``person``, or the spec of another model; ``single`` for a candidate without a
    rival; None if the vote decided."""
    rung: str | None = None
    """Name of the rung of a ladder that decided, or that failed at an undecided step; None for any other decision."""
    reply: str = ""
    """Address of the reply class. It serves to read a person's decision on an undecided election."""
    choices: tuple[str, ...] = ()
    """Votes that a person may decide for; empty if any vote is allowed."""


def answered(place: ElectionId, value: bytes) -> RecordDecision:
    """Return the record of a value that is asked for once.

    Args:
        place: path of the call and digest of its request.
        value: the answer, as JSON.
    """
    verdict = Verdict(outcome="once", leader=0, tally=((value, 0),), ballots=())
    return RecordDecision(id=place, verdict=verdict)


def put_to_person(
    path: str, reply: type[PersonReply], said: bytes | None = None, by: Literal["person", "leader"] = "person"
) -> RecordDecision:
    """Return the record of a place that a person decides.

    Args:
        path: the place.
        reply: class of the decision.
        said: the decision, as JSON; None while there is none.
        by: ``leader`` for one that was taken since no person has decided in time.
    """
    verdict, settled = Verdict(outcome="undecided", leader=None, tally=(), ballots=(), cost_usd=0.0), None
    if said is not None:
        verdict, settled = structs.replace(verdict.won_by(said), outcome=by), by
    place = ElectionId(path=path, question_digest=bytes(16))
    return RecordDecision(id=place, verdict=verdict, reply=address_of(reply), settled=settled)


class RecordProgress(Struct, frozen=True, kw_only=True, tag=True):
    """Progress of one input."""

    input: int
    """Its number, from 0."""
    done: int
    """Steps done."""
    total: int | None
    """Steps in all; None if the number is not known beforehand."""


InputOutcome = Literal["completed", "undecided", "failed", "refused"]
"""How one of many inputs ended; `refused` means that the providers refuse what it says."""
ENDED_AS: tuple[InputOutcome | None, ...] = (None, "completed", "undecided", "failed", "refused")
"""The outcomes of inputs by their code; None for one that has not ended, and in a run of a single input."""


def verdict_of(value: object) -> bool | None:
    """Return a result's own verdict in its field ``correct``, or without one in ``solved``; None if it has neither."""
    found = value.get("correct", value.get("solved")) if isinstance(value, Mapping) else None
    if not isinstance(found, bool):
        return None
    return found


class InputEnding(Struct, frozen=True, kw_only=True, tag=True):
    """Ending of one of many inputs. It replaces an earlier ending of the same input."""

    input: int
    outcome: InputOutcome
    reason: str | None = None
    """Why the input did not complete, in one sentence; None if it did."""
    result: str | None = None
    """Result of the input, as JSON."""
    traceback: str = ""
    """Traceback of a user's code; empty if it did not raise."""
    same_as: int | None = None
    """The earlier row that asks the same question, and whose result this is; None for a result of its own."""


class Load(Struct, frozen=True, kw_only=True):
    """Open work of a replica of a role."""

    per_s: int = 0
    """Requests that it gets a second."""
    open: int = 0
    """Requests that are not answered yet, those included that wait inside it for a call or a permit."""
    process: str = ""
    """Actor, host and process that it works in."""

    def __str__(self) -> str:
        return f"{self.per_s:,}/s, {self.open:,} open"


class RecordLoads(Struct, frozen=True, kw_only=True, tag=True):
    """Loads of the replicas in one dispatcher."""

    loads: dict[str, Load]
    """By the name of the replica."""


class TracedCall(Struct, frozen=True, kw_only=True):
    """A call in a trace."""

    seq: int
    model: str
    """Spec of the model that was asked."""
    replied: str
    """Name of the model by the reply; empty if it does not say."""
    temperature: float | None
    began_ns: int
    ended_ns: int
    finish: str
    usage: Usage
    flag: str | None
    """Name of its red flag; None without one."""
    prompt: Prompt | None
    """None unless texts are wanted."""
    text: str


class TracedElection(Struct, frozen=True, kw_only=True, tag=True):
    """An election that is over, for its span and the spans of its calls. The journal does not keep it."""

    id: ElectionId
    began_ns: int
    ended_ns: int
    outcome: str
    share: float
    """Share of the ballots that the leading vote has."""
    is_sampled: bool
    """Whether its hash chose it; else it was hard."""
    calls: tuple[TracedCall, ...]


Entry = (
    RecordSample
    | RecordReply
    | RecordFile
    | RecordCalls
    | RecordDecision
    | RecordProgress
    | InputEnding
    | RecordLoads
    | ReplicaEnded
    | RecordOutage
    | TracedElection
)
"""A fact about a run, on its way to its record. Its sum, if it has one, stands in `Books`."""


Written = Entry | SampleBatch | Lost | Mark | CallsOver
"""A part of the journal. The keeper writes them in the order of their arrival."""


class Record(Batched, frozen=True, kw_only=True):
    """Record facts. A role sends all of one turn of the event loop together: one message each would cost as much as an election."""

    entries: tuple[Entry, ...]
    valid: int = 0
    """Number of valid samples that are left out, since the decision of their election is here."""

    @classmethod
    def of(cls, *entries: Entry) -> Record:
        """Record these facts."""
        return cls(entries=entries)

    @classmethod
    def together(cls, waiting: Sequence[Batched]) -> Record:
        """All entries in one message, without the valid samples of elections that are decided in it: the decision has their ballots."""
        entries = [entry for each in waiting if isinstance(each, Record) for entry in each.entries]
        decisions = [each for each in entries if isinstance(each, RecordDecision)]
        decided = {each.id for each in decisions if each.verdict.outcome not in OPEN_OUTCOMES}
        calls: dict[str, RecordCalls] = {}
        progress: dict[int, RecordProgress] = {}
        kept: list[Entry] = []
        valid = 0
        for each in entries:
            if isinstance(each, RecordCalls):
                calls.setdefault(each.source, RecordCalls(source=each.source)).add_report(each)
            elif isinstance(each, RecordProgress):
                progress[each.input] = each
            elif isinstance(each, RecordSample) and isinstance(each.ballot, Ballot) and each.id.election in decided:
                valid += 1
            else:
                kept.append(each)
        return Record(entries=(*calls.values(), *kept, *progress.values()), valid=valid)


class Promise(Struct, frozen=True, kw_only=True):
    """Promise of a model's measurement for a run, or for each of its inputs."""

    measurement: str
    """Name of its run."""
    model: str
    k: int
    calls: float
    cost_usd: float | None
    """None if a price is unknown."""
    chance: float
    """Chance that all steps are decided right."""
    low: float
    """Lower end of its 95 % interval."""
    high: float
    """Upper end of the interval."""
    condition: str
    """What the chance depends on."""


Sha256 = Annotated[str, Meta(pattern="^([0-9a-f]{64})?$")]


class Account(CallSums, kw_only=True):
    """Totals of a run so far."""

    steps: int = 0
    """Steps done, over all inputs."""
    total_steps: int | None = None
    """Steps in all, over all inputs; None unless every input knows its number of steps."""
    inputs: int = 1
    inputs_done: int = 0
    """Completed inputs, in a run of many."""
    inputs_failed: int = 0
    """Inputs that failed, were refused or ended undecided, in a run of many."""
    inputs_right: int = 0
    """Completed inputs whose results say that they are right, in a run of many."""
    inputs_wrong: int = 0
    """Completed inputs whose results say that they are wrong, in a run of many."""
    decided: int = 0
    """Decided elections."""
    errors: int | None = None
    """Decisions that the task's oracle calls wrong; None without an oracle."""
    unanimous_errors: int = 0
    """Wrong decisions of two votes or more on which all votes agreed."""
    wrong_at: str | None = None
    """Path of the first error, by the numbers of inputs and steps."""
    checked: int = 0
    """Decisions and final answers that the task's oracle could judge."""
    in_flight_by: dict[str, dict[str, int]] = field(default_factory=dict)
    """Calls that are sent and have not ended yet, by the name of the solver replica and by the spec of the model."""
    loads: dict[str, Load] = field(default_factory=dict)
    """What roles have to do now, by the name of the replica."""
    deaths: dict[str, int] = field(default_factory=dict)
    """Actors that died, by name without the number: ``lane``, or the role that had it alone. Others took their places."""
    lost_in_flight: int = 0
    """Calls that may have been in flight when their process was killed, at most. They may be billed, and are made again."""
    valid: int = 0
    """Valid ballots counted."""
    flagged: dict[str, int] = field(default_factory=dict)
    """Counted red flags by name."""
    votes: int = 0
    """Valid ballots in the decisive prefixes of decided elections, and of those left to the next rung of a ladder."""
    samples: int = 0
    """Valid replies that were drawn without a vote."""
    certified: int = 0
    """Decided elections that the masses of replies decided."""
    shared: int = 0
    """Rows that took the result of an earlier row that asks the same question."""
    reused: int = 0
    """Samples that an earlier run has paid for; they are no calls."""
    saved_usd: float | None = 0.0
    """What they cost the earlier run; None if a price is unknown."""
    batches: BatchSums = BatchSums()
    fields: int = 0
    """Fields of replies that were decided by votes on each."""
    outvoted_fields: int = 0
    """Votes on these for another value than the decided one."""
    first_wrong_fields: int = 0
    """Fields of which the first sample gave another value than the decided one, or was flagged."""
    composed: int = 0
    """Elections that were decided for a reply that no sample gave: its fields are from several."""
    masses: dict[str, MassAudit] = field(default_factory=dict)
    """The test of the masses of each model, by its spec."""
    outvoted: int = 0
    """Votes for another reply than the decided one, unless the oracle calls the decision wrong."""
    misled: int = 0
    """Votes for decisions that the oracle calls wrong."""
    first_wrong: int = 0
    """Elections that their first sample would have decided wrongly: it was flagged, cast a vote that lost, or led to a wrong decision."""
    expected_usd: float | None = None
    """Cost that was expected for the whole run when its last sitting began; None if it was unknown."""
    promise: Promise | None = None
    """What the measurement promised that was given when the run began; None without one."""
    fallbacks: dict[str, int] = field(default_factory=dict)
    """Ballots of decided elections that a fallback gave, by its spec."""
    durations: dict[int, int] = field(default_factory=dict)
    """Number of answered calls by duration, see `microagents.base.durations`."""
    undecided_at: tuple[str, ...] = ()
    """Paths of elections that ended without a decision and are not settled."""
    contested_at: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Votes of each reply, by the path among them at which the models of a pool contradict each other."""
    settled_at: dict[str, str] = field(default_factory=dict)
    """How elections were settled without a vote, by path: undecided ones by ``leader``, ``person``, or the spec of another model; and
    turns at a problem as ``single``, if only one of several samples was valid."""
    climbed: dict[str, int] = field(default_factory=dict)
    """Number of steps that a ladder decided, by the name of the rung."""
    silent_s: float = 0.0
    """Seconds since the last call ended, or the first was sent, while calls are in flight."""
    paused: str | None = None
    """By whom and why the run is paused now; None if it is not."""
    outage: str | None = None
    """Why calls are being retried now; None while providers deliver."""
    state: str = "running"
    """How the run ended, or that it is running or was cut off, as a reader of its journal derives it."""
    renewals: int | None = None
    """Renewals of the lease of its journal, as a reader finds them; a run whose process stands still renews no more."""
    decisions_sha256: Sha256 = ""
    ballots_sha256: Sha256 = ""

    @property
    def cost_at_most_usd(self) -> float | None:
        """Most that all calls can have cost, those without a reply included; None if a price is unknown."""
        if self.cost_usd is None:
            return None
        return self.cost_usd + self.unsettled_usd

    @property
    def bound_usd(self) -> float | None:
        """The same with batches: those without results, results that no draw waited for, and lines that may be bought twice."""
        if self.cost_at_most_usd is None:
            return None
        return self.cost_at_most_usd + self.batches.open_usd + self.batches.unclaimed_usd + self.batches.lost_usd

    @property
    def calls_at_most(self) -> int:
        """Most calls that can have been sent: those in flight, those lost with a process, and the lines of open batches among them."""
        return self.calls + self.in_flight + self.lost_in_flight + self.batches.open_lines

    @property
    def tokens_at_most(self) -> int:
        """Most tokens that all calls can have used."""
        return self.input_tokens + self.output_tokens + self.unsettled_tokens

    @property
    def used_at_most(self) -> dict[str, float]:
        """Most that all calls can have used up of each limit, by its setting. An unknown cost counts as none."""
        return {
            "max_calls": self.calls_at_most,
            "max_tokens": self.tokens_at_most,
            "max_cost_usd": self.bound_usd or 0.0,
        }

    @property
    def in_flight(self) -> int:
        """Calls that are sent and have not ended yet."""
        calls = [sum(by_spec.values()) for by_spec in self.in_flight_by.values()]
        return sum(calls)

    @property
    def placement(self) -> dict[str, list[str]]:
        """Names of the replicas that work in each process."""
        found: dict[str, list[str]] = {}
        for replica, load in self.loads.items():
            found.setdefault(load.process, []).append(replica)
        return found

    @property
    def load_by_role(self) -> dict[str, Load]:
        """Loads of all replicas of each role together."""
        found: dict[str, Load] = {}
        for replica, load in self.loads.items():
            before = found.get(role := replica.partition("/")[0], Load())
            found[role] = Load(per_s=before.per_s + load.per_s, open=before.open + load.open)
        return found

    @property
    def doubted(self) -> tuple[str, ...]:
        """Specs of the models whose masses do not hold."""
        return tuple([spec for spec, audit in self.masses.items() if audit.is_false])

    @property
    def wasted_calls(self) -> int:
        """Calls, and samples joined to calls, that no election counted."""
        return self.calls + self.joined - self.valid - sum(self.flagged.values())

    @property
    def votes_per_step(self) -> float | None:
        """Valid ballots in decided elections per step done, problem or subtask; None without either."""
        if self.decided and self.steps:
            return self.votes / self.steps
        return None

    @property
    def votes_per_decision(self) -> float | None:
        """Valid ballots per decided election; None before the first decision."""
        if not self.decided:
            return None
        return self.votes / self.decided


class Report(Request[Account], frozen=True, kw_only=True):
    """Ask for the account of the run as of the last commit.

    Raises:
        Stopped: when the run must stop, or records must be durable: the journal cannot be written, or a limit is reached.
        TakenOver: when the run must stop, or records must be durable: another process writes the journal.
    """

    when: Literal["now", "written", "durable", "drained", "stopped"] = "now"
    """``written``: once every record is, or none can be any more; ``durable``: once every record is; ``drained``: admit nothing any more,
    and report once no call is in flight, or the wait for them takes too long; ``stopped``: never, but raise the reason once the run must
    stop."""


class Recalled(Struct, frozen=True, kw_only=True):
    """A decision or an answer, as the journal records it."""

    question_digest: bytes
    outcome: ElectionOutcome
    value: bytes | None
    """The decided or answered value, as JSON; None while undecided."""
    ballots: tuple[AnyBallot, ...] = ()
    cost_usd: float | None = None
    """Cost of all its samples; None if a price is unknown, or there are no samples."""
    after_ms: int = 0
    """Milliseconds from the start of the run to its commit."""
    changed: bool = False
    """Whether ``--accept-change`` altered the run since it began: its questions may then differ from the recorded ones."""

    @property
    def is_decision(self) -> bool:
        """Whether its value was decided on: not a sample, an answer, or only the leading reply of a vote that climbed a ladder."""
        return self.value is not None and self.outcome not in NO_DECISION


def record_of(path: str, found: Recalled) -> RecordDecision:
    """Return the record of a decision or an answer, as far as the journal gives it back."""
    place = ElectionId(path=path, question_digest=found.question_digest)
    leader, tally = (None, ()) if found.value is None else (0, ((found.value, 0),))
    verdict = Verdict(outcome=found.outcome, leader=leader, tally=tally, ballots=found.ballots)
    return RecordDecision(id=place, verdict=verdict)


class RecordedDecision(Struct, frozen=True, kw_only=True):
    """A decision, as the journal records it. It unpacks into path and value."""

    path: str
    """Place in the work, such as ``0/step/17``."""
    value: Any
    """The fields of the decided reply, in their declared types; or the answer of another role (`once`), as JSON-like values.

    Replies to other questions than those of steps, actions and whole problems are JSON-like values, too.
    """
    outcome: str
    """An `ElectionOutcome`, or ``once``."""
    votes: tuple[tuple[Any, int], ...] = ()
    """The counted valid replies, as ``value`` is: each distinct one and its number, in order of launch. Replies that differ only in
    fields without a vote stand apart."""
    flags: dict[str, int] = {}
    """Number of counted red flags by name."""
    cost_usd: float | None = None
    """Cost of the counted samples; None if a price is unknown, or there are no samples."""
    decided_at: str | None = None
    """Time of its commit, in UTC."""
    settled_at: str | None = None
    """How the election was settled although it was undecided: ``leader``, ``person``, or the spec of another model; else None."""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.path, self.value))


def recorded_decision(
    path: str,
    outcome: str,
    value: bytes,
    ballots: Sequence[AnyBallot],
    *,
    cost_usd: float | None,
    settled_at: str | None,
    decided_at: str | None,
    reply: type[Struct] | None,
) -> RecordedDecision:
    """A decision from its record, with replies of a class.

    Raises:
        msgspec.MsgspecError: a value is not JSON.
    """
    valid = Counter(each.value for each in ballots if isinstance(each, Ballot))
    flags = Counter(each.flag for each in ballots if isinstance(each, Flagged))
    votes = tuple([(reply_in(each, reply), number) for each, number in valid.items()])
    return RecordedDecision(
        path=path,
        value=reply_in(value, reply),
        outcome=outcome,
        votes=votes,
        flags=dict(flags),
        cost_usd=cost_usd,
        decided_at=decided_at,
        settled_at=settled_at,
    )


class Checkpoint(Struct, frozen=True, kw_only=True):
    """Last decided step of an input, in work that can resume after a step."""

    done: int
    """Steps done, this one included."""
    state: bytes
    """The state before the step, as JSON."""
    value: bytes
    """The decision of the step, as JSON."""


class OpenElection(Struct, frozen=True, kw_only=True):
    """An election without a verdict, and its paid samples."""

    id: ElectionId
    ballots: tuple[AnyBallot, ...]
    """Ballots and flags of the paid samples, by seq."""
    rejected: tuple[Rejected, ...] = ()
    """Paid replies of samples that are to be asked again, by seq."""


class Recollection(Struct, frozen=True, kw_only=True):
    """Record of the journal at a path."""

    has_records: bool = False
    """Of the run and of an input: whether there is any record."""
    decision: Recalled | None = None
    """The decision or the answer at the path; if a vote came to none, the decision of a person, if there is one."""
    checkpoint: Checkpoint | None = None
    """Of an input: its last decided step; None if it has to begin from its start."""
    ending: InputEnding | None = None
    """Of one of many inputs: how it ended."""
    ended: bytes = b""
    """Of the run: for each input the code of its outcome, see `ENDED_AS`."""
    open_elections: tuple[OpenElection, ...] = ()
    """The elections without a verdict, if they were asked for."""
    batches: tuple[SampleBatch, ...] = ()
    """Of the run: its batches whose lines may still be asked for, if they were asked for."""
    content: bytes | None = None
    """Bytes of the file that was asked for; None if they are not there."""
    decided_inputs: tuple[int, ...] = ()
    """Of the run: the inputs with an undecided election that a person has decided since, whose work goes on, if they were asked for."""


class Recall(Request[Recollection], frozen=True, kw_only=True):
    """Ask for the journal's record at a path, with all records that the sender sent before."""

    path: str = ""
    """Path of a decision or an answer, such as ``3/step/17``; of an input, such as ``3``; empty for the run."""
    with_open_elections: bool = False
    """Whether to add the elections without a verdict, of the run or at the path, whose samples need not be paid for again."""
    with_batches: bool = False
    """Whether to add the batches of the run."""
    file: str = ""
    """Digest of a picture or a file whose bytes are asked for, and nothing else."""
    with_decided_inputs: bool = False
    """Whether to add the inputs that decisions of persons let go on. Each decision is reported once."""


CANCEL_BATCHES = "cancel_batches"
"""Setting of a sitting that ends: its open batches are cancelled."""


class Conditions(Struct, frozen=True, kw_only=True):
    """Conditions of the work, which change while a run is under way."""

    holder: int = 0
    """Number of the subscription, which the leases of its calls name. They last until they are released, or the subscription ends."""
    admission: Admission = "elections"
    settings: dict[str, Any] = {}
    """Settings that were changed in this sitting, by name."""
    decisions: dict[str, bytes] = {}
    """Decisions of persons on elections that are open or may be opened, as JSON, by path."""
    doubted: tuple[str, ...] = ()
    """Specs of the models whose masses do not hold."""
    refused: dict[str, dict[str, str | None]] = {}
    """Parameters that models refuse, by the spec of the model, each with the one that is sent instead."""
    outages: dict[str, float] = {}
    """Seconds for which providers of throttled models have been out, by the name of the throttle."""


class Subscribe(Stream[Conditions], frozen=True, kw_only=True):
    """Follow the conditions of a run: all of them, at once and after each change.

    Once nothing is admitted, a subscriber finishes its work and closes the stream. The end of the run waits for that.
    """


RunOutcome = Literal["completed", "stopped", "undecided", "refused", "interrupted", "failed", "running", "cut off"]
"""How a run ended; `failed` means that it raised. Readers of a journal derive `running` and `cut off` (by a crash): neither is recorded."""
