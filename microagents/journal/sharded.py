"""A run in shards, read as one: its journal has the inputs and the ending, the journals of its shards have the work.

These lie in a folder beside it, and have the places and the numbers of inputs of the whole.
"""

from __future__ import annotations

import os
import shlex
from array import array
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from heapq import merge
from itertools import chain, islice
from pathlib import Path
from types import TracebackType

from msgspec import structs

from microagents.base.errors import InvalidUsage, refusing
from microagents.base.files import replacing
from microagents.base.trust import without_code_of
from microagents.elections.sample_batches import SampleBatch
from microagents.journal.books import UndecidedElection
from microagents.journal.digests import in_order
from microagents.journal.messages import Account, InputEnding, OpenElection, Recalled
from microagents.journal.opening import holds_nothing, watch_unclear
from microagents.journal.queries import Row
from microagents.journal.reading import SUFFIX, OneInput, Reader, journal_of
from microagents.journal.requests import PersonDecision
from microagents.journal.seals import broken_seals, is_sealed
from microagents.journal.shard_sums import with_shards

FOLDER = ".shards"
"""Ending of the folder beside the journal of a run in shards."""
DEALT = "dealt"
"""Name of the file with the shard of each input: numbers of two bytes."""
MOST_SHARDS = 1 << 10


def shard_name(run_id: str, shard: int) -> str:
    """Name the run of a shard."""
    return f"{run_id}-{shard}"


def shard_journal(journal: Path, shard: int) -> Path:
    """Path of the journal of a shard."""
    return journal.with_suffix(FOLDER) / f"{shard_name(journal.stem, shard)}{SUFFIX}"


def write_dealt(journal: Path, shards: array[int]) -> None:
    """Record the shard of each input, durably.

    Raises:
        OSError: there is no room for it.
    """
    with replacing(journal.with_suffix(FOLDER) / DEALT) as new:
        new.write_bytes(shards.tobytes())


def read_dealt(journal: Path, inputs: int) -> array[int]:
    """Return the shard of each input.

    Raises:
        InvalidUsage: the file is missing, or it is of other inputs.
    """
    path, found = journal.with_suffix(FOLDER) / DEALT, array("H")
    with refusing(f"the shards of the inputs of run {journal.stem} cannot be read"):
        found.frombytes(path.read_bytes())
    if len(found) != inputs:
        raise InvalidUsage(f"{str(path)!r} has the shards of {len(found):,} inputs, and the run has {inputs:,}")
    return found


