"""The pages of runs: what they are told, and who may ask."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import threading
from array import array
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from microagents.base.errors import InvalidUsage
from microagents.journal.sharded import reader_of
from microagents.telemetry.prometheus import CONTENT_TYPE
from microagents.web.viewer import server as viewer
from microagents.web.viewer.server import viewing
from tests.cli.commands import COMPLETED, WAIT_S, microagents, started, write
from tests.forking import Forked

NOISY = ("drift", "-o", "length=12", "--model", "sim:perfect@error=0.4,flag=0.3", "-k", "2", "--run-id", "r")
MARKUP = "<script>alert(1)</script>"
THEIRS = """
    from pathlib import Path
    from microagents.tasks.drift import Drift

    Path("imported").touch()

    class Theirs(Drift):
        pass
"""


def get(path: str, **headers: str) -> tuple[int, Any, Any]:
    """Status, headers and body of an answer of the pages of the folder of runs."""
    return asyncio.run(asked("GET", path, headers=headers))


async def asked(method: str, path: str, token: str = "", **given: Any) -> tuple[int, Any, Any]:
    async with (
        viewing(Path("runs"), token=token) as url,
        aiohttp.ClientSession() as session,
        session.request(method, f"{url}{path}", allow_redirects=False, **given) as got,
    ):
        body = await got.read()
        return got.status, got.headers, json.loads(body) if got.content_type == "application/json" else body


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


def test_the_pages_tell_of_a_run_and_a_decision_what_the_terminal_does() -> None:
    microagents("run", *NOISY)
    (listed,) = get("/api/runs")[2]
    shown = microagents("show", "r", "--json").json
    assert listed.pop("waiting") == 0
    assert (listed["run_id"], listed["outcome"]) == ("r", "completed")
    assert {name: shown[name] for name in listed} == listed
    assert get("/api/run/r")[2].items() >= shown.items()
    assert get("/api/run/r/decision?path=0/step/3")[2] == microagents("show", "r", "0/step/3", "--json").json


def test_the_roles_of_a_run_are_drawn_with_what_its_account_has_of_each() -> None:
    microagents("run", *NOISY)
    shown = microagents("show", "r", "--json").json
    status, headers, picture = get("/api/run/r/graph")
    assert (status, headers["content-type"]) == (200, "image/svg+xml; charset=utf-8")
    for words in (
        "MakerConductor",
        "Draw",
        f"{shown['steps']} steps",
        f"{sum(shown['flagged'].values())} flagged",
        "0 in flight",
    ):
        assert words in picture.decode()


def test_every_page_has_a_path_of_its_own_and_allows_no_script_but_its_files() -> None:
    for path in ("/", "/run/r", "/run/r/at/0/step/3"):
        status, headers, body = get(path)
        assert (status, b"<main" in body) == (200, True)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_a_page_of_another_site_learns_nothing() -> None:
    microagents("run", *NOISY)
    for name, value in (("Host", "evil.example"), ("Origin", "https://evil.example"), ("Origin", "null")):
        status, sent, body = get("/api/runs", **{name: value})
        assert (status, list(body)) == (403, ["error"])
        assert "content-security-policy" in sent


def test_what_is_not_there_is_refused_with_one_sentence() -> None:
    microagents("run", *NOISY)
    of_run = ("/api/run/..%2Fr", "/api/run/r/strip?input=x", "/api/run/r/strip?input=9")
    for path in ("/static/..%2Fserver.py", "/static/server.py", *of_run, "/x"):
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


READS = ("", "/strip", "/series", "/inputs", "/work", "/wrong", "/decision?path=0/step/3", "/differences?other=r")


def test_looking_changes_no_byte_of_a_journal_on_a_disk_that_takes_none() -> None:
    microagents("run", *NOISY)
    folder, file = Path("runs"), Path("runs/r.sqlite")
    file.chmod(0o444)
    folder.chmod(0o555)
    before, names = file.read_bytes(), sorted(folder.iterdir())
    try:
        for path in READS:
            assert get(f"/api/run/r{path}")[0] == 200
        assert (file.read_bytes(), sorted(folder.iterdir())) == (before, names)
    finally:
        folder.chmod(0o755)


def test_a_run_that_was_removed_is_said_to_be_gone() -> None:
    microagents("run", *NOISY)
    Path("runs/r.sqlite").unlink()
    assert [get(f"/api/run/r{path}")[0] for path in READS] == [404] * len(READS)


def test_of_a_strip_only_the_rest_is_sent_and_a_step_without_a_row_is_zero() -> None:
    microagents("run", *NOISY)
    whole = get("/api/run/r/strip")[2]
    assert get("/api/run/r/strip?start=5")[2] == whole[5:]
    assert get("/api/run/r/strip?start=12")[2] == b""
    with closing(sqlite3.connect("runs/r.sqlite")) as db, db:
        db.execute("DELETE FROM decision WHERE key = (SELECT max(key) - 3 FROM decision)")
    assert get("/api/run/r/strip?start=1")[2] == whole[1:8] + b"\0" + whole[9:]


@pytest.mark.slow
def test_the_steps_that_the_oracle_calls_wrong_are_named() -> None:
    microagents("run", "drift", "-o", "length=30", "--model", "sim:perfect@error=0.4", "-k", "1", "--run-id", "r")
    found = get("/api/run/r/wrong")[2]
    shown = [microagents("show", "r", f"0/step/{number}", "--json").json["correct"] for number in range(30)]
    assert found["wrong"] == [number for number, right in enumerate(shown) if right is False]
    assert (found["judged"], len(found["right"])) == (30, len(found["wrong"]))
    assert found["wrong"]


def test_the_parts_of_a_runs_time_add_up_to_its_decisions() -> None:
    microagents("run", *NOISY)
    parts = get("/api/run/r/series")[2]
    shown = microagents("show", "r", "--json").json
    assert sum(decisions for _, decisions, _, _ in parts) == shown["steps"]
    assert sum(samples for _, _, samples, _ in parts) == shown["votes"] + sum(shown["flagged"].values())
    assert [end for end, *_ in parts] == sorted({end for end, *_ in parts})


@pytest.mark.slow
def test_work_that_is_no_chain_is_told_as_the_terminal_tells_it() -> None:
    microagents("run", "multiplication", "--model", "sim:perfect@error=0.2", "--run-id", "tree")
    found = get("/api/run/tree/work")[2]
    assert found["solution"] == microagents("show", "tree", "--json").json["solution"]
    assert get("/api/run/tree/strip")[2] == b""


@pytest.mark.slow
def test_inputs_are_a_byte_each_and_one_is_told_by_its_number() -> None:
    Path("many.jsonl").write_text("".join(f'{{"length": {1 + number % 3}}}\n' for number in range(9)))
    noisy = "sim:perfect@error=0.3"
    microagents("run", "drift", "--model", noisy, "-s", "max_draws=5", "--inputs", "many.jsonl", "--run-id", "many")
    ended = [json.loads(line) for line in microagents("export", "many").out.splitlines()]
    content = get("/api/run/many/inputs")[2]
    codes, samples = content[:9], array("f", content[9:])[:9]
    for number in filter(lambda number: codes[number] == 2, range(9)):
        assert samples[number] == sum(row["votes"] + row["other_votes"] for row in ended if row["input"] == number)
    assert [code == 3 for code in codes] == [
        any(row["input"] == number and row["outcome"] == "undecided" for row in ended) for number in range(9)
    ]
    assert set(codes) == {2, 3}
    one = get("/api/run/many?input=" + str(codes.index(3)))[2]
    assert (one["failed"]["outcome"], one["result"]) == ("undecided", None)


@pytest.mark.slow
def test_two_runs_differ_from_the_first_step_that_one_decided_otherwise() -> None:
    for run, k in (("one", "1"), ("other", "3")):
        model = "sim:perfect@error=0.3"
        microagents("run", "drift", "-o", "length=30", "--model", model, "-k", k, "--run-id", run)
    found = get("/api/run/one/differences?other=other")[2]
    rows = [[json.loads(line) for line in microagents("export", run).out.splitlines()] for run in ("one", "other")]
    differ = [a["path"] for a, b in zip(*rows, strict=True) if a["value"] != b["value"]]
    assert [each["path"] for each in found["differ"]] == differ
    assert found["count"] == sum(end - start for start, end in found["ranges"]) == len(differ) > 0
    assert get("/api/run/one/differences?other=one")[2]["count"] == 0


# -- deciding ----------------------------------------------------------------------------------------------------------

UNDECIDED = (
    "drift", "--model", "sim:perfect@error=0.4,alternatives=1", "-k", "9", "-s", "max_draws=13", "--run-id", "r",
)  # fmt: skip
ANSWER = {"json": {"path": "0/step/0", "value": '{"number": 1}'}}
TOKEN = "a-token"
SECRET = {"Authorization": f"Bearer {TOKEN}"}


def test_no_answer_sets_a_cookie() -> None:
    for path in ("/", "/run/r?token=t"):
        status, headers, _ = asyncio.run(asked("GET", path, token="t"))
        assert (status, "set-cookie" in headers) == (200, False)


@pytest.mark.slow
def test_a_person_decides_from_the_page_as_on_the_command_line() -> None:
    microagents("run", *UNDECIDED)
    assert get("/api/run/r")[2]["undecided_at"] == ["0/step/0"]
    sent = asyncio.run(asked("POST", "/api/run/r/decide", token=TOKEN, headers=SECRET, **ANSWER))
    assert (sent[0], sent[2]) == (200, {"path": "0/step/0", "go_on": "microagents resume r", "may_resume": True})
    other = {"path": "0/step/0", "value": ANSWER["json"]["value"].replace("1", "2")}
    assert other["value"] != ANSWER["json"]["value"]
    for more, status in (({}, 409), ({"again": True}, 200)):
        assert (
            asyncio.run(asked("POST", "/api/run/r/decide", token=TOKEN, headers=SECRET, json=other | more))[0] == status
        )
    assert microagents("decide", "r", "step/0", ANSWER["json"]["value"]).code == COMPLETED
    microagents("resume", "r")
    assert microagents("show", "r", "0/step/0", "--json").json["outcome"] == "person"


def test_the_oldest_run_waits_first_whichever_was_written_to_last() -> None:
    for run_id in ("old", "new"):
        microagents(
            "run",
            "drift",
            "--model",
            "sim:perfect@error=0.4,alternatives=1",
            "-k",
            "9",
            "-s",
            "max_draws=13",
            "--run-id",
            run_id,
        )
    Path("runs/old.sqlite").touch()
    assert [each["run_id"] for each in get("/api/waiting")[2]] == ["old", "new"]


def test_nobody_else_decides() -> None:
    microagents("run", *UNDECIDED)
    before = Path("runs/r.sqlite").read_bytes()
    wrong = [f"Bearer {token}" for token in ("other", "", TOKEN[:-1], f"{TOKEN}2", TOKEN.upper())]
    refused: list[dict[str, Any]] = [{}, *({"Authorization": each} for each in (*wrong, f"Basic {TOKEN}"))]
    refused += [{"Cookie": f"token={TOKEN}"}, {**SECRET, "Origin": "https://evil.example"}]
    refused += [{**SECRET, "Sec-Fetch-Site": "same-site"}]
    cases: list[tuple[dict[str, Any], int]] = [({"headers": each, **ANSWER}, 403) for each in refused]
    cases += [({"headers": SECRET, "data": "path=0/step/0"}, 415), ({"headers": SECRET, "json": {"path": 1}}, 400)]
    cases += [({"headers": SECRET, "json": {"path": "0/step/0", "value": "no reply"}}, 404)]
    for given, status in cases:
        assert asyncio.run(asked("POST", "/api/run/r/decide", token=TOKEN, **given))[0] == status, given
        if status == 403:
            assert asyncio.run(asked("POST", "/api/run/r/resume", token=TOKEN, **given))[0] == status, given
    given = {"headers": SECRET, "json": {}}
    assert asyncio.run(asked("POST", "/api/run/r/resume", token=TOKEN, **given))[0] == 403, "it still waits"
    assert Path("runs/r.sqlite").read_bytes() == before


# -- the report --------------------------------------------------------------------------------------------------------


def test_a_report_is_one_file_that_asks_nothing_of_any_host() -> None:
    microagents("run", *NOISY)
    assert microagents("view", "r", "-o", "r.html").out == "r.html\n"
    text = Path("r.html").read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)=["'](?!data:)|@import|url\(|fetch\("http""", text)
    assert re.search(r"default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'", text)
    assert len(text) < 200_000
    told = json.loads(re.search(r'id="content">(.*?)</script>', text, re.DOTALL)[1])  # type: ignore[index]
    assert told["run"]["decisions_sha256"] == microagents("show", "r", "--json").json["decisions_sha256"]


