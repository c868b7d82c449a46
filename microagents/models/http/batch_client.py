"""A client that sends requests in batches: a post waits for the result of its line, or is parked, and comes again once that is there.

A batch is recorded before it is created, with the ids of its lines, and its name as soon as it has one. Equal requests attach to it, also
after a crash. A create without an answer is looked for at the provider; only a batch that is not found is sent anew, and may be bought
twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, TypeVar

from msgspec import Struct, structs

from microagents.base.aio import Notifier, TaskScope
from microagents.base.errors import InvalidUsage, MicroagentsError, ModelUnavailable, NotSent, Parked, Stopped
from microagents.base.logs import log
from microagents.base.text_digests import digest_of
from microagents.base.user_code import described
from microagents.elections.election import total_usd
from microagents.elections.sample_batches import (
    LINE_BYTES,
    OPEN_STATES,
    BatchKind,
    BatchLedger,
    BatchState,
    SampleBatch,
)
from microagents.models.http.batch_wires import TRANSFER_S, BatchWire, Result
from microagents.models.http.sending import Answered, Body, Client, OnLine, Response, in_time
from microagents.models.model import Call
from microagents.models.sample_keys import HEADER

T = TypeVar("T")

MOMENT_S = 5.0
"""A batch is made once no line has come for so long."""
TICKS = 20
"""Turns of the event loop in which this shows: a loop that is busy with other rows may give the next line only after a while."""
MOST_LINES, MOST_BYTES = 10_000, 50_000_000
"""Lines and bytes of a batch, which are in memory until it is created, and once it is read. OpenAI takes 50,000, and 200 MB."""
MOST_UNSENT = 2
"""Batches that may be under creation at a time: beyond, requests wait before their lines are written into memory."""
LOST_S = 600.0
"""A batch that a provider does not know is lost after this time: lists lag, and batches are unknown for minutes, also later ones."""
LOOK_S = 15.0
"""Interval of the looks for such a batch."""
POLL_S = (1.0, 60.0)
"""Shortest and longest interval of the questions about a batch; between them a twentieth of its age."""
OUT_S = 7200.0
"""A run stops once a provider has not answered about a batch for so long; no provider's wish to wait is longer."""
OLDEST_S = 172_800.0
"""A run stops once a batch of this age has not ended: providers end them within a day."""
HOLD_S = 60.0
"""Results that no post takes within this time leave memory, and are read again once a post asks: parked work comes again when it can."""
DURABLE_S = 1.0
"""The sample of a reply that a post has taken is durable after this time: a commit takes a fiftieth of it."""
UNREAD = 3
"""So many readings of results are tried."""
TURNS = 3
"""Number of batches that a request goes in before its failure is an error."""
MOST_LOST = 5
"""A run stops once so many creates in a row had no answer."""
SMALL_SHARE = 0.003
"""A gathering of at most this share of the largest batch's lines is sent singly, if the run ends elections singly."""
AT_ONCE = 32
"""Creates of windows, and single calls, in flight at a time."""
NO_SUCH = 404


class _Lost(Exception):
    """The provider has not known a batch for `LOST_S`."""


Prices = Callable[[Body], tuple[float | None, float | None]]
"""Cost of a reply, and how much more the same one costs at once; None if a price is unknown."""


class BatchTerms(Struct, frozen=True, kw_only=True):
    """Terms of a run for its batches."""

    kind: BatchKind
    model: str
    """Provider and name of the model."""
    path: str
    """Path of its requests."""
    account: str
    """Fingerprint of address, key and workspace."""
    ends_singly: bool = False
    """Whether few lines, and lines that failed, are sent singly."""
    within_s: float | None = None
    """Age at which an open batch is cancelled; None for the provider's limit."""
    single_s: float = 120.0
    """Longest wait for a reply to a single request."""
    parks: bool = False
    """Whether posts do not wait for their batch: they are answered by `Parked`, and come again once it has ended."""


class PricedResult(Struct):
    """The result of a line."""

    response: Response
    cost_usd: float
    """Its cost; 0 if unknown."""
    saved_usd: float | None
    is_taken: bool = False
    """Whether a post has taken it."""


