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
    ("how", "point"), [("server, local", POINTS[2]), ("functions, Ray", POINTS[3]), ("server, Ray", POINTS[2])]
)
def test_so_do_tools_of_a_server_and_an_executor_on_ray(how: str, point: str, request: pytest.FixtureRequest) -> None:
    if how.endswith("Ray"):
        request.getfixturevalue("ray_here")
    effects.check(how, "refund", point)
