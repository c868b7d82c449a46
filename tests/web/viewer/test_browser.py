"""The pages in a real browser: what is drawn, what the keyboard does, and what texts of models must not do."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from microagents.runs.inspection.runs import decide
from microagents.web.viewer.server import viewing
from tests.cli.commands import COMPLETED, PAPERS, UNDECIDED, Sitting, started, write
from tests.models.test_caching import Counting, counted
from tests.models.wires import ANTHROPIC, KEY

pytestmark = [pytest.mark.slow, pytest.mark.browser]
WAIT_MS = 20_000
TOKEN = "t0ken"
NOISY = ("drift", "-o", "length=40", "--model", "sim:perfect@error=0.4,flag=0.3", "-k", "2", "--run-id", "r")
ABOVE = """(() => {
    const top = (each) => each.getBoundingClientRect().top;
    const labels = [...document.querySelectorAll("svg.chart text")];
    return labels.filter((each) => top(each) < top(each.closest("svg")) - 1).map((each) => each.textContent);
})()"""
"""The labels of charts that are cut off at the top."""
BIDI = "\u202etfel"
MARKUP = "<img src=x onerror=hacked()><script>hacked()</script>"
SPEAKING = f"""
    from msgspec import Struct
    from microagents import ChainTask, Prompt, Reply

    class At(Struct, frozen=True):
        done: bool = False

    class Words(Reply, frozen=True):
        words: str

    class Speak(ChainTask[At, Words]):
        def start(self) -> At:
            return At()

        def done(self, state: At) -> bool:
            return state.done

        def prompt(self, state: At) -> Prompt:
            return Prompt(user={MARKUP + BIDI!r})

        def advance(self, state: At, reply: Words) -> At:
            return At(done=True)

        def expert(self, prompt: Prompt, reply: type[Reply]) -> Words:
            return Words(words={MARKUP + BIDI!r})
"""


@contextmanager
def served(port: int = 0) -> Iterator[str]:
    """The pages of the folder of runs, from a loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    pages = viewing(Path("runs"), port, TOKEN)

    def wait(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)

    try:
        url = wait(pages.__aenter__())
        try:
            yield url
        finally:
            wait(pages.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page. Whatever a script of a text would do fails the test, and so does a request to another host or an error."""
    troubles: list[str] = []
    pages: list[Any] = []
    with ExitStack() as stack:

        def opened(address: str, width: int = 1280, **given: Any) -> Any:
            context = stack.enter_context(browser.new_context(viewport={"width": width, "height": 800}, **given))
            page = context.new_page()
            page.set_default_timeout(WAIT_MS)
            page.expose_function("hacked", lambda: troubles.append("a script of a text ran"))
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("request", lambda one: troubles.append(one.url) if not one.url.startswith(OWN) else None)
            page.goto(address)
            pages.append(page)
            return page

        yield opened
        for page in pages:  # pytest prints it if the test failed
            seen = page.locator("body").inner_text()
            sys.stdout.write(f"{page.url}\n{seen[:2000]}\n")
    assert troubles == []


OWN = ("http://127.0.0.1:", "data:", "file:")


def until(page: Any, condition: str) -> None:
    """Wait until an expression holds. Playwright's own way evaluates it inside the page, which allows no such thing."""
    for _ in range(WAIT_MS // 50):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"{condition} does not hold on {page.url}")


def drawn(page: Any) -> None:
    """Wait until the strip is drawn."""
    until(page, "document.querySelector('canvas.lens')?.width > 300")
    page.wait_for_selector(".legend li")


def test_a_run_is_drawn_and_walked_by_the_keyboard(visit: Callable[..., Any]) -> None:
    started("run", *NOISY)
    with served() as url:
        page = visit(f"{url}/run/r")
        drawn(page)
        lens = page.locator("canvas.lens")
        lens.focus()
        page.keyboard.press("End")
        assert lens.get_attribute("aria-valuenow") == "39"
        page.keyboard.press("Home")
        page.keyboard.press("n")
        marked = lens.get_attribute("aria-valuetext")
        assert any(word in marked for word in ("flagged", "outvoted", "wrong")), marked
        asked: list[str] = []
        page.on("request", lambda one: asked.append(one.url))
        for key in ("+", "+", "-", "0"):
            page.keyboard.press(key)
        assert asked == [], "zooming asks for nothing"
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Samples in launch order")
        assert "/run/r/at/0/step/" in page.url
        before = page.url
        page.reload()
        page.wait_for_selector("text=Samples in launch order")
        page.go_back()
        drawn(page)
        assert page.url.startswith(f"{url}/run/r")
        page.go_forward()
        page.wait_for_selector("text=Samples in launch order")
        assert page.url == before


def test_a_picture_of_the_roles_is_open_and_not_cut_at_a_usual_width(visit: Callable[..., Any]) -> None:
    started("run", *NOISY)
    with served() as url:
        page = visit(f"{url}/run/r", 1280)
        drawn(page)
        until(page, "document.querySelector('details .graph img').naturalWidth > 500")
        frame = "document.querySelector('details .graph')"
        assert page.evaluate(
            f"{frame}.scrollWidth <= {frame}.clientWidth && {frame}.scrollHeight <= {frame}.clientHeight"
        )


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (2560, "dark")])
def test_pages_fit_narrow_and_wide_windows(visit: Callable[..., Any], width: int, scheme: str) -> None:
    started("run", *NOISY)
    with served() as url:
        for path in ("/", "/run/r", "/run/r/at/0/step/3", "/compare?a=r&b=r"):
            page = visit(f"{url}{path}", width, color_scheme=scheme)
            page.wait_for_selector("section")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(ABOVE) == []