class ShardedReader(Reader):
    """The journals of a run in shards, opened for reading. A shard that was not begun has no rows.

    Raises:
        InvalidUsage: as of a `Reader`; or the file with the shards of the inputs is damaged.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._closing = ExitStack()
        self._opened: dict[int, Reader] = {}
        self._own: Reader | None = None
        """The journal of the whole alone."""
        try:
            self._dealt = read_dealt(path, self.experiment.inputs)
        except InvalidUsage:
            self._db.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()
        super().__exit__(kind, error, trace)

    # -- the shards -------------------------------------------------------------------------------------------------------------------

    def _shard(self, number: int) -> Reader | None:
        """Return a shard; None if it was not begun."""
        found = self._opened.get(number)
        if found is None:
            path = shard_journal(self.path, number)
            if holds_nothing(path):
                return None
            found = self._opened[number] = self._closing.enter_context(Reader(path))
        return found

    def _shards(self) -> list[Reader]:
        """Return the shards that were begun, in their order."""
        found = [self._shard(number) for number in range(self.experiment.shards)]
        return [each for each in found if each is not None]

    def holding(self, path: str) -> Reader:
        """Return the shard of a place. Without one, or before it was begun, that is the journal of the whole, which has nothing there."""
        number, shard = path.partition("/")[0], None
        if number.isdecimal() and int(number) < len(self._dealt):
            shard = self._shard(self._dealt[int(number)])
        if shard is not None:
            return shard
        if self._own is None:
            self._own = self._closing.enter_context(Reader(self.path))
        return self._own

    def journals(self) -> list[Path]:
        """Return the journals of the shards that were begun."""
        return [each.path for each in self._shards()]

    def shards(self) -> dict[str, str]:
        """Return the states of its shards by their names: as of an outcome, ``sealed`` once they are done, or ``not begun``."""
        return {
            shard_name(self.experiment.run_id, each): _state_of(self._shard(each)) for each in sorted({*self._dealt})
        }

    # -- sums over all ----------------------------------------------------------------------------------------------------------------

    def account(self, *, is_cut_off: bool = False) -> Account:
        """Return the sum of the accounts. Calls that were in flight in a process that was killed are lost."""
        parts = [each.account(is_cut_off=is_cut_off or each.lease().is_free) for each in self._shards()]
        return with_shards(super().account(), parts)

    def series(self, points: int) -> list[tuple[float, int, int, float]]:
        """Return the sums of all shards over the parts of the longest series."""
        every = [each.series(points) for each in self._shards()]
        longest = max(filter(None, every), key=lambda each: each[-1][0], default=[])
        found = [[end_s, 0, 0, 0.0] for end_s, *_ in longest]
        for end_s, *sums in chain.from_iterable(every):
            place = min(int(end_s / found[0][0] - 0.5), len(found) - 1)
            found[place][1:] = [before + more for before, more in zip(found[place][1:], sums, strict=True)]
        return [(end_s, int(decisions), int(samples), cost) for end_s, decisions, samples, cost in found]

    def inputs_overview(self) -> bytes:
        """Return a byte for each input; the shards of the others have zeros."""
        return _merged([super().inputs_overview(), *[each.inputs_overview() for each in self._shards()]])

    def input_sums(self) -> bytes:
        """Return the sums of each input; the shards of the others have zeros."""
        return _merged([super().input_sums(), *[each.input_sums() for each in self._shards()]])

    def row_elections(self) -> Iterator[tuple[int, Recalled | None]]:
        """Yield the elections of the rows of a table."""
        for each in self._shards():
            yield from each.row_elections()

    def equal_inputs(self) -> list[tuple[int, int]]:
        """Return the inputs that took the result of an earlier one, each with the number of that."""
        return sorted(pair for each in self._shards() for pair in each.equal_inputs())

    def rows_with(self, text: str) -> list[int]:
        """Return the inputs with a text in their row, their reply or their reason."""
        return sorted(number for each in self._shards() for number in each.rows_with(text))

    def input_endings(self, *, unsolved: int | None = None) -> Iterator[InputEnding]:
        """Yield the endings of inputs, in the order of their numbers."""
        every = [each.input_endings(unsolved=unsolved) for each in self._shards()]
        yield from islice(merge(*every, key=lambda each: each.input), unsolved)

    def inputs(self, numbers: Sequence[int] | None = None) -> Generator[OneInput]:
        """Yield many inputs, all or those with some numbers."""
        if numbers is not None:
            for number, options, _ in super().inputs(numbers):
                yield number, options, self.input_ending(number)
            return
        endings = self.input_endings()
        following = next(endings, None)
        for number, options, _ in super().inputs():
            if following is not None and following.input == number:
                yield number, options, following
                following = next(endings, None)
            else:
                yield number, options, None

    def decisions(self, of_input: int | None = None) -> Iterator[Row]:
        """Every decision and answer, of all inputs or of one, in the order of paths."""
        if of_input is not None:
            shard = self.holding(str(of_input))
            yield from self._timed(shard, shard.decisions(of_input))
            return
        every = [self._timed(each, each.decisions()) for each in self._shards()]
        yield from merge(*every, key=lambda row: in_order(row[0]))

    def _timed(self, shard: Reader, rows: Iterator[Row]) -> Iterator[Row]:
        """Count the time of rows from the start of the whole."""
        later_ms = round((shard.began_s - self.began_s) * 1000)
        for path, row in rows:
            yield path, structs.replace(row, after_ms=max(0, row.after_ms + later_ms))

    def open_elections(self, path: str | None = None) -> list[OpenElection]:
        """Return the elections without a verdict, or those at a path."""
        if path is None:
            return [election for each in self._shards() for election in each.open_elections()]
        return self.holding(path).open_elections(path)

    def last_batches(self, number: int) -> list[SampleBatch]:
        """Return at most this number of batches of samples of each shard."""
        return [batch for each in self._shards() for batch in each.last_batches(number)]

    def persons(self) -> dict[str, PersonDecision]:
        """Return the decisions of persons, by path."""
        return {path: person for each in self._shards() for path, person in each.persons().items()}

    def undecided(self) -> dict[str, UndecidedElection]:
        """Elections that are undecided and not settled, by path."""
        return {path: election for each in self._shards() for path, election in each.undecided().items()}

    def settled_at(self) -> dict[str, str]:
        """Return by path who or which model settled a decision that the vote left open."""
        return {path: who for each in self._shards() for path, who in each.settled_at().items()}

    def verify(self) -> list[str]:
        """Compare every row with the recorded totals and digests; returns a sentence for each difference."""
        found = self.damage()
        with ThreadPoolExecutor() as pool:
            for problems in pool.map(_problems_of, self.journals()):
                found += problems
        return found

    def interrupt(self) -> None:
        """End the query of another thread, if it has not ended."""
        super().interrupt()
        for each in [*self._opened.values()]:
            each.interrupt()

    # -- one place --------------------------------------------------------------------------------------------------------------------

    def input_ending(self, number: int) -> InputEnding | None:
        """Return how one of many inputs ended; None if it has not."""
        return self.holding(str(number)).input_ending(number)

    def decisions_below(self, path: str) -> list[Row]:
        """Return the decisions and answers below a path, in the order of paths, except the numbered ones directly below it."""
        return self.holding(path).decisions_below(path)

    def decision_at(self, path: str) -> Recalled | None:
        """Return the decision or the answer at a path; None if there is none."""
        return self.holding(path).decision_at(path)


def _problems_of(shard: Path) -> list[str]:
    """Compare a shard with its seal, and its rows with their totals."""
    found = list(broken_seals(shard))
    with Reader(shard) as reader:
        found += reader.verify()
    return [f"shard {shard.stem}: {problem}" for problem in found]


def _state_of(shard: Reader | None) -> str:
    if shard is None:
        return "not begun"
    if is_sealed(shard.path):
        return "sealed"
    if not shard.lease().is_free:
        return "running"
    ending = shard.ending()
    return "cut off" if ending is None else ending.outcome


def _merged(parts: Sequence[bytes]) -> bytes:
    """Merge bytes of one length. At each place at most one part has a byte that is not zero."""
    found = 0
    for each in parts:
        found |= int.from_bytes(each)
    return found.to_bytes(len(parts[0]))


def open_run(path: Path) -> Reader:
    """Open a run for reading by its journal, with its shards if it has some.

    Raises:
        InvalidUsage: as of a `Reader`.
    """
    reader = Reader(path)
    if not reader.experiment.shards:
        return reader
    with reader:
        return ShardedReader(path)


def _refuse_file(runs_dir: Path, given: str) -> None:
    """Refuse the file of a journal in place of the name of its run, and name the run."""
    for file in (Path(given), runs_dir / given):
        if file.suffix == SUFFIX and os.path.exists(file) and not os.path.exists(runs_dir / f"{given}{SUFFIX}"):
            elsewhere = os.path.realpath(file.parent) != os.path.realpath(runs_dir)
            folder = f" --runs-dir {shlex.quote(str(file.parent))}" if elsewhere else ""
            raise InvalidUsage(f"{given!r} is the file of a journal; name its run: {file.stem}{folder}")


@contextmanager
def reader_of(runs_dir: Path, run_id: str, *, trust: bool = False, watched: bool = False) -> Iterator[Reader]:
    """Open the journal of a run for reading. Of one that is not this user's, no code is imported inside the block.

    Args:
        runs_dir: the folder of journals.
        run_id: name of the run.
        trust: whether to trust it from now on.
        watched: whether to wait until it is clear whether the run is under way, see `watch_unclear`.

    Raises:
        InvalidUsage: the journal is missing, cannot be read, or belongs to another run.
    """
    _refuse_file(runs_dir, run_id)
    path = journal_of(runs_dir, run_id)
    if not os.path.exists(path):
        raise InvalidUsage(
            f"there is no run {run_id!r} in {os.path.realpath(runs_dir)!r}; `microagents list` shows the runs of a folder"
        )
    if watched:
        watch_unclear([path])
    with open_run(path) as reader:
        if reader.experiment.run_id != run_id:
            raise InvalidUsage(
                f"{str(path)!r} is the journal of run {reader.experiment.run_id}; rename the file to {reader.experiment.run_id}{SUFFIX}"
            )
        if trust:
            reader.trust()
        with nullcontext() if reader.is_known else without_code_of(run_id):
            yield reader
