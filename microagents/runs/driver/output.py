"""The files that the texts of documents are written into, by the process that started the run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from types import NoneType

import msgspec
from msgspec import Struct

from microagents.base.errors import InvalidUsage, TaskFailed
from microagents.base.files import replace_text
from microagents.base.logs import log
from microagents.base.user_code import called
from microagents.journal.messages import InputEnding
from microagents.journal.opening import holds_nothing
from microagents.journal.sharded import open_run
from microagents.runs.driver.following import is_followed, read_solution
from microagents.runs.driver.keywords import RunControl
from microagents.runs.plan import RunPlan
from microagents.runs.result import Result
from microagents.runs.row_files import check_new
from microagents.systems.documents.document import Document, text_in
from microagents.systems.documents.notes import DocumentRecord
from microagents.task import Task


class Outputs:
    """Output files of a run. For tasks that are no documents it does nothing.

    A text grows in ``<output>.part``. Once it is whole, that file becomes the output; an existing output is never overwritten.
    """

    def __init__(self, plan: RunPlan, journal: Path | None) -> None:
        self._plan = plan
        self._journal = journal
        self._tasks: Sequence[Task] = plan.tasks if isinstance(plan.tasks[0], Document) else ()
        self._paths: dict[int, Path | None] = {}
        """Outputs that were checked. ``output_path()`` may give another one at the next call."""
        self._written: dict[int, Path] = {}
        self._failed: set[int] = set()
        """Inputs whose text cannot be written. That is logged once."""

    def check(self, only: Sequence[int] | None) -> None:
        """Check the outputs of the inputs that have no recorded result yet: of some numbers, or with None of all."""
        if not self._tasks:
            return
        earlier = None if self._journal is None or holds_nothing(self._journal) else self._journal
        recorded = set() if earlier is None else set(_recorded_inputs(earlier))
        inputs_of: dict[Path, int] = {}
        for number in range(len(self._tasks)) if only is None else only:
            if number in recorded:  # its output may be there already, or be missing
                continue
            path = self._paths[number] = _output_of(self._tasks[number])
            if path is None:
                continue
            part = _part_of(path)
            for each in (path, part):
                if (other := inputs_of.setdefault(each, number)) != number:
                    raise InvalidUsage(
                        f"inputs {other} and {number} share the output {str(each)!r}; nothing was started; name two"
                    )
            check_new(path)
            if earlier is None:  # an earlier sitting may have left its text there
                check_new(part)

    def listening(self, control: RunControl) -> RunControl:
        """Return the control of the run whose callbacks write the outputs, too, before they call the caller's."""
        if not self._tasks:
            return control
        wanted = [self._grow, *filter(None, [control.get("on_solution")])]

        def on_solution(solution: Struct) -> bool:
            wanted[:] = [each for each in wanted if each(solution)]
            return bool(wanted)

        def on_ending(ending: InputEnding) -> None:
            if ending.result is not None:
                self._finish(ending.input, msgspec.json.decode(ending.result))
            if (of_caller := control.get("on_ending")) is not None:
                of_caller(ending)

        return {**control, "on_solution": on_solution, "on_ending": on_ending}

    def _grow(self, solution: Struct) -> bool:
        """Write the verified text of the only input so far into ``<output>.part``; returns whether it wants a longer one."""
        path = self._paths.get(0)
        if not isinstance(solution, DocumentRecord) or path is None or 0 in self._written:
            return False
        try:
            if solution.text:
                replace_text(_part_of(path), solution.text)
        except OSError as error:
            self._note_failure(0, path, error)
        return True

    def finished(self, result: Result) -> Result:
        """Write the outputs of a run that are not written yet; returns its result with their paths."""
        values = (
            enumerate([result.recorded] if result.failed_inputs is None else result.recorded) if self._tasks else ()
        )
        for number, value in values:
            self._finish(number, value)
        # A text that is not whole has also what was verified after the last read during the run.
        grows = self._paths.get(0) is not None and 0 not in self._written and is_followed(self._plan)
        if grows and self._journal is not None and (solution := read_solution(self._journal, self._plan)) is not None:
            self._grow(solution)
        return msgspec.structs.replace(result, outputs=tuple(self._written[number] for number in sorted(self._written)))

    def _finish(self, number: int, value: object) -> None:
        text = text_in(value)
        if text is None or number in self._written:
            return
        try:
            is_new = number in self._paths
            path = self._paths[number] if is_new else _output_of(self._tasks[number])
            if path is not None and _write_whole(path, text, is_new=is_new):
                self._written[number] = path
        except (OSError, ValueError, TaskFailed) as error:
            self._note_failure(number, self._paths.get(number), error)

    def _note_failure(self, number: int, path: Path | None, error: Exception) -> None:
        if number not in self._failed:
            self._failed.add(number)
            log().warning(
                "the text cannot be written into its output; the run's result has it",
                input=number,
                output=str(path),
                error=str(error),
            )


def _output_of(task: Task) -> Path | None:
    assert isinstance(task, Document)
    given = called(task.output_path, gives=(str, PathLike, NoneType))
    if given is None:
        return None
    return Path(os.path.realpath(Path(given).parent), Path(given).name)


def _recorded_inputs(journal: Path) -> Iterator[int]:
    with open_run(journal) as reader:
        if reader.experiment.listed:
            yield from (each.input for each in reader.input_endings() if each.result is not None)
        elif (ending := reader.ending()) is not None and ending.result is not None:
            yield 0


def _part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _write_whole(path: Path, text: str, *, is_new: bool) -> bool:
    """Write a whole text into its output; returns whether it is there.

    If another file has appeared there, it is kept. The text then stays in ``<output>.part``, if this sitting of the run wrote it.
    """
    if _holds(path, text):
        return True
    if not is_new and os.path.lexists(path):
        return False
    part = _part_of(path)
    replace_text(part, text)
    try:
        _rename_unless_there(part, path)
    except FileExistsError:
        log().warning(
            "the output appeared during the run, and was kept; the text is in the other file",
            output=str(path),
            text=str(part),
        )
        return False
    return True


def _holds(path: Path, text: str) -> bool:
    with suppress(OSError):
        return os.path.isfile(path) and path.read_bytes() == text.encode()
    return False


def _rename_unless_there(old: Path, new: Path) -> None:
    """Rename a file. Unlike `Path.rename`, it never replaces another one."""
    try:
        new.hardlink_to(old)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        new.touch(exist_ok=False)
        old.replace(new)
    else:
        old.unlink()
