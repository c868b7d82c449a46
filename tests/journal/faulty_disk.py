"""A disk with faults under SQLite: power cuts that leave what was synced and any part of the rest, refused changes, and lost syncs.

It is an SQLite VFS around the system's own, and this process's default one while it is in use. So the journal's code runs unchanged, on
real files, which hold what the operating system would show to any process. Of each file it keeps what is certain to be on the disk, and
the changes since the last sync, from which a power cut draws what is left.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int64, c_void_p, string_at
from pathlib import Path
from random import Random
from typing import Literal

from msgspec import Struct

SECTOR = 512
"""Bytes that a disk writes as a whole."""
TORN = 0.02
"""Share of the written sectors that are neither old nor new after a power cut, but random bytes."""
FULL, CANTOPEN = 13, 14
WRITE, SYNC, TRUNCATE, DELETE = (10 | kind << 8 for kind in (3, 4, 6, 10))
"""Changes of a file, by SQLite's codes for their errors; CANTOPEN is also the making of a file."""
LOGS = 0x0800 | 0x80000
"""Flags of rollback journals and write-ahead logs: the first sync of a new one syncs its folder, too."""

Fault = Literal["power cut", "lying disk", "kill", "full disk", "errors", "lost syncs"]
"""A power cut; one after which no sync was true; the death of the process; no room; errors of all changes; syncs that fail, after which the
system takes the changes for written, as Linux does."""


class Plan(Struct, frozen=True, kw_only=True):
    """A fault, and when it comes."""

    fault: Fault
    at: int
    """Number of the change at which it comes, from 1; a change is a write, a truncation, a sync, or the making or removal of a file."""
    until: float = 0
    """Number of the first change that a refusing disk makes again."""


class Stored:
    """What is certain to be in a file, and the changes since."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.changes: list[tuple[int, bytes | None]] = []
        """Offset and bytes of each write; size and None of each truncation."""

    def sync(self) -> None:
        """Let all changes be made for certain."""
        for at, written in self.changes:
            if written is None:
                del self.content[at:]
            self.content.extend(bytes(max(0, at - len(self.content))))
            if written is not None:
                self.content[at : at + len(written)] = written
        self.changes.clear()

    def lose(self, random: Random) -> None:
        """Let some changes be made, and lose the others: each sector has a version of its own, and so has the size."""
        of = len(self.changes)
        last, in_order = random.randint(0, of), random.random() < 0.5
        versions: dict[int, int] = {}
        """For each sector the number of the last change that reached it."""
        content, size = self.content, len(self.content)
        for number, (at, written) in enumerate(self.changes, start=1):
            if written is None:
                if number <= last:
                    content[at:], size = bytes(max(0, len(content) - at)), at
                continue
            end = at + len(written)
            content.extend(bytes(max(0, end - len(content))))
            for sector in range(at - at % SECTOR, end, SECTOR):
                version = versions.setdefault(sector, last if in_order else random.randint(0, of))
                if number <= version:
                    low, high = max(sector, at), min(sector + SECTOR, end)
                    is_torn = number == version and random.random() < TORN
                    content[low:high] = random.randbytes(high - low) if is_torn else written[low - at : high - at]
            if number <= last:
                size = max(size, end)
        del content[size:]
        self.changes.clear()


class Methods(Structure):
    """SQLite's methods of an open file."""

    _fields_ = (
        ("version", c_int),
        ("close", CFUNCTYPE(c_int, c_void_p)),
        ("read", c_void_p),
        ("write", CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)),
        ("truncate", CFUNCTYPE(c_int, c_void_p, c_int64)),
        ("sync", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("others", c_void_p * 13),
    )


class Vfs(Structure):
    """SQLite's interface to an operating system."""

    _fields_ = (
        ("version", c_int),
        ("file_bytes", c_int),
        ("most_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)),
        ("delete", CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)),
        ("others", c_void_p * 14),
    )


SQLITE = ctypes.CDLL(_sqlite3.__file__)
SQLITE.sqlite3_vfs_find.restype = POINTER(Vfs)


class Opened(Struct, kw_only=True):
    """An open file."""

    stored: Stored
    system: Methods
    syncs_folder: bool


