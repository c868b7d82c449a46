"""The writing of a document, without models and I/O: whom to ask, and the consequences of a round's replies (SeqCV, algorithms 1 and 2).

The questions go out in batches, each a set of questions that are asked at the same time. A conductor asks models.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from random import Random
from typing import Any

from msgspec import Struct

from microagents.elections.panels import Majority
from microagents.replies.reply import Reply
from microagents.systems.documents.questions import (
    Asked,
    Part,
    Parts,
    Ranking,
    Segment,
    SegmentSummary,
    ToRank,
    ToSplit,
    ToSummarize,
    ToValidate,
    ToWrite,
    Validation,
    Version,
)
from microagents.systems.documents.records import RankRecord, SegmentRecord, SubtaskRecord, ValidationRecord
from microagents.systems.documents.strategy import DocumentStrategy
from microagents.systems.documents.subtasks import Graph, fault_of
from microagents.systems.questions.candidates import labels_of
from microagents.work.notes import NotRecorded

CHARS_PER_TOKEN = 4
"""Characters of a token, for estimates of the length of prompts."""
MAX_SUBTASKS = 8
"""Maximum number of parts of a split."""
SPLIT_TRIES = 3
"""Number of proposals for one split; if none is valid, the subtask is treated as at the depth limit."""
SEGMENT_END = "\n"
SUBTASK_END = "\n\n"


class Missing(Enum):
    """In place of a reply."""

    FLAGGED = "flagged"
    """Every draw was red-flagged."""
    ABSENT = "absent"
    """The agent did not answer in time."""
    OPEN = "open"
    """Not recorded yet, in a replay."""


Answer = Reply | Missing


class SegmentQuestion(Struct, frozen=True, kw_only=True):
    """A question of a batch."""

    at: str
    agent: int | None
    """Index of the agent that is asked; None for a role that is not an agent."""
    asked: Asked


class QuestionBatch(Struct, frozen=True, kw_only=True):
    """Questions that are asked at the same time."""

    at: str
    asks: tuple[SegmentQuestion, ...]
    quorum: int | None = None
    """Number of agents that must answer; if as many have, the others may be absent. None: all must answer."""


Ask = Callable[[QuestionBatch], Awaitable[Sequence[Answer]]]
"""Asks the questions of a batch; returns their replies, in the order of the questions."""


class NothingWritten(Exception):
    """No agent wrote a valid segment in any round; args: place of the subtask, number of rounds."""


class DocumentDraft:
    """State of a document that is being written."""

    def __init__(
        self, objective: str, given: Sequence[Part], strategy: DocumentStrategy, agents: int, ask: Ask
    ) -> None:
        self._graph = Graph.of(objective, given)
        self.records = {each.at: each for each in self._graph.order()}
        """All subtasks by place, split ones included."""
        self._objective = objective
        self._strategy = strategy
        self._agents = agents
        self._ask = ask

    @property
    def in_order(self) -> list[SubtaskRecord]:
        """Subtasks that are not split, in the stable topological order."""
        return self._graph.order()

    def text(self) -> str:
        """Join the text of finished subtasks and of those in work, in the stable topological order; end the line."""
        texts = [record.text for record in self.in_order if record.text]
        if not texts:
            return ""
        return SUBTASK_END.join(texts) + SEGMENT_END

    def take_ready(self) -> list[SubtaskRecord]:
        """Begin the subtasks that can begin now. If every author sees all finished text, that is one at a time."""
        left = [record for record in self.in_order if record.state != "done"]
        if self._strategy.sees == "all":
            left = left[:1]
        done = {record.at for record in self.records.values() if record.state == "done"}
        ready = [record for record in left if record.state == "waiting" and done.issuperset(record.parents)]
        for record in ready:
            record.state = "writing"
        return ready

    async def write(self, record: SubtaskRecord) -> None:
        """Write the text of a subtask, or put parts in its place.

        Raises:
            NothingWritten: no agent wrote a valid segment.
            NotRecorded: a replay has come to the end of its records.
        """
        parts = await self._write(record)
        if parts is None:
            record.state = "done"
        else:
            record.state = "split"
            self.records |= {each.at: each for each in self._graph.split(record.at, parts)}

    async def _write(self, record: SubtaskRecord) -> Sequence[Part] | None:
        """Write rounds of segments until every agent is complete, then choose a version (SeqCV, algorithm 1)."""
        strategy = self._strategy
        finished = await self._finished_text(record)
        authors = [_Author(agent) for agent in range(self._agents)]
        may_split = record.depth < strategy.most_splits
        for number in range(1, strategy.rounds + 1):
            if all(author.complete or author.absent for author in authors):
                break
            finished_authors = sum(author.complete for author in authors)
            drafts = await self._round(record, number, finished, authors)
            taken = [draft for draft in drafts if draft.outcome == "passed"]
            # Fewer than half of the agents have a segment that passes, or a complete text.
            if 2 * (len(taken) + finished_authors) < self._agents:
                if may_split:
                    parts = await self._split(record, finished)
                    if parts is not None:
                        return parts
                    may_split = False  # the same proposals would come again
                taken = _force(drafts, authors)
            for draft in taken:
                authors[draft.agent].take(draft)
            record.text = max((author.text for author in authors), key=len)
        await self._choose(record, finished, authors)
        return None

    def _about(self, record: SubtaskRecord, finished: str) -> dict[str, Any]:
        """Return the common part of all questions about a subtask."""
        return {"objective": self._objective, "finished": finished, "subtask": record.objective}

    async def _round(
        self, record: SubtaskRecord, number: int, finished: str, authors: Sequence[_Author]
    ) -> list[SegmentRecord]:
        """Do one round: every agent that is not complete writes a segment, and all agents validate each of them."""
        rounds, at = self._strategy.rounds, f"{record.at}/round/{number}"
        asked = self._about(record, finished) | {"round": number, "rounds": rounds}
        writers = [author for author in authors if not author.complete and not author.absent]
        asks = [
            SegmentQuestion(
                at=f"{at}/draft/{author.agent}", agent=author.agent, asked=ToWrite(**asked, written=author.text)
            )
            for author in writers
        ]
        complete = sum(author.complete and not author.absent for author in authors)
        quorum = max(1, Majority(self._agents).approvals_needed - complete)
        replies = await self._ask(QuestionBatch(at=f"{at}/draft", asks=tuple(asks), quorum=quorum))
        drafts = [_draft(author, reply) for author, reply in zip(writers, replies, strict=True)]
        record.rounds.append(drafts)
        written = [draft for draft in drafts if draft.segment is not None and draft.outcome == "open"]
        await self._validate(record, f"{at}/check", finished, authors, written)
        if any(draft.outcome == "open" for draft in drafts):
            raise NotRecorded(record.at)
        return drafts

    async def _validate(
        self, record: SubtaskRecord, at: str, finished: str, authors: Sequence[_Author], drafts: Sequence[SegmentRecord]
    ) -> None:
        """Let every agent that is there validate every segment, in the context of the segment's author."""
        if not self._strategy.validated:
            for draft in drafts:
                draft.outcome = "passed"
            return
        panel, needed = [author for author in authors if not author.absent], Majority(self._agents).approvals_needed
        checks = []
        for draft in drafts:
            assert draft.segment is not None
            asked = ToValidate(
                **self._about(record, finished),
                written=authors[draft.agent].text,
                segment=draft.segment.text,
                status=draft.segment.status,
                mode=draft.segment.mode,
            )
            checks += [
                SegmentQuestion(at=f"{at}/{draft.agent}/{member.agent}", agent=member.agent, asked=asked)
                for member in panel
            ]
        answers: list[Answer] = []
        if checks:
            answers += await self._ask(QuestionBatch(at=at, asks=tuple(checks), quorum=needed))
        for place, draft in enumerate(drafts):
            given = answers[place * len(panel) : (place + 1) * len(panel)]
            there = {member.agent: _validation(member, reply) for member, reply in zip(panel, given, strict=True)}
            draft.validations = [
                there.get(agent) or ValidationRecord(agent=agent, passes=None, missing="absent")
                for agent in range(self._agents)
            ]
            if Missing.OPEN not in given:
                draft.outcome = "passed" if draft.approvals >= needed else "failed"

    async def _split(self, record: SubtaskRecord, finished: str) -> Sequence[Part] | None:
        """Propose parts that can take the place of a subtask; None if no valid split was proposed."""
        for number in range(1, SPLIT_TRIES + 1):
            asked = ToSplit(**self._about(record, finished), max_subtasks=MAX_SUBTASKS)
            reply = await self._one_reply(f"{record.at}/split/{number}", asked, record)
            if isinstance(reply, Parts):
                fault = fault_of(reply.subtasks, self._objectives_above(record), MAX_SUBTASKS)
                if fault is None:
                    return reply.subtasks
                record.refused_splits.append(f"the subtasks {fault}")
        return None

    async def _one_reply(self, at: str, asked: Asked, record: SubtaskRecord) -> Answer:
        """Put one question for a subtask to a role that is not an agent."""
        asks = (SegmentQuestion(at=at, agent=None, asked=asked),)
        (reply,) = await self._ask(QuestionBatch(at=at, asks=asks))
        if reply is Missing.OPEN:
            raise NotRecorded(record.at)
        return reply

    def _objectives_above(self, record: SubtaskRecord) -> list[str]:
        return [
            each.objective
            for each in self.records.values()
            if record.at == each.at or record.at.startswith(f"{each.at}/")
        ]

    async def _choose(self, record: SubtaskRecord, finished: str, authors: Sequence[_Author]) -> None:
        """Choose the text of a subtask among the complete versions; if nobody is complete, among all (SeqCV, equation 2)."""
        versions = [author for author in authors if author.complete]
        if not versions:
            versions = [author for author in authors if author.segments]
        if not versions:
            raise NothingWritten(record.at, self._strategy.rounds)
        first: dict[str, _Author] = {}
        for author in versions:
            first.setdefault(author.text, author)
        chosen = versions[0]
        if len(first) > 1:
            best = await self._rank(record, finished, list(first.values()), authors)
            chosen = authors[best]
        record.author, record.text = chosen.agent, chosen.text
        record.agreed, record.complete = chosen.agreed, chosen.complete

    async def _rank(
        self, record: SubtaskRecord, finished: str, versions: Sequence[_Author], authors: Sequence[_Author]
    ) -> int:
        """Choose the agent whose version has most points.

        It gets 2 for each ranker that calls it best, 1 for each that calls it second best.

        Ties go to the version with more first places, then to the lower agent. With three agents or more, none ranks its own version; if
        nobody else is there to rank, a neutral call does.
        """
        given = labels_of([author.text.encode() for author in versions])
        labels = {author.agent: label for author, label in zip(versions, given, strict=True)}
        asks = []
        if len(authors) > 2:  # noqa: PLR2004 - of two agents each would rank the other's
            for ranker in authors:
                ranked = [author for author in versions if author.text != ranker.text]
                if len(ranked) > 1 and not ranker.absent:
                    asks.append(self._rank_ask(record, finished, ranker.agent, ranked, labels))
        quorum = 1 if asks else None
        asks = asks or [self._rank_ask(record, finished, None, versions, labels)]
        answers = await self._ask(QuestionBatch(at=f"{record.at}/rank", asks=tuple(asks), quorum=quorum))
        if Missing.OPEN in answers:
            raise NotRecorded(record.at)
        agents = {label: agent for agent, label in labels.items()}
        for ask, reply in zip(asks, answers, strict=True):
            ranking = RankRecord(agent=ask.agent, best=None)
            if isinstance(reply, Ranking):
                best, second = reply.vote().split()
                ranking = RankRecord(agent=ask.agent, best=agents[best], second=agents[second], reason=reply.reason)
            record.rankings.append(ranking)
        points = {author.agent: 0 for author in versions}
        firsts = dict(points)
        for each in record.rankings:
            if each.best is not None and each.second is not None:
                points[each.best] += 2
                points[each.second] += 1
                firsts[each.best] += 1
        return max(points, key=lambda agent: (points[agent], firsts[agent]))

    def _rank_ask(
        self,
        record: SubtaskRecord,
        finished: str,
        ranker: int | None,
        ranked: Sequence[_Author],
        labels: dict[int, str],
    ) -> SegmentQuestion:
        at = f"{record.at}/rank/{'neutral' if ranker is None else ranker}"
        # By label, and then shuffled: no order of agents shows.
        shown = sorted(ranked, key=lambda author: labels[author.agent])
        in_order = " ".join([labels[author.agent] for author in shown])
        Random(f"{at} {in_order}").shuffle(shown)  # noqa: S311 - seeded on purpose
        versions = [Version(label=labels[author.agent], text=author.text) for author in shown]
        asked = ToRank(**self._about(record, finished), versions=tuple(versions))
        return SegmentQuestion(at=at, agent=ranker, asked=asked)

    async def _finished_text(self, record: SubtaskRecord) -> str:
        """Join the finished text that the authors of a subtask see.

        Which texts are shown as summaries depends on the texts only, not on the summaries that others have asked for.
        """
        seen = self._seen_by(record)
        limit = self._strategy.context_tokens
        shown = [each.text for each in seen]
        for place, each in enumerate(seen):
            if limit is None or sum(map(len, shown)) <= limit * CHARS_PER_TOKEN:
                break
            if each.summary is None and not each.has_no_summary:
                asked = ToSummarize(objective=self._objective, subtask=each.objective, text=each.text)
                reply = await self._one_reply(f"{each.at}/summary", asked, record)
                each.summary = reply.summary if isinstance(reply, SegmentSummary) else None
                each.has_no_summary = each.summary is None
            if each.summary is not None:
                shown[place] = each.summary
        return SUBTASK_END.join(text for text in shown if text)

    def _seen_by(self, record: SubtaskRecord) -> list[SubtaskRecord]:
        done = [each for each in self.in_order if each.state == "done"]
        if self._strategy.sees == "all":
            return done
        return [each for each in done if each.at in record.parents]


