"""A run on rows in a real browser: its table, the votes on a cell, and a person's decision there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Sitting, started, write
from tests.web.viewer.test_browser import TOKEN, served, until, visit
from tests.web.viewer.test_rows import ROWS, SHEET, run_sheet
from tests.web.viewer.test_server import MARKUP

__all__ = ["visit"]
pytestmark = [pytest.mark.slow, pytest.mark.browser]
LINES = "[...document.querySelectorAll('.rows tbody tr')]"
SHOWN = f"{LINES}.map((line) => Number(line.querySelector('th').textContent.replace(',', '')))"
ENDED = "performance.getEntriesByType('resource').{}((each) => each.name.includes('/rows?')).responseEnd"
BOUNDS = "(({left, right}) => [left, right])(document.querySelector('dialog.cell').getBoundingClientRect())"
TALLIED = (
    "document.querySelector('td.cell') && !document.querySelector('.chips').textContent.match(/(disputed|flagged) …/)"
)
JUDGEABLE = "document.querySelector('.chips')?.textContent.includes('wrong …')"


def chips(page: Any) -> dict[str, int]:
    """Number of rows behind each filter."""
    until(page, TALLIED)
    names = [each.partition(" ") for each in page.locator(".chips button").all_inner_texts()]
    return {name: int(number.replace(",", "")) for name, _, number in names if number != "…"}


def agreement_of(row: dict[str, Any]) -> float:
    """The least agreement of a row of the output."""
    votes = [row[each].partition("/") for each in row if each.endswith("_agreement")]
    return min(int(own) / int(all_votes) for own, _, all_votes in votes)


def choose(page: Any, name: str) -> None:
    page.locator(".chips button", has_text=name).click()
    until(page, f"document.querySelector('.chips [aria-pressed=true]').textContent.startsWith('{name}')")


def test_a_table_is_filtered_ordered_searched_and_leafed_through(visit: Callable[..., Any]) -> None:
    written = run_sheet(rows=120, do=started)
    undecided = [number for number, row in enumerate(written) if row["state"] == "undecided"]
    with served() as url:
        page = visit(f"{url}/run/r")
        until(page, JUDGEABLE)
        choose(page, "wrong")
        found = chips(page)
        assert (found["all"], found["open"]) == (120, len(undecided))
        assert found["wrong"] == started("show", "r", "--json").json["errors"]
        until(page, f"{SHOWN}.length === {found['wrong']}")
        assert page.locator(".rows tbody tr:has(td.cell.wrong)").count() == found["wrong"]
        choose(page, "all")
        until(page, f"{SHOWN}.length === 50")
        assert page.evaluate(SHOWN) == list(range(50))
        page.keyboard.press("j")
        until(page, f"{SHOWN}[0] === 50")
        page.keyboard.press("j")
        until(page, f"{SHOWN}.length === 20")
        page.reload()
        until(page, f"{SHOWN}[0] === 100")
        page.get_by_label("Search the rows").fill("land 3")
        until(page, f"{SHOWN}[0] === 3")
        assert page.evaluate(SHOWN) == [number for number in range(3, 120) if number % 7 == 3]
        page.get_by_label("Search the rows").fill("")
        until(page, f"{SHOWN}[0] === 0")
        choose(page, "open")
        until(page, f"{SHOWN}.join() === '{','.join(map(str, undecided[:50]))}'")
        choose(page, "disputed")
        page.get_by_label("Order by").select_option("agreement")
        least = [(agreement_of(row), number) for number, row in enumerate(written)]
        _, first = min((share, number) for share, number in least if 0 < share < 1)
        until(page, f"{SHOWN}[0] === {first}")
        shares = [agreement_of(written[number]) for number in page.evaluate(SHOWN)]
        assert shares == sorted(shares)
        assert shares[0] < 1


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_fits_the_window_and_its_texts_are_text(visit: Callable[..., Any], width: int, scheme: str) -> None:
    run_sheet(do=started)
    with served() as url:
        page = visit(f"{url}/run/r", width, color_scheme=scheme)
        until(page, TALLIED)
        for _ in range(2):
            assert MARKUP in page.locator("main").inner_text()
            assert page.locator("main script, main b").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.locator("tr:nth-child(2) td.cell button").first.click()
            left, right = page.evaluate(BOUNDS)
            assert 0 <= left < right <= width
            page.keyboard.press("Escape")
        page.goto(f"{url}/run/r?input=1")
        page.wait_for_selector("text=Samples in launch order")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    started("view", "r", "-o", "r.html")
    page = visit(Path("r.html").absolute().as_uri(), width, color_scheme=scheme)
    page.wait_for_selector("html[data-drawn]")
    assert page.evaluate(SHOWN) == list(range(ROWS))
    assert page.locator("td.cell.disputed").count()
    assert MARKUP in page.locator("main").inner_text()
    assert page.locator("main script, main b, td.cell button").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_person_decides_an_open_cell_with_the_row_beside_it(visit: Callable[..., Any]) -> None:
    run_sheet(do=started)
    with served() as url:
        page = visit(f"{url}/run/r?show=open#token={TOKEN}")
        until(page, TALLIED)
        before, number = chips(page)["open"], page.evaluate(SHOWN)[0]
        cell = page.locator("td.cell.open button").first
        field = page.locator(".rows thead tr:last-child th").nth(
            cell.evaluate("(each) => each.parentElement.cellIndex")
        )
        name = field.inner_text()
        cell.click()
        dialog = page.locator("dialog.cell")
        assert f"place {number}" in dialog.inner_text()
        votes = dialog.locator("fieldset").first
        assert votes.locator("legend").inner_text().startswith(f"{name} ◇ open")
        assert votes.locator("mark").count() >= 1, "what differs is marked"
        votes.get_by_placeholder("another value").fill("1234")
        dialog.get_by_role("button", name="Decide", exact=True).click()
        page.wait_for_selector("text=Decided by you.")
        assert dialog.get_by_role("button", name="Decide", exact=True).count() == 0
        page.keyboard.press("Escape")
        until(page, "document.querySelector('.rows td.cell.person')")
        assert chips(page)["open"] == before, "it is open until the run goes on"
    with closing(sqlite3.connect("runs/r.sqlite")) as db:
        ((place, value),) = db.execute("SELECT place, json_extract(payload, '$.value') FROM log WHERE kind = 'decide'")
    wanted = 1234 if name == "year" else "1234"
    assert (place, json.loads(value)[name]) == (f"{number}/step/0", wanted)
    started("resume", "r")
    with served() as url:
        page = visit(f"{url}/run/r?input={number}")
        page.wait_for_selector("text=settled by a person")
        assert page.locator("h1").inner_text() == f"Row {number}"
        assert "Account" not in page.locator("main").inner_text(), "it is about that row alone"


LARGE = """
    def expert(self, prompt: Prompt, reply: type[Reply]) -> Place:
        name, _, country = prompt.user.partition(", ")
        return Place(name=name, country=country.upper(), year=2**60)

    def flag(self, row: dict[str, str], reply: Place) -> str | None:
        return "loud" if row["no"] == 3 and reply.country.isupper() else None