class FollowedBatch:
    """A batch from its first line on, and its results.

    Args:
        batch: its record; without lines while they are gathered.
        name: its name for posts that are parked.
    """

    def __init__(self, batch: SampleBatch, name: str) -> None:
        self.batch, self.name = batch, name
        self.unsent: dict[bytes, tuple[bytes, float | None]] = {}
        """Its lines and the most that each may cost, by their ids, until its creation has ended."""
        self.is_single = False
        """Whether its lines are sent singly, since they are too few."""
        self.task: asyncio.Task[None] | None = None
        """Follows it to its results."""
        self.error: MicroagentsError | None = None
        """The error that ended this."""
        self.changed = Notifier()
        """Notifies posts of results, of the error, and of the loss of the batch."""
        self.results: dict[bytes, PricedResult | None] = {}
        """Results in memory, by their lines; None for lines that failed, which are kept."""
        self.left = 0
        """Number of results in memory that no post has taken."""
        self.unclaimed_usd = batch.unclaimed_usd
        """Cost of results that no post has taken."""

    @property
    def is_over(self) -> bool:
        """Whether no post need be parked for it any more."""
        return self.is_single or self.batch.state not in OPEN_STATES

    @property
    def is_taken(self) -> bool:
        """Whether it is a window whose reply a post has taken."""
        return self.batch.kind == "window" and bool(self.results) and not self.left

    def claim(self, line: bytes) -> Response | None:
        """Take the result of a line; None if it failed."""
        result = self.results[line]
        if result is None:
            return None
        if not result.is_taken:
            result.is_taken = True
            self.left -= 1
            self.unclaimed_usd = max(0.0, self.unclaimed_usd - result.cost_usd)
            if not self.left:
                self.changed.notify()
        return result.response


