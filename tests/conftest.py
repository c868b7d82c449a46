"""What all tests share: a working folder of their own, since runs leave journals, and logs that go nowhere else afterwards."""

from __future__ import annotations

import compileall
import gc
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from microagents.journal import commits
from tests.models.wires import WIRES, Provider

HOUSE = Path(__file__).parent.parent
MEMORY = Path("/dev/shm")
ROOM_BYTES = 2**30
# No clock: a machine that does much else is no failure.
settings.register_profile("quick", max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")


def pytest_configure(config: pytest.Config) -> None:
    """Folders of tests are kept in memory where there is room: a journal waits for its disk at every commit, half of a test's time.

    The package and the tests are compiled once: every program that a test starts would else do it again, for a second.
    """
    if not hasattr(config, "workerinput"):
        for folder in ("microagents", "runtimes", "tasks"):
            compileall.compile_dir(HOUSE / folder, quiet=2)
    sys.dont_write_bytecode = False
    if config.option.basetemp is None and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    state = TemporaryDirectory(prefix="microagents-state-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name  # what a test trusts, its user does not


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on Ray are slow: its start takes as long as a hundred others. So are the cases of a function after its quick ones."""
    cases = Counter[str]()
    for item in items:
        function = item.nodeid.partition("[")[0]
        cases[function] += 1
        quick = item.get_closest_marker("slow_after")
        if quick is not None and cases[function] > quick.args[0]:
            item.add_marker(pytest.mark.slow)
        if "ray_here" in getattr(item, "fixturenames", ()) or _runtime_of(item) == "ray":
            item.add_marker(pytest.mark.slow)


def _runtime_of(item: pytest.Item) -> object:
    return item.callspec.params.get("runtime") if hasattr(item, "callspec") else None


def pytest_collection_finish() -> None:
    """Tests write no bytecode: of a user's file that changes within a second, and not in its size, Python would take what it was."""
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    gc.freeze()  # the garbage collector would look through four thousand tests again and again, a tenth of their time


@pytest.fixture(autouse=True)
def ray_where_it_is_needed(request: pytest.FixtureRequest) -> None:
    if _runtime_of(request.node) == "ray":
        request.getfixturevalue("ray_here")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    yield
    structlog.reset_defaults()  # a command's logger holds the stderr that it was given


@pytest.fixture(autouse=True)
def commits_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in this process gathers no records for a commit: at its end a test would wait for those 20 ms, more than once."""
    monkeypatch.setattr(commits, "COMMIT_EVERY_S", 0.0)


@pytest.fixture
def few_simulated_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan simulates thousands of calls; a quarter of them shows all but the rates that some slow tests look at."""
    monkeypatch.setattr("microagents.studies.planned_models.SAMPLED", 100)
    monkeypatch.setattr("microagents.studies.planned_models.TIMED_CALLS", 500)


@pytest.fixture
def plans_by_few_simulated_steps(request: pytest.FixtureRequest) -> None:
    """All but slow tests plan by few simulated steps."""
    if request.node.get_closest_marker("slow") is None:
        request.getfixturevalue("few_simulated_steps")


@pytest.fixture(scope="session")
def ray_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A Ray that all tests of this process share, in a folder that outlives them; runtimes use one that is there."""
    from microagents.runtimes.ray.cluster import Cluster, connect, disconnect  # noqa: PLC0415 - Ray takes a second

    with pytest.MonkeyPatch.context() as started:
        started.chdir(tmp_path_factory.mktemp("ray"))
        connect(Cluster())
    yield
    disconnect()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser that is on the machine, driven by Playwright; without one its tests are skipped."""
    driven = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    found = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if found is None:
        pytest.skip("no browser: apt-get install chromium-headless-shell")
    with driven.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(params=WIRES, ids=lambda provider: provider.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    """Each wire of a provider in turn."""
    assert isinstance(request.param, Provider)
    return request.param
