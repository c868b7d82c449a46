"""Names of tasks, strategies, models and runtimes: shipped ones, those of installed packages, and the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from microagents import InvalidUsage, Task, run_sync
from microagents.actors.registry import MODELS, RUNTIMES, STRATEGIES, TASKS, Registry, _every_installed, reference_to
from microagents.runs.inspection.runs import inspect_run
from microagents.runs.settings import validated
from microagents.runs.strategies import strategy_of

PACKAGE = """
from microagents import Call, Model, Sample
from microagents.systems import Maker
from microagents.tasks.drift import Drift

class Short(Drift):
    length: int = 2

class Eager(Maker):
    k: int = 1

class Counting(Model):
    def __init__(self, start: str = "0") -> None:
        self.start = start

    async def complete(self, call: Call) -> Sample:
        number = int(call.prompt.user.removeprefix("Number: "))
        return Sample(text=f"number = {number + int(self.start)}")
"""
ENTRY_POINTS = """
[microagents.tasks]
short = walks_of_mine:Short
hanoi = walks_of_mine:Short

[microagents.strategies]
eager = walks_of_mine:Eager

[microagents.models]
counting = walks_of_mine:Counting
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with entry points, as an installer leaves it."""
    (tmp_path / "walks_of_mine.py").write_text(PACKAGE, encoding="utf-8")
    info = tmp_path / "walks_of_mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: walks-of-mine\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    _every_installed.cache_clear()
    yield
    _every_installed.cache_clear()


@pytest.mark.usefixtures("installed")
def test_an_installed_package_brings_a_task_a_strategy_and_a_model_by_name() -> None:
    task = validated(TASKS.find("short", Task), "task 'short'", {})
    result = run_sync(task, strategy="eager", models="counting:any@start=7")
    assert (result.task, result.strategy, result.outcome) == ("short", "eager", "completed")
    assert (result.calls, result.value.steps_done) == (2, 2)
    shown = inspect_run(Path("runs"), result.run_id)
    assert (shown.task, shown.strategy) == ("short", "eager")


@pytest.mark.usefixtures("installed")
def test_an_installed_package_replaces_no_shipped_name() -> None:
    assert TASKS.find("hanoi", Task).__module__ == "microagents.tasks.hanoi"


@pytest.mark.parametrize("registry", [TASKS, STRATEGIES, MODELS, RUNTIMES], ids=lambda registry: registry.kind)
def test_every_shipped_name_leads_to_its_class_and_back(registry: Registry) -> None:
    for name, address in registry.shipped.items():
        assert address.endswith(f":{registry.find(name, object).__name__}")
        assert registry.name_of(address) == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hanio", "there is no task 'hanio'; did you mean 'hanoi'"),
        ("nowhere.py", "'nowhere.py' is not there"),
        ("nowhere.py:Mine", "'nowhere.py' is not there"),
        ("microagents.tasks.hanoi:Tower", "'Tower' is not there in microagents.tasks.hanoi; it has Hanoi"),
        ("microagents.tasks.hanoi:Move", "'Move' is no Task"),
        ("no_such_module:Mine", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_in_one_sentence(name: str, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        TASKS.find(name, Task)


def test_a_source_names_a_module_in_a_package_and_a_file_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reference_to(Task) == "microagents.task:Task"
    (tmp_path / "loner.py").write_text("class Loner:\n    pass\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert reference_to(TASKS.find("loner:Loner", object)) == f"{tmp_path / 'loner.py'}:Loner"


def test_false_of_an_option_that_a_strategy_lacks_is_what_it_does_anyway() -> None:
    task = validated(TASKS.find("multiplication", Task), "task", {})
    assert strategy_of("single-shot", task, {"speculate": False}).model_dump() == {
        "votes": "exact",
        "certain": "off",
        "temperature": 0.0,
    }
    with pytest.raises(InvalidUsage, match="no option of strategy 'single-shot' named 'known_inputs'"):
        strategy_of("single-shot", task, {"known_inputs": True})