def test_texts_of_models_tasks_and_files_are_text(visit: Callable[..., Any]) -> None:
    write("speak.py", SPEAKING)
    started("run", "speak.py", "--model", "sim:perfect", "--run-id", "r", "--keep-texts", "all")
    Path(f"runs/{MARKUP.replace('/', '')}.sqlite").write_bytes(b"no journal")
    with served() as url:
        for path in ("/", "/run/r", "/run/r/at/0/step/0", f"/run/{MARKUP.replace('/', '')}", "/compare?a=r&b=<b>"):
            page = visit(f"{url}{path}")
            until(page, "document.querySelector('section') || !document.getElementById('banner').hidden")
            page.wait_for_timeout(300)
            assert page.locator("main img:not(.graph > img), main script, main b").count() == 0
        page = visit(f"{url}/run/r/at/0/step/0")
        page.wait_for_selector("text=Samples in launch order")
        assert BIDI in page.locator("main").inner_text()
    started("view", "r", "-o", "r.html")
    page = visit(Path("r.html").absolute().as_uri())
    page.wait_for_selector("html[data-drawn]")
    assert page.locator("main img:not(.graph > img), main script").count() == 0


def test_a_reply_of_a_megabyte_is_shown_from_its_beginning(visit: Callable[..., Any]) -> None:
    write("speak.py", SPEAKING)
    few = ("--model", "sim:perfect@flag=0.9", "-k", "5", "-s", "max_draws=5")
    started("run", "speak.py", *few, "--run-id", "r")
    decide(Path("runs"), "r", "0/step/0", json.dumps({"words": MARKUP * 20_000}))
    started("resume", "r")
    with served() as url:
        page = visit(f"{url}/run/r/at/0/step/0")
        page.wait_for_selector("text=Show all")
        assert len(page.locator("main").inner_text()) < 200_000


INKED = """(() => {
    const lens = document.querySelector('canvas.lens'), c = lens.getContext('2d'), ratio = lens.width / lens.clientWidth;
    const row = (y) => [...c.getImageData(0, Math.round((102 + y) * ratio), Math.floor(lens.width * 0.9), 1).data];
    const inked = (y) => row(y).filter((each, i) => i % 4 === 2 && each < 60).length / (lens.width * 0.9);
    return [inked(3), inked(8), inked(15)];
})()"""


def test_flags_of_one_step_in_a_hundred_are_shares_and_no_solid_line(visit: Callable[..., Any]) -> None:
    flagging = ("--model", "sim:perfect@flag=0.012", "-k", "1", "--durability", "normal")
    assert started("run", "drift", "-o", "length=20000", *flagging, "--run-id", "r").code == 0
    with served() as url:
        page = visit(f"{url}/run/r", 420, color_scheme="light")
        drawn(page)
        page.wait_for_timeout(300)
        high, middle, low = page.evaluate(INKED)
        assert high < middle < low, "columns are as high as their shares"
        assert 0.02 < middle < 0.5, (high, middle, low)


