"""The pages of runs: what they are told, and who may ask."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from microagents.errors import InvalidUsage
from microagents.journal.reading import reader_of
from microagents.viewer.server import viewing
from tests.cli.commands import microagents

NOISY = ("drift", "-o", "length=12", "--model", "sim:perfect@error=0.4,flag=0.3", "-k", "2", "--run-id", "r")
MARKUP = "<script>alert(1)</script>"


def get(path: str, **headers: str) -> tuple[int, Any, Any]:
    """Status, headers and body of an answer of the pages of the folder of runs."""

    async def ask() -> tuple[int, Any, Any]:
        async with (
            viewing(Path("runs")) as url,
            aiohttp.ClientSession() as session,
            session.get(f"{url}{path}", headers=headers) as got,
        ):
            body = await got.read()
            return got.status, got.headers, json.loads(body) if got.content_type == "application/json" else body

    return asyncio.run(ask())


def test_the_strip_has_for_each_step_its_samples_and_whether_one_was_flagged_or_outvoted() -> None:
    microagents("run", *NOISY)
    strip = get("/api/run/r/strip")[2]
    rows = [json.loads(line) for line in microagents("export", "r").out.splitlines()]
    flagged = [sum(row["flags"].values()) if isinstance(row["flags"], dict) else len(row["flags"]) for row in rows]
    assert [bool(byte & 16) for byte in strip] == [bool(each) for each in flagged]
    assert [bool(byte & 32) for byte in strip] == [bool(row["other_votes"]) for row in rows]
    assert any(byte & 16 for byte in strip)
    assert any(byte & 32 for byte in strip)
    assert all(byte & 15 >= 2 for byte in strip)
    assert not any(byte >> 6 for byte in strip)


def test_an_undecided_step_is_marked() -> None:
    microagents(
        "run",
        "drift",
        "--model",
        "sim:perfect@error=0.4,alternatives=1",
        "-k",
        "9",
        "--max-draws",
        "13",
        "--run-id",
        "r",
    )
    assert get("/api/run/r/strip")[2][-1] >> 6 == 1


def test_the_pages_tell_of_a_run_and_a_decision_what_the_terminal_does() -> None:
    microagents("run", *NOISY)
    (listed,) = get("/api/runs")[2]
    assert listed == microagents("show", "r", "--json").json | {"result": None}
    assert get("/api/run/r")[2].items() >= (listed | {"paused": None} | microagents("show", "r", "--json").json).items()
    assert get("/api/run/r/decision?path=0/step/3")[2] == microagents("show", "r", "0/step/3", "--json").json


def test_every_page_has_a_path_of_its_own_and_allows_no_script_but_its_files() -> None:
    for path in ("/", "/run/r", "/run/r/at/0/step/3"):
        status, headers, body = get(path)
        assert (status, b"<main" in body) == (200, True)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Origin": "null"}])
def test_a_page_of_another_site_learns_nothing(headers: dict[str, str]) -> None:
    microagents("run", *NOISY)
    status, sent, body = get("/api/runs", **headers)
    assert (status, list(body)) == (403, ["error"])
    assert "content-security-policy" in sent


@pytest.mark.parametrize(
    "path",
    [
        "/static/..%2Fserver.py",
        "/static/server.py",
        "/api/run/..%2Fr",
        "/api/run/r/strip?input=x",
        "/api/run/r/strip?input=9",
        "/x",
    ],
)
def test_what_is_not_there_is_refused_with_one_sentence(path: str) -> None:
    microagents("run", *NOISY)
    status, _, body = get(path)
    assert status == 404
    assert "\n" not in body["error"]


def test_a_damaged_journal_is_named_and_the_others_are_shown() -> None:
    microagents("run", *NOISY)
    Path(f"runs/{MARKUP.replace('/', '')}.sqlite").write_bytes(b"no journal")
    assert {"error" in each for each in get("/api/runs")[2]} == {True, False}
    with closing(sqlite3.connect("runs/r.sqlite")) as db, db:
        db.execute("DELETE FROM decision WHERE key = (SELECT max(key) FROM decision)")
    status, _, body = get("/api/run/r/strip")
    assert (status, "damaged" in body["error"] or "missing" in body["error"]) == (404, True)


def test_looking_changes_no_byte_of_a_journal() -> None:
    microagents("run", *NOISY)
    file = Path("runs/r.sqlite")
    before = file.read_bytes()
    for path in ("/api/runs", "/api/run/r/strip", "/api/run/r/decision?path=0/step/3"):
        assert get(path)[0] == 200
    assert file.read_bytes() == before


async def test_a_port_that_is_taken_is_named() -> None:
    async with viewing(Path()) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(InvalidUsage, match=f"port {port}"):
            async with viewing(Path(), port):
                pass


def test_an_overview_of_a_step_that_no_run_has_takes_no_memory() -> None:
    microagents("run", *NOISY)
    with closing(sqlite3.connect("runs/r.sqlite")) as db, db:
        db.execute("UPDATE decision SET key = key + (1 << 30) WHERE key = (SELECT max(key) FROM decision)")
    with reader_of(Path("runs"), "r") as reader, pytest.raises(InvalidUsage, match="there is no step"):
        reader.overview(0)
