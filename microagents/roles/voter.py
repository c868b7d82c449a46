"""The voter: runs elections. Ballots are counted in the order of their launch, and no call is made that could turn out unneeded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from hashlib import blake2b

from microagents.account import RecordCalls
from microagents.actors import Context, Post, Role
from microagents.chat import Reply, Usage, decoder_of
from microagents.elections import Ballot, Draw, Elect, ElectionId, Flagged, Follow, Question, SampleId, Screen, Verdict
from microagents.errors import MicroagentsError, RoleFailed
from microagents.messages import resolve
from microagents.voting import Tally


class Voter(Role):
    """Holds one election per id; whoever asks for one that is open joins it."""

    asks = (Draw, Screen, RecordCalls)

    def __init__(self, context: Context, post: Post) -> None:
        super().__init__(context, post)
        self._open: dict[ElectionId, Election] = {}

    async def elect(self, request: Elect) -> Verdict:
        """The verdict."""
        election = self._join(request)
        try:
            while not election.ended:
                await election.news()
            return election.verdict()
        finally:
            if self._is_left(election):
                await election.close()

    async def follow(self, request: Follow) -> AsyncIterator[Ballot | Verdict]:
        """Valid ballots as they arrive, those that have arrived before first; then the verdict."""
        election = self._join(request)
        shown = 0
        try:
            while True:
                while shown < len(election.arrivals):
                    yield election.arrivals[shown]
                    shown += 1
                if election.ended:
                    break
                await election.news()
            yield election.verdict()
        finally:
            if self._is_left(election):
                await election.close()

    def _join(self, request: Elect | Follow) -> Election:
        election = self._open.get(request.id)
        if election is None:
            election = self._open[request.id] = Election(self, request.id, request.question)
            election.launch()
        election.followers += 1
        return election

    def _is_left(self, election: Election) -> bool:
        """Take a follower's leave; whether it was the last, and draws are still under way."""
        election.followers -= 1
        if election.followers:
            return False
        del self._open[election.id]
        election.end(None)
        return bool(election.draws)


