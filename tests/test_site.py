"""The site of the documents, in a browser that opens its pages as files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("zensical", reason="pip install -e '.[docs]'")
playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")

from tests import site  # noqa: E402 - needs the packages above

BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed"),
]
START = (site.SITE / "index.html").as_uri()
WIDTHS = (360, 2560)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    site.build()
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


def test_the_search_works_in_a_file_and_the_theme_follows_the_system(browser: Any) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(START)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    page.keyboard.press("Control+k")
    page.wait_for_timeout(1_000)  # its index is read
    page.keyboard.type("red flags", delay=50)
    page.get_by_text("results").first.wait_for()


def test_every_page_fits_its_window_and_asks_no_other_host(browser: Any) -> None:
    page, asked, too_wide = browser.new_page(), list[str](), list[tuple[str, int]]()
    page.on("request", lambda request: asked.append(request.url))
    for each in sorted({*site.SITE.glob("*.html"), *site.SITE.glob("reference/*.html")}):
        page.goto(each.as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            if page.evaluate("document.documentElement.scrollWidth") > width:
                too_wide.append((each.name, width))
    assert too_wide == []
    assert len(asked) > len(WIDTHS)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
