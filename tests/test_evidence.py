"""The page of evidence: its quick parts lie in their intervals, and a figure outside ends the program with 1."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests import evidence


@pytest.mark.slow
def test_the_quick_figures_lie_in_their_intervals_and_stand_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert evidence.main(["recorded", "certain", "--check"]) == 0
    page = evidence.PAGE.read_text(encoding="utf-8")
    for line in capsys.readouterr().out.splitlines():
        assert line.split(" | ")[0] in page


def test_a_figure_that_has_left_its_interval_ends_the_program_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = evidence.of_trials("votes", 30, 60, (0.9,), "no calls")
    assert (figure.holds, evidence.of_trials("votes", 54, 60, (0.9,), "no calls").holds) == (False, True)
    for found, code in ((figure, 1), (structs.replace(figure, ours=0.9), 0)):
        monkeypatch.setitem(evidence.PARTS, "votes", [found].__iter__)
        assert evidence.main(["votes", "--check"]) == code
