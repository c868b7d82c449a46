"""`show` on the run of an endpoint: how often samples agree by tool and argument, so that the policy writes itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from microagents.journal.reading import Reader, journal_of
from microagents.web.endpoint.policy import Policy
from tests.cli.commands import COMPLETED, microagents
from tests.web.endpoint.test_forwarding import ASKED, posted, saying, voted


def read_all(folder: str) -> bytes:
    return b"".join(each.read_bytes() for each in Path(folder).iterdir() if each.is_file())


async def test_show_prints_how_often_samples_agree_on_each_argument() -> None:
    calls = [[("write", {"path": "a", "content": f"{number}" * 300, "mode": "x"})] for number in range(12)]
    async with voted(saying(*calls), runs_dir=Path("runs"), run_id="served") as (_, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
    shown = microagents("show", "served", "--json").json
    assert [(each["tool"], each["argument"], each["share"]) for each in shown["agreement"]] == [
        ("write", "", 1.0),
        ("write", "content", 1 / 12),
        ("write", "mode", 1.0),
        ("write", "path", 1.0),
    ]
    printed = microagents("show", "served")
    assert printed.code == COMPLETED
    assert "8%  write.content  (1 election)" in printed.out
    assert "111111" not in printed.out


async def test_a_journal_has_long_arguments_by_their_digest() -> None:
    async with voted(saying([("write", {"content": "private " * 100})]), runs_dir=Path("runs"), run_id="r") as (
        _,
        served,
    ):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
    written = read_all("runs")
    assert b"private" not in written
    assert b"800 characters, blake2b" in written


async def test_a_journal_has_bodies_by_their_digest_and_whole_if_the_policy_says_so() -> None:
    reply = b'{"choices": [{"message": {"content": "done"}}]}'
    for keeps in (False, True):
        run_id = f"r{keeps}"
        given: dict[str, Any] = {"runs_dir": Path("runs"), "run_id": run_id}
        async with voted(saying(reply), Policy(keep_bodies=keeps), **given) as (_, served):
            for asked in (b'{"messages": [], "user": "me"}', b'{"user": "\xff"}'):
                assert (await posted(served, "chat/completions", asked))[0] == 200
        with Reader(journal_of(Path("runs"), run_id)) as reader:
            decisions, _ = reader.of_input(0)
        kept = [json.loads(each.value or b"") for path, each in decisions.items() if path.endswith("/body")]
        assert kept == (['{"messages": [], "user": "me"}', '{"user": "\ufffd"}'] if keeps else [])
        assert microagents("show", run_id, "--verify").code == COMPLETED
    assert "messages" in microagents("show", "rTrue", "0/request/1/body").out
