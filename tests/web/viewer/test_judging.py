"""Rows that a person judges on a page, in a real browser: labels before samples, and audits that the terminal takes up."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.cli.commands import COMPLETED, WAIT_S, started, write
from tests.cli.test_promises import CHEAP, LABELS, STRONG, WORLD, given, table
from tests.forking import Forked
from tests.web.viewer.test_browser import visit

__all__ = ["visit"]
pytestmark = [pytest.mark.slow, pytest.mark.browser]
ROWS = ("rows", "--inputs", "in.csv", "-o", "ask=Double {x}", "-o", "columns=y: int", "--format", "json")
PLAIN = ("run", *ROWS, "--output", "out.csv")
PROMISED = (*PLAIN, "--gold", "right=y", "--wrong-at-most", ".05", *CHEAP, *STRONG, "--trust-columns")


@contextmanager
def serving(*words: str) -> Iterator[tuple[Any, str]]:
    """A command that serves a page to judge rows: its process, and the address of the page."""
    with Forked(*words, env={**os.environ, "BROWSER": "true"}) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def told(*words: str, said: str) -> tuple[int, str, str]:
    """The command at whose questions a person says this."""
    with Forked(*words, stdin=subprocess.PIPE) as process:
        out, err = process.communicate(said, timeout=WAIT_S)
    return process.returncode, out, " ".join(err.split())


def shown(page: Any) -> str:
    return str(page.locator("main").inner_text())


def test_labels_are_kept_before_the_samples_of_a_row_are_shown(visit: Callable[..., Any]) -> None:
    given(90)
    write("world.py", WORLD)
    assert started(*PLAIN, "--model", "world.py:Cheap", "--run-id", "before").code == COMPLETED
    Path("out.csv").rename("before.csv")
    with serving(*PROMISED, "--label", "browser") as (process, address):
        page = visit(address, 360)
        page.wait_for_selector("text=1 of 90")
        x = int(table(str(LABELS))[0]["x"])
        assert f"x\n{x}" in shown(page)
        assert "vote" not in shown(page)
        page.get_by_label("right").fill("about")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=the gold column 'right' has 'about', and the field y allows")
        assert table(str(LABELS))[0]["right"] == ""
        page.get_by_label("right").fill(str(2 * x))
        page.keyboard.press("Enter")
        page.wait_for_selector("text=its samples")
        assert table(str(LABELS))[0]["right"] == str(2 * x)
        assert "3 votes" in shown(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.keyboard.press("Enter")
        page.wait_for_selector("text=2 of 90")
        page.get_by_role("button", name="Stop here").click()
        page.wait_for_selector("text=1 of 90 rows labelled in")
        _, said = process.communicate(timeout=WAIT_S)
        assert "label 78 more at least" in " ".join(said.split())
    typed = "".join(f"{2 * int(each['x'])}\n" for each in table(str(LABELS))[1:])
    code, out, err = told(*PROMISED, "--label", "terminal", said=typed)
    assert code == COMPLETED, err
    assert out.count("samples of y: ") == 89
    assert "\n1 of 90" not in out
    assert "like the 90 labelled ones" in err


def test_an_audit_is_begun_in_the_browser_and_ended_in_the_terminal(visit: Callable[..., Any]) -> None:
    write("done.csv", "x,state,why,y\n" + "".join(f"{x},decided,,{2 * x}\n" for x in range(2_000)))
    words = ("decide", "--audit", "done.csv", "--sample", "5")
    with serving(*words, "--label", "browser") as (process, address):
        page = visit(address)
        page.wait_for_selector("text=1 of 5")
        for number in (2, 3):
            page.keyboard.press("y")
            page.wait_for_selector(f"text={number} of 5")
        assert told(*words, said="n\n")[1].count("\n3 of 5\n") == 1
        page.keyboard.press("y")
        page.wait_for_selector("text=4 of 5")
        page.keyboard.press("y")
        page.wait_for_selector("text=5 of 5")
        page.keyboard.press("y")
        sentence = "1 of 5 random decided rows wrong: at most 65.7 % of 2,000 rows are wrong (95 %)"
        page.wait_for_selector(f"text={sentence}")
        said, _ = process.communicate(timeout=WAIT_S)
        assert said.strip().endswith(sentence)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"authorization": "Bearer other"}, 403),
        ({"authorization": "Bearer {}", "origin": "http://example.org"}, 403),
        ({"authorization": "Bearer {}", "host": "example.org"}, 403),
        ({"authorization": "Bearer {}", "content-type": "text/plain"}, 415),
    ],
)
def test_only_the_page_of_the_printed_address_judges_rows(headers: dict[str, str], status: int) -> None:
    write("done.csv", "x,state,why,y\n" + "".join(f"{x},decided,,{2 * x}\n" for x in range(20)))
    with serving("decide", "--audit", "done.csv", "--label", "browser") as (_, address):
        url, _, token = address.partition("/judge#token=")
        sent = {"content-type": "application/json"} | {name: each.format(token) for name, each in headers.items()}
        for body in ({"number": 0, "answers": {"is it right?": "y"}}, {"number": None}):
            with pytest.raises(HTTPError) as refused:
                urlopen(Request(f"{url}/api/judge", data=json.dumps(body).encode(), headers=sent), timeout=WAIT_S)
            assert refused.value.code == status
            refused.value.close()
    assert not Path("done.csv.audit").exists()
