"""Effects across kill -9: the short form of ``python -m tests.benchmarks.effects``."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from uuid import uuid4

import pytest

from tests.benchmarks import effects
from tests.benchmarks.effects import POINTS, RUNS, TOOLS, done, fault_of, in_child, sitting
from tests.journal.walks import sql

HOW = "functions, local"


@pytest.mark.parametrize(
    ("tool", "point"),
    [
        ("mail", POINTS[2]),
        pytest.param("mail", POINTS[3], marks=pytest.mark.slow),
        *[pytest.param(*each, marks=pytest.mark.slow) for each in product(("label", "refund"), POINTS[1:4])],
    ],
)
def test_a_kill_at_any_point_neither_loses_nor_repeats_an_effect(tool: str, point: str) -> None:
    effects.check("functions, local", tool, point)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_so_do_tools_of_a_server_and_an_executor_on_ray() -> None:
    effects.check("server, Ray", "refund", POINTS[2])


@contextmanager
def stopped_amid_a_mail(run: str) -> Iterator[int]:
    """A process that is stopped after it has begun the call, and whose run another host has taken over meanwhile."""
    fault_of(run, "mail", "during the call", signal.SIGSTOP)
    child = os.fork()
    if not child:
        try:
            sitting(run, HOW)
        finally:
            os._exit(0)
    try:
        os.waitid(os.P_PID, child, os.WSTOPPED)
        sql(
            "UPDATE run SET content = json_set(content, '$.holder', NULL) WHERE part = 'lease'",
            journal=RUNS / f"{run}.sqlite",
        )
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "is_second"),
    [(signal.SIGCONT, False), *[pytest.param(signal.SIGKILL, each, marks=pytest.mark.slow) for each in (False, True)]],
)
def test_a_call_that_a_living_process_began_is_not_made_by_another_until_it_is_dead(
    number: signal.Signals,
    is_second: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The look-up finds nothing: who began the call may still make it. That may be who made it after the first one had died."""
    run = f"effects-{uuid4().hex[:12]}"
    if is_second:
        fault_of(run, "mail", "during the call")
        assert in_child(run, HOW)
    with stopped_amid_a_mail(run) as child:
        for _ in range(2):
            result = sitting(run, HOW)
            assert result.outcome == "undecided"
            assert f"process {child} is stopped: continue it (kill -CONT {child}) or end it" in str(result.reason)
        assert done(run)["mail"] == 0
        os.kill(child, number)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        assert done(run)["mail"] == (number == signal.SIGCONT)
        assert sitting(run, HOW).outcome == "completed"
    assert done(run) == Counter(TOOLS)