def test_a_run_moves_on_the_page_and_says_that_it_ended(visit: Callable[..., Any]) -> None:
    words = ("drift", "-o", "length=60", "--model", "sim:perfect@latency=0.05", "--run-id", "r")
    with Sitting("run", *words) as sitting, served() as url:
        sitting.until_sent(20)
        page, second = visit(f"{url}/run/r"), visit(f"{url}/run/r")
        drawn(page)
        until(page, "document.querySelector('.tools .soft').textContent.endsWith(' of 60 steps')")
        first = int(page.locator("canvas.lens").get_attribute("aria-valuemax"))
        until(page, f"document.querySelector('canvas.lens').getAttribute('aria-valuemax') > {first}")
        assert sitting.end().code == 0
        for each in (page, second):
            each.wait_for_selector("#said:has-text('This run is completed')", state="attached")
            assert each.locator("canvas.lens").get_attribute("aria-valuemax") == "59"


def test_the_page_of_a_live_run_outlives_what_cannot_be_read_for_a_moment(visit: Callable[..., Any]) -> None:
    words = ("drift", "-o", "length=200", "--model", "sim:perfect@latency=0.05", "--run-id", "r")
    with Sitting("run", *words) as sitting, served() as url:
        sitting.until_sent(20)
        page = visit(f"{url}/run/r")
        drawn(page)
        journal = Path("runs/r.sqlite")
        journal.rename("elsewhere.sqlite")
        page.wait_for_selector("#banner:has-text('there is no run')")
        Path("elsewhere.sqlite").rename(journal)
        page.wait_for_selector("#banner", state="hidden")


def test_a_person_decides_on_the_page(visit: Callable[..., Any]) -> None:
    started("run", *STALEMATE, "--run-id", "r")
    with served() as url:
        stranger = visit(f"{url}/run/r/at/0/step/0")
        stranger.get_by_role("button", name="Reply 1").click()
        stranger.get_by_role("button", name="Decide", exact=True).click()
        stranger.wait_for_selector("text=the token that")
        page = visit(f"{url}/run/r#token={TOKEN}")
        page.get_by_role("link", name="0/step/0").first.click()
        assert TOKEN not in page.url
        page.get_by_role("button", name="Reply 1").click()
        field = page.get_by_label("number", exact=True)
        assert field.input_value().isdecimal()
        field.fill("many")
        page.get_by_role("button", name="Decide", exact=True).click()
        page.wait_for_selector("text=number=VALUE")
        field.fill("7")
        page.get_by_role("button", name="Decide", exact=True).click()
        page.wait_for_selector("text=not yet resumed")
        page.get_by_role("button", name="Resume").wait_for()
    started("resume", "r")
    shown = started("show", "r", "0/step/0", "--json").json
    assert (shown["outcome"], shown["value"]) == ("person", {"number": 7})


def test_right_replies_stand_beside_the_wrong_ones_one_click_from_the_headline(visit: Callable[..., Any]) -> None:
    started("run", "hanoi", "-o", "disks=5", "--model", "sim:gpt-4.1-nano@hard=0.1", "--run-id", "r")
    first = started("show", "r", "--json").json["wrong_at"]
    shown = started("show", "r", first, "--json").json
    right = json.dumps(shown["right"], separators=(",", ":"))
    assert (shown["correct"], shown["right"] != shown["value"]) == (False, True)
    assert f"wrong at {first}: " in started("show", "r").out
    assert f"right is {right}" in started("show", "r", first).out
    with served() as url:
        page = visit(f"{url}/run/r")
        drawn(page)
        page.wait_for_selector(".legend button.wrong")
        page.locator("canvas.lens").focus()
        page.keyboard.press("Home")
        page.keyboard.press("n")
        assert page.locator("canvas.lens").get_attribute("aria-valuenow") == first.rpartition("/")[2]
        page.locator("p.verdict a").click()
        page.wait_for_selector("text=right is")
        assert page.url.endswith(first)
        move = ", ".join(map(str, shown["right"]["move"]))
        assert page.locator(".compared td:last-child").first.inner_text() == move
    started("view", "r", "-o", "r.html")
    report = visit(Path("r.html").absolute().as_uri())
    report.wait_for_selector("html[data-drawn]")
    assert f"move: ({move})" in report.locator(f"tr:has-text('{first}') td").nth(2).inner_text()


