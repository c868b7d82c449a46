"""A client that sends requests in batches: a post waits for the result of its line, or is parked, and comes again once that is there.

A batch is recorded before it is created, with the ids of its lines, and its name as soon as it has one. Equal requests attach to it, also
after a crash. A create without an answer is looked for at the provider; only a batch that is not found is sent anew, and may be bought
twice.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from msgspec import Struct, structs

from microagents.base.aio import Notifier, TaskScope
from microagents.base.errors import InvalidUsage, MicroagentsError, ModelUnavailable, NotSent, Parked, Stopped
from microagents.base.logs import log
from microagents.base.user_code import described
from microagents.elections.sample_batches import (
    LINE_BYTES,
    OPEN_STATES,
    BatchKind,
    BatchLedger,
    BatchState,
    SampleBatch,
)
from microagents.models.http.batch_wires import TRANSFER_S, BatchWire, Result
from microagents.models.http.sending import Client, OnLine, Response
from microagents.models.sample_keys import HEADER, read_key

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
ID_BYTES = 8
"""First bytes of the id of a line, by which it is looked for."""
UNASKED_S = 30.0
"""Results that no post asks for within this time are counted and left at the provider: parked work may come again only when it can."""
DURABLE_S = 1.0
"""The sample of a reply that a post has taken is durable after this time: a commit takes a fiftieth of it."""
UNREAD = 3
"""So many readings of results are tried."""
TURNS = 3
"""Number of batches that a request goes in before its failure is an error."""
MOST_LOST = 5
"""A run stops once so many creates of one line in a row had no answer."""
SMALL_SHARE = 0.003
"""A gathering of at most this share of the largest batch's lines is sent singly, if the run ends elections singly."""
AT_ONCE = 32
"""Creates of windows, and single calls, in flight at a time."""
NO_SUCH = 404


class _Turn(Enum):
    """Next act of a post without a response."""

    FAILED = "failed"
    """Its line failed: it goes in another batch, or singly."""
    ANEW = "anew"
    """Its batch is lost: the same line is sent anew."""
    SINGLY = "singly"


class _Lost(Exception):
    """The provider has not known a batch for `LOST_S`."""


Answer = Response | MicroagentsError | _Turn
Post = asyncio.Future[Answer]
"""The wait for the result of a line."""
End = asyncio.Future[MicroagentsError | None]
"""The wait for the end of a batch, with the error that ended it."""
Prices = Callable[[Mapping[str, Any]], tuple[float | None, float | None]]
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


class FollowedBatch:
    """A batch, the posts that wait for its lines, and its results.

    Args:
        batch: its record.
        name: its name for posts that are parked.
        ended: the wait for its end.
        lines: its lines, if it is new.
    """

    def __init__(self, batch: SampleBatch, name: str, ended: End, lines: Sequence[bytes] = ()) -> None:
        self.batch, self.name = batch, name
        self.unsent = lines
        """Its lines until its creation has ended."""
        self.waiting: dict[bytes, Post] = {}
        self.task: asyncio.Task[None] | None = None
        """Waits for its results, or reads them."""
        self.ended = ended
        self.asked = asyncio.Event()
        """Set once a post has asked for a result."""
        self.results: dict[bytes, PricedResult | None] | None = None
        """Results that no post has taken, by their lines; None for those that failed. None before they are read."""
        self.unclaimed_usd = batch.unclaimed_usd
        """Cost of those that no post has taken."""
        self.left = 0
        """Number of them."""
        first_bytes = [batch.keys[place : place + ID_BYTES] for place in range(0, len(batch.keys), LINE_BYTES)]
        self._numbers = array("Q", [int.from_bytes(each) for each in first_bytes])
        """The first bytes of its lines as numbers: thousands of lines are looked for in tens of batches."""

    def has(self, line: bytes) -> bool:
        """Whether it has a line with this id."""
        number = int.from_bytes(line[:ID_BYTES])
        place = bisect_left(self._numbers, number)
        return place < len(self._numbers) and self._numbers[place] == number and self.batch.has(line)

    @property
    def has_ended(self) -> bool:
        """Whether the provider has said that it has ended."""
        return self.ended.done() and self.ended.result() is None

    @property
    def is_taken(self) -> bool:
        """Whether it is a window whose reply a post has taken."""
        return self.batch.kind == "window" and self.results is not None and not self.left

    @property
    def lost_as(self) -> bytes:
        """Key of the count of lost batches: the line of a window, and one for all files."""
        return self.batch.keys if self.batch.kind == "window" else b""

    def give(self, answer: MicroagentsError | _Turn) -> None:
        """Give all posts that wait one answer."""
        waiting, self.waiting = self.waiting, {}
        for post in waiting.values():
            _set(post, answer)

    def claim(self, line: bytes) -> Response | _Turn:
        """Take the result of a line."""
        assert self.results is not None
        result = self.results.get(line)
        if result is None:
            return _Turn.FAILED
        del self.results[line]  # a post that comes again reads it again
        self.left -= 1
        self.unclaimed_usd = max(0.0, self.unclaimed_usd - result.cost_usd)
        return result.response