class Election:
    """One open election: what was launched, what arrived, what is counted."""

    def __init__(self, voter: Voter, election_id: ElectionId, question: Question) -> None:
        self.id = election_id
        self.arrivals: list[Ballot] = []
        """Valid ballots in the order of their arrival: to guess with, not to count."""
        self.ended = False
        self.followers = 0
        self._failure: MicroagentsError | None = None
        self.draws: dict[int, asyncio.Task[None]] = {}
        self._voter = voter
        self._question = question
        self._tally = Tally(question.rule)
        self._decoder = decoder_of(resolve(question.reply, Reply))
        self._launched = 0
        self._arrived: dict[int, Ballot | Flagged] = {}
        self._flagged_ahead = 0
        """Flagged replies that arrived beyond the counted prefix."""
        self._counted: list[Ballot | Flagged] = []
        self._bought: list[Usage] = []
        """What replies took that is not told to the recorder yet."""
        self._first: dict[Hashable, bytes] = {}
        """Per vote its first-launched reply."""
        self._votes: dict[bytes, Hashable] = {}
        self._news: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()

    def launch(self) -> None:
        """Draw as many samples as can still be needed, and not one more: launched = n + votes needed + flagged ahead, up to the cap."""
        wanted = min(self._question.max_draws, len(self._counted) + self._tally.votes_needed + self._flagged_ahead)
        while self._launched < wanted:
            self.draws[self._launched] = self._loop.create_task(self._draw(self._launched))
            self._launched += 1

    def verdict(self) -> Verdict:
        """How it ended.

        Raises:
            MicroagentsError: what a draw or a screen failed with.
        """
        if self._failure is not None:
            raise self._failure
        tally = tuple((self._first[vote], votes) for vote, votes in self._tally.counts.items())
        return Verdict(
            outcome=self._tally.outcome or "undecided",
            leader=self._tally.leader,
            tally=tally,
            ballots=tuple(self._counted),
        )

    async def close(self) -> None:
        """Cancel what is still drawn, first launched first, and wait until it has ended."""
        draws = list(self.draws.values())
        for draw in draws:
            draw.cancel()
        if draws:
            await asyncio.wait(draws)

    def news(self) -> asyncio.Future[None]:
        """Done once there is more to show; one for each follower, since one that leaves cancels what it awaits."""
        news = self._loop.create_future()
        self._news.append(news)
        return news

    async def _draw(self, seq: int) -> None:
        question, sample_id = self._question, SampleId(election=self.id, seq=seq)
        try:
            sample = await self._voter.ask(
                Draw(
                    id=sample_id,
                    prompt=question.prompts[seq % len(question.prompts)],
                    reply=question.reply,
                    temperature=question.sampling.temperature_of(seq),
                    max_output_tokens=question.sampling.max_output_tokens,
                    model=_model_of(sample_id, question.models),
                )
            )
            self._bought.append(sample.usage)
            if self.ended:
                self._tell_calls()
                return
            ballot = await self._voter.ask(
                Screen(
                    id=sample_id,
                    sample=sample,
                    reply=question.reply,
                    flag_above_tokens=question.sampling.flag_above_tokens,
                )
            )
            self._arrive(seq, ballot)
        except MicroagentsError as error:
            self.end(error)
        except Exception as error:  # a defect must end the election, not leave it waiting
            self.end(RoleFailed("Voter", "Elect", f"{type(error).__name__}: {error}"))
            raise
        finally:
            del self.draws[seq]

    def _arrive(self, seq: int, ballot: Ballot | Flagged) -> None:
        if self.ended:
            return
        self._arrived[seq] = ballot
        if isinstance(ballot, Ballot):
            self.arrivals.append(ballot)
            self._tell()
        else:
            self._flagged_ahead += 1
        self._count()
        if not self._tally.votes_needed or len(self._counted) == self._question.max_draws:
            self.end(None)
        else:
            self.launch()

    def _count(self) -> None:
        # Counting arrivals would favour fast answers: a ballot waits here until every earlier one is in.
        while self._tally.votes_needed and (ballot := self._arrived.pop(len(self._counted), None)) is not None:
            self._counted.append(ballot)
            if isinstance(ballot, Ballot):
                self._tally.count(self._vote(ballot.value))
            else:
                self._flagged_ahead -= 1

    def _vote(self, value: bytes) -> Hashable:
        if value in self._votes:  # most ballots are the same to the letter
            return self._votes[value]
        try:
            vote: Hashable = self._decoder.decode(value).vote()
            hash(vote)
        except (Exception, asyncio.CancelledError) as error:  # a reply's own vote() may raise anything
            raise RoleFailed("Voter", "Elect", f"vote() of {self._question.reply} raised {error!r}") from error
        self._votes[value] = vote
        self._first.setdefault(vote, value)
        return vote

    def end(self, failure: MicroagentsError | None) -> None:
        """No ballot counts from now on; what was bought is told once, before anybody hears of the verdict."""
        if not self.ended:
            self.ended = True
            self._failure = failure
            self._tell_calls()
            self._tell()

    def _tell_calls(self) -> None:
        if self._bought:
            self._voter.tell(RecordCalls(calls=len(self._bought), usage=_sum(self._bought)))
            self._bought.clear()

    def _tell(self) -> None:
        for news in self._news:
            if not news.done():
                news.set_result(None)
        self._news.clear()


def _model_of(sample: SampleId, models: tuple[str, ...]) -> str:
    """Each sample takes its model of a pool by its id, never by load."""
    if len(models) == 1:
        return models[0]
    digest = blake2b(sample.election.fork + f"{sample.election.path}\0{sample.seq}".encode(), digest_size=8).digest()
    return models[int.from_bytes(digest) % len(models)]


def _sum(usages: list[Usage]) -> Usage:
    input_tokens = output_tokens = 0
    cost_usd: float | None = 0.0
    for usage in usages:
        input_tokens += usage.input_tokens or 0
        output_tokens += usage.output_tokens or 0
        cost_usd = None if cost_usd is None or usage.cost_usd is None else cost_usd + usage.cost_usd
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens, cost_usd=cost_usd)