def test_an_agent_is_approved_and_finished_in_the_browser_alone(visit: Callable[..., Any]) -> None:
    assert (
        started("run", "desk", "-s", "approve=send_mail", "--model", "sim:perfect", "--run-id", "d").code == UNDECIDED
    )
    with served() as url:
        page = visit(f"{url}/#token={TOKEN}")
        page.get_by_role("link", name="1 waits for you").click()
        page.get_by_role("link", name="of d").click()
        page.get_by_role("button", name="Approve").click()
        for _ in range(2):
            page.wait_for_selector("text=not yet resumed")
            assert page.get_by_role("button", name="Approve").count() == 0
            page.reload()
        page.get_by_role("link", name="d", exact=True).click()
        page.wait_for_selector("p.verdict.answered")
        mark = visit(url).locator("tr:has(a[href='/run/d']) .verdict.answered")
        assert mark.get_attribute("title").endswith("not yet resumed")
        page.get_by_role("button", name="Resume").click()
        page.wait_for_selector("p.verdict.right")
    assert started("show", "d").rows["completed"]


def test_a_decision_says_what_was_read_from_the_cache_and_written_into_it(
    visit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    run = threading.Thread(target=lambda: asyncio.run(counted(ANTHROPIC, Counting(), Path("runs"))))
    run.start()
    run.join()
    with served() as url:
        page = visit(f"{url}/run/the-run/at/0/step/0")
        page.wait_for_selector("text=Samples in launch order")
        facts = page.locator("dl.facts").first.inner_text()
        replies = page.locator(".row h3 .soft").all_inner_texts()
    assert "1,900 tokens read from the cache, 1,900 written" in facts
    assert [each.partition(", ")[2] for each in replies] == [
        "0 tokens read from the cache, 1,900 written",
        "1,900 tokens read from the cache, 0 written",
    ]


def test_the_work_of_another_agent_stands_below_the_action_that_handed_it_off(visit: Callable[..., Any]) -> None:
    desk = Path(__file__).parents[3] / "docs/examples/frontdesk.py"
    assert started("run", str(desk), "--run-id", "r").code == COMPLETED
    with served() as url:
        page = visit(f"{url}/run/r")
        page.wait_for_selector(".handed .row")
        heads = page.locator(".handed h3 a").all_inner_texts()
        first = page.locator(".row", has=page.locator(".handed .row")).first.locator("h3 a").first.inner_text()
    assert first == "step/0"
    assert heads == [f"step/0/agent/0/step/{number}" for number in range(3)]


def test_a_run_of_somebody_else_is_not_resumed_from_a_page(visit: Callable[..., Any], monkeypatch: Any) -> None:
    started("run", *STALEMATE, "--run-id", "r")
    decide(Path("runs"), "r", "0/step/0", '{"number": 1}')
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("nobody").absolute()))
    with served() as url:
        page = visit(f"{url}/run/r#token={TOKEN}")
        page.wait_for_selector("text=go on: microagents resume r")
        assert page.get_by_role("button", name="Resume").count() == 0


PAYING = """
    from microagents import Action, AgentTask, Prompt, Reply, ToolCall, tool

    @tool("destructive")
    def pay(number: int) -> str:
        'Pay a bill.'
        return "paid"

    class Pay(AgentTask):
        tools = (pay,)
        number: int = 0

        def statement(self) -> str:
            return f"Pay the bill {self.number}, <b>now</b>."

        def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
            return Action(calls=[ToolCall("pay", {"number": 7})])
"""
STALEMATE = ("drift", "--model", "sim:perfect@error=0.4,alternatives=1", "-k", "9", "-s", "max_draws=13")


