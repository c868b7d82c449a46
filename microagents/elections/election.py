"""Elections: the ids of elections and samples, and the messages that hold an election.

An election is one micro-decision: the same question is put to models until a rule decides. Its id is its place in the work and a digest
of the question, never a counter, a time or a guess. So roles that ask the same question at the same place share its ballots.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Generic, Literal

import msgspec
from msgspec import Struct, structs

from microagents.base.errors import Contested, Refused, Undecided, agreement
from microagents.base.foreign_text import told_apart
from microagents.base.messages import Request, Stream
from microagents.base.text_digests import digest_of
from microagents.elections.rules import PortableRule, Weighed
from microagents.replies.chat import Cached, Prompt, Sample, Sampling
from microagents.replies.disagreements import disagreement, open_votes, wordings
from microagents.replies.masses import Mass
from microagents.replies.reply import NO_PROSE, A, ProseByTool
from microagents.replies.reply_forms import Reading, encode_reply
from microagents.replies.turns import Turn

ElectionOutcome = Literal[
    "decided",
    "agreed",
    "argmax",
    "leader",
    "person",
    "sampled",
    "undecided",
    "contested",
    "refused",
    "climbed",
    "inferred",
    "once",
]
"""Outcome of an election.

- `decided`: the rule is met.
- `agreed`: all candidates are equal, so no vote is needed.
- `argmax`: no candidate reached k votes, and the one with most votes is taken.
- `leader`: the leader of an election without a decision, taken by ``--on-undecided leader``.
- `person`: the decision of a person.
- `sampled`: valid replies without a vote.
- `undecided`: the cap was reached before a decision.
- `contested`: each model of the pool gave one reply only, six times more often than it decides alone, and the replies differ. Like an
  undecided one, it is left to the ladder, to another model or to a person.
- `refused`: before any valid reply the provider refused the question for its content, twice in a row, and each model of the pool did.
- `climbed`: left to the next rung of a ladder.
- `inferred`: decided by samples at other places, the predictions of rollouts or the choice of a judge. Its votes are no calls.
"""

OPEN_OUTCOMES: tuple[ElectionOutcome, ...] = ("undecided", "contested", "refused")
"""Outcomes of an election that came to no decision. A ladder, the leader, another model or a person may settle it."""

Votes = Literal["exact", "semantic"]
"""Way of counting votes: `exact`, replies whose votes are equal count together; `semantic`, also replies that mean the same."""

USD_DIGITS = 12
"""Decimals of sums: beyond any price of a token, and before the noise of their order."""
MANY_VOTES = 5
"""Number of different votes, each cast once, at which an undecided election says in which fields they differ."""
ESCALATED = "/undecided"
"""Path suffix of the election that asks another model after an undecided one."""


@lru_cache(maxsize=4096)
def input_of(path: str) -> int:
    """Read the number of the input that a path belongs to, its first component."""
    return int(path.partition("/")[0])


class ElectionId(Struct, frozen=True, kw_only=True):
    """Id of an election."""

    path: str
    """Place in the work: ``input/at``."""
    question_digest: bytes
    """128-bit digest of the question."""

    @property
    def input(self) -> int:
        """Number of the input that the election belongs to."""
        return input_of(self.path)

    @property
    def offset(self) -> int:
        """A number that spreads elections over the models of a pool: the first sample of this one asks the model with this index."""
        digest = hashlib.blake2b(self.path.encode(), digest_size=8)
        return int.from_bytes(digest.digest())


class SampleId(Struct, frozen=True, kw_only=True):
    """Id of one sample of an election; the idempotency key of its draw."""

    election: ElectionId
    seq: int
    """Sequence number in the order of launch, from 0."""


class Question(Struct, frozen=True, kw_only=True):
    """Question of an election. Elections at one place are the same if all fields are equal."""

    prompts: tuple[Prompt, ...]
    """Prompts with the format instructions in them, at which samples take turns; see `prompt_of`."""
    reply: str
    """Address of the reply class."""
    form: bytes
    """Fingerprint of the reply class: a class of the same name with other fields, bounds or votes is another question."""
    rule: PortableRule
    sampling: Sampling
    models: tuple[str, ...]
    """Pool of model specs, at which samples take turns; see `model_of`."""
    max_draws: int
    """Cap of the election, in samples."""
    state: bytes = b""
    """The state that the prompts were made from, as JSON; empty if it is unknown."""
    choices: tuple[str, ...] = ()
    """The votes that a reply may cast; empty for any vote. The prompts contain them, so the digest needs no term for them."""
    reading: Reading = "strict"
    """Reading of replies."""
    votes: Votes = "exact"
    """Equality of replies."""
    prose: dict[str, tuple[str, ...]] = {}
    """By tool, the arguments whose wording casts no vote; with semantic votes only these are compared by meaning."""
    handed: bytes = b""
    """Calls of the hand-offs that lead to its agent, as JSON; empty for the input's own task."""

    @property
    def left_out(self) -> ProseByTool:
        """The arguments that votes leave out: none with semantic votes, since the matcher compares them."""
        if self.votes == "exact":
            return self.prose
        return NO_PROSE

    def id_at(self, path: str) -> ElectionId:
        """Build the id of this question's election at a place."""
        asked = [(_digest(prompt.system), prompt.user, *prompt.conversation) for prompt in self.prompts]
        terms = (
            self.reply,
            self.form,
            self.rule,
            self.sampling,
            _identities(self.models),
            self.max_draws,
            self.reading,
            self.votes,
            self.prose,
        )
        question = _canonical((asked, terms, self.state))
        return ElectionId(path=path, question_digest=digest_of(question))

    def model_of(self, election: ElectionId, seq: int) -> str:
        """Return the spec of the model that a sample asks. The models of a pool take turns, in the order of launch."""
        # By lot one model may cast most of the votes; by load the order of arrival would decide.
        if len(self.models) > 1:
            return self.models[(election.offset + seq) % len(self.models)]
        return self.models[0]

    def prompt_of(self, seq: int) -> Prompt:
        """Return the prompt of a sample: each of several is put to every model of the pool before the next one is."""
        return self.prompts[self.prompt_number(seq)]

    def prompt_number(self, seq: int) -> int:
        """Return the place of a sample's prompt among the prompts."""
        every = 1 if isinstance(self.rule, Weighed) else len(self.models)  # options are weighed once in each order
        return seq // every % len(self.prompts)


