"""Elections: how they and their samples are named, and the messages that hold them.

An election is one micro-decision: the same question is put to models until a rule decides. It is named by its place in the work and by
the question itself, never by a counter, a time or a guess, so that whoever asks the same question at the same place shares its ballots.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Generic, Literal

import msgspec
from msgspec import Struct

from microagents.chat import A, Prompt, Sample, Sampling
from microagents.elections.rules import Rule
from microagents.errors import Undecided
from microagents.messages import Request, Stream

ElectionOutcome = Literal["decided", "agreed", "argmax", "leader", "person", "sampled", "undecided"]
"""`leader`: that of an undecided election, taken by ``--on-undecided leader``; `person`: decided by one; `sampled`: replies, no vote."""

ESCALATED = "/undecided"
"""End of the path of an election that another model holds because the one before it ended undecided."""


@lru_cache(maxsize=4096)
def input_of(path: str) -> int:
    """Which of the run's inputs a path belongs to: its first component."""
    return int(path.partition("/")[0])


class ElectionId(Struct, frozen=True, kw_only=True):
    """``path`` is the place in the work: ``input/at``; ``question_digest`` the 128-bit digest of the question asked there."""

    path: str
    question_digest: bytes

    @property
    def input(self) -> int:
        """Which of the run's inputs the election belongs to."""
        return input_of(self.path)


class SampleId(Struct, frozen=True, kw_only=True):
    """The seq-th sample of an election, counted from 0 in the order of launch; the idempotency key of its draw."""

    election: ElectionId
    seq: int


class Question(Struct, frozen=True, kw_only=True):
    """All that makes two elections at one place the same question."""

    prompts: tuple[Prompt, ...]
    """Cycled by seq; the format instructions are already in them."""
    reply: str
    """Address of the reply class."""
    form: bytes
    """Its fingerprint: a class of the same name with other fields, bounds or votes is another question."""
    rule: Rule
    sampling: Sampling
    models: tuple[str, ...]
    """A pool; each sample takes one by the hash of its id."""
    max_draws: int
    state: bytes = b""
    """What the prompts were made from, where it is known."""
    choices: tuple[str, ...] = ()
    """The votes that a reply may cast, where they are known beforehand; they stand in the prompts, so the name of the election has them."""

    def id_at(self, path: str) -> ElectionId:
        """The name of this question's election at a place."""
        asked = [(_digest(prompt.system), prompt.user) for prompt in self.prompts]
        terms = (self.reply, self.form, self.rule, self.sampling, self.models, self.max_draws)
        return ElectionId(path=path, question_digest=hashlib.blake2b(_canonical((asked, terms, self.state)), digest_size=16).digest())


_canonical = msgspec.msgpack.Encoder(order="deterministic").encode


@lru_cache(maxsize=256)
def _digest(system: str) -> bytes:
    """System prompts are long and hardly ever change."""
    return hashlib.blake2b(system.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Ballot(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A valid reply, as JSON: msgpack would stop at integers of 64 bits."""

    seq: int
    value: bytes
    cost_usd: float | None = None
    """What its sample cost; None where that is unknown."""


class Flagged(Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """A reply that a red flag discarded; it uses up its seq and casts no vote."""

    seq: int
    flag: str
    cost_usd: float | None = None
    """What its sample cost; None where that is unknown."""


def total_usd(costs: Iterable[float | None]) -> float | None:
    """What several things cost together; None once one is unknown."""
    total = 0.0
    for cost_usd in costs:
        if cost_usd is None:
            return None
        total += cost_usd
    return total


class Verdict(Struct, frozen=True, kw_only=True, tag=True):
    """How an election ended."""

    outcome: ElectionOutcome
    leader: int | None
    """Whose reply it is: a place in the tally; None where no valid reply came."""
    tally: tuple[tuple[bytes, int], ...]
    """Per distinct vote its first-launched reply and its count, in order of launch."""
    ballots: tuple[Ballot | Flagged, ...]
    """What was counted, in order of launch."""
    cost_usd: float | None = None
    """What they cost together: a journal keeps no more than that. None where it is unknown."""

    @property
    def winner(self) -> bytes | None:
        """The first-launched reply of the leading vote."""
        return None if self.leader is None else self.tally[self.leader][0]


class Decision(Struct, Generic[A], frozen=True, kw_only=True):
    """How an election ended, for the role that asked."""

    path: str
    value: A | None
    """The first-launched reply of the winning vote; None where the election is undecided: the leader, if there is one, is in the tally."""
    outcome: ElectionOutcome
    tally: tuple[tuple[A, int], ...]
    """Per distinct vote its first-launched reply and its count, in order of launch."""
    flagged: int

    @property
    def decided(self) -> bool:
        """Whether the work may go on from ``value``: a leader of an undecided election is not a decision."""
        return self.outcome in ("decided", "agreed", "leader", "person")

    def require(self) -> A:
        """The decided value.

        Raises:
            Undecided: when there is none.
        """
        if not self.decided or self.value is None:
            draws = sum(votes for _, votes in self.tally) + self.flagged
            shown = ", ".join(f"{votes} x {reply}"[:200] for reply, votes in self.tally[:4])
            raise Undecided(self.path, draws, f"{shown or 'no valid reply'}; {self.flagged} flagged")
        return self.value


class Elect(Request[Verdict], frozen=True, kw_only=True):
    """Hold an election, or join it, and await its verdict."""

    route_by = "id"
    id: ElectionId
    question: Question


class Follow(Stream[Ballot | Verdict], frozen=True, kw_only=True):
    """Hold an election, or join it, and follow it: valid replies as they arrive, then the verdict."""

    route_by = "id"
    id: ElectionId
    question: Question


class Draw(Request[Sample], frozen=True, kw_only=True):
    """Take one sample from a model."""

    route_by = "id"
    id: SampleId
    prompt: Prompt
    reply: str
    temperature: float | None
    max_output_tokens: int
    model: str


class Screen(Request[Ballot | Flagged], frozen=True, kw_only=True):
    """Flag a sample, or read a ballot out of it."""

    id: SampleId
    sample: Sample
    reply: str
    flag_above_tokens: int | None
    choices: tuple[str, ...] = ()
    """A reply that casts another vote is flagged, where there are any."""
