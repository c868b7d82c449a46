"""Every table and figure of the papers has a command or a sentence, and the page says what the commands print."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest

from microagents.base.errors import InvalidUsage
from microagents.replies.chat import Sampling
from microagents.systems.questions.chain_of_thought import Cot, CotSC
from microagents.tasks.hanoi import Hanoi
from tests.models.server import reply, serving
from tests.models.test_foreign_server import address, spec_on  # noqa: F401 - a fixture
from tests.papers import other_figures
from tests.papers.__main__ import FIGURES, PAGE, cells, chosen, claims, compared, lines_of, main, reason
from tests.papers.figures import Lab, by_law

LISTED = {
    "maker": "1 3a 3b 4a 4b 5a 5b 6a 6b 8a 8b 9a 9b 10 11 12",
    "swarm": "workers roles k-table",
    "lead": "1 2a 2b 3 4 5 6 7 8 9 10 11 table-1 table-2 listing-2",
    "seqcv": "table-1 table-2 table-3 table-12",
    "aot": "table-1 3 4 table-2 5 6 7",
}
"""Tables and figures of each paper that have numbers of experiments or laws."""
QUICK = ["maker 4a", "swarm k-table", "aot 5"]
SLOWER = ["maker 3a", "lead 8", "seqcv table-2", "aot table-2"]


def test_every_table_and_figure_has_a_command_or_a_sentence() -> None:
    assert sorted(each.command for each in FIGURES) == sorted(
        f"{paper} {name}" for paper, names in LISTED.items() for name in names.split()
    )
    for each in FIGURES:
        paper, name = each.command.split()
        assert chosen(paper, [name]) == [each]
        assert each.why.endswith(".")
        assert each.compute is not None or not each.needs
    with pytest.raises(SystemExit, match="maker has no figure '13'; there are 1, 3a"):
        chosen("maker", ["13"])


def printed_on_page(command: str) -> list[list[str]]:
    """The cells that the page has for a command."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"| `{command}` |")
    rows = re.split(r"\n\| `|\n\n", rest)[0].split("\n|  |")
    return [[cell.strip() for cell in row.strip().strip("|").split(" | ")] for row in rows]


@pytest.mark.parametrize("command", [*QUICK, *[pytest.param(each, marks=pytest.mark.slow) for each in SLOWER]])
async def test_a_figure_is_what_the_page_says_and_lies_in_its_interval(command: str, tmp_path: Path) -> None:
    paper, name = command.split()
    (figure,) = chosen(paper, [name])
    lines = await lines_of(figure, Lab(tmp_path))
    assert [cells(line) for line in compared(lines)] == printed_on_page(command)
    if command not in ("swarm k-table", "aot table-2", "aot 5"):  # which do not agree with what was published
        assert all(line.holds is not False for line in lines)


def test_a_claim_that_stands_in_several_figures_is_counted_once() -> None:
    claim, other = (by_law(what, "1", "1", holds=True) for what in ("a step", "two steps"))
    assert claims([[claim, other], [claim, by_law("no claim", "1")]]) == [claim, other]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["lead 1", "lead 4", "seqcv table-1", "seqcv table-3"])
async def test_a_figure_that_needs_a_model_has_no_number_without_one(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(other_figures.WRITERS, "one reply")  # simulated models write in segments only
    paper, name = command.split()
    (figure,) = chosen(paper, [name])
    assert await lines_of(figure, Lab(tmp_path)) == []
    assert reason(figure, is_made=False).startswith("Needs `--model SPEC`. ")
    lines = await lines_of(figure, Lab(tmp_path, models=["sim:perfect"], count=2))
    assert lines
    assert {line.model for line in lines} == {"simulated"}


async def test_data_sets_are_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "gsm8k.jsonl").write_text('{"question": "2 and 2?", "answer": "So it is. #### 4"}\n')
    text = {
        "choices": [
            {"message": {"content": '{"reasoning": "2 + 2", "answer": {"answer": "4"}}'}, "finish_reason": "stop"}
        ]
    }
    async with serving(reply({**text, "usage": {"prompt_tokens": 3, "completion_tokens": 3}})) as server:
        lab = Lab(tmp_path, models=[f"openai:some@base_url={server.url}"], data=tmp_path)
        lines = await other_figures.on_data(
            lab, {"GSM8K": {"CoT": 90.9}, "MATH": {}}, {"CoT": Cot(), "CoT-SC": CotSC()}
        )
    assert [(line.what, line.published, line.ours) for line in lines] == [
        ("GSM8K, CoT", "90.9 %", "1.000"),
        ("GSM8K, CoT-SC", "-", "1.000"),
        ("MATH", "-", "no math.jsonl in --data"),
    ]


async def test_the_bill_of_a_model_is_shown_and_nobody_pays_without_a_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    with pytest.raises(InvalidUsage, match="nothing was started"):
        await main(["maker", "6a", "--n", "3", "--model", "openai:gpt-4.1-mini", "--runs-dir", str(tmp_path)])
    assert re.search(r"expected cost: \$0\.\d+ for 6 calls to openai:gpt-4.1-mini", capsys.readouterr().err)
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240 - nothing else runs


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_path_by_a_key_works_on_a_server_of_others(
    address: str,  # noqa: F811 - the fixture
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Hanoi, "sampling", Sampling(max_output_tokens=48))
    spec = spec_on("openai", address)
    await main(["maker", "9a", "9b", "--n", "1", "--model", spec, "--runs-dir", str(tmp_path), "--yes"])
    rows = [re.split(r"  +", row) for row in capsys.readouterr().out.splitlines()]
    errors = [row for row in rows if row[0].startswith("error, to ")]
    assert {row[-2] for row in errors} == {"openai:smollm2"}
    assert sum(int(row[-3]) for row in errors) == 10, "it errs, so ten samples are drawn"
    assert ["first two votes wrong, strict", "fewer"] in [row[:2] for row in rows]