@lru_cache(maxsize=256)
def _identities(models: tuple[str, ...]) -> tuple[str, ...]:
    """Drop the number of samples in a request from specs: it changes the price, and no sample."""
    return tuple([_SAMPLES_PER_REQUEST.sub("", spec).rstrip("@") if "@" in spec else spec for spec in models])


_SAMPLES_PER_REQUEST = re.compile(r"(?<=@)votes_per_request=[^,]*,?|,votes_per_request=[^,]*")
_canonical = msgspec.msgpack.Encoder(order="deterministic").encode


@lru_cache(maxsize=256)
def _digest(system: str) -> bytes:
    """Digest a system prompt, cached: system prompts are long and rarely change."""
    return digest_of(system)


class SampleFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts about a sample beside its vote. No digest covers them."""

    mass: Mass | None = None
    """Probability of its whole text; None if it is unknown, or another prompt or model than the question's gave it."""
    cached: Cached | None = None
    """Tokens of its last request in the provider's cache; None if there are none."""
    fallback: str = ""
    """Spec of the fallback that gave it; empty for the model that the question names for its seq."""
    turn: Turn | None = None
    """Native calls of a ballot, if their wire gave more with them; the journal keeps it until the election is decided."""
    said: str = ""
    """Words of the provider that refused the question for its content; empty for any other sample."""

    def __bool__(self) -> bool:
        return self != NO_FACTS


NO_FACTS = SampleFacts()


