"""Files that take the place of others at once, and what a process leaves of them that is killed before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from microagents.base.files import replace_text, replacing
from microagents.runs.row_files import write_rows
from microagents.runs.row_forms import Dialect

OUT = Path("out.jsonl")
HANGING = "from pathlib import Path\nfrom microagents.base.files import replacing\nwith replacing(Path('out.jsonl')) as new:\n"
KILLED = f"{HANGING}    new.write_text('half')\n    import os\n    os.kill(os.getpid(), 9)\n"
ALIVE = f"{HANGING}    new.write_text('whole')\n    print(flush=True)\n    input()\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def names() -> set[str]:
    return {each.name for each in Path().iterdir()}


def write_row() -> None:
    write_rows(OUT, lambda: [{"state": "decided"}], Dialect())


def write_text() -> None:
    replace_text(OUT, "text")


@pytest.mark.parametrize("write", [write_row, write_text])
@pytest.mark.parametrize("umask", [0o022, 0o027, 0o777])
def test_a_new_file_has_the_mode_of_the_umask_and_one_that_is_replaced_keeps_its_own(
    write: Callable[[], None], umask: int
) -> None:
    before = os.umask(umask)
    try:
        write()
    finally:
        os.umask(before)
    assert mode(OUT) == 0o666 & ~umask
    OUT.chmod(0o604)
    write()
    assert (mode(OUT), names()) == (0o604, {OUT.name})


def test_only_this_user_may_read_a_file_before_it_is_whole() -> None:
    OUT.touch(0o644)
    with replacing(OUT) as new:
        assert mode(new) == 0o600
    assert mode(OUT) == 0o644


@pytest.mark.slow
def test_files_of_killed_processes_are_removed_by_the_next_that_replaces_and_those_of_living_ones_stay() -> None:
    with subprocess.Popen([sys.executable, "-c", ALIVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as alive:
        assert alive.stdin
        assert alive.stdout
        alive.stdout.readline()
        (of_living,) = names()
        subprocess.run([sys.executable, "-c", KILLED], check=False, timeout=60)
        (left,) = names() - {of_living}
        assert mode(Path(left)) == 0o600
        replace_text(Path("other"), "text")
        assert Path(left).exists(), "it is another's"
        replace_text(OUT, "text")
        assert names() == {OUT.name, "other", of_living}
        alive.communicate(b"\n", timeout=60)
    assert (names(), OUT.read_text(encoding="utf-8")) == ({OUT.name, "other"}, "whole")
