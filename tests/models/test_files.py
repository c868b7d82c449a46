"""Pictures and files in prompts: on all wires a strict double decodes them, and the kept content outlives its file."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

from microagents import (
    AgentTask,
    File,
    Image,
    InvalidUsage,
    McpServer,
    ModelUnavailable,
    Prompt,
    ToolCall,
    Turn,
    resume,
    run,
    tool,
)
from microagents.journal.contents import folder_of
from microagents.models.http.provider import HttpModel
from microagents.models.model import Call, as_taken
from microagents.replies import media
from microagents.replies.media import Media
from microagents.runs.inspection.runs import remove_run
from microagents.systems import Maker
from microagents.systems.agents.agent import AgentAnswer
from microagents.tasks.rows import FillTable
from microagents.tools.toolbox import GivenTool
from tests.doubles import dialects
from tests.doubles.dialects import Said
from tests.doubles.drawn import FORMATS, pdf, picture, text_on
from tests.doubles.histories import Heard
from tests.doubles.strict_wires import StrictWires, strict_wires
from tests.models.wires import ANTHROPIC, KEY, OPENAI, RESPONSES, Provider, a_call

WIRES = {"chat": OPENAI, "responses": RESPONSES, "messages": ANTHROPIC}
SHOWING = ("shoot", "report", "forge")
TOTAL = "Which total does the invoice show?"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.setenv(name, KEY)


def read_out(heard: Heard) -> Said:
    """Reply with the texts of all that the model sees."""
    return Said(text=f'{{"answer": "{" / ".join(heard.seen)}"}}')


def with_files(*files: Media, turns: tuple[Turn, ...] = (), tools: str = "") -> Call:
    contents = {each.digest: each.data() for each in files if not each.address}
    call = a_call(TOTAL)
    for turn in turns:
        contents |= {each.digest: each.data() for each in turn.files}
    prompt = Prompt(user=TOTAL, files=files, turns=turns, tools=tools)
    return Call(id=call.id, prompt=prompt, reply=call.reply, temperature=None, max_output_tokens=64, contents=contents)


async def seen_by(server: StrictWires, wire: str, call: Call, **options: str) -> str:
    model = WIRES[wire].open(server.base_url(wire), **options)
    try:
        return (await model.complete(as_taken(call, model))).text
    finally:
        await model.close()


def scan(folder: Path, name: str, text: str) -> str:
    """Write a picture, or a PDF with a page for each line."""
    kinds = {".png": "PNG", ".jpg": "JPEG", ".webp": "WEBP", ".gif": "GIF"}
    ending = Path(name).suffix
    content = pdf(text.splitlines()) if ending == ".pdf" else picture(text, kinds[ending])
    (folder / name).write_bytes(content)
    return str(folder / name)


# -- wires -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_each_kind_of_picture_and_a_pdf_are_decoded_on_each_wire(wire: str) -> None:
    files = [Image(picture(f"total {form}", form)) for form in FORMATS]
    async with strict_wires(read_out) as server:
        text = await seen_by(server, wire, with_files(*files, File(pdf(["one", "two"]), name="two.pdf")))
    assert server.refused == []
    assert text == '{"answer": "total PNG / total JPEG / total WEBP / total GIF / one / two"}'


@pytest.mark.parametrize("wire", WIRES)
async def test_a_picture_in_a_result_is_shown_where_the_wire_takes_it(wire: str) -> None:
    called = Turn(role="assistant", calls=(ToolCall("shoot", {}), ToolCall("shoot", {"of": 2})))
    first = Turn(role="tool", text="here", files=(Image(picture("shot 1")),))
    second = Turn(role="tool", call=1, text="there", files=(Image(picture("shot 2")),))
    asks = Turn(role="user", text="What is on them?")
    tools = '[{"name": "shoot", "description": "Take a picture.", "parameters": {"type": "object"}}]'
    async with strict_wires(read_out) as server:
        call = with_files(Image(picture("the first")), turns=(called, first, second, asks), tools=tools)
        text = await seen_by(server, wire, call)
        flat = await seen_by(server, wire, call, calls="text")
    assert server.refused == []
    assert text == flat == '{"answer": "the first / shot 1 / shot 2"}'


@pytest.mark.parametrize("wire", WIRES)
async def test_an_address_is_handed_to_the_provider_and_not_fetched(wire: str) -> None:
    async with strict_wires(read_out) as server:
        text = await seen_by(server, wire, with_files(Image("https://example.invalid/scan.png")))
        assert text == '{"answer": "https://example.invalid/scan.png"}'
        asked = with_files(File("https://example.invalid/scan.pdf"))
        if wire == "chat":
            with pytest.raises(ModelUnavailable, match="chat completions take no address of a PDF "):
                await seen_by(server, wire, asked)
        else:
            assert await seen_by(server, wire, asked) == '{"answer": "https://example.invalid/scan.pdf"}'
    assert server.refused == []


@pytest.mark.parametrize(
    ("spec", "name", "said"),
    [
        (
            "gemini:gemini-3.8-flash",
            "x.pdf",
            "gemini:gemini-3.8-flash takes PNG, JPEG or WebP, and the prompt has a PDF x.pdf",
        ),
        ("gemini:gemini-3.8-flash", "x.gif", "takes PNG, JPEG or WebP, and the prompt has a GIF x.gif"),
        (
            "openai:gpt-4-turbo",
            "x.png",
            "openai:gpt-4-turbo takes no pictures and files, and the prompt has a PNG x.png",
        ),
    ],
)
async def test_a_model_that_cannot_take_a_file_is_named_and_nothing_is_sent(
    tmp_path: Path, spec: str, name: str, said: str
) -> None:
    async with strict_wires(read_out) as server:
        model = f"{spec}@base_url={server.base_url('chat', 'gemini' if 'gemini' in spec else 'openai')}"
        result = await run(rows_of(tmp_path, {name: "1"}), models=model, runs_dir=None)
    assert (result.outcome, server.bodies) == ("failed", [])
    assert re.search(f"{re.escape(said)}.*; nothing was sent", str(result.reason))


async def test_a_model_of_ones_own_says_that_it_takes_files(tmp_path: Path) -> None:
    async def own(call: Call) -> str:
        (file,) = call.prompt.files
        return f'{{"answer": "{file.name} {text_on(call.contents[file.digest])}"}}'

    rows = rows_of(tmp_path, {"a.png": "total 1"})
    refused = await run(rows, models=own, runs_dir=None)
    assert "FunctionModel takes no pictures and files, and the prompt has a PNG a.png" in str(refused.reason)
    own.takes_files = True  # type: ignore[attr-defined]
    result = await run(rows, models=own, runs_dir=None)
    assert result.value == [{"answer": "a.png total 1"}]


# -- tokens ------------------------------------------------------------------------------------------------------------


def opened(provider: Provider, name: str) -> HttpModel:
    return provider.open("http://127.0.0.1:1/v1", name)


def test_the_bound_of_a_call_has_the_most_that_its_files_can_cost() -> None:
    one, two, pages = Image(picture("1")), Image(picture("2")), File(pdf(["1"]))
    haiku = opened(ANTHROPIC, "claude-haiku-5-5")
    none, some = [haiku.at_most(with_files(*files)) for files in ((), (one, two))]
    whole = haiku.at_most(with_files(one, pages))
    assert none is not None
    assert some is not None
    assert whole is not None
    assert some.tokens - none.tokens == 2 * 4_784
    assert whole.tokens - none.tokens == 1_000_000, "pages cannot be counted without decoding them"
    assert opened(OPENAI, "of-a-server").at_most(with_files(one)) is None


# -- questions ---------------------------------------------------------------------------------------------------------


def test_a_digest_covers_the_content() -> None:
    asked = [Prompt(user="u", files=(Image(picture(text), name="scan.png"),)) for text in ("1", "2", "1")]
    turns = [Prompt(user="u", turns=(Turn(role="user", files=each.files),)) for each in asked]
    for first, second, again in (asked, turns):
        assert first.conversation != second.conversation
        assert first.conversation == again.conversation
    assert Prompt(user="u").conversation == ()


@pytest.mark.parametrize("given", [["scan.png"], "scan.png", [b"\x89PNG"]])
def test_a_file_of_a_prompt_is_made_by_image_or_file(given: Any) -> None:
    with pytest.raises(TypeError, match="are made by Image"):
        Prompt(user="u", files=given)


# -- rows and resuming -------------------------------------------------------------------------------------------------


def rows_of(folder: Path, names: dict[str, str]) -> list[FillTable]:
    return [
        FillTable(ask=TOTAL, columns="answer", files="scan", row={"scan": scan(folder, name, text)})
        for name, text in names.items()
    ]


async def test_a_column_of_a_table_names_pictures_and_pdfs(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {"a.png": "total 1", "b.jpg": "total 2", "c.pdf": "total\n3"})
    async with strict_wires(read_out) as server:
        result = await run(rows, models=server.spec("chat"), runs_dir="runs", run_id="r", strategy=Maker(k=2))
    assert server.refused == []
    assert result.value == [{"answer": "total 1"}, {"answer": "total 2"}, {"answer": "total / 3"}]
    kept = sorted(folder_of(Path("runs/r.db")).iterdir())
    assert [each.name for each in kept] == sorted(File(row.row["scan"]).digest for row in rows)
    assert {each.stat().st_mode & 0o777 for each in kept} == {0o600}


BAD = {
    "empty.png": (b"", "'PATH' is empty"),
    "page.png": (b"<html>", "'PATH' is no PNG, JPEG, WebP, GIF, PDF by its first bytes, b'<html>'"),
    "photo.png": (picture("1", "JPEG"), "'PATH' is named as a PNG, and begins as a JPEG; rename it"),
    "long.pdf": (None, "'PATH' has 200 MB, and providers take 20 at most"),
    "gone.png": (None, "'PATH' of a prompt cannot be read: no such file"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_file_fails_its_row_with_one_sentence_and_the_others_are_done(tmp_path: Path, name: str) -> None:
    content, said = BAD[name]
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    elif name == "long.pdf":
        with path.open("wb") as stream:
            stream.truncate(200 << 20)
    rows = rows_of(tmp_path, {"good.png": "total 7"})
    rows.append(FillTable(ask=TOTAL, columns="answer", files="scan", row={"scan": str(path)}))
    async with strict_wires(read_out) as server:
        result = await run(rows, models=server.spec("chat"), runs_dir=None)
    assert result.outcome == "failed"
    assert [*result.value] == [{"answer": "total 7"}, None]
    assert f"input 1: the file {said.replace('PATH', str(path))}" in str(result.reason)


def test_a_pdf_is_no_picture_and_only_https_is_an_address() -> None:
    with pytest.raises(InvalidUsage, match=r"is a PDF, and no picture; give it as File"):
        Image(pdf(["1"]))
    with pytest.raises(InvalidUsage, match="must begin with https://"):
        Image("http://example.invalid/a.png")


@pytest.mark.parametrize(("held", "most"), [(media.MAX_HELD_BYTES, 1), (1, 2)])
async def test_a_file_is_read_once_and_one_that_is_not_held_any_more_comes_from_beside_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, most: int
) -> None:
    read, reads = Counter[Path](), media._read

    def counted(path: Path) -> bytes:
        read[path] += 1
        return reads(path)

    monkeypatch.setattr(media, "_read", counted)
    monkeypatch.setattr(media, "HELD", media.Held(held))
    monkeypatch.setattr("microagents.roles.solver.attempts.HELD", media.HELD)
    names = {f"{number}.png": f"total {number}" for number in range(9)}
    async with strict_wires(read_out) as server:
        result = await run(rows_of(tmp_path, names), models=server.spec("messages"), runs_dir="runs")
    assert result.value == [{"answer": text} for text in names.values()]
    assert len(read) == 9
    assert max(read.values()) <= most


async def test_a_resumed_run_asks_for_a_file_that_is_gone_and_goes_on_once_it_is_back(tmp_path: Path) -> None:
    names = {"a.png": "total 1", "b.png": "total 2"}
    rows = rows_of(tmp_path, names)
    async with strict_wires(read_out) as server:
        stopped = await run(rows, models=server.spec("chat"), runs_dir="runs", run_id="r", max_calls=3)
        assert stopped.outcome == "stopped"
        for row in rows:
            Path(row.row["scan"]).unlink()  # noqa: ASYNC240 - of a test
        gone = await resume("r", runs_dir="runs", max_calls=100)
        assert gone.outcome == "failed"
        assert "cannot be read: no such file or directory; all decisions so far are kept; put it there" in str(
            gone.reason
        )
        rows_of(tmp_path, names)
        result = await resume("r", runs_dir="runs", max_calls=100)
    assert result.value == [{"answer": "total 1"}, {"answer": "total 2"}]
    assert result.account.calls == 6
    remove_run(Path("runs"), "r")
    assert not folder_of(Path("runs/r.db")).exists()


@pytest.mark.slow
def test_on_ray_contents_reach_the_lanes_and_the_folder_beside_the_journal(tmp_path: Path) -> None:
    names = {f"{number}.png": f"total {number}" for number in range(6)}

    async def ran() -> list[Any]:
        async with strict_wires(read_out) as server:
            spec = server.spec("responses")
            result = await run(
                rows_of(tmp_path, names), models=spec, runtime="ray", lanes=2, runs_dir="runs", run_id="r"
            )
        return [*result.value]

    assert asyncio.run(ran()) == [{"answer": text} for text in names.values()]
    assert len([*folder_of(Path("runs/r.sqlite")).iterdir()]) == len(names)


# -- agents ------------------------------------------------------------------------------------------------------------


@tool("read_only")
def take_picture(of: int) -> list[str | Media]:
    """Take a picture."""
    return [f"of {of}", Image(picture(f"gauge {of}"), name=f"{of}.png")]


class Inspect(AgentTask[AgentAnswer]):
    """Take two pictures, and read them."""

    tools: ClassVar[tuple[GivenTool, ...]] = (take_picture,)

    def statement(self) -> str:
        return "Read both gauges."


def inspecting(heard: Heard) -> Said:
    """Take two pictures, then say what is on them."""
    if heard.steps < 2:
        return Said(calls=(dialects.Call("take_picture", {"of": heard.steps + 1}),))
    return Said(calls=(dialects.Call("end", {"answer": " / ".join(heard.seen)}),))


@pytest.mark.parametrize("wire", WIRES)
async def test_an_agent_sees_the_pictures_of_its_tools_also_after_a_stop(
    wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with strict_wires(inspecting) as server:
        given: dict[str, Any] = {"runs_dir": "runs", "run_id": "r"}
        stopped = await run(Inspect(), models=server.spec(wire), max_calls=4, **given)
        monkeypatch.setattr("microagents.roles.solver.attempts.HELD", media.Held(1))  # as in another process
        result = await resume("r", runs_dir="runs", max_calls=100)
    assert (stopped.outcome, server.refused) == ("stopped", [])
    assert result.value["result"]["answer"] == "gauge 1 / gauge 2"


async def test_the_scanned_pages_of_the_docs_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs" / "examples")
    example = import_module("scanned")
    table = [{"scan": scan(tmp_path, "a.png", "A-7: 12.50")}, {"scan": scan(tmp_path, "b.pdf", "B-8: 3.00\npage 2")}]

    def reads(heard: Heard) -> Said:
        number, _, total = heard.seen[0].partition(": ")
        return Said(text=f'number = "{number}"\ntotal = {total}')

    async with strict_wires(reads) as server:
        result = await run(example.Invoices.rows(table), models=server.spec("messages"), runs_dir=None)
    assert [*result.value] == [
        {"number": "A-7", "total": Decimal("12.50")},
        {"number": "B-8", "total": Decimal("3.00")},
    ]


# -- results of MCP servers --------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
PICTURES = McpServer(
    server=f"env PYTHONPATH={ROOT} {sys.executable} -m tests.tools.picture_server",
    effects=dict.fromkeys(SHOWING, "read_only"),
)


class Look(AgentTask[AgentAnswer]):
    """Look at what a server shows."""

    tools: ClassVar[tuple[GivenTool, ...]] = (PICTURES,)

    def statement(self) -> str:
        return "Say what the server shows."


def look_at_all(heard: Heard) -> Said:
    """Call each tool, and answer with all that was seen."""
    if heard.steps < len(SHOWING):
        name = SHOWING[heard.steps]
        return Said(calls=(dialects.Call(name, {"number": 7} if name == "shoot" else {}),))
    return Said(calls=(dialects.Call("end", {"answer": " / ".join(heard.seen)}),))


@pytest.mark.slow
@pytest.mark.parametrize("wire", WIRES)
async def test_a_model_sees_the_pictures_and_files_of_an_mcp_server_by_their_first_bytes(wire: str) -> None:
    async with strict_wires(look_at_all) as server:
        spec = server.spec(wire)
        result = await run(Look(), models=spec, run_id="seen", max_time_s=60)
        results = " ".join(json.dumps(body) for body in server.bodies)
    assert server.refused == []
    assert result.outcome == "completed"
    assert result.value["result"] == {"answer": "shot 7 / page 1 / page 2 / a JPEG"}
    assert "(image/png, left out: a file of 10 bytes is no PNG, JPEG, WebP, GIF, PDF by its first bytes" in results
    assert "(image/png, left out: Only base64 data is allowed)" in results
    kept = folder_of(Path("runs/seen.sqlite"))
    assert sorted(each.stat().st_mode & 0o777 for each in kept.iterdir()) == [0o600] * 3


async def test_a_model_without_pictures_reads_a_sentence_in_the_place_of_one_in_a_result() -> None:
    called = Turn(role="assistant", calls=(ToolCall("shoot", {}),))
    shot = Turn(role="tool", text="(PNG, 9 bytes)", files=(Image(picture("shot")), File(pdf(["page"]))))
    call = with_files(turns=(called, shot))
    taken, blind = [as_taken(call, OPENAI.open("http://127.0.0.1:1", name)) for name in ("gpt-4o", "gpt-4-turbo")]
    assert len(taken.prompt.all_files) == 2
    assert blind.prompt.all_files == ()
    assert re.search(
        r"\(left out, since the model takes none: PNG, .* bytes, PDF, .* bytes\)", blind.prompt.turns[1].text
    )