class BatchClient:
    """Sends the requests of one model in batches, within one event loop.

    Args:
        wire: the provider's interface.
        single: sends requests singly.
        terms: the terms of the run.
        key_of: idempotency key of a call.
        most_usd: bounds the cost of a request, by its body.
        prices: prices of replies.
    """

    def __init__(
        self,
        wire: BatchWire,
        single: Client,
        terms: BatchTerms,
        *,
        key_of: Callable[[Call], str],
        most_usd: Callable[[Body], float | None],
        prices: Prices,
    ) -> None:
        self._wire, self._single, self._terms = wire, single, terms
        self._key_of, self._most_usd, self._prices = key_of, most_usd, prices
        self._ledger: BatchLedger
        self._loop = asyncio.get_running_loop()
        self._scope = TaskScope()
        self._held: dict[bytes, FollowedBatch] = {}
        """The last batch of each line."""
        self._batches: dict[str, FollowedBatch] = {}
        """Batches by their names, first made first."""
        self._names = count(1)
        self._next: FollowedBatch | None = None
        """The batch whose lines are gathered."""
        self._next_bytes = 0
        self._unsent = 0
        """Number of batches under creation."""
        self._sent = Notifier()
        """Notifies requests that wait until these are fewer."""
        self._due: asyncio.TimerHandle | None = None
        self._quiet = 0
        """Number of ticks since the last line."""
        self._reading = asyncio.Lock()
        """One batch of many lines has its results in memory at a time."""
        self._earlier = 0
        """Number of the last batch of earlier sittings."""
        self._lost = 0
        """Number of batches in a row that were lost."""
        self._largest = 0
        """Lines of the largest batch."""
        self._slots = asyncio.Semaphore(AT_ONCE)
        self.sent_singly = 0
        """Number of requests in flight in no batch."""
        self._has_ended = self._cancels = False

    async def attach(self, ledger: BatchLedger) -> None:
        """Take the records of the run.

        Raises:
            InvalidUsage: a batch without results belongs to another account.
        """
        self._ledger = ledger
        for batch in await ledger.recall():
            if (batch.model, batch.path) != (self._terms.model, self._terms.path):
                continue
            if batch.account != self._terms.account and batch.state in OPEN_STATES:
                raise InvalidUsage(
                    f"batch {batch.number} of this run ({batch.id or 'without a name so far'}, {batch.lines:,} lines) was made with "
                    "another address, key or workspace, which alone can read its results; resume with those, and nothing is lost; if the "
                    "key is gone, begin another run with --reuse and the name of this one, which takes the recorded replies"
                )
            self._held |= dict.fromkeys(batch.ids(), self._named(batch))
            self._largest = max(self._largest, batch.lines)
            self._earlier = batch.number

    def _named(self, batch: SampleBatch) -> FollowedBatch:
        """Name one more batch."""
        name = f"{self._terms.model} {next(self._names)}"
        followed = self._batches[name] = FollowedBatch(batch, name)
        return followed

    def has_bought(self, call: Call, *, earlier: bool = False) -> bool:
        """Whether a batch has the sample of a call, or it is gathered for one; with ``earlier`` only batches of earlier sittings count."""
        followed = self._held.get(line_of(self._key_of(call), 0))
        if followed is None or not earlier:
            return followed is not None
        return 0 < followed.batch.number <= self._earlier

    # -- requests ---------------------------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Answered:
        """Ask for a resource."""
        return await self._single.get(path)

    async def post(
        self,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        on_line: OnLine | None = None,  # noqa: ARG002 - a batch has whole replies
    ) -> Answered:
        """Wait for the result of a request.

        Raises:
            NotSent: the run is ending. The line stays in its batch.
            Parked: its batch takes hours, and the work is to be done again once it has ended.
            Stopped: the provider does not give the results of a batch.
        """
        turn = 0
        while turn < TURNS:
            if turn and self._terms.ends_singly:
                return await self._post_singly(path, body, headers)
            line = line_of(headers[HEADER], turn)
            followed = await self._with_result(line, body)
            if followed.is_single:
                return await self._post_singly(path, body, headers)
            response = followed.claim(line)
            if response is not None:
                return response
            turn += 1
        return ModelUnavailable("server", f"{TURNS} batches in a row gave no result for a request")

    async def _with_result(self, line: bytes, body: Body) -> FollowedBatch:
        """Wait for the batch of a line, until it has the result, or is to be sent singly. A line whose batch is lost is sent anew."""
        while True:
            while self._is_full and line not in self._held:
                await self._sent.wait()
            if self._has_ended:
                raise NotSent("a sample")
            followed = self._held.get(line) or self._gather(line, body)
            if followed.is_single or line in followed.results:
                return followed
            self._begin(followed)
            if self._terms.parks and not followed.is_over:
                raise Parked(followed.name)
            try:
                await self._change_of(followed)
            except asyncio.CancelledError:
                if followed is self._next:  # it is not wanted any more
                    followed.unsent.pop(line, None)
                    self._held.pop(line, None)
                raise

    @property
    def _is_full(self) -> bool:
        """Whether lines have to wait, since `MOST_UNSENT` batches are unsent."""
        return self._terms.kind == "file" and self._unsent >= MOST_UNSENT and not self._has_ended

    def _begin(self, followed: FollowedBatch) -> None:
        if followed is not self._next and (followed.task is None or followed.task.done()):
            followed.error = None
            followed.task = self._scope.start(self._follow(followed))

    async def _change_of(self, followed: FollowedBatch) -> None:
        """Wait for a change of a batch, unless it or the run has ended.

        Raises:
            NotSent: the run is ending.
            MicroagentsError: there are no results.
        """
        if not self._has_ended and followed.error is None:
            await followed.changed.wait()
        if self._has_ended:
            raise NotSent("a sample")
        if followed.error is not None:
            raise followed.error

    async def end_of(self, name: str) -> None:
        """Wait until the results of a batch are there that posts are parked for; returns at once if it is of another client.

        Raises:
            NotSent: the run is ending.
            MicroagentsError: there are no results.
        """
        followed = self._batches.get(name)
        while followed is not None and not followed.is_over:
            await self._change_of(followed)

    async def _post_singly(self, path: str, body: Body, headers: Mapping[str, str]) -> Answered:
        await asyncio.sleep(0)  # a draw may begin outside of a task, where nothing can have a timeout
        async with self._slots:
            self.sent_singly += 1
            try:
                return await in_time(self._single.post(path, body, headers), self._terms.single_s)
            finally:
                self.sent_singly -= 1

    def _gather(self, line: bytes, body: Body) -> FollowedBatch:
        """Put a request into the next batch, which is made once no other has come for a moment, or it is full."""
        text = self._wire.line(line, body)
        followed = self._next
        if followed is not None and (len(followed.unsent) == MOST_LINES or self._next_bytes + len(text) > MOST_BYTES):
            self._make(followed)
        if self._next is None:
            terms = self._terms
            self._next = self._named(
                SampleBatch(kind=terms.kind, model=terms.model, path=terms.path, account=terms.account)
            )
            self._next_bytes = 0
        followed = self._held[line] = self._next
        followed.unsent[line] = text, self._most_usd(body)
        self._next_bytes += len(text)
        self._quiet = 0
        if self._terms.kind == "window":
            self._make(followed)
        elif self._due is None:
            self._due = self._loop.call_later(MOMENT_S / TICKS, self._tick)
        return followed

    def _tick(self) -> None:
        """Make a batch once it was quiet for a moment, in which none had to wait."""
        self._quiet = 0 if self._is_full else self._quiet + 1
        if self._quiet < TICKS:
            self._due = self._loop.call_later(MOMENT_S / TICKS, self._tick)
            return
        self._due = None
        if self._next is not None and not self._has_ended:
            self._make(self._next)

    def _make(self, followed: FollowedBatch) -> None:
        """Make a batch of the gathered requests."""
        self._next = None
        lines = dict(sorted(followed.unsent.items()))
        is_small = self._terms.ends_singly and len(lines) <= SMALL_SHARE * self._largest
        if is_small or not lines:
            followed.is_single, followed.unsent = True, {}
            followed.changed.notify()
            return
        texts, most = zip(*lines.values(), strict=True)
        followed.batch = structs.replace(
            followed.batch,
            keys=b"".join(lines),
            body=digest_of(b"".join(texts)).hex(),
            made_at=time.time(),
            most_usd=None if None in most else sum(most),
        )
        followed.unsent = lines
        self._largest = max(self._largest, len(lines))
        self._unsent += 1
        self._begin(followed)

    # -- one batch --------------------------------------------------------------------------------------------------------------------

    async def _follow(self, followed: FollowedBatch) -> None:
        """Follow a batch to its results. Whatever ends this is told to its posts, too."""
        try:
            try:
                await self._give_results(followed)
            except _Lost:
                await self._lose(followed)
        except MicroagentsError as error:
            followed.error = error
        except Exception as error:  # noqa: BLE001 - any error must end the posts, not leave them waiting
            followed.error = _stuck(followed.batch, f"cannot be followed: {described(error)}", "resume to try again")
        followed.changed.notify()

    async def _give_results(self, followed: FollowedBatch) -> None:
        """Create a new batch, or find a recorded one; wait for its end, and hold its results until posts have taken them.

        Raises:
            _Lost: the provider does not know it.
            MicroagentsError: there are no results.
        """
        if followed.unsent:
            try:
                await self._create(followed)
            finally:
                followed.unsent = {}
                self._unsent -= 1
                self._sent.notify()
        if followed.batch.state == "intended":
            await self._find(followed)
        if followed.batch.state == "waiting":
            await self._wait(followed)
        if followed.batch.kind == "file":
            async with self._reading:
                await self._hold(followed)
        else:
            await self._hold(followed)
            await asyncio.sleep(DURABLE_S)
            await self._release(followed)

    async def _hold(self, followed: FollowedBatch) -> None:
        """Read the results of a batch, and hold them until all are taken, or none was for a while."""
        results = followed.results = await self._insist(followed, partial(self._read, followed))
        given = [each for each in results.values() if each is not None]
        followed.left = len(given)
        if followed.batch.state == "waiting":
            unclaimed_usd = followed.unclaimed_usd = sum(each.cost_usd for each in given)
            saved_usd, failed = total_usd([each.saved_usd for each in given]), len(results) - len(given)
            await self._change(followed, "ended", failed=failed, saved_usd=saved_usd, unclaimed_usd=unclaimed_usd)
        followed.changed.notify()
        before = -1
        while 0 < followed.left != before:
            before = followed.left
            with suppress(TimeoutError):
                await asyncio.wait_for(followed.changed.wait(), HOLD_S)
        if followed.batch.kind == "file":  # the reply of a window is held until it is released
            followed.results = {line: None for line, each in results.items() if each is None}
        await self._settle(followed)

    async def _release(self, followed: FollowedBatch) -> None:
        """Record that the reply of a window is asked for no more, and delete it at the provider."""
        self._drop(followed)
        await self._change(followed, "settled", unclaimed_usd=followed.unclaimed_usd)
        try:
            await self._wire.delete(followed.batch.id)
        except ModelUnavailable as error:
            remedy = "a stored reply could not be deleted; it is recorded, so delete it at the provider"
            log().warning(remedy, model=self._terms.model, reply=followed.batch.id, error=str(error))

    async def _change(self, followed: FollowedBatch, state: BatchState, **values: Any) -> None:
        """Record a batch, or its change."""
        batch = structs.replace(followed.batch, state=state, **values)
        followed.batch = structs.replace(batch, number=await self._ledger.keep(batch))

    async def _create(self, followed: FollowedBatch) -> None:
        """Create a batch; without an answer it stays intended. The request for it is repeated only if it cannot have arrived.

        Raises:
            ModelUnavailable: the provider refuses it, and nothing is bought.
        """
        await self._change(followed, "intended")
        texts = [text for text, _ in followed.unsent.values()]
        try:
            request = await self._insist(followed, partial(self._wire.prepare, followed.batch, texts))
            async with self._slots:
                name = await self._insist(followed, partial(self._wire.create, request), ("network", "busy"))
        except ModelUnavailable as error:
            if error.kind != "refused":
                return
            await self._change(followed, "refused")
            self._drop(followed)
            why = f"{self._terms.model} takes no batch: {error.args[1]}; leave --batch and @batch=... out to send calls singly"
            raise ModelUnavailable("refused", why, *error.args[2:]) from None
        await self._change(followed, "waiting", id=name)

    async def _find(self, followed: FollowedBatch) -> None:
        """Look for a batch whose create had no answer, until it cannot come up any more.

        Raises:
            _Lost: it is not found.
        """
        batch = followed.batch
        until_s = min(time.time(), batch.made_at + TRANSFER_S) + LOST_S
        while batch.kind == "file":
            others = [each.batch.id for each in self._batches.values() if each.batch.id]
            found = await self._insist(followed, partial(self._wire.find, batch, others))
            if found is not None:
                await self._change(followed, "waiting", id=found)
                return
            if time.time() >= until_s:
                break
            await asyncio.sleep(LOOK_S)
        raise _Lost

    async def _lose(self, followed: FollowedBatch) -> None:
        """Record that a batch is lost, and let its lines be sent anew."""
        batch = followed.batch
        await self._change(followed, "lost")
        self._drop(followed)
        log().warning(
            "a batch has no answer and is not found; its lines are sent anew, so they may be bought twice",
            batch=batch.number,
            lines=batch.lines,
            at_most_usd=batch.most_usd,
        )
        self._lost += 1
        if self._lost >= MOST_LOST:
            raise Stopped(
                f"{MOST_LOST} batches of {batch.model} in a row were sent without an answer and are not found, so each may be bought; "
                "all decisions so far are kept; resume once the provider answers"
            )
        await asyncio.sleep(POLL_S[0])

    def _drop(self, followed: FollowedBatch) -> None:
        """Forget a batch: its lines may go in another one."""
        self._batches.pop(followed.name, None)
        for line in followed.batch.ids():
            if self._held.get(line) is followed:
                del self._held[line]

    async def _insist(
        self, followed: FollowedBatch, asked: Callable[[], Awaitable[T]], kinds: tuple[str, ...] = ()
    ) -> T:
        """Ask about a batch until there is an answer.

        Args:
            followed: the batch.
            asked: asks once.
            kinds: failures after which it may be asked again; empty for all that may pass.

        Raises:
            ModelUnavailable: the failure is none of these, or refuses a new batch.
            Stopped: the provider refuses the question, does not answer for `OUT_S`, or gives results that cannot be read.
            _Lost: the provider has not known the batch for `LOST_S`.
        """
        began_s, tries, batch = self._loop.time(), 0, followed.batch
        while True:
            try:
                return await asked()
            except ModelUnavailable as error:
                is_refused = error.kind == "refused" and followed.unsent
                if is_refused or (kinds and error.kind not in kinds):
                    raise
                failed = error
            lasted_s, is_unknown = self._loop.time() - began_s, failed.status == NO_SUCH
            tries += 1
            if is_unknown and lasted_s >= LOST_S:
                raise _Lost
            is_hopeless = lasted_s > OUT_S or (failed.kind == "garbled" and tries == UNREAD)
            if is_hopeless or not (failed.retryable or is_unknown):
                raise _stuck(batch, f"cannot be read: {failed}", "resume once the provider answers")
            shortest_s, longest_s = POLL_S
            wait_s = max(failed.args[3] or 0.0, min(longest_s, shortest_s * 2.0 ** min(tries, 10) / 2))
            await asyncio.sleep(min(wait_s, OUT_S))

    async def _wait(self, followed: FollowedBatch) -> None:
        """Wait until a batch has ended; one that is too old is cancelled.

        Raises:
            Stopped: it does not end.
        """
        batch, shortest_s, longest_s = followed.batch, *POLL_S
        self._lost = 0
        most_s, poll = self._terms.within_s, partial(self._wire.poll, followed.batch.id)
        while (wait_s := await self._insist(followed, poll)) is not None:
            age_s = time.time() - batch.made_at
            if most_s is not None and age_s > most_s and await self._cancel(batch):
                most_s = None
            if age_s > OLDEST_S:
                raise _stuck(batch, "has not ended after two days", "look after it at the provider, and resume")
            await asyncio.sleep(min(OUT_S, wait_s or min(longest_s, max(shortest_s, age_s / 20))))

    async def _read(self, followed: FollowedBatch) -> dict[bytes, PricedResult | None]:
        """Read all results of a batch once, the first one of each line; lines without one have failed."""
        results: dict[bytes, PricedResult | None] = dict.fromkeys(followed.batch.ids())

        def take(line: bytes, response: Result) -> None:
            if response is None or results.get(line, response) is not None:
                return
            cost_usd, saved_usd = self._prices(response.found) if response.is_success else (0.0, 0.0)
            results[line] = PricedResult(structs.replace(response, found={}), cost_usd or 0.0, saved_usd)

        await self._wire.results(followed.batch, take)
        return results

    async def _settle(self, followed: FollowedBatch) -> None:
        """Record the cost of results that no post has taken, if it has changed."""
        batch, unclaimed_usd = followed.batch, followed.unclaimed_usd
        if batch.state == "ended" and unclaimed_usd != batch.unclaimed_usd:
            await self._change(followed, "ended", unclaimed_usd=unclaimed_usd)

    # -- the end ----------------------------------------------------------------------------------------------------------------------

    def let_go(self, *, cancels: bool) -> None:
        """End all waits, since the run ends; with ``cancels`` cancel the open batches, too."""
        self._has_ended, self._cancels = True, self._cancels or cancels
        self._sent.notify()
        for each in self._batches.values():
            each.changed.notify()

    async def close(self) -> None:
        """End all work on batches, and record the cost of results that no draw took; open ones stay recorded as they are."""
        if self._due is not None:
            self._due.cancel()
        batches = [*self._batches.values()]
        await self._scope.close()
        try:
            for each in batches:
                if each.is_taken:
                    await self._release(each)
                else:
                    await self._settle(each)
            if self._cancels:
                await asyncio.gather(*[self._cancel(each.batch) for each in batches])
        finally:  # also if the journal cannot be written
            await self._single.close()

    async def _cancel(self, batch: SampleBatch) -> bool:
        """Cancel a batch that has a name and no results; returns whether it is cancelled."""
        if batch.state != "waiting":
            return False
        try:
            async with self._slots:
                await self._wire.cancel(batch.id)
        except ModelUnavailable:  # it may have ended meanwhile
            return False
        return True


def line_of(key: str, turn: int) -> bytes:
    """Return the id of the line of a request.

    Args:
        key: idempotency key of the request.
        turn: number of batches that it failed in before.
    """
    return digest_of(f"{key}\0{turn}", LINE_BYTES)


def _stuck(batch: SampleBatch, why: str, remedy: str) -> Stopped:
    named = f"batch {batch.number} of {batch.model} ({batch.id or 'without a name so far'})"
    return Stopped(f"{named} {why}; nothing is lost, and the batch stays recorded; {remedy}")