def test_a_hundred_items_wait_in_a_queue_that_keys_go_through(visit: Callable[..., Any]) -> None:
    write("pay.py", PAYING)
    Path("bills.jsonl").write_text("".join(f'{{"number": {number}}}\n' for number in range(100)))
    words = ("pay.py", "--inputs", "bills.jsonl", "-s", "approve=pay", "--model", "sim:perfect", "--run-id", "many")
    assert started("run", *words).code == UNDECIDED
    started("run", *STALEMATE, "--run-id", "r")
    with served() as url:
        page = visit(f"{url}/#token={TOKEN}")
        page.get_by_role("link", name="101 wait for you").click()
        page.wait_for_selector("text=1 of 101")
        page.wait_for_selector("text=Pay the bill 0, <b>now</b>.")
        assert page.locator("main form button").all_inner_texts() == ["Approve", "Reject"]
        page.keyboard.press("j")
        page.wait_for_selector("text=2 of 101")
        page.wait_for_selector("text=Pay the bill 1,")
        page.keyboard.press("a")
        page.wait_for_selector("text=2 of 100")
        page.wait_for_selector("text=Pay the bill 2,")
        page.keyboard.press("r")
        page.keyboard.type("too dear")
        page.get_by_role("button", name="Reject").click()
        page.wait_for_selector("text=2 of 99")
        page.wait_for_selector("text=Pay the bill 3,")
        page.keyboard.press("k")
        page.keyboard.press("k")
        page.wait_for_selector("text=99 of 99")
        page.wait_for_selector("text=Which reply is right?")
        assert "null" not in page.locator("main").inner_text()
        page.keyboard.press("2")
        page.keyboard.press("d")
        page.wait_for_selector("text=98 of 98")
        page.keyboard.press("?")
        page.wait_for_selector("dialog[open]")
    with closing(sqlite3.connect("runs/many.sqlite")) as db:
        found = dict(db.execute("SELECT place, json_extract(payload, '$.value') FROM log WHERE kind = 'decide'"))
    assert [json.loads(found[path]) for path in sorted(found)] == [
        {"approved": True, "text": ""},
        {"approved": False, "text": "too dear"},
    ]


