"""The site of the documents, in a browser that opens its pages as files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("zensical", reason="pip install -e '.[docs]'")

from tests import site

pytestmark = [pytest.mark.slow, pytest.mark.browser]
START = (site.SITE / "index.html").as_uri()
WIDTHS = (360, 2560)
SEARCHES, FOUND = 8, 3
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


def test_the_site_is_whole_without_a_network_at_any_width_and_in_the_dark(browser: Any) -> None:
    site.build()  # once: two processes of tests would build it into one folder
    page, asked, too_wide = browser.new_page(color_scheme="dark"), list[str](), list[tuple[str, int]]()
    page.on("request", lambda request: asked.append(request.url))
    for each in sorted({*site.SITE.glob("*.html"), *site.SITE.glob("reference/*.html")}):
        page.goto(each.as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth") > width:
                too_wide.append((each.name, width))
    assert too_wide == []
    page.goto(START)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert sum(finds(page, "red flags") for _ in range(SEARCHES)) >= FOUND
    assert len(asked) > len(WIDTHS)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