class PricedResult(Struct, frozen=True):
    """A result that no post has taken."""

    response: Response
    cost_usd: float


class Reading:
    """One reading of the results of a batch.

    Args:
        batch: the batch.
        prices: prices of replies.
    """

    def __init__(self, batch: SampleBatch, prices: Prices) -> None:
        self.results: dict[bytes, PricedResult | None] = dict.fromkeys(batch.ids())
        self.saved_usd: float | None = 0.0
        self._prices = prices

    def take(self, line: bytes, response: Result) -> None:
        """Take the result of a line, the first of it that comes."""
        if response is None or self.results.get(line, response) is not None:
            return
        cost_usd, saved_usd = self._prices(response.found) if response.is_success else (0.0, 0.0)
        if saved_usd is None or self.saved_usd is None:
            self.saved_usd = None
        else:
            self.saved_usd += saved_usd
        self.results[line] = PricedResult(structs.replace(response, found={}), cost_usd or 0.0)

    @property
    def failed(self) -> int:
        """Number of lines without a result."""
        return sum(each is None for each in self.results.values())

    @property
    def cost_usd(self) -> float:
        """Cost of all results, as far as it is known."""
        return sum(each.cost_usd for each in self.results.values() if each is not None)


class BatchClient:
    """Sends the requests of one model in batches, within one event loop.

    Args:
        wire: the provider's interface.
        single: sends requests singly.
        terms: the terms of the run.
        most_usd: bounds the cost of a request, by its body.
        prices: prices of replies.
    """

    def __init__(
        self,
        wire: BatchWire,
        single: Client,
        terms: BatchTerms,
        *,
        most_usd: Callable[[Mapping[str, Any]], float | None],
        prices: Prices,
    ) -> None:
        self._wire, self._single, self._terms = wire, single, terms
        self._most_usd, self._prices = most_usd, prices
        self._ledger: BatchLedger
        self._loop = asyncio.get_running_loop()
        self._scope = TaskScope()
        self._gathered: dict[bytes, tuple[bytes, float | None, Post]] = {}
        """Line, most cost and post of each request of the next batch, by its id."""
        self._gathered_bytes = 0
        self._sent = Notifier()
        """Notifies requests that wait until fewer batches are unsent."""
        self._due: asyncio.TimerHandle | None = None
        self._quiet = 0
        """Number of ticks since the last line."""
        self._files: list[FollowedBatch] = []
        """Batches of many lines, first made first."""
        self._windows: dict[bytes, FollowedBatch] = {}
        """Batches of one line, by its id."""
        self.earlier = 0
        """Number of the last batch of earlier sittings."""
        self._posts: dict[Post, str] = {}
        """Key of each post that waits."""
        self._ends: dict[str, End] = {}
        """The waits for the ends of batches that posts may be parked for, by the name that `Parked` has."""
        self._next = ""
        """This name of the next batch; empty before its first line."""
        self._singly = set[bytes]()
        """Lines to be sent singly, since too few came together."""
        self._lost = Counter[bytes]()
        """Number of batches in a row that were lost: of windows with this line, or of files."""
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
            name = self._name()
            self._take(FollowedBatch(batch, name, self._ends[name]))
            self.earlier = batch.number

    def _name(self) -> str:
        """Name one more batch."""
        name = f"{self._terms.model} {len(self._ends)}"
        self._ends[name] = self._loop.create_future()
        return name

    def _take(self, followed: FollowedBatch) -> None:
        if followed.batch.kind == "window":
            self._windows[followed.batch.keys] = followed
        else:
            self._files.append(followed)
            self._largest = max(self._largest, followed.batch.lines)

    def has_bought(self, key: str) -> bool:
        """Whether a batch has the request with an idempotency key, or it is gathered for one."""
        line = line_of(key, 0)
        return line in self._gathered or line in self._singly or self._holding(line) is not None

    def has_bought_before(self, key: str) -> bool:
        """Whether a batch of an earlier sitting has it."""
        followed = self._holding(line_of(key, 0)) if self.earlier else None
        return followed is not None and 0 < followed.batch.number <= self.earlier

    def _holding(self, line: bytes) -> FollowedBatch | None:
        """Return the last batch that has a line; None if none has."""
        held = (each for each in reversed(self._files) if each.has(line))
        return self._windows.get(line) or next(held, None)

    # -- requests ---------------------------------------------------------------------------------------------------------------------

    async def get(self, path: str) -> Response | ModelUnavailable:
        """Ask for a resource."""
        return await self._single.get(path)

    async def post(
        self,
        path: str,
        body: dict[str, Any],
        headers: Mapping[str, str],
        on_line: OnLine | None = None,  # noqa: ARG002 - a batch has whole replies
    ) -> Response | ModelUnavailable:
        """Wait for the result of a request.

        Raises:
            NotSent: the run is ending. The line stays in its batch.
            Parked: its batch takes hours, and the work is to be done again once it has ended.
            Stopped: the provider does not give the results of a batch.
        """
        key = headers[HEADER]
        turn = 0
        while turn < TURNS:
            answer: Answer = _Turn.SINGLY
            if not (turn and self._terms.ends_singly):
                answer = await self._answer(key, line_of(key, turn), body)
            if answer is _Turn.SINGLY:
                return await self._post_singly(path, body, headers)
            if isinstance(answer, Response):
                return answer
            if isinstance(answer, MicroagentsError):
                raise answer
            turn += answer is _Turn.FAILED
        return ModelUnavailable("server", f"{TURNS} batches in a row gave no result for a request")

    async def _answer(self, key: str, line: bytes, body: Mapping[str, Any]) -> Answer:
        while self._is_full and self._holding(line) is None:
            await self._sent.wait()
        if self._has_ended:
            return _not_sent(key)
        if line in self._singly:
            return _Turn.SINGLY
        followed = self._holding(line)
        if followed is not None and followed.results is not None and line in followed.results:
            return self._claim(followed, line)
        if followed is not None and self._terms.parks and not followed.ended.done():
            self._begin(followed)
            raise Parked(followed.name)
        post: Post = self._loop.create_future()
        if followed is None:
            self._gather(line, body, post)
        else:
            followed.waiting[line] = post
            followed.asked.set()
            self._begin(followed)
        if followed is None and self._terms.parks:
            raise Parked(self._next)
        self._posts[post] = key
        try:
            return await post
        finally:
            del self._posts[post]

    @property
    def _is_full(self) -> bool:
        """Whether the next batch gets no more lines, since `MOST_UNSENT` batches are unsent."""
        return not self._has_ended and sum(bool(each.unsent) for each in self._files) >= MOST_UNSENT

    def _begin(self, followed: FollowedBatch) -> None:
        if followed.task is None or followed.task.done():
            followed.task = self._scope.start(self._follow(followed))

    async def end_of(self, name: str) -> None:
        """Wait until a batch has ended that posts are parked for; returns at once if it is of another client.

        Raises:
            NotSent: the run is ending.
            MicroagentsError: its end is not found out.
        """
        if name in self._ends:
            error = await asyncio.shield(self._ends[name])
            if error is not None:
                raise error

    async def _post_singly(
        self, path: str, body: dict[str, Any], headers: Mapping[str, str]
    ) -> Response | ModelUnavailable:
        await asyncio.sleep(0)  # a draw may begin outside of a task, where nothing can have a timeout
        async with self._slots:
            self.sent_singly += 1
            try:
                async with asyncio.timeout(self._terms.single_s):
                    return await self._single.post(path, body, headers)
            except TimeoutError:
                return ModelUnavailable("timeout", f"no complete reply within {self._terms.single_s:g} s")
            finally:
                self.sent_singly -= 1

    def _gather(self, line: bytes, body: Mapping[str, Any], post: Post) -> None:
        """Put a request into the next batch, which is made once no other has come for a moment, or it is full."""
        text, is_window = self._wire.line(line, body), self._terms.kind == "window"
        if len(self._gathered) == MOST_LINES or self._gathered_bytes + len(text) > MOST_BYTES:
            self._make()
        self._next = self._next or self._name()
        self._gathered[line] = text, self._most_usd(body), post
        self._gathered_bytes += len(text)
        self._quiet = 0
        if is_window:
            self._make()
        elif self._due is None:
            self._due = self._loop.call_later(MOMENT_S / TICKS, self._tick)

    def _tick(self) -> None:
        """Make a batch once it was quiet for a moment, in which none had to wait."""
        self._quiet = 0 if self._is_full else self._quiet + 1
        if self._quiet < TICKS:
            self._due = self._loop.call_later(MOMENT_S / TICKS, self._tick)
        else:
            self._due = None
            self._make()

    def _make(self) -> None:
        """Make a batch of the gathered requests that are still wanted."""
        gathered = {line: each for line, each in sorted(self._gathered.items()) if not each[2].done()}
        self._gathered, self._gathered_bytes = {}, 0
        name, self._next = self._next, ""
        ended = self._ends[name]
        if not gathered:
            ended.set_result(None)
            return
        lines, most, posts = zip(*gathered.values(), strict=True)
        if self._terms.ends_singly and len(lines) <= SMALL_SHARE * self._largest:
            self._singly.update(gathered)
            ended.set_result(None)
            for post in posts:
                _set(post, _Turn.SINGLY)
            return
        batch = SampleBatch(
            kind=self._terms.kind,
            model=self._terms.model,
            path=self._terms.path,
            account=self._terms.account,
            keys=b"".join(gathered),
            body=blake2b(b"".join(lines), digest_size=16).hexdigest(),
            made_at=time.time(),
            most_usd=None if None in most else sum(most),
        )
        followed = FollowedBatch(batch, name, ended, lines)
        if not self._terms.parks:
            followed.waiting = dict(zip(gathered, posts, strict=True))
        self._take(followed)
        self._begin(followed)

    # -- one batch --------------------------------------------------------------------------------------------------------------------

    async def _follow(self, followed: FollowedBatch) -> None:
        """Give the results of a batch to waiting posts. Whatever ends this ends them, too."""
        try:
            try:
                await self._give_results(followed)
            except _Lost:
                await self._lose(followed)
        except MicroagentsError as error:
            self._end(followed, error)
        except BaseException as error:
            self._end(
                followed, _stuck(followed.batch, f"cannot be followed: {described(error)}", "resume to try again")
            )
            raise

    def _end(self, followed: FollowedBatch, error: MicroagentsError) -> None:
        """End all waits for a batch by an error."""
        followed.give(error)
        _set(followed.ended, error)

    async def _give_results(self, followed: FollowedBatch) -> None:
        """Create a new batch, or find a recorded one; wait for its end, and give its results to waiting posts.

        Raises:
            _Lost: the provider does not know it.
            MicroagentsError: there are no results.
        """
        if followed.unsent:
            try:
                await self._create(followed)
            finally:
                followed.unsent = ()
                self._sent.notify()
        if followed.batch.state == "intended":
            await self._find(followed)
        if followed.batch.state == "waiting" and not followed.has_ended:
            await self._wait(followed)
        _set(followed.ended, None)
        if self._terms.parks:  # the posts come again; before the first one does, the results would only take memory
            with suppress(TimeoutError):
                await asyncio.wait_for(followed.asked.wait(), UNASKED_S)
        await self._read(followed)
        while followed.waiting or await self._comes_again(followed):
            await self._read(followed)
        if not followed.asked.is_set():
            followed.results = None
        if followed.batch.kind == "window":
            await self._release(followed)

    async def _comes_again(self, followed: FollowedBatch) -> bool:
        """Wait until the sample of a window is durable; returns whether it was asked for again, as after the death of a role."""
        if followed.batch.kind == "file":
            return False
        followed.asked.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(followed.asked.wait(), DURABLE_S)
        return followed.asked.is_set()

    async def _release(self, followed: FollowedBatch) -> None:
        """Record that the reply of a window is asked for no more, and delete it at the provider."""
        self._drop(followed)
        await self._change(followed, "settled", unclaimed_usd=followed.unclaimed_usd)
        await self._wire.delete(followed.batch.id)

    async def _change(self, followed: FollowedBatch, state: BatchState, **values: Any) -> None:
        """Record a batch, or its change."""
        batch = structs.replace(followed.batch, state=state, **values)
        followed.batch = structs.replace(batch, number=await self._ledger.keep(batch))

    async def _create(self, followed: FollowedBatch) -> None:
        """Create a batch; without an answer it stays intended. The request for it is repeated only if it cannot have arrived."""
        await self._change(followed, "intended")
        request = await self._insist(followed, partial(self._upload, followed))
        try:
            async with self._slots:
                name = await self._insist(followed, partial(self._wire.create, request), ("network", "busy"))
        except ModelUnavailable as error:
            if error.kind == "refused":
                await self._refuse(followed, error)
        else:
            await self._change(followed, "waiting", id=name)

    async def _upload(self, followed: FollowedBatch) -> bytes:
        try:
            return await self._wire.prepare(followed.batch, followed.unsent)
        except ModelUnavailable as error:
            if error.kind == "refused":
                await self._refuse(followed, error)
            raise

    async def _refuse(self, followed: FollowedBatch, error: ModelUnavailable) -> None:
        """Record that nothing was bought, and pass on the refusal.

        Raises:
            ModelUnavailable: the refusal.
        """
        await self._change(followed, "refused")
        self._drop(followed)
        why = f"{self._terms.model} takes no batch: {error.args[1]}; leave --batch and @batch=... out to send calls singly"
        raise ModelUnavailable("refused", why, *error.args[2:]) from None

    async def _find(self, followed: FollowedBatch) -> None:
        """Look for a batch whose create had no answer, until it cannot come up any more.

        Raises:
            _Lost: it is not found.
        """
        batch = followed.batch
        until_s = min(time.time(), batch.made_at + TRANSFER_S) + LOST_S
        while batch.kind == "file":
            others = [each.batch.id for each in self._files if each.batch.id]
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
        self._lost[followed.lost_as] += 1
        if self._lost[followed.lost_as] == MOST_LOST:
            raise Stopped(
                f"{MOST_LOST} batches of {batch.model} in a row were sent without an answer and are not found, so each may be bought; "
                "all decisions so far are kept; resume once the provider answers"
            )
        await asyncio.sleep(POLL_S[0])
        followed.give(_Turn.ANEW)
        _set(followed.ended, None)

    def _drop(self, followed: FollowedBatch) -> None:
        self._windows.pop(followed.batch.keys, None)
        self._files = [each for each in self._files if each is not followed]

    async def _insist(
        self, followed: FollowedBatch, asked: Callable[[], Awaitable[T]], kinds: tuple[str, ...] = ()
    ) -> T:
        """Ask about a batch until there is an answer.

        Args:
            followed: the batch.
            asked: asks once.
            kinds: failures after which it may be asked again; empty for all that may pass.

        Raises:
            ModelUnavailable: the failure is none of these.
            Stopped: the provider refuses the question, does not answer for `OUT_S`, or gives results that cannot be read.
            _Lost: the provider has not known the batch for `LOST_S`.
        """
        began_s, tries, batch = self._loop.time(), 0, followed.batch
        while True:
            try:
                return await asked()
            except ModelUnavailable as error:
                if (kinds and error.kind not in kinds) or followed.batch.state == "refused":
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
        self._lost.pop(followed.lost_as, None)
        most_s, poll = self._terms.within_s, partial(self._wire.poll, followed.batch.id)
        while (wait_s := await self._insist(followed, poll)) is not None:
            age_s = time.time() - batch.made_at
            if most_s is not None and age_s > most_s and await self._cancel(batch):
                most_s = None
            if age_s > OLDEST_S:
                raise _stuck(batch, "has not ended after two days", "look after it at the provider, and resume")
            await asyncio.sleep(min(OUT_S, wait_s or min(longest_s, max(shortest_s, age_s / 20))))

    async def _read(self, followed: FollowedBatch) -> None:
        """Read all results of a batch, record its sums, and give the results to waiting posts; lines without one have failed."""
        reading = await self._insist(followed, partial(self._read_once, followed))
        if followed.results is None:
            followed.results = reading.results
        else:
            followed.results |= {line: reading.results[line] for line in followed.waiting}
        followed.left = sum(each is not None for each in followed.results.values())
        if followed.batch.state == "waiting":
            followed.unclaimed_usd = reading.cost_usd
            await self._change(
                followed,
                "ended",
                failed=reading.failed,
                saved_usd=reading.saved_usd,
                unclaimed_usd=followed.unclaimed_usd,
            )
        waiting, followed.waiting = followed.waiting, {}
        for line, post in waiting.items():
            if not post.done():
                post.set_result(self._claim(followed, line))

    def _claim(self, followed: FollowedBatch, line: bytes) -> Response | _Turn:
        """Take the result of a line. Once all are taken, the sums of the batch have no unclaimed cost."""
        answer = followed.claim(line)
        if isinstance(answer, Response) and not followed.left:
            self._scope.start(self._settle(followed))
        return answer

    async def _settle(self, followed: FollowedBatch) -> None:
        """Record the cost of results that no post has taken, if it has changed."""
        batch, unclaimed_usd = followed.batch, followed.unclaimed_usd
        if batch.state == "ended" and unclaimed_usd != batch.unclaimed_usd:
            await self._change(followed, "ended", unclaimed_usd=unclaimed_usd)

    async def _read_once(self, followed: FollowedBatch) -> Reading:
        reading = Reading(followed.batch, self._prices)
        await self._wire.results(followed.batch, reading.take)
        return reading

    # -- the end ----------------------------------------------------------------------------------------------------------------------

    def let_go(self, *, cancels: bool) -> None:
        """End all waits, since the run ends; with ``cancels`` cancel the open batches, too."""
        self._has_ended, self._cancels = True, self._cancels or cancels
        self._sent.notify()
        for post, key in self._posts.items():
            _set(post, _not_sent(key))
        for ended in self._ends.values():
            _set(ended, _not_sent(""))

    async def close(self) -> None:
        """End all work on batches, and record the cost of results that no draw took; open ones stay recorded as they are."""
        if self._due is not None:
            self._due.cancel()
        batches = [*self._files, *self._windows.values()]
        await self._scope.close()
        for each in batches:
            await self._settle(each)
            if each.is_taken:
                await self._release(each)
        if self._cancels:
            await asyncio.gather(*[self._cancel(each.batch) for each in batches])
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
    return blake2b(f"{key}\0{turn}".encode(), digest_size=LINE_BYTES).digest()


def _set(waited: asyncio.Future[T], answer: T) -> None:
    """End a wait, unless it has ended."""
    if not waited.done():
        waited.set_result(answer)


def _not_sent(key: str) -> NotSent:
    named = read_key(key)
    return NotSent("a sample" if named is None else named.id.election.path)


def _stuck(batch: SampleBatch, why: str, remedy: str) -> Stopped:
    named = f"batch {batch.number} of {batch.model} ({batch.id or 'without a name so far'})"
    return Stopped(f"{named} {why}; nothing is lost, and the batch stays recorded; {remedy}")
