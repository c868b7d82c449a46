"""The site of the documents, in a browser that opens its pages as files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("zensical", reason="pip install -e '.[docs]'")

from tests import site

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(400)]
START = (site.SITE / "index.html").as_uri()
NARROW, WIDE = 360, 2560
ASK = """async ([code, index, questions]) => {
    const worker = new Worker(URL.createObjectURL(new Blob([code]))), found = [];
    const answer = (type, data) => new Promise(resolve => {
        worker.onmessage = event => resolve(event.data.data);
        worker.postMessage({type, data});
    });
    await answer(0, index);
    const any = {input: {type: "operator", data: {operator: "and", operands: []}}, aggregation: {input: []}};
    for (const input of questions) found.push((await answer(2, {input, filter: any})).items.map(each => each.id));
    return found;
}"""
"""Puts questions to the search of the site, in its own worker: typed into pages on a busy machine, one in five is lost."""
QUESTIONS = {
    "api key": "starting.html#a-real-model",
    "approve": "agents.html",
    "azure": "how-do-i.html#vllm",
    "budget": "planning.html",
    "cancel": "operating.html#control",
    "cluster": "files/cluster/README.md.html",
    "crash": "agents.html",
    "csv": "tables.html",
    "docker": "files/cluster/README.md.html",
    "hard steps": "strategies.html#hard-steps",
    "how many votes": "planning.html",
    "human in the loop": "agents.html",
    "install": "starting.html#install",
    "llama.cpp": "providers.html#a-small-model",
    "local model": "models.html",
    "max cost": "models.html#limits",
    "mcp": "agents.html",
    "ollama": "models.html#",
    "opentelemetry": "operating.html",
    "pandas": "tables.html#with-code",
    "price": "providers.html#prices",
    "rate limit": "how-do-i.html#rate-limit",
    "red flag": "measuring.html#red-flags",
    "retry": "providers.html#options-of-a-spec",
    "small model": "providers.html#a-small-model",
    "spreadsheet": "tables.html#the-output",
    "structured output": "how-do-i.html#structured-output",
    "temperature": "models.html#temperature",
    "tool": "how-do-i.html#tool-calling",
    "try a model": "models.html#try-a-model",
    "which model": "models.html",
}
"""What users type, and the start of the address that must be among the first three."""
FIRST = 3
SEARCHES = 8
"""On a busy machine one search in five is lost, since a page has not started when its keys are pressed."""
LOOKS, EVERY_MS = 50, 200


def soon(page: Any, condition: Callable[[], bool]) -> bool:
    """Whether a condition holds within a while."""
    for _ in range(LOOKS):
        if condition():
            return True
        page.wait_for_timeout(EVERY_MS)
    return False


def finds(page: Any, words: str) -> bool:
    """Whether the search of the first page finds something."""
    page.goto(START)
    field, results = page.get_by_role("combobox"), page.get_by_text("results")
    if not soon(page, lambda: field.count() > 0):
        return False
    page.keyboard.press("Control+k")
    field.press_sequentially(words, delay=50)
    return soon(page, lambda: results.count() > 0 and results.first.is_visible())


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    site.build()  # once: two processes of tests would build it into one folder


def test_the_site_is_whole_without_a_network_at_any_width_and_in_the_dark(browser: Any) -> None:
    page, asked, too_wide = browser.new_page(color_scheme="dark"), list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": NARROW, "height": 900})
    for each in sorted({*site.SITE.glob("*.html"), *site.SITE.glob("reference/*.html")}):
        page.goto(each.as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > NARROW:
            too_wide.append(each.name)
    assert too_wide == []
    page.set_viewport_size({"width": WIDE, "height": 900})
    page.goto(START)
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDE
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert any(finds(page, "red flags") for _ in range(SEARCHES))
    assert len(asked) > 1
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def searched(browser: Any, questions: Sequence[str]) -> dict[str, list[str]]:
    """The first places that the site's search finds for each question."""
    (worker,) = (site.SITE / "assets" / "javascripts" / "workers").glob("search*.js")
    index = json.loads((site.SITE / "search.json").read_text(encoding="utf-8"))
    found = browser.new_page().evaluate(ASK, [worker.read_text(encoding="utf-8"), index, [*questions]])
    return {
        question: [index["items"][number]["location"] for number in numbers[:FIRST]]
        for question, numbers in zip(questions, found, strict=True)
    }


def test_what_users_type_finds_guides_before_internals(browser: Any) -> None:
    places = searched(browser, [*QUESTIONS])
    missed = {
        name: each for name, each in places.items() if not any(place.startswith(QUESTIONS[name]) for place in each)
    }
    assert missed == {}
    internals = {name: each[0] for name, each in places.items() if each[0].startswith(site.INTERNALS)}
    assert internals == {}


def test_each_heading_of_how_do_i_is_found_by_its_words(browser: Any) -> None:
    headings = re.findall(r"^### (.+)$", (site.ROOT / "docs/how-do-i.md").read_text(encoding="utf-8"), re.MULTILINE)
    words = [each for heading in headings for each in heading.split(", ")]
    assert len(headings) >= 40
    found = searched(browser, words)
    assert [word for word in words if not any(place.startswith("how-do-i.html") for place in found[word])] == []


def test_each_option_has_an_anchor() -> None:
    pages = {
        name: (site.SITE / "reference" / f"{name}.html").read_text(encoding="utf-8") for name in ("commands", "tasks")
    }
    for anchor in ("run--max-cost", "measure--steps", "try--write", "try--setup"):
        assert f"id='{anchor}'" in pages["commands"].replace('"', "'"), anchor
    for anchor in ("strategy-maker-k", "task-hanoi-disks"):
        assert f"id='{anchor}'" in pages["tasks"].replace('"', "'"), anchor
