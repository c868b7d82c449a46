"""The page of evidence: its quick parts lie in their intervals, and a figure outside ends the program with 1."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from tests import evidence
from tests.benchmarks.tiny import RIGHT


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


def test_a_part_that_is_written_again_leaves_the_rows_of_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "evidence.md"
    page.write_bytes(evidence.PAGE.read_bytes())
    monkeypatch.setattr(evidence, "PAGE", page)
    figure = evidence.of_trials("new", 54, 60, (0.9,), "no calls")
    monkeypatch.setitem(evidence.PARTS, "votes", lambda: iter([figure]))
    before = page.read_text()
    evidence.main(["votes", "--write"])
    kept = [row for row in before.splitlines() if not row.endswith("| `votes` |")]
    assert [row for row in page.read_text().splitlines() if not row.endswith("| `votes` |")] == kept
    assert page.read_text().count("| `votes` |") == 1


@pytest.mark.slow
def test_what_a_rung_leaves_is_for_the_next_one() -> None:
    steps: list[evidence.Shares] = [{RIGHT: 0.9, "wrong": 0.1}] * 10
    sure: list[evidence.Shares] = [{RIGHT: 1.0}] * 10
    wrong: list[evidence.Shares] = [{"wrong": 1.0}] * 10
    assert evidence.voted(([steps], evidence.ahead(1)))[0] == pytest.approx(0.9**10, rel=0.25)
    assert evidence.voted(([steps], evidence.unanimous(8)), ([sure], evidence.ahead(3, 3)))[0] == pytest.approx(1)
    assert evidence.voted(([steps], evidence.unanimous(8)), ([wrong], evidence.ahead(1)))[0] < 0.1
    climbs = evidence.improbable(evidence.ahead(3), 0.99, 0.1)
    assert (
        evidence.voted(([steps], climbs), ([sure], evidence.ahead(1)))[0]
        > evidence.voted(([steps], evidence.ahead(3)))[0]
    )
