"""The examples of the docs do what they say: from the command line and from Python, on every runtime."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from microagents import Call, Result, run_sync
from microagents.actors.registry import RUNTIMES
from microagents.journal.sharded import reader_of
from microagents.runs.inspection.runs import solution_of
from microagents.systems import Recursive
from microagents.systems.questions import ProblemNode
from microagents.tasks.multiplication import Multiplication
from tests.cli.commands import COMPLETED, Ran, anew, microagents, write
from tests.cli.conftest import as_after_login

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
BOOKINGS = EXAMPLES / "bookings.csv"
NAMES = ("adding", "ledger", "currency", "calculated", "provider", "panel", "survey", "doors")
README = EXAMPLES.parent.parent / "README.md"
BALANCE = "632.36"
"""What the lines of bookings.csv add up to."""

__all__ = ["as_after_login"]
"""The fixture of tests of commands."""

in_one_process = pytest.mark.parametrize("runtime", ["local", "linked"])


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The modules of the examples, as a user's own script imports them."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield {name: import_module(name) for name in NAMES}
    for name in NAMES:
        del sys.modules[name]


FILES = {"Countdown": "countdown", "Sum": "sums", "Louder": "louder", "Verses": "verses"}
CODE = {name: (EXAMPLES / f"{file}.py").read_text(encoding="utf-8") for name, file in FILES.items()}
"""The examples for the simulated model on the page about tasks, by the class in them."""
CODE["Written"] = "from microagents.systems.documents import WrittenProblem\n" + CODE["Sum"].replace(
    "Sum(WorkedProblem[", "Sum(WrittenProblem["
)
TWO_MODELS = ("--model", "sim:gpt-4.1-mini", "--model", "sim:o3-mini")

LEDGER = ("ledger.py:Ledger", "-o", f"bookings=@{BOOKINGS}")


def on_command_line(
    *words: str, task: tuple[str, ...] = LEDGER, start: Callable[..., Ran] = microagents
) -> dict[str, Any]:
    """What a run from another folder prints, as JSON."""
    ran = start("run", f"{EXAMPLES}/{task[0]}", *task[1:], "--json", *words)
    assert (ran.code, ran.err) == (COMPLETED, "")
    return ran.json


def test_the_ledger_is_kept_from_the_command_line() -> None:
    shown = on_command_line()
    assert shown["outcome"] == "completed"
    assert shown["result"] == {"line": 6, "balance": BALANCE}
    assert (shown["task"], shown["runtime"], shown["steps"], shown["errors"]) == ("Ledger", "local", 6, 0)


def test_the_ledger_abroad_is_kept_from_the_command_line() -> None:
    abroad = f"{EXAMPLES}/currency.py:Abroad"
    shown = on_command_line("--strategy", abroad, "-s", "strong=sim:perfect")
    assert shown["outcome"] == "completed"
    assert shown["result"] == {"line": 6, "balance": BALANCE}
    assert (shown["strategy"], shown["runtime"], shown["steps"]) == ("Abroad", "local", 6)


def test_the_task_of_the_readme_adds_up_from_the_command_line() -> None:
    shown = on_command_line(task=("adding.py", "-o", "numbers=[1, 2, 3]"))
    assert (shown["outcome"], shown["result"], shown["steps"]) == ("completed", [6], 2)


@in_one_process
def test_the_task_of_the_readme_adds_up_from_python(runtime: str, examples: dict[str, Any]) -> None:
    result = run_sync(examples["adding"].Adding(), models="sim:gpt-4.1-mini", runtime=runtime)
    assert (result.outcome, result.value) == ("completed", [640])


def test_the_ledger_is_measured_with_known_inputs(examples: dict[str, Any]) -> None:
    task = examples["ledger"].Ledger(bookings=BOOKINGS.read_text(encoding="utf-8"))
    result = run_sync(task, models="sim:perfect@error=0.4", k=1, known_inputs=True, runs_dir=None)
    assert 0 < result.value["wrong"] == result.account.errors < result.value["steps"]


@in_one_process
def test_a_line_that_stays_undecided_goes_to_the_stronger_model(runtime: str, examples: dict[str, Any]) -> None:
    task = examples["ledger"].Ledger(bookings=BOOKINGS.read_text(encoding="utf-8"))
    strategy = examples["currency"].Abroad(strong="sim:perfect")
    result = run_sync(task, models="sim:perfect@error=1,alternatives=100000", strategy=strategy, runtime=runtime)
    assert (result.outcome, result.value.balance) == ("completed", Decimal(BALANCE))
    assert len(result.account.undecided_at) > 0
    assert {*result.account.undecided_at} <= {f"0/line/{line}" for line in range(6)}, "none of the stronger model"
    assert result.account.decided == 6


@pytest.mark.slow
@in_one_process
def test_a_role_of_ones_own_takes_the_place_of_the_composer(runtime: str, examples: dict[str, Any]) -> None:
    task = Multiplication(digits=4)
    strategies = examples["calculated"].Calculated(k=4), Recursive(k=4)
    by_code, by_models = (
        run_sync(task, models="sim:gpt-4.1-mini", strategy=strategy, runtime=runtime) for strategy in strategies
    )
    assert by_code.value["correct"]
    assert by_code.account.steps == by_models.account.steps
    assert by_code.calls < by_models.calls
    with reader_of(Path("runs"), by_code.run_id) as reader:
        tree = solution_of(reader, 0)
        assert isinstance(tree, ProblemNode)
    assert 1 + tree.below.problems == by_code.account.steps


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_all_runtimes_decide_the_same_from_the_same_ballots(examples: dict[str, Any]) -> None:
    task = examples["ledger"].Ledger(bookings=BOOKINGS.read_text(encoding="utf-8"))
    strategy = examples["currency"].Abroad(strong="sim:perfect")
    model = "sim:gpt-4.1-mini@error=0.3,alternatives=1,flag=0.1"
    accounts = [
        run_sync(task, models=model, strategy=strategy, runtime=runtime).account for runtime in RUNTIMES.shipped
    ]
    assert len({account.ballots_sha256 for account in accounts}) == 1
    assert len({account.decisions_sha256 for account in accounts}) == 1
    assert accounts[0].flagged, "the runtimes had something to differ in"
    assert accounts[0].valid > 3 * accounts[0].decided, "some ballot was outvoted"


@pytest.mark.slow
def test_each_command_of_the_chooser_of_ray_works(tmp_path: Path) -> None:
    chooser = (EXAMPLES.parent / "ray.md").read_text(encoding="utf-8").partition("\n\nA run has")[0]
    commands = re.findall(r"`((?:microagents|python) [^`]+)`", chooser)
    assert len(commands) == 4
    for name in ("places.py", "places.csv", "elected.py"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text(encoding="utf-8"), encoding="utf-8")
    for command in commands:
        words = command.replace("microagents", "python -m microagents", 1).split()
        subprocess.run([sys.executable, *words[1:]], cwd=tmp_path, check=True, timeout=120)
    written = "".join(each.read_text(encoding="utf-8") for each in (tmp_path / "elected").iterdir())
    assert '"München","DE"' in written


def test_the_readme_is_short_and_shows_the_example_as_it_is() -> None:
    readme = README.read_text(encoding="utf-8")
    _, _, behind = readme.partition("<!-- docs/examples/adding.py -->\n```python\n")
    assert behind.partition("```")[0] == (EXAMPLES / "adding.py").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 120


@pytest.mark.parametrize(
    ("page", "example"),
    [
        ("agents.md", "payback.py"),
        ("models.md", "adder.py"),
        ("starting.md", "places.py"),
    ],
)
def test_a_page_shows_an_example_as_it_is(page: str, example: str) -> None:
    assert f"```python\n{(EXAMPLES / example).read_text()}```" in (EXAMPLES.parent / page).read_text(encoding="utf-8")


def test_the_page_on_parts_of_ones_own_shows_the_file_that_has_one_of_each_kind() -> None:
    blocks = re.findall(
        r"```python\n(.*?)```", (EXAMPLES.parent / "extending.md").read_text(encoding="utf-8"), re.DOTALL
    )
    whole = (EXAMPLES / "doors.py").read_text(encoding="utf-8")
    assert len(blocks) > 5
    assert [block for block in blocks if block not in whole] == []


def test_one_part_of_each_kind_works_together(examples: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    doors = examples["doors"]

    class Priced(examples["adding"].Adding):  # type: ignore[misc]
        tools = (doors.rate_of,)

    result: Result[Any] = run_sync(
        Priced(), models=doors.adder, strategy=doors.Careful(n=3), runtime=f"{EXAMPLES}/doors.py:Loud"
    )
    assert result.value == {"state": [640], "unit": "the unit of Priced is a piece"}
    assert result.calls == 12
    assert "the roles start" in capsys.readouterr().out


def test_the_agent_of_the_readme_pays_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, behind = README.read_text(encoding="utf-8").partition("## An agent\n\n```python\n")
    made = ModuleType("readme")
    monkeypatch.setitem(sys.modules, "readme", made)
    exec(compile(behind.partition("```")[0], "README.md", "exec"), made.__dict__)

    async def model(call: Call) -> str:
        refund = {"tool": "refund", "arguments": {"number": 7, "cents": 4900}}
        end = {"tool": "end", "arguments": {"answer": "paid back"}}
        return f"calls = {json.dumps([end if 'paid 4900 cents' in call.prompt.user else refund])}"

    result = run_sync(made.PayBack(), models=model)
    assert result.value["result"] == {"answer": "paid back"}
    assert result.calls == 7, "a lead of four votes for the refund, and of three for the end"


@pytest.mark.slow
def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, behind = README.read_text(encoding="utf-8").partition("## From Python\n\n```python\n")
    exec(compile(behind.partition("```")[0], "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines()[:3] == ["completed", "True", "0"]


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    ("name", "strategy", "models", "found"),
    [
        ("Countdown", "maker", (), 0),
        ("Countdown", "lead", (), 0),
        ("Sum", "recursive", (), {"total": 15}),
        ("Sum", "aot", (), {"total": 15}),
        ("Sum", "self-consistency", (), {"total": 15}),
        ("Written", "seqcv", TWO_MODELS, {"total": 15}),
        ("Louder", "swarm", (), {"text": "EVERY STEP IS SMALL"}),
        ("Verses", "seqcv", TWO_MODELS, {"text": "On rain.\nOn wind.\nOn snow.\n"}),
    ],
)
def test_each_file_for_the_simulated_model_runs(
    name: str, strategy: str, models: tuple[str, ...], found: object
) -> None:
    write("own.py", CODE[name])
    ran = anew("run", "own.py", "--strategy", strategy, *models, "--json")
    assert ran.code == COMPLETED, ran.err
    result = ran.json["result"]
    assert result["answer"] == found if isinstance(result, dict) else result == found