class FaultyDisk:
    """The files of a folder on a disk with a fault.

    Args:
        folder: the folder; what is in it is certain to be on the disk.
        random: draws what is left.
        plan: the fault; None for none.
        on_end: called where the process or the power ends. From then on no change is made, so code that still runs changes nothing.
    """

    def __init__(
        self, folder: Path, random: Random, plan: Plan | None = None, on_end: Callable[[], object] = lambda: None
    ) -> None:
        self.changes = 0
        self.refused = 0
        """Number of changes that were refused."""
        self.has_ended = False
        self._folder = folder.resolve()
        self._random = random
        self._plan = plan
        self.on_end = on_end
        there = [each for each in self._folder.iterdir() if not each.name.endswith("-shm")]
        self._files = {str(each): Stored(each.read_bytes()) for each in there}
        self._on_disk = dict(self._files)
        self._renamed: list[tuple[str, Stored | None]] = []
        """Files that were made, and those that were removed (None), since the folder was synced."""
        self._open: dict[int, Opened] = {}
        """Open files by their address."""
        self._patched: dict[int, Methods] = {}
        """Our methods by the address of those in whose place they are."""

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let SQLite use this disk."""
        system = SQLITE.sqlite3_vfs_find(None)
        self._system = system.contents
        ours = Vfs.from_buffer_copy(self._system)
        ours.name = b"faulty"
        ours.open = type(ours.open)(self._opened)
        ours.delete = type(ours.delete)(self._deleted)
        SQLITE.sqlite3_vfs_register(byref(ours), 1)
        try:
            yield
        finally:
            SQLITE.sqlite3_vfs_unregister(byref(ours))
            SQLITE.sqlite3_vfs_register(system, 1)
            assert not self._open, "a connection is still open"

    def kill(self) -> None:
        """End the process; the system still has all changes."""
        for stored in self._files.values():
            stored.sync()
        self._sync_folder()
        self._end()

    def cut_power(self) -> None:
        """End the process and the system."""
        del self._renamed[self._random.randint(0, len(self._renamed)) :]
        self._sync_folder()
        for stored in self._on_disk.values():
            stored.lose(self._random)
        self._end()

    def restart(self) -> None:
        """Put the files into the folder that are left after the end."""
        for each in self._folder.iterdir():
            if each.is_dir():  # a copy of the journal that was saved after the end, so that it is not there
                shutil.rmtree(each)
            else:
                each.unlink()
        for name, stored in self._on_disk.items():
            Path(name).write_bytes(stored.content)

    def _end(self) -> None:
        self.has_ended = True
        self.on_end()

    # -- changes ----------------------------------------------------------------------------------------------------------------------

    def _refusal(self, change: int) -> int:
        """Count a change; returns the error with which it is refused, or 0."""
        self.changes += 1
        plan = self._plan
        if self.has_ended:
            return change
        if plan is None or not plan.at <= self.changes < plan.until:
            return 0
        code = {
            "full disk": FULL if change == WRITE else change if change == CANTOPEN else 0,
            "errors": change,
            "lost syncs": change if change == SYNC else 0,
        }.get(plan.fault, 0)
        self.refused += code != 0
        return code

    def _may_end(self) -> None:
        """End at the change that was just made, of which any part may be left."""
        plan = self._plan
        if plan is not None and self.changes == plan.at:
            if plan.fault == "kill":
                self.kill()
            elif plan.fault in ("power cut", "lying disk"):
                self.cut_power()

    @property
    def _is_lying(self) -> bool:
        return self._plan is not None and self._plan.fault == "lying disk"

    def _sync_folder(self) -> None:
        for name, stored in self._renamed:
            if stored is None:
                self._on_disk.pop(name, None)
            else:
                self._on_disk[name] = stored
        self._renamed.clear()

    # -- SQLite's methods -------------------------------------------------------------------------------------------------------------

    def _opened(self, vfs: int, name_at: int | None, file: int, flags: int, out: int | None) -> int:
        name = "" if name_at is None else os.fsdecode(string_at(name_at))
        if Path(name).parent != self._folder:
            return int(self._system.open(vfs, name_at, file, flags, out))
        path = Path(name)  # the engine may have made it, still empty, to set its rights
        is_new = name not in self._files and (not path.exists() or not path.stat().st_size)
        if is_new and (code := self._refusal(CANTOPEN)):
            return code
        if code := self._system.open(vfs, name_at, file, flags, out):
            return int(code)
        if is_new:
            self._files[name] = Stored()
            self._renamed.append((name, self._files[name]))
            self._may_end()
        methods_at = c_void_p.from_address(file)
        assert methods_at.value is not None
        system = Methods.from_address(methods_at.value)
        self._open[file] = Opened(stored=self._files[name], system=system, syncs_folder=is_new and bool(flags & LOGS))
        ours = self._patched.get(methods_at.value)
        if ours is None:
            ours = self._patched[methods_at.value] = Methods.from_buffer_copy(system)
            for each in ("close", "write", "truncate", "sync"):
                setattr(ours, each, type(getattr(ours, each))(getattr(self, f"_{each}")))
        methods_at.value = ctypes.addressof(ours)
        return 0

    def _deleted(self, vfs: int, name: bytes, syncs_folder: int) -> int:
        path = os.fsdecode(name)
        if path not in self._files:
            return int(self._system.delete(vfs, name, syncs_folder))
        if code := self._refusal(DELETE):
            return code
        code = self._system.delete(vfs, name, syncs_folder)
        del self._files[path]
        self._renamed.append((path, None))
        self._may_end()
        if syncs_folder and not (self.has_ended or self._is_lying):
            self._sync_folder()
        return int(code)

    def _close(self, file: int) -> int:
        return int(self._open.pop(file).system.close(file))

    def _write(self, file: int, data: int, size: int, at: int) -> int:
        opened = self._open[file]
        code = self._refusal(WRITE)
        if code and (self.has_ended or code != FULL):
            return code
        if code:  # as much as there is room for
            size = self._random.randrange(size)
        opened.stored.changes.append((at, string_at(data, size)))
        self._may_end()
        return code or int(opened.system.write(file, data, size, at))

    def _truncate(self, file: int, size: int) -> int:
        opened = self._open[file]
        if code := self._refusal(TRUNCATE):
            return code
        opened.stored.changes.append((size, None))
        self._may_end()
        return int(opened.system.truncate(file, size))

    def _sync(self, file: int, _: int) -> int:
        opened = self._open[file]
        code = self._refusal(SYNC)
        if code:
            if not self.has_ended and self._plan is not None and self._plan.fault == "lost syncs":
                opened.stored.lose(self._random)
            return code
        self._may_end()
        if self.has_ended:
            return SYNC  # it was under way
        if not self._is_lying:
            opened.stored.sync()
            if opened.syncs_folder:
                self._sync_folder()
                opened.syncs_folder = False
        return 0
