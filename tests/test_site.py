"""The site of the documents, in a browser that opens its pages as files."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("zensical", reason="pip install -e '.[docs]'")

from tests import site

pytestmark = [pytest.mark.slow, pytest.mark.browser]
START = (site.SITE / "index.html").as_uri()
WIDTHS = (360, 2560)
SEARCHES = 5
"""Some versions of the site's search find nothing in half of the cases."""


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
    for _ in range(SEARCHES):
        page.goto(START)
        words = page.get_by_role("combobox")
        words.wait_for(state="attached")  # a key that is pressed before the search has started is lost
        page.keyboard.press("Control+k")
        words.press_sequentially("red flags", delay=50)
        page.get_by_text("results").first.wait_for()
    assert len(asked) > len(WIDTHS)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