def test_a_list_that_arrives_after_it_was_left_replaces_no_other_page(visit: Callable[..., Any]) -> None:
    started("run", "drift", "--model", "sim:perfect", "--run-id", "r")
    with served() as url:
        page = visit(f"{url}/run/r")
        page.wait_for_selector("text=Roles and messages")
        held: list[Any] = []
        page.route("**/api/runs", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks the function
        page.keyboard.press("l")
        page.wait_for_timeout(100)
        page.keyboard.press("w")
        page.wait_for_selector("text=Nothing waits for a person")
        held[0].fulfill(json=[])
        page.wait_for_timeout(100)
        assert page.locator("h1").inner_text() == "What waits for you"


def test_the_desk_of_the_guide_is_answered_in_the_page_after_a_restart(visit: Callable[..., Any]) -> None:
    desk = str(Path(__file__).parents[3] / "docs/examples/helpdesk.py")
    assert started("run", desk, "--model", "sim:perfect", "--run-id", "h").code == UNDECIDED
    with served() as url:  # all that is known of the question stands in the journal: its process has ended
        page = visit(f"{url}/#token={TOKEN}")
        page.get_by_role("link", name="1 waits for you").click()
        page.wait_for_selector("text=Which order is it?")
        page.wait_for_selector("text=what does the customer answer?")
        assert page.locator("main form button").all_inner_texts() == ["Answer"]
        page.get_by_placeholder("the answer").fill("It was order 7.")
        page.get_by_role("button", name="Answer", exact=True).click()
        page.wait_for_selector("text=That was the last one.")
    assert started("resume", "h").code == COMPLETED
    assert Path("paid.txt").read_text() == "order 7\n"


STATES = {
    "right": ("drift", "-o", "length=9", "--model", "sim:perfect"),
    "wrong": ("hanoi", "-o", "disks=5", "--model", "sim:gpt-4.1-nano@hard=0.1"),
    "done": ("act.py", "--model", "sim:perfect"),
    "waits": ("desk", "-s", "approve=send_mail", "--model", "sim:perfect"),
    "stopped": ("drift", "--model", "sim:perfect", "--max-calls", "30"),
    "failed": ("drift", "--model", "scripted:none.jsonl"),
}
COLOURS = {
    "right": "good",
    "wrong": "wrong",
    "done": "ink",
    "running": "accent",
    "waits": "undecided",
    "stopped": "undecided",
    "failed": "wrong",
}

OF_RUN = "document.querySelector(\"tr:has(a[href='/run/{0}']) .verdict.{0}\")"


@pytest.mark.timeout(400)
def test_every_state_of_a_run_has_its_sentence_and_colour_on_every_page(visit: Callable[..., Any]) -> None:
    write("act.py", SPEAKING)
    Path("none.jsonl").write_text("")
    for name, words in STATES.items():
        started("run", *words, "--run-id", name)
    live = ("drift", "-o", "length=500", "--model", "sim:perfect@latency=0.05", "--run-id", "running")
    with Sitting("run", *live) as sitting, served() as url:
        sitting.until_sent(20)
        page = visit(url)
        page.wait_for_selector("tbody tr")
        inks = {name: page.evaluate(f"getComputedStyle({OF_RUN.format(name)}).color") for name in COLOURS}
        marks = {name: page.locator(f"tr:has(a[href='/run/{name}']) .verdict") for name in inks}
        said = {name: f"{mark.inner_text()[:2]}{mark.get_attribute('title')}" for name, mark in marks.items()}
        lines = {name: mark.evaluate("each => each.closest('tr').clientHeight") for name, mark in marks.items()}
        assert len(set(lines.values())) == 1, "each run is one line"
        assert marks["right"].inner_text() == "● right 9/9"
        assert marks["waits"].inner_text() == "◇ waits 1"
        for name, colour in COLOURS.items():
            page.evaluate(f"document.body.style.color = 'var(--{colour})'")
            assert inks[name] == page.evaluate("getComputedStyle(document.body).color"), (name, said[name])
        for name in STATES:
            shown = visit(f"{url}/run/{name}")
            shown.wait_for_selector("p.verdict")
            assert shown.locator("p.verdict").inner_text() == said[name]
            assert shown.locator("main").inner_text().startswith(f"{name}\n\n{said[name]}")
            started("view", name, "-o", f"{name}.html")
            report = visit(Path(f"{name}.html").absolute().as_uri())
            report.wait_for_selector("html[data-drawn]")
            assert report.locator(f"p.verdict.{name}").inner_text() == said[name][2:]
        costs = [each.inner_text() for each in page.locator("td.number:last-child").all()]
        assert [each for each in costs if each != "unknown" and not each.endswith(" simulated")] == []


def test_a_damaged_or_removed_journal_is_said_on_its_page(visit: Callable[..., Any]) -> None:
    started("run", *NOISY)
    with served() as url:
        page = visit(f"{url}/run/r")
        drawn(page)
        with closing(sqlite3.connect("runs/r.sqlite")) as db, db:
            db.execute("DELETE FROM decision WHERE key = (SELECT max(key) FROM decision)")
        page.reload()
        page.wait_for_selector("#banner:has-text('damaged')")
        Path("runs/r.sqlite").unlink()
        page.reload()
        page.wait_for_selector("#banner:has-text('there is no run')")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("multiplication", "--model", "sim:perfect@error=0.2"), "compose"),
        (("word-problems", "--strategy", "aot+tree"), "branch 1"),
        ((f"{PAPERS}/relay.py:Relay", "--strategy", "swarm", "--model", "sim:perfect@error=0.3"), "Loop 1"),
        (("desk", "--model", "sim:perfect@error=0.2"), "set_status"),
        (("writing", "-o", "brief=On bridges", "-s", "same_model=true"), "approves"),
        (("drift", "-o", "length=19", "-s", "known_inputs=true"), "theory"),
    ],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_work_of_each_kind_is_drawn_on_both_pages(visit: Callable[..., Any], words: tuple[str, ...], said: str) -> None:
    assert started("run", *words, "--run-id", "r").code == 0
    started("view", "r", "-o", "r.html")
    report = visit(Path("r.html").absolute().as_uri())
    report.wait_for_selector("html[data-drawn]")
    with served() as url:
        page = visit(f"{url}/run/r")
        page.wait_for_selector("#said:has-text('This run is')", state="attached")
        for each in (page, report):
            assert said in each.locator("main").inner_text()
        links = page.locator("a[href*='/at/']")
        if links.count():
            links.first.click()
            page.wait_for_selector("text=Samples in launch order")


def test_the_list_is_narrowed_and_sorted_and_two_of_it_compared(visit: Callable[..., Any]) -> None:
    for run, length, k in (("a", 5, "1"), ("b", 20, "1"), ("c", 30, "3")):
        model = "sim:perfect@error=0.3"
        started("run", "drift", "-o", f"length={length}", "--model", model, "-k", k, "--run-id", run)
    with served() as url:
        page = visit(url)
        page.get_by_role("button", name="Sort by done").click()
        assert [each.inner_text() for each in page.locator("tbody a").all()] == ["a", "b", "c"]
        page.get_by_label("Compare b").check()
        page.get_by_label("Compare c").check()
        page.get_by_role("button", name="Compare two").click()
        page.wait_for_selector("h2:has-text('First difference: 0/step/')")
        assert page.locator("main h2").all_inner_texts()[0] == "Different options"
        assert page.locator("section:has-text('Different options') td").all_inner_texts() == [
            *("length", "20", "30", "k", "1", "3")
        ]
        assert page.locator("section:has-text('First difference') mark").count() == 2
        assert page.locator("details:not([open])").count() >= 1
        page.go_back()
        page.get_by_label("Filter the runs").fill("drift")
        assert page.locator("tbody tr").count() == 3
        page.get_by_label("Filter the runs").fill("hanoi")
        assert page.locator("tbody tr").count() == 0


