"""Effects across kill -9: the short form of ``python -m tests.benchmarks.effects``."""

from __future__ import annotations

import pytest

from tests.benchmarks import effects
from tests.benchmarks.effects import POINTS, TOOLS


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_point_neither_loses_nor_repeats_an_effect(tool: str, point: str) -> None:
    effects.check("functions, local", tool, point)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "points"), [("server, local", POINTS[2:4]), ("functions, Ray", POINTS[1:4]), ("server, Ray", POINTS[2:3])]
)
def test_so_do_tools_of_a_server_and_an_executor_on_ray(how: str, points: tuple[str, ...]) -> None:
    for point in points:
        effects.check(how, "refund", point)