def test_a_report_takes_markup_as_text() -> None:
    microagents("run", "writing", "-o", f"brief={MARKUP}</script>", "-s", "same_model=true", "--run-id", "r")
    ran = microagents("view", "r", "-o", "r.html")
    assert ran.code == 0, ran.err
    text = Path("r.html").read_text(encoding="utf-8")
    assert MARKUP not in text
    assert text.count("</script>") == 2


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
    with reader_of(Path("runs"), "r") as reader, pytest.raises(InvalidUsage, match=r"step \d+ does not exist"):
        reader.overview(0)


def test_prometheus_reads_the_totals_of_runs_as_their_accounts_have_them() -> None:
    microagents("run", *NOISY)
    status, headers, body = get("/metrics")
    assert (status, headers["content-type"]) == (200, CONTENT_TYPE)
    families = {each.name: each for each in text_string_to_metric_families(body.decode())}
    found = json.loads(microagents("show", "r", "--json").out)
    (calls,) = families["microagents_calls"].samples
    assert (calls.name, calls.labels, calls.value) == (
        "microagents_calls_total",
        {
            "microagents_run_id": "r",
            "microagents_simulated": "true",
            "gen_ai_workflow_name": "drift",
            "gen_ai_provider_name": "sim",
            "gen_ai_request_model": "perfect",
        },
        found["calls"],
    )
    flags = {each.labels["microagents_flag"]: each.value for each in families["microagents_flags"].samples}
    assert flags == found["flagged"]
    (cost,) = families["microagents_cost_usd"].samples
    assert cost.value == found["cost_usd"]
    for name in (
        "microagents_paused",
        "microagents_deaths",
    ):  # before the first death, so that Prometheus sees its rise
        assert [each.value for each in families[name].samples] == [0]
    states = [(each.labels["microagents_outcome"], each.value) for each in families["microagents_state"].samples]
    assert states == [("completed", 1)]
    assert [each.name for each in families["microagents_lease_renewals"].samples] == [
        "microagents_lease_renewals_total"
    ]