def test_a_short_chain_lists_its_steps_and_a_decision_prints_each_reply_once(visit: Callable[..., Any]) -> None:
    words = ("hanoi", "-o", "disks=3", "-k", "2", "--model", "sim:perfect@error=0.3", "--run-id", "r")
    started("run", *words)
    rows = map(json.loads, started("export", "r").out.splitlines())
    row = next(each for each in rows if each["other_votes"])
    with served() as url:
        page = visit(f"{url}/run/r")
        page.wait_for_selector("h2:has-text('Steps')")
        assert page.locator("canvas").count() == 0
        assert page.locator("section:has-text('in launch order') tbody tr").count() == 7
        page.get_by_role("link", name=row["path"]).click()
        page.wait_for_selector("h2:has-text('Replies')")
        text = page.locator("main").inner_text()
        move = ", ".join(map(str, row["value"]["move"]))
        assert "{" not in text.partition("Prompt")[0]
        assert page.locator(".compared td:nth-child(2)").first.inner_text() == move
        assert page.locator(".compared mark").count() >= 2
        assert page.locator("section:has-text('Samples in launch order') dl").count() == 0


def test_a_page_of_a_call_that_waits_says_goal_and_arguments_and_what_was_read(visit: Callable[..., Any]) -> None:
    started("run", "desk", "-s", "approve=send_mail", "--model", "sim:perfect@error=0.2", "--run-id", "d")
    with served() as url:
        page = visit(f"{url}/run/d")
        page.get_by_role("link", name="/approval").click()
        page.wait_for_selector("h2:has-text('What was done before')")
        heads = page.locator("main h2").all_inner_texts()
        assert heads == ["Decision", "Goal", "Call", "Decide it", "Votes", "What was done before"]
        assert "customer\n237" in page.locator("section:has(h2:text-is('Call'))").inner_text()
        assert "{" not in page.locator("main").inner_text()


def test_many_inputs_are_a_grid_that_is_ordered_and_whose_cells_open(visit: Callable[..., Any]) -> None:
    Path("many.jsonl").write_text("".join(f'{{"length": {1 + number % 4 + number // 58}}}\n' for number in range(60)))
    started("run", "drift", "--inputs", "many.jsonl", "--model", "sim:perfect", "--run-id", "many")
    with served() as url:
        page = visit(f"{url}/run/many")
        box = page.locator(".grid canvas")
        box.focus()
        page.keyboard.press("End")
        assert "input 59" in box.get_attribute("aria-valuetext")
        page.get_by_label("Order by").select_option("samples, most first")
        assert "input 59: completed, 15 samples" in box.get_attribute("aria-valuetext")
        assert page.locator(".bars rect").count() == 5
        page.keyboard.press("Enter")
        page.wait_for_selector("h2:text-is('Steps')")
        assert page.url.endswith("?input=59")
        assert "Result of input 59" in page.locator("main").inner_text()


def test_of_a_run_that_has_stopped_no_input_is_running_and_those_without_a_result_are_not_done(
    visit: Callable[..., Any],
) -> None:
    Path("many.jsonl").write_text('{"length": 9}\n' * 20)
    words = ("--inputs", "many.jsonl", "--model", "sim:perfect@error=0.3,alternatives=1", "--run-id")
    started("run", "drift", *words, "cut", "--max-calls", "60")
    started("run", "drift", *words, "open", "-s", "max_draws=5")
    with served() as url:
        page = visit(f"{url}/run/cut")
        page.get_by_role("button", name="begun, not ended").wait_for()
        assert "▶ running" not in page.locator("main").inner_text()
        page = visit(f"{url}/run/open")
        page.get_by_role("button", name="undecided").wait_for()
        said = page.locator("main").inner_text()
        assert "without a result" in said
        assert "of 20, 100 %" not in said