class _Author:
    """Text of one agent in one subtask."""

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.segments: list[str] = []
        self.complete = False
        self.absent = False
        self.agreed = True

    @property
    def text(self) -> str:
        return SEGMENT_END.join(self.segments)

    def take(self, draft: SegmentRecord) -> None:
        """Take over a segment: behind the text so far, or in its place."""
        assert draft.segment is not None
        if draft.segment.mode == "override":
            self.segments, self.agreed = [], True
        if draft.segment.text.strip():
            self.segments.append(draft.segment.text.strip("\n"))
        self.complete = draft.segment.status == "complete" and bool(self.segments)
        self.agreed = self.agreed and draft.outcome == "passed"


def _draft(author: _Author, reply: Answer) -> SegmentRecord:
    if isinstance(reply, Segment):
        is_nothing = not reply.text.strip() and not author.segments  # "complete", although nothing is written
        return SegmentRecord(agent=author.agent, outcome="failed" if is_nothing else "open", segment=reply)
    assert isinstance(reply, Missing)
    author.absent = reply is Missing.ABSENT
    return SegmentRecord(agent=author.agent, outcome=reply.value)


def _validation(member: _Author, reply: Answer) -> ValidationRecord:
    if isinstance(reply, Validation):
        return ValidationRecord(agent=member.agent, passes=reply.passes, reason=reply.reason)
    assert isinstance(reply, Missing)
    member.absent = member.absent or reply is Missing.ABSENT
    return ValidationRecord(agent=member.agent, passes=None, missing=reply.value)


def _force(drafts: Sequence[SegmentRecord], authors: Sequence[_Author]) -> list[SegmentRecord]:
    """Choose the segments to take although too few passed: the ones that passed, and the one with most approvals.

    Ties go to fewer objections, then to the lower agent. Nothing that would replace verified text is forced.
    """
    written = [
        draft for draft in drafts if draft.validations and (draft.outcome == "passed" or not _replaces(draft, authors))
    ]
    best = max(written, key=lambda draft: (draft.approvals, -draft.objections, -draft.agent), default=None)
    taken = [draft for draft in written if draft.outcome == "passed" or draft is best]
    for draft in taken:
        draft.outcome = "forced"
    return taken


def _replaces(draft: SegmentRecord, authors: Sequence[_Author]) -> bool:
    return draft.segment is not None and draft.segment.mode == "override" and bool(authors[draft.agent].segments)