class Ballot(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A valid reply."""

    seq: int
    value: bytes
    """The reply, as JSON: msgpack has no integers beyond 64 bits."""
    cost_usd: float | None = None
    """Cost of its sample; None if the price is unknown."""
    shares: dict[str, float] = {}
    """Probability of each option by a model that weighs them: the share that it would have of many votes. Empty for a vote."""
    facts: SampleFacts = NO_FACTS


class Flagged(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A reply that a red flag discarded. It uses up its seq and casts no vote."""

    seq: int
    flag: str
    """Name of the red flag."""
    cost_usd: float | None = None
    """Cost of its sample; None if the price is unknown."""
    why: str = ""
    """Reason why a reply is malformed; the journal does not keep it."""
    facts: SampleFacts = NO_FACTS


class Rejection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A valid reply that the task's `verify` found wrong, or one that asked to look something up first."""

    turns: tuple[Turn, ...]
    """The reply, and the feedback of the task's `verify` or the results of its calls."""

    @property
    def is_look_up(self) -> bool:
        """Whether it asked to look something up."""
        return self.turns[-1].role == "tool"


class Rejected(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A sample that is asked again with feedback, or with its look-ups: it is neither ballot nor flag yet."""

    seq: int
    replies: tuple[Rejection, ...]
    """Its replies so far; none was taken."""
    cost_usd: float | None = None
    """Cost of these replies; None if the price is unknown."""


def total_usd(costs: Iterable[float | None]) -> float | None:
    """Sum costs, without the noise of sums in binary; None if one is unknown."""
    total = 0.0
    for cost_usd in costs:
        if cost_usd is None:
            return None
        total += cost_usd
    return round(total, USD_DIGITS)


class MassTest(Struct, frozen=True):
    """A draw that tested the masses before it."""

    model: str
    """Spec of the model."""
    claimed: float
    """Probability with which it had to cast the leading vote by its masses, at least."""
    repeated: bool
    """Whether it did."""


class FieldVotes(Struct, frozen=True, kw_only=True):
    """Votes on the fields of a reply, against its leading values."""

    fields: int
    """Number of fields, or of groups that vote together."""
    outvoted: int
    """Votes for other values."""
    first_outvoted: int
    """Fields in which the first sample has another value: all if it was flagged."""


AnyBallot = Ballot | Flagged
"""A ballot, or a reply that a red flag discarded."""


class Verdict(Struct, frozen=True, kw_only=True, tag=True):
    """Result of an election: its outcome and the counted ballots."""

    outcome: ElectionOutcome
    leader: int | None
    """Index of the leading vote in the tally; None without a valid reply."""
    tally: tuple[tuple[bytes, int], ...]
    """For each distinct vote its first-launched reply, as JSON, and its count; in order of launch."""
    ballots: tuple[AnyBallot, ...]
    """The counted ballots and flags, in order of launch."""
    cost_usd: float | None = None
    """Cost of all counted ballots; None if a price is unknown. The journal keeps only this sum."""
    probability: float | None = None
    """Probability of the leading vote, when a model weighed the options, or the least if its masses decided; None after a vote."""
    mass_tests: tuple[MassTest, ...] = ()
    """Draws that tested masses. The journal keeps only their sums."""
    open_fields: tuple[tuple[str, ...], ...] = ()
    """The fields without a decision, of an undecided vote by field."""
    by_field: FieldVotes | None = None
    """The votes on each field; None if replies were voted on as a whole."""

    @property
    def refusal(self) -> str:
        """Words of the last refusal; empty without one."""
        said = [each.facts.said for each in self.ballots if each.facts.said]
        if not said:
            return ""
        return said[-1]

    @property
    def flagged_as(self) -> str:
        """The most frequent flag of its replies, with the reason if there is one; empty without flags."""
        flagged = [each for each in self.ballots if isinstance(each, Flagged)]
        flags = Counter([f"{each.flag}: {each.why}".removesuffix(": ") for each in flagged])
        return max(flags, key=flags.__getitem__, default="")

    @property
    def winners_turn(self) -> Turn | None:
        """Native calls of the first-launched ballot of the winner, if their wire gave more with them."""
        ballots = [each for each in self.ballots if isinstance(each, Ballot) and each.value == self.winner]
        return ballots[0].facts.turn if ballots else None

    @property
    def winner(self) -> bytes | None:
        """First-launched reply of the leading vote."""
        if self.leader is None:
            return None
        return self.tally[self.leader][0]

    def won_by(self, value: bytes) -> Verdict:
        """Return the verdict for a given reply, which need not have most votes, nor any."""
        values = [each for each, _ in self.tally]
        tally = self.tally if value in values else (*self.tally, (value, 0))
        return structs.replace(
            self, tally=tally, leader=values.index(value) if value in values else len(values), probability=None
        )


class Decision(Struct, Generic[A], frozen=True, kw_only=True):
    """Result of an election for the role that asked, with decoded replies."""

    path: str
    value: A | None
    """The first-launched reply of the winning vote; None without a decision, even if the tally has a leader."""
    outcome: ElectionOutcome
    tally: tuple[tuple[A, int], ...]
    """For each distinct vote its first-launched reply and its count; in order of launch."""
    flagged: int
    """Number of flagged replies."""
    probability: float | None = None
    """Probability of the value, as in a verdict; None after a vote."""
    rungs: tuple[Decision[A], ...] = ()
    """The rungs of a ladder that did not decide it either."""
    prose: ProseByTool = {}
    """The arguments that replies declare as prose, of an election that is undecided."""
    refusal: str = ""
    """Words of the provider that refused the question last; empty if none did."""
    flagged_as: str = ""
    """The most frequent flag of its replies, with the reason if there is one; empty without flags."""
    open_fields: tuple[tuple[str, ...], ...] = ()
    """The fields without a decision, of an undecided vote by field."""

    @property
    def decided(self) -> bool:
        """Whether the work may use ``value``. An election without a decision has none, even if its tally has a leader."""
        return self.outcome in ("decided", "agreed", "leader", "person", "inferred")

    def require(self) -> A:
        """Return the decided value.

        Raises:
            Undecided: there is none.
        """
        if not self.decided or self.value is None:
            draws = sum(votes for _, votes in self.tally) + self.flagged
            if self.outcome == "refused":
                raise Refused(self.path, draws, self.refusal)
            replies = [reply for reply, _ in self.tally]
            shown = self._votes()
            if advice := wordings(self.tally, self.prose):
                shown = f"{shown}; {advice}"
            elif self.tally and self.open_fields:
                shown = open_votes(self.tally, self.open_fields)
            elif len(replies) >= MANY_VOTES and all(votes == 1 for _, votes in self.tally):
                shown = disagreement(replies) or shown
            names = [each.path.rpartition("/")[2] for each in self.rungs]
            votes = [each._votes() or "no valid reply" for each in self.rungs]  # noqa: SLF001
            rungs = "".join(f"; then {name}: {voted}" for name, voted in zip(names, votes, strict=True))
            mostly = self.flagged_as and f", mostly {self.flagged_as}"
            said = f"{shown or 'no valid reply'}; {self.flagged} flagged{mostly}{rungs}"
            if self.outcome == "contested":
                raise Contested(self.path, draws, said, agreement([votes for _, votes in self.tally]))
            raise Undecided(self.path, draws, said)
        return self.value

    def _votes(self) -> str:
        shown = self.tally[:4]
        replies = told_apart([encode_reply(reply).decode()[:200] for reply, _ in shown])
        return ", ".join(f"{votes} x {reply}" for reply, (_, votes) in zip(replies, shown, strict=True))


class Elect(Request[Verdict], frozen=True, kw_only=True):
    """Hold an election, or join the open one, and await its verdict."""

    route_by = "id"
    id: ElectionId
    question: Question


# Most askers need the verdict and no more: a stream costs 10 µs a step, and an envelope for each ballot (measured).
class Follow(Stream[Ballot | Verdict], frozen=True, kw_only=True):
    """Hold an election, or join the open one, and follow it: valid ballots as they arrive, then the verdict."""

    route_by = "id"
    id: ElectionId
    question: Question
    hedge: int = 0
    """Number of draws in flight beyond what the decision needs. The first ballot arrives sooner; the decision is the same."""


class CallTerms(Struct, frozen=True, kw_only=True):
    """Terms of a request for samples, as its asker states them and its model gets them."""

    id: SampleId
    """The first sample: the idempotency key of the request. It also seeds the simulated model."""
    samples: int = 1
    """Number of samples: the first one, and those behind it in launch order."""
    is_shared: bool = False
    """Whether its election needs samples of the same prompt by other requests, too."""
    prompt: Prompt
    temperature: float | None
    """None leaves it to the provider."""
    max_output_tokens: int
    needs_length: bool = False
    """Whether the length of the reply will be compared with a limit."""
    needs_mass: bool = False
    """Whether the sample should have its `microagents.replies.masses.Mass`, if the model can give it."""
    rejected: int = 0
    """Number of earlier replies to this sample that were not taken: `verify` rejected them, with feedback that the prompt has, or they
    asked to look something up, which it has, too."""
    choices: tuple[str, ...] = ()
    """Votes that the reply may cast, such as the labels of candidates; empty for any vote."""
    handed: bytes = b""
    """Calls of the hand-offs that lead to its agent, as JSON; empty for the input's own task."""
    traceparent: str = ""
    """The W3C trace context of the run, if its election was sampled for a trace; else empty."""


class Draw(CallTerms, Request[tuple[Sample, ...]], frozen=True, kw_only=True):
    """Take samples from a model in one request. The reply has them in launch order: all, or fewer, but at least one."""

    route_by = "id"
    reply: str
    """Address of the reply class."""
    model: str
    substitute: str = ""
    """Spec of the model that is asked beside it if it takes too long; empty for the same model."""


class Wanted(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A reply that asks to look something up first. It is neither ballot nor flag yet."""

    seq: int
    turn: Turn
    """Its calls."""
    cost_usd: float | None = None
    """Cost of its sample; None if the price is unknown."""


class Screen(Request[AnyBallot | Wanted], frozen=True, kw_only=True):
    """Flag a sample, or read a ballot from it, or its look-ups."""

    id: SampleId
    sample: Sample
    reply: str
    """Address of the reply class."""
    flag_above_tokens: int | None
    """Flag replies with more output tokens than this; None for no bound."""
    choices: tuple[str, ...] = ()
    """Votes that a reply may cast; any other vote is flagged. Empty for any vote."""
    reading: Reading = "strict"
    """Reading of the reply."""
    state: bytes = b""
    """The state that the step was asked in, as JSON, if the task's own flag needs it; else empty."""
    handed: bytes = b""
    """Calls of the hand-offs that lead to its agent, as JSON; empty for the input's own task."""