"""


def decide(page: Any, cell: Any, values: dict[str, str]) -> None:
    """Open a cell, type values of fields, and decide."""
    cell.click()
    for name, value in values.items():
        page.locator(f"input[type=text][aria-label='Another value of {name}']").fill(value)
    with page.expect_response(lambda answer: answer.request.method == "POST"):
        page.get_by_role("button", name="Decide", exact=True).click()
    page.wait_for_selector("text=Decided by you")
    page.keyboard.press("Escape")


def test_large_numbers_and_rows_without_a_valid_reply_are_decided(visit: Callable[..., Any]) -> None:
    written = run_sheet(more=LARGE, do=started)
    number = next(i for i, row in enumerate(written) if row["state"] == "undecided" and row["open"] == "year")
    with served() as url:
        page = visit(f"{url}/run/r?show=open#token={TOKEN}")
        until(page, TALLIED)
        of_row = "tr:has(a[href='/run/r?input={}']) td.cell.open button"
        decide(page, page.locator(of_row.format(number)), {})
        decide(page, page.locator(of_row.format(3)).first, {"name": "here", "country": "there", "year": "7"})
    with closing(sqlite3.connect("runs/r.sqlite")) as db:
        found = dict(db.execute("SELECT place, json_extract(payload, '$.value') FROM log WHERE kind = 'decide'"))
    assert json.loads(found["3/step/0"]) == {"name": "here", "country": "there", "year": 7}
    assert json.loads(found[f"{number}/step/0"])["year"] > 1 << 53


def test_the_table_of_a_live_run_moves_on(visit: Callable[..., Any]) -> None:
    write("sheet.py", SHEET)
    Path("in.jsonl").write_text("".join(f'{{"place": "place {number}, land"}}\n' for number in range(60)))
    live = ("--model", "sim:perfect@latency=0.05", "--concurrency", "2", "--run-id", "r")
    with Sitting("run", "sheet.py", "--inputs", "in.jsonl", *live) as sitting, served() as url:
        sitting.until_sent(20)
        page = visit(f"{url}/run/r")
        until(page, "document.querySelector('td.cell')")
        filled = "document.querySelectorAll('.rows tbody tr:has(td.cell.agreed)').length"
        before = page.evaluate(filled)
        until(page, f"{filled} > {before}")
        assert sitting.end().code == 0
        until(page, f"{filled} === 50")


def test_the_queue_asks_for_the_cells_of_a_row(visit: Callable[..., Any]) -> None:
    run_sheet(do=started)
    with served() as url:
        page = visit(f"{url}/waiting#token={TOKEN}")
        page.wait_for_selector("text=Which values are right?")
        queued = int(page.locator("ol li").count())
        page.locator("fieldset").first.get_by_role("radio").first.check()
        page.get_by_role("button", name="Decide", exact=True).click()
        until(page, f"document.querySelectorAll('ol li').length === {queued - 1}")


def test_a_filter_of_a_long_table_reads_only_the_rows_that_it_shows(visit: Callable[..., Any]) -> None:
    run_sheet("--durability", "normal", rows=1000, do=started)
    with served() as url:
        page = visit(f"{url}/run/r")
        until(page, TALLIED)
        page.wait_for_selector("#said:has-text('This run is')", state="attached")
        first = page.evaluate(ENDED.format("find"))
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url.partition("/api/run/r/")[2]))
        for name in ("disputed", "open", "flagged", "all"):
            before = len(asked)
            choose(page, name)
            until(page, f"{ENDED.format('findLast')} > {first}")
            assert [each[:8] for each in asked[before:]] == ["rows?of="]
            assert asked[-1].count(",") < 50
            assert page.locator(".rows tbody tr").count() <= 50
        took = page.evaluate(
            f"({ENDED.format('findLast')}) - ({ENDED.format('findLast').replace('responseEnd', 'startTime')})"
        )
        assert took < first, "a filter takes less time than the page"
