"""Requirements on a text that code checks: lines such as ``- check: at least 30 of "TEXT"`` in a brief.

Two of them hand the text to a real program, LaTeX or a browser. The text comes from models and is not trusted: the program runs in its own
folder, without this process's environment, and within bounds of time and disk. The text can reach neither a shell nor a network.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

COMPILE_S = 20.0
"""Bound on one run of LaTeX. Checks keep the event loop of the conductor, and Ray replaces a process that is silent for 30 s."""
OPEN_S = 20.0
"""Bound on one start of the browser, for the same reason; an empty page takes about 2 s."""
PAGE_MS = 5000
"""Time that a page is given in the browser, by the page's own clock."""
MAX_FILE_BLOCKS = 2**17
"""Greatest length of a file that a program may write, in blocks of 512 bytes."""
MAX_LOG_CHARS = 4_000_000
"""Length of the browser's log that is searched for errors."""
BROWSERS = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome", "google-chrome-stable")

Met = Callable[[str], bool | None]
"""Whether a text meets a requirement; None if the program for it is not installed."""

_LINE = re.compile(r"^[ \t]*[-*+][ \t]+check:(.*)$", re.MULTILINE | re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"\b(?:TODO|FIXME|TBD)\b|(?i:\blorem ipsum\b|\[(?:insert|your|add|fill in)\b[^\[\]\n]*\]|"
    r"\b(?:your|more|the rest of the|rest of the|remaining) (?:text|code|content|slides|frames|sections)(?: goes)? here\b)"
)
_PAGE_ERROR = re.compile(r':CONSOLE\W\d+\W+"Uncaught ')


class Requirement(NamedTuple):
    """A kind of requirement."""

    form: str
    """Form of a check, as error messages show it."""
    pattern: str
    met: Callable[[re.Match[str]], Met]
    """The check that a match asks for."""
    endings: tuple[str, ...] = ()
    """Endings of the files that it is for; empty for all."""


def requirements_in(brief: str, ending: str) -> dict[str, Met]:
    """Read the requirements in a brief, by their text. ``ending`` is the suffix of the text's file, such as ``.tex``."""
    return {asked: _met(asked, ending) for asked in map(str.strip, _LINE.findall(brief))}


def _met(asked: str, ending: str) -> Met:
    for each in REQUIREMENTS:
        if match := re.fullmatch(each.pattern, asked):
            if ending and each.endings and ending not in each.endings:
                raise ValueError(
                    f"the check {asked!r} is for files that end with {' or '.join(each.endings)}, and output ends with {ending}"
                )
            return each.met(match)
    raise ValueError(f"unknown check {asked!r:.100}; known: {', '.join(each.form for each in REQUIREMENTS)}")


def _counted(match: re.Match[str]) -> Met:
    way, number, wanted = match.groups()

    def met(text: str) -> bool:
        found = len(text.split()) if wanted is None else text.count(wanted)
        if way == "least":
            return found >= int(number)
        return found <= int(number)

    return met


def _parses(text: str) -> bool:
    """Whether Python reads a text as a program. It is not run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strange escapes
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


@lru_cache(maxsize=2)
def compiles(text: str) -> bool | None:
    """Return whether LaTeX compiles a text without an error; None if pdflatex is not installed."""
    program = shutil.which("pdflatex")
    if program is None:
        return None
    with TemporaryDirectory(prefix="microagents-") as folder:
        Path(folder, "text.tex").write_text(text, encoding="utf-8")
        # Paranoid: it opens files only below its own folder and of the LaTeX installation.
        words = [program, "-no-shell-escape", "-interaction=nonstopmode", "-halt-on-error", "text.tex"]
        ended = _run(words, folder, {"openin_any": "p", "openout_any": "p"}, COMPILE_S)
        return ended == 0 and os.path.isfile(Path(folder, "text.pdf"))


@lru_cache(maxsize=2)
def opens(text: str) -> bool | None:
    """Return whether a page opens in a browser without an uncaught error. None if no Chromium is installed or starts."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        return None
    with TemporaryDirectory(prefix="microagents-", ignore_cleanup_errors=True) as folder:
        page = Path(folder, "page.html")
        page.write_text(text, encoding="utf-8")
        words = [
            *(
                program,
                "--headless",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
                f"--user-data-dir={folder}/profile",
            ),
            # Names resolve to nothing and addresses lead to a closed port, this machine's included.
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--proxy-server=127.0.0.1:9", "--proxy-bypass-list=<-loopback>"),
            *("--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--disable-background-networking"),
            *("--enable-logging=stderr", f"--virtual-time-budget={PAGE_MS}", "--dump-dom", page.as_uri()),
        ]
        if os.geteuid() == 0:
            words.insert(1, "--no-sandbox")  # as root Chromium starts only without its sandbox
        ended = _run(words, folder, {}, OPEN_S)
        with Path(folder, "stderr").open(encoding="utf-8", errors="replace") as log:
            has_error = _PAGE_ERROR.search(log.read(MAX_LOG_CHARS)) is not None
        if has_error or ended is None or ended < 0:  # the page took too long, or wrote too much
            return False
        if ended == 0 and Path(folder, "stdout").stat().st_size:
            return True
        return None


def _run(words: Sequence[str], folder: str, environment: Mapping[str, str], timeout_s: float) -> int | None:
    """Run a program in a folder, with its output in the files ``stdout`` and ``stderr``; returns its exit status, None after a timeout."""
    # Nothing of this process's environment: it may hold keys.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": folder, "TMPDIR": folder, **environment}
    words = ["/bin/sh", "-c", f'ulimit -f {MAX_FILE_BLOCKS}; exec "$@"', "sh", *words]
    with Path(folder, "stdout").open("wb") as out, Path(folder, "stderr").open("wb") as err:
        process = subprocess.Popen(  # noqa: S603 - a program found by its name, and the text is an input file of it
            words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


REQUIREMENTS = (
    Requirement('contains "TEXT"', r'contains "(.+)"', lambda match: lambda text: match[1] in text),
    Requirement('lacks "TEXT"', r'lacks "(.+)"', lambda match: lambda text: match[1] not in text),
    Requirement(
        'at least N of "TEXT", at most N of "TEXT", at least N words, at most N words',
        r'at (least|most) (\d{1,9}) (?:of "(.+)"|words?)',
        _counted,
    ),
    Requirement("no placeholder", "no placeholder", lambda _: lambda text: not _PLACEHOLDER.search(text)),
    Requirement("parses", "parses", lambda _: _parses, (".py",)),
    Requirement("compiles", "compiles", lambda _: compiles, (".tex",)),
    Requirement(
        "opens in a browser without errors", "opens in a browser without errors", lambda _: opens, (".html", ".htm")
    ),
)
"""All kinds of requirements."""
