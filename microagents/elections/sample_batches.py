"""Batches of samples: requests that a provider answers within hours, for a lower price, and the records by which a run finds them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

from msgspec import Struct, structs

from microagents.elections.election import USD_DIGITS

LINE_BYTES = 16
"""Length of the id of a line: a digest of the key of its sample."""
BatchKind = Literal["file", "window"]
"""Many lines in one request, or one sample in a background request of its own."""
BatchState = Literal["intended", "waiting", "ended", "settled", "refused", "lost"]
"""Intended: it may have been created. Waiting: it has an id. Ended: its results were read. Settled: they are in the journal, and deleted at
the provider. Refused: nothing was created. Lost: it was created, if at all, without an id that was found, and its lines were sent anew."""
OPEN_STATES: tuple[BatchState, ...] = ("intended", "waiting")


class SampleBatch(Struct, frozen=True, kw_only=True):
    """A batch, as the journal records it: first before it is sent, so that a crash cannot lose it."""

    number: int = 0
    """Its number in the run, from 1; 0 before it is recorded."""
    kind: BatchKind
    model: str
    """Provider and name of its model."""
    path: str
    """Path of its requests behind the address of the provider."""
    account: str
    """Fingerprint of address, key and workspace: no other account can read its results."""
    keys: bytes = b""
    """Ids of its lines, sorted, one behind the other."""
    body: str = ""
    """Digest of its lines."""
    made_at: float = 0.0
    """Time of the intention, in seconds since 1970."""
    most_usd: float | None = None
    """Most that its lines can cost; None if the price is unknown."""
    state: BatchState = "intended"
    id: str = ""
    """Its name at the provider."""
    failed: int = 0
    """Lines that failed, expired or are missing in its results."""
    saved_usd: float | None = 0.0
    """Cost of the same replies at once, less their cost; None if a price is unknown."""
    unclaimed_usd: float = 0.0
    """Cost of results that no draw waited for, as far as it is known."""

    @property
    def lines(self) -> int:
        """Number of its lines."""
        return len(self.keys) // LINE_BYTES

    @property
    def tag(self) -> str:
        """Its name in the provider's lists, which no other batch has."""
        return f"microagents-{self.number}-{self.body}"

    def ids(self) -> Iterator[bytes]:
        """Yield the ids of its lines."""
        for place in range(0, len(self.keys), LINE_BYTES):
            yield self.keys[place : place + LINE_BYTES]


class BatchSums(Struct, frozen=True, kw_only=True):
    """Sums over the batches of a run."""

    made: int = 0
    """Batches that were recorded: the number of the last one."""
    open: int = 0
    """Batches without results so far."""
    open_lines: int = 0
    open_usd: float = 0.0
    """Most that their lines can cost."""
    ended: int = 0
    lines: int = 0
    """Lines of all batches with results."""
    failed: int = 0
    saved_usd: float = 0.0
    unclaimed_usd: float = 0.0
    lost: int = 0
    """Batches that may have been created without an answer. Their lines were sent anew, so they may be bought twice."""
    lost_lines: int = 0
    lost_usd: float = 0.0
    """Most that these lines can cost."""
    unpriced: int = 0
    """Batches with an unknown price."""

    def changed(self, before: SampleBatch | None, after: SampleBatch) -> BatchSums:
        """Return the sums once a batch has changed."""
        less, more = BatchSums() if before is None else _sums_of(before), _sums_of(after)
        values = {}
        for name, value in structs.asdict(self).items():
            values[name] = round(value + getattr(more, name) - getattr(less, name), USD_DIGITS)
        return BatchSums(**values)


def _sums_of(batch: SampleBatch) -> BatchSums:
    unpriced = int(batch.most_usd is None or batch.saved_usd is None)
    most_usd = batch.most_usd or 0.0
    if batch.state in OPEN_STATES:
        return BatchSums(made=1, open=1, open_lines=batch.lines, open_usd=most_usd, unpriced=unpriced)
    if batch.state == "lost":
        return BatchSums(made=1, lost=1, lost_lines=batch.lines, lost_usd=most_usd, unpriced=unpriced)
    if batch.state == "refused":
        return BatchSums(made=1)
    return BatchSums(
        made=1,
        ended=1,
        lines=batch.lines,
        failed=batch.failed,
        saved_usd=batch.saved_usd or 0.0,
        unclaimed_usd=batch.unclaimed_usd,
        unpriced=unpriced,
    )


class BatchLedger(Protocol):
    """Records of the batches of a run."""

    async def keep(self, batch: SampleBatch) -> int:
        """Record a batch, or its change; returns its number once it is durable."""
        ...

    async def recall(self) -> Sequence[SampleBatch]:
        """Return all recorded batches whose lines may still be asked for."""
        ...