async def test_a_read_that_no_thread_is_free_for_is_refused_until_later(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, free = threading.Barrier(viewer.MAX_READS + 1), threading.Event()

    def held(*_: object, **__: object) -> Iterator[Any]:
        begun.wait(WAIT_S)
        free.wait(WAIT_S)
        return iter(())

    monkeypatch.setattr(viewer, "QUEUE_S", 0.05)
    monkeypatch.setattr(viewer, "runs_in", held)
    async with viewing(Path()) as url, aiohttp.ClientSession() as session:
        reading = [asyncio.create_task(status_of(session, f"{url}/api/runs")) for _ in range(viewer.MAX_READS)]
        await asyncio.to_thread(begun.wait, WAIT_S)
        try:
            async with session.get(f"{url}/metrics") as got:
                assert (got.status, got.headers["retry-after"]) == (503, "0.05")
                assert "try again" in (await got.json())["error"]
        finally:
            free.set()
        assert await asyncio.gather(*reading) == [200] * viewer.MAX_READS


async def status_of(session: aiohttp.ClientSession, url: str) -> int:
    async with session.get(url) as got:
        await got.read()
        return got.status


def test_every_host_may_read_the_totals_on_a_port_of_their_own_and_nothing_else() -> None:
    microagents("run", *NOISY)
    asyncio.run(_read_from_elsewhere())


async def _read_from_elsewhere() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with viewing(Path("runs"), metrics_port=port), aiohttp.ClientSession() as session:
        for path, status in (("/metrics", 200), ("/api/runs", 404), ("/", 404)):
            async with session.get(f"http://127.0.0.1:{port}{path}", headers={"Host": f"run-head-svc:{port}"}) as got:
                assert (got.status, "microagents_decisions_total" in await got.text()) == (status, status == 200)


def test_runs_that_ended_long_ago_have_no_metrics() -> None:
    microagents("run", *NOISY)
    for each in Path("runs").iterdir():
        os.utime(each, (0, 0))
    assert b"microagents_run_id" not in get("/metrics")[2]


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_without_a_browser_the_printed_address_is_served_until_ctrl_c() -> None:
    microagents("run", *NOISY)
    environment = {**os.environ, "PATH": "/nowhere", "DISPLAY": "", "BROWSER": ""}
    with Forked("view", "r", stderr=None, env=environment) as view:
        assert view.stdout is not None
        address = view.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/run/r#token=[\w-]{20,}", address)
        with urlopen(address.replace("/run/r#", "/api/run/r/strip#"), timeout=WAIT_S) as strip:
            assert strip.status == 200
        view.send_signal(signal.SIGINT)
        assert view.wait(WAIT_S) == 0


@pytest.mark.slow
def test_the_browser_is_started_with_a_file_that_only_this_user_can_read() -> None:
    microagents("run", *NOISY)
    told = Path("told").absolute()
    os.mkfifo(told)
    script = Path("browser.sh")
    script.write_text(
        f'#!/bin/sh\nfile=${{1#file://}}\n{{ echo "$1"; stat -c %a "$file"; cat "$file"; }} > "{told}"\n',
        encoding="utf-8",
    )
    script.chmod(0o700)
    environment = {**os.environ, "BROWSER": f"{script.absolute()} %s"}
    with Forked("view", "r", stderr=None, env=environment) as view:
        assert view.stdout is not None
        address = view.stdout.readline().strip()
        given, mode, page = told.read_text(encoding="utf-8").split("\n", 2)
        view.send_signal(signal.SIGINT)
        assert view.wait(WAIT_S) == 0
    file = Path(given.removeprefix("file://"))
    assert (address.partition("#token=")[2] in given, mode, address in page) == (False, "600", True)
    assert not file.exists()


@pytest.mark.slow
def test_a_link_or_a_picture_of_another_site_imports_nothing() -> None:
    write("theirs.py", THEIRS)
    assert started("run", "theirs.py", *NOISY[1:]).code == 0
    Path("imported").unlink()
    status, _, _ = get("/api/run/r/decision?path=0/step/3", **{"Sec-Fetch-Site": "same-site"})
    assert (status, Path("imported").exists()) == (403, False)
    assert get("/api/run/r/decision?path=0/step/3", **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert Path("imported").exists()


@pytest.mark.slow
def test_the_pages_of_a_foreign_journal_import_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    write("theirs.py", THEIRS)
    assert started("run", "theirs.py", *NOISY[1:]).code == 0
    Path("imported").unlink()
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("nobody").absolute()))
    for page in ("", "/strip", "/series", "/work", "/wrong", "/decision?path=0/step/3"):
        assert get(f"/api/run/r{page}")[0] == 200
    assert not Path("imported").exists()


def test_a_run_that_is_not_there_is_said_at_once() -> None:
    ran = microagents("view", "r", "--no-open")
    assert (ran.code, ran.err.count("\n"), "there is no run 'r'" in ran.err) == (2, 1, True)
