"""Shared parts of benchmarks: their options, spreads of figures, waits, bills of sellers, servers, and processes that are killed."""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
WAIT_S = 300.0
"""Bound of every wait, also on a machine with much else to do."""


def parser_of(description: str | None, **options: Any) -> argparse.ArgumentParser:
    """Make a parser of options by their defaults.

    Args:
        description: docstring of the benchmark.
        options: default of each option: a type for an option without one, False for a switch, a list for values of which each is given by
            itself, and another collection for names of which some may be chosen.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in options.items():
        flag = f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(flag, type=default)
        elif isinstance(default, list):
            parser.add_argument(flag, type=type(default[0]), action=Chosen, default=default)
        elif isinstance(default, Collection) and not isinstance(default, str):
            parser.add_argument(flag, choices=default, action=Chosen, default=[*default])
        else:
            parser.add_argument(flag, type=type(default), default=default, help="(default: %(default)s)")
    return parser


class Chosen(argparse.Action):
    """Takes one name after the other in the place of all."""

    def __call__(self, _parser: object, found: argparse.Namespace, value: Any, _option: str | None = None) -> None:
        """Add a name."""
        chosen = getattr(found, self.dest)
        setattr(found, self.dest, [value] if chosen is self.default else [*chosen, value])


def options_of(description: str | None, **options: Any) -> argparse.Namespace:
    """Read the options of a command."""
    return parser_of(description, **options).parse_args()


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Write the median of values, with the least and the greatest."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def until(holds: Callable[[], object], what: str, every_s: float = 0.02, wait_s: float = WAIT_S) -> float:
    """Wait until something holds; returns the seconds that it took."""
    began_s = time.monotonic()
    while not holds():
        assert time.monotonic() - began_s < wait_s, f"not within {wait_s:g} s: {what}"
        time.sleep(every_s)
    return time.monotonic() - began_s


def most_mb(process: int | str = "self") -> float:
    """The most memory that a process has had resident so far; 0 once it has ended.

    `resource.getrusage` begins at the memory of the process that started it.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    most = re.search(r"VmHWM:\s*(\d+) kB", status)
    return 0.0 if most is None else int(most[1]) / 1024


def sent(purchases: Path) -> int:
    """Count the calls that reached a simulated seller."""
    return purchases.read_text().count("sent ") if purchases.exists() else 0


def free_port() -> int:
    """A port of this machine that no program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def served_by(server: HTTPServer) -> Iterator[str]:
    """Let a server answer in a thread; yields its address."""
    with server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def is_killed(work: Callable[[], object]) -> bool:
    """Do work in a process of its own; returns whether that was killed."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException:  # noqa: BLE001 - whatever it is, it is shown and the process ends here
            traceback.print_exc(file=sys.stderr)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def checked(check: Callable[[int], T], options: argparse.Namespace) -> tuple[list[T], list[int]]:
    """Check the seeds that options name, and print those that fail; returns the findings, and the seeds that failed."""
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    found, failed = list[T](), list[int]()
    for seed in seeds:
        try:
            found.append(check(seed))
        except AssertionError as error:
            failed.append(seed)
            print(f"seed {seed} fails: {error} {getattr(error, '__notes__', '')}", flush=True)
    return found, failed
