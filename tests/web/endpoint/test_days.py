"""Each day has a run of its own, and a fallback of the same wire is asked while a model is out."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from microagents.base.errors import InvalidUsage
from microagents.journal.sharded import reader_of
from microagents.web.endpoint.callers import CostLimit
from microagents.web.endpoint.server import Endpoint, serving
from tests.doubles.acting import acting
from tests.web.endpoint.test_caps import DEAR, SHORT
from tests.web.endpoint.test_forwarding import ASKED, posted, saying, voted
from tests.web.endpoint.test_owed import left, until


def elections_of(runs_dir: Path, run_id: str) -> list[str]:
    with reader_of(runs_dir, run_id) as reader:
        return sorted(reader.of_input(0)[0])


async def test_the_first_request_of_a_day_begins_its_run_and_what_was_open_ends_in_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with voted(saying("x"), k=1, runs_dir=tmp_path, run_id="serve-a") as (double, served):
        assert (await posted(served, "chat/completions", ASKED))[0] == 200
        double.gate = asyncio.Event()
        open_one = asyncio.create_task(posted(served, "chat/completions", ASKED))
        await left(served, double, {**ASKED, "user": "owed"}, 3)
        monkeypatch.setattr("microagents.web.endpoint.served_elections.today", lambda: "2100-01-01")
        new = asyncio.create_task(posted(served, "chat/completions", {**ASKED, "user": "new"}))
        await until(lambda: len(double.requests) == 4)
        double.gate.set()
        assert ((await open_one)[0], (await new)[0]) == (200, 200)
        status, reply, _ = await posted(served, "chat/completions", {**ASKED, "user": "owed"})
        assert (status, reply["usage"]["microagents"]["election"], len(double.requests)) == (200, 3, 4)
    assert elections_of(tmp_path, "serve-a") == ["0/request/1", "0/request/2", "0/request/3"]
    assert elections_of(tmp_path, "serve-a-2100-01-01") == ["0/request/4"]


async def test_the_cost_of_a_day_holds_over_its_run(tmp_path: Path) -> None:
    options: dict[str, Any] = {"option": DEAR, "limit": CostLimit(0.7, each_day=True), "runs_dir": tmp_path, "k": 1}
    for run_id, status in (("first", 200), ("second", 402)):
        async with voted(saying("x"), **options, run_id=run_id) as (_, served):
            assert (await posted(served, "chat/completions", SHORT))[0] == status


async def test_a_fallback_is_asked_while_the_model_is_out() -> None:
    async with acting(saying(401)) as out, acting(saying("x")) as well:
        models, fallbacks = [f"openai:a@base_url={out.url}/v1"], [f"openai:b@base_url={well.url}/v1"]
        async with serving(Endpoint(models=models, fallbacks=fallbacks)) as served:
            status, _, _ = await posted(served, "chat/completions", ASKED)
            assert (status, len(well.requests)) == (200, 3)
            assert [each.json["model"] for each in well.requests] == ["b"] * 3
            asked = len(out.requests)
            assert (await posted(served, "chat/completions", ASKED))[0] == 200
            assert len(out.requests) == asked  # it is out, and tried again later


@pytest.mark.slow
async def test_a_fallback_is_asked_once_the_model_has_failed_for_a_while() -> None:
    async with acting(saying(500)) as out, acting(saying("x")) as well:
        models, fallbacks = [f"openai:a@base_url={out.url}/v1"], [f"openai:b@base_url={well.url}/v1"]
        async with asyncio.timeout(40), serving(Endpoint(models=models, fallbacks=fallbacks)) as served:
            assert (await posted(served, "chat/completions", ASKED))[0] == 200


async def test_a_fallback_speaks_the_wires_of_all_models() -> None:
    models, fallbacks = ["openai:a@base_url=http://127.0.0.1:9/v1"], ["anthropic:b@base_url=http://127.0.0.1:9"]
    with pytest.raises(InvalidUsage, match="it and all models must speak the same wires"):
        async with serving(Endpoint(models=models, fallbacks=fallbacks)):
            pass
