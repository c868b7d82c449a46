"""An open election of a voter: its draws in flight, the ballots that arrived, and the count in launch order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from microagents.base.aio import CLOSE_S, Notifier, begin, wait_to_end
from microagents.base.errors import MicroagentsError, NotSent, Parked
from microagents.base.logs import log
from microagents.base.messages import resolve
from microagents.base.user_code import described, role_failed
from microagents.elections.admission import PAUSES
from microagents.elections.count import Count
from microagents.elections.election import (
    AnyBallot,
    Ballot,
    ElectionId,
    Flagged,
    Question,
    Rejected,
    SampleId,
    Verdict,
    Wanted,
)
from microagents.elections.rules import ByField, FirstValid
from microagents.journal.messages import RecordReply, RecordSample
from microagents.replies.reply import CheckedReply, Reply
from microagents.replies.reply_fields import prose_fields
from microagents.replies.reply_forms import decoder_of
from microagents.roles.meanings import FieldMeanings, Meanings
from microagents.roles.sampler import Sampler
from microagents.roles.verification import Verification
from microagents.task import Task, flag_of, verifies
from microagents.telemetry.tracing import ElectionTrace

if TYPE_CHECKING:
    from microagents.roles.voter import Voter

PARK_S = 5.0
"""Longest wait of a draw that is parked for the other draws of its election."""


class RunningElection:
    """An open election: its launched draws, the ballots that arrived, and the count."""

    def __init__(self, voter: Voter, election_id: ElectionId, question: Question, hedge: int | None) -> None:
        self.id = election_id
        self.arrivals: list[Ballot] = []
        """Valid ballots in order of arrival: for guesses, not for the count. A later one of the same seq replaces an earlier one."""
        self.count_is_closed = False
        """Whether no more ballots are counted: the election is decided, at its cap, failed or abandoned."""
        self.announced = False
        """Whether followers may read the verdict."""
        self.followers = 0
        """Number of requests that wait for the verdict."""
        self.draws: dict[int, asyncio.Task[None]] = {}
        """Draws in flight, by seq."""
        self._failure: MicroagentsError | None = None
        self._parked = ""
        """Name of the batch for which the first draw waits that waits for one; empty for none."""
        self._parks_at: asyncio.TimerHandle | None = None
        """Ends the wait for its other draws."""
        self._person: bytes | None = None
        """The reply that a person has decided for."""
        self._voter = voter
        self._question = question
        self._hedge = hedge or 0
        """Number of draws in flight beyond those needed."""
        task = self._task = voter.context.task_of(election_id.input, question.handed)
        # No method: the count of the election would refer to the election, and only the garbage collector would free both.
        self._fits = partial(_fits, question, task, election_id.path)
        self._count = self._new_count()
        self._fewest = self._count.tally.votes_needed
        """Number of ballots that decide it if all agree."""
        self._trace = None if voter.tracer is None else ElectionTrace(voter.tracer, election_id)
        self._sampler = Sampler(
            voter,
            election_id,
            question,
            known=voter.known,
            fewest=self._fewest,
            is_followed=hedge is not None,
            trace=self._trace,
        )
        self._launched = 0
        """Number of draws launched so far, paid ballots included."""
        self._is_launching = False
        self._paid: dict[int, AnyBallot] = {}
        """Ballots that were paid for before and are not launched yet, by seq."""
        self._arrived: dict[int, AnyBallot] = {}
        """Ballots that arrived but are not counted, by seq: an earlier one is missing."""
        self._flagged_ahead: set[int] = set()
        """Seqs of the flagged replies among them."""
        self._texts: dict[int, str] = {}
        """Valid raw replies by seq, unless they are recorded already. If a vote decides, the losers are recorded, else all."""
        self._updates = Notifier()
        """Notifies followers of ballots and of the verdict."""
        self._loop = asyncio.get_running_loop()
        self._guessed: dict[int, Ballot] = {}
        """Ballots among the arrivals that are not verified yet, by seq."""
        self._verification: Verification | None = None
        if task.looks_up or (question.state and verifies(type(task))):
            self._verification = Verification(self._sampler, guess=self._guess, record=voter.record)
        self._meanings = self._groups()

    def _new_count(self) -> Count:
        return Count(self.id, self._question, self._fits, is_of_many=self._voter.context.is_of_many)

    def _groups(self) -> Meanings | FieldMeanings | None:
        """Make the groups of replies that mean the same; None if equal votes count alone."""
        question, reply = self._question, resolve(self._question.reply, Reply)
        if question.votes == "exact":
            return None
        if not isinstance(question.rule, ByField):
            return self._meanings_of(reply)
        prose, parts = prose_fields(reply), question.rule.fields
        of_fields = [None if prose.isdisjoint(names) else self._meanings_of(Reply) for names in parts]
        return FieldMeanings([*zip(parts, of_fields, strict=True)])

    def _meanings_of(self, reply: type[Reply]) -> Meanings:
        return Meanings(
            self._sampler,
            reply,
            ask=self._voter.ask,
            on_found=self._count_after_comparison,
            on_failure=self.close_count,
        )

    def begin(self, paid: Sequence[AnyBallot | Rejected]) -> None:
        """Launch the election with its paid ballots, and the draws that it needs beyond them."""
        for each in paid:
            if not isinstance(each, Rejected):
                self._paid[each.seq] = each
            elif self._verification is not None:
                self._verification.take_up(each)
        self.launch()

    def launch(self) -> None:
        """Launch every draw that the decision needs, and the hedge.

        The number of launched draws is n + votes needed + f + hedge, at most the cap, with n counted ballots and f flagged replies
        that arrived beyond them; fewer if the models of a pool may contradict each other before. Without a hedge exactly the samples of the
        decisive prefix are drawn, in whatever order they arrive.
        """
        if self._is_launching:  # a draw has ended with its first step, and the loop below continues
            return
        self._is_launching = True
        wanted = self._wanted
        while not self.count_is_closed and self._launched < wanted:
            seq = self._launched
            paid = self._paid.pop(seq, None) if self._paid else None
            if paid is None and self._voter.admission in (*PAUSES, "nothing"):
                break
            if paid is not None:
                self._launched += 1
                self._arrive(seq, paid)
                wanted = self._wanted
                continue
            seqs = self._drawn_together(range(seq, wanted))
            self._launched = seqs.stop
            self._begin(seqs)
        self._is_launching = False
        # Draws that ended at once may leave more to draw. These wait an iteration, in which the run may be stopped, and other work is done.
        if wanted == self._launched < self._wanted and not self.count_is_closed:
            self._loop.call_soon(self.launch)
        else:
            self._park()

    def _park(self) -> None:
        """End the work on the election for now, if nothing but batches can give more samples. It goes on from the journal."""
        if not self.draws and not self._is_launching:
            self._park_all()

    def _park_all(self) -> None:
        """End the work for now although draws are not sent yet: they may wait for room that only the parked ones can give back."""
        if self._parked and not self.count_is_closed:
            self._record_texts()
            self.close_count(Parked(self._parked))

    def _drawn_together(self, seqs: range) -> range:
        """Return the first of these seqs that go in one request. A reply that was rejected is asked again by itself."""
        alike = self._sampler.alike(seqs)
        if len(alike) == 1:
            return alike
        known = {*self._paid, *[each.seq for each in self._rejected]}
        drawn_before = (place for place, seq in enumerate(alike) if seq in known)
        return alike[: max(1, next(drawn_before, len(alike)))]

    def _begin(self, seqs: range) -> None:
        """Begin to draw samples in one request; it is known by its first seq."""
        draw = self._draw_or_park(seqs[0]) if len(seqs) == 1 else self._draw_together(seqs)
        if self._voter.draws_are_eager:
            begun = begin(draw)
        else:
            begun = self._loop.create_task(draw)
        if begun is not None:
            self.draws[seqs[0]] = begun

    @property
    def _wanted(self) -> int:
        """Number of draws that should be launched so far."""
        return min(self._question.max_draws, self._count.fewest_draws(self._flagged_ahead) + self._hedge)

    def verdict(self) -> Verdict:
        """Return the verdict of the ballots counted so far.

        Raises:
            MicroagentsError: a draw, a screen or a vote failed with it.
        """
        if self._failure is not None:
            raise self._failure
        verdict = self._count.verdict()
        if self._person is None:
            return verdict
        return structs.replace(verdict.won_by(self._person), outcome="person")

    def settle(self, value: bytes) -> None:
        """End the election with the decision of a person, unless it is not a valid reply to its question."""
        if self.count_is_closed or isinstance(self._question.rule, FirstValid):  # samples are drawn without a vote
            return
        try:
            problem = _mistake_in(value, self._question, self._task, self.id.path)
        except Exception as error:  # noqa: BLE001 - a user's reply class or flag may raise anything
            problem = described(error)
        if problem is not None:
            log().warning("the decision of a person is ignored", path=self.id.path, why=problem)
            return
        self._person = value
        self._conclude()

    @property
    def paid(self) -> Sequence[AnyBallot | Rejected]:
        """All paid samples, counted or not."""
        return [*self._count.ballots, *self._arrived.values(), *self._paid.values(), *self._rejected]

    @property
    def _rejected(self) -> Sequence[Rejected]:
        if self._verification is None:
            return ()
        return self._verification.rejected

    @property
    def calls(self) -> list[asyncio.Task[None]]:
        """Draws in flight, first launched first, and the comparisons that are under way."""
        return [*self.draws.values(), *([] if self._meanings is None else self._meanings.comparisons)]

    async def cancel_draws(self) -> None:
        """Cancel the draws in flight, first launched first, and wait until they have ended, however often the caller is cancelled."""
        calls = self.calls
        for call in calls:
            call.cancel()
        try:
            await wait_to_end(calls, within_s=CLOSE_S)
        finally:
            if self._verification is not None:
                await self._verification.close()

    async def _draw_together(self, seqs: range) -> None:
        """Draw samples in one request, and take each in.

        If it gives some, the others go in another request; if it gives one, they are drawn singly.
        """
        try:
            given = await self._sampler.draw_together(seqs)
        finally:
            self.draws.pop(seqs[0], None)
        each = [range(seq, seq + 1) for seq in seqs]
        if 1 < given < len(seqs):
            each[given:] = [seqs[given:]]
        for part in each:
            if not self.count_is_closed:
                self._begin(part)

    async def _draw_or_park(self, seq: int) -> None:
        """Draw a sample. The last of several draws that wait for a batch ends the work on the election."""
        await self._draw(seq)
        self._park()

    async def _draw(self, seq: int) -> None:
        sample_id = SampleId(election=self.id, seq=seq)
        verification = self._verification
        try:
            prompt = self._sampler.prompt(seq)
            drawn = await (self._sampler.sample(seq, prompt) if verification is None else verification.sample(seq))
            if drawn is None:
                return
            sample, ballot = drawn
            assert not isinstance(ballot, Wanted)  # only rounds have one
        except NotSent:  # the run is ending: the election stays open, and a resumed run draws this sample
            return
        except Parked as error:
            if not self._parked:
                (self._parked,) = error.args
                self._parks_at = self._loop.call_later(PARK_S, self._park_all)
            return
        except MicroagentsError as error:
            self.close_count(error)
            return
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - any error must fail the election, not leave its followers waiting
            log().error("a draw failed", path=self.id.path, seq=seq, error=described(error))
            self.close_count(role_failed("Voter", "Elect", error))
            return
        finally:
            self.draws.pop(seq, None)  # one that ended with its first step was never in flight
        self._voter.record(RecordSample(id=sample_id, ballot=ballot))
        if isinstance(ballot, Flagged) or self._voter.keeps_all_texts:
            self._voter.record(RecordReply(id=sample_id, text=sample.text))
        else:
            self._texts[seq] = sample.text
        self._arrive(seq, ballot)
        if not self.count_is_closed:
            self.launch()

    def _guess(self, ballot: Ballot) -> None:
        """Show followers a ballot that is not verified yet."""
        self._guessed[ballot.seq] = ballot
        self.arrivals.append(ballot)
        self._updates.notify()

    def _arrive(self, seq: int, ballot: AnyBallot) -> None:
        """Take in a ballot, and count all ballots whose turn it is. The count is closed once it is decided or at the cap."""
        if self.count_is_closed:
            return
        self._arrived[seq] = ballot
        if isinstance(ballot, Flagged):
            if (
                not ballot.facts.said or self.arrivals
            ):  # a refusal is drawn again only once it is counted: it may end the election
                self._flagged_ahead.add(seq)
        elif self._guessed.pop(seq, None) != ballot:
            self.arrivals.append(ballot)
            self._updates.notify()
        self._count_on()

    def _count_on(self) -> None:
        """Count the ballots whose turn it is, and close the count once it is decided or at the cap."""
        try:
            self._count_arrived()
            if self._count.is_over:
                self._conclude()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - as in `_draw`
            self.close_count(error if isinstance(error, MicroagentsError) else role_failed("Voter", "Elect", error))

    def _count_arrived(self) -> None:
        # Counting arrivals would favour fast answers: a ballot waits here until every earlier one is in.
        count = self._count
        while not count.is_over and (ballot := self._arrived.get(len(count.ballots))) is not None:
            known = ballot if self._meanings is None else self._as_counted(ballot, self._meanings)
            if known is None:
                return
            del self._arrived[ballot.seq]
            count.add(known)
            if isinstance(ballot, Flagged):
                self._flagged_ahead.discard(ballot.seq)

    def _as_counted(self, ballot: AnyBallot, meanings: Meanings | FieldMeanings) -> AnyBallot | None:
        """Return the ballot as it counts by meaning; None while that is not known."""
        if isinstance(ballot, Flagged):
            return ballot
        return meanings.counted_as(ballot, self._count.vote_of(ballot.value))

    def _count_after_comparison(self, has_joined: bool) -> None:  # noqa: FBT001 - called by `Meanings` alone
        """Count on after the group of the next ballot is found; if groups became one, from the first ballot."""
        if self.count_is_closed:
            return
        if has_joined and self._meanings is not None:
            counted, self._count = self._count.ballots, self._new_count()
            for each in counted:
                self._count.add(self._as_counted(each, self._meanings) or each)
        self._count_on()
        if not self.count_is_closed:
            self.launch()

    def _conclude(self) -> None:
        """Close the count with a verdict."""
        self._record_texts()
        self.close_count(None)
        count = self._count
        is_decided = self._is_by_vote
        if self._trace is not None and self._trace.is_wanted(hard=not is_decided or len(count.ballots) > self._fewest):
            self._voter.record(self._trace.message(self.verdict()))

    def _record_texts(self) -> None:
        """Record the texts of replies that lost; all of them if a person may decide, or has decided."""
        for seq in self._count.losers() if self._is_by_vote else self._texts:
            if seq in self._texts:
                self._voter.record(RecordReply(id=SampleId(election=self.id, seq=seq), text=self._texts[seq]))

    @property
    def _is_by_vote(self) -> bool:
        """Whether the vote has decided it."""
        return self._person is None and self._count.tally.outcome not in (None, "contested")

    def close_count(self, failure: MicroagentsError | None) -> None:
        """Count no more ballots. Followers read the verdict, or the failure, on the next iteration of the loop."""
        if not self.count_is_closed:
            self.count_is_closed = True
            self._sampler.is_over = True
            self._failure = failure
            if self._parks_at is not None:
                self._parks_at.cancel()  # else it keeps the election in memory
            self._voter.announce_soon(self)
            self._updates.notify()

    def forget_failure(self) -> None:
        """Forget the failure, whose traceback refers to this election: only the garbage collector would free them."""
        self._failure = None

    def announce(self, failure: MicroagentsError | None) -> None:
        """Let followers read the verdict, or the failure: its own, or the keeper's."""
        self._failure = self._failure or failure
        self.announced = True

    def change(self) -> Awaitable[None]:
        """Wait for a ballot, or for the verdict. Once the count is closed, that is the next iteration of the loop."""
        if self.count_is_closed:
            return asyncio.sleep(0)
        return self._updates.wait()


def _fits(question: Question, task: Task, path: str, composed: bytes) -> bool:
    """Whether a reply that no sample gave may win: it passes the checks of samples. One that would have to be verified may not."""
    return not verifies(type(task)) and _mistake_in(composed, question, task, path) is None


def _mistake_in(value: bytes, question: Question, task: Task, path: str) -> str | None:
    """Return why a value is not a valid reply to a question; None if it is."""
    reply = decoder_of(resolve(question.reply, Reply)).decode(value)
    if question.choices and reply.vote() not in question.choices:
        return "it names none of the candidates"
    if isinstance(reply, CheckedReply) and (flaw := reply.flaw()) is not None:
        return f"its parts do not fit together: {flaw}"
    flag = flag_of(task, reply, question.state, at=path)
    if flag is None:
        return None
    return f"the task red-flags it as {flag!r}"
