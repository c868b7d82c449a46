"""A stranger adds a setting, an option, a command and a message, and touches the files that CONTRIBUTING.md names and no other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WAIT_S = 120
DRIFT = ("run", "drift", "-o", "length=1", "--model", "sim:perfect")
SHOW = """
import sys
from pathlib import Path
from microagents.journal.reading import Reader
with Reader(Path(sys.argv[1])) as reader:
    recipe = reader.experiment.recipe
    print({**recipe.settings, **recipe.strategy_options}[sys.argv[2]])
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, which the stranger may change."""
    copied = tmp_path / "copy" / "microagents"
    shutil.copytree(ROOT / "microagents", copied, ignore=shutil.ignore_patterns("__pycache__"))
    return copied


def python(package: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the changed package, in a folder of its own."""
    folder = package.parent / "work"
    folder.mkdir(exist_ok=True)
    known = {**os.environ, **variables, "PYTHONPATH": str(package.parent)}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=known, capture_output=True, text=True, check=False, timeout=WAIT_S
    )


def command(package: Path, *words: str, **variables: str) -> str:
    """Run a command of the changed package; returns its stdout."""
    done = python(package, "-m", "microagents", *words, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def recorded(package: Path, run: str, name: str) -> str:
    """Read a setting or an option of a run."""
    return python(package, "-c", SHOW, f"runs/{run}.sqlite", name).stdout.strip()


def files_to_touch(part: str) -> list[str]:
    """List the files that CONTRIBUTING.md names for a part."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| {part} \| (.*) \|$", text, re.MULTILINE)
    assert found is not None
    return [each for each in re.findall(r"`([^`]+)`", found[1]) if each.endswith((".py", "/"))]


def insert(file: Path, text: str, before: str) -> None:
    """Insert lines before the only place with these words."""
    source = file.read_text(encoding="utf-8")
    assert source.count(before) == 1
    file.write_text(source.replace(before, text + before), encoding="utf-8")


@pytest.mark.slow
def test_a_setting_is_a_keyword_a_flag_a_variable_and_a_line_of_a_file_by_one_declaration(package: Path) -> None:
    [file] = files_to_touch("setting of runs")
    declared = '''    patience_s: Annotated[float, Field(default=7.0, ge=0), Flag("S", "--patience")]
    """Patience of a stranger in seconds."""
'''
    insert(package / file, declared, "    output: Annotated[")
    shown = " ".join(command(package, "run", "--help-all").split())
    assert "--patience S Patience of a stranger in seconds. [default: 7]" in shown
    asked = "run_sync(Drift(length=1), models='sim:perfect', runs_dir=None, patience_s=3).settings['patience_s']"
    called = python(
        package, "-c", f"from microagents import *; from microagents.tasks.drift import Drift; print({asked})"
    )
    assert called.stdout == "3.0\n", called.stderr
    command(package, *DRIFT, "--run-id", "none")
    command(package, *DRIFT, "--run-id", "flag", "--patience", "4")
    command(package, *DRIFT, "--run-id", "variable", MICROAGENTS_PATIENCE="5")
    (package.parent / "work/microagents.toml").write_text("patience = 6", encoding="utf-8")
    command(package, *DRIFT, "--run-id", "file")
    found = [recorded(package, run, "patience_s") for run in ("none", "flag", "variable", "file")]
    assert found == ["7.0", "4.0", "5.0", "6.0"]
    refused = python(package, "-m", "microagents", *DRIFT, "--patience=-1")
    assert refused.returncode == 2
    assert "patience_s (--patience) must be a number of at least 0, not -1.0" in refused.stderr


@pytest.mark.slow
def test_an_option_of_a_strategy_is_explained_checked_and_recorded_by_its_field(package: Path) -> None:
    [folder] = files_to_touch("option of a strategy")
    file = package / folder / "chains/maker.py"
    insert(file, '    mood: Literal["calm", "merry"] = "calm"\n    """Mood of a stranger."""\n', "    k: OneOrMore")
    assert "Mood of a stranger." in " ".join(command(package, "run", "drift", "--help").split())
    command(package, *DRIFT, "--run-id", "r", "-s", "mood=merry")
    assert recorded(package, "r", "mood") == "merry"
    refused = python(package, "-m", "microagents", *DRIFT, "-s", "mood=sad")
    assert (refused.returncode, "mood must be one of calm, merry" in refused.stderr) == (2, True), refused.stderr


@pytest.mark.slow
def test_a_command_is_listed_explained_and_found_by_its_name_and_its_file(package: Path) -> None:
    file, names = files_to_touch("command")
    (package / file.replace("NAME", "greet")).write_text(
        'def command(person: str = "you") -> None:\n    """Greet a person."""\n    print(f"hello {person}")\n',
        encoding="utf-8",
    )
    source = (package / names).read_text(encoding="utf-8")
    (package / names).write_text(source.replace('"serve")', '"serve", "greet")', 1), encoding="utf-8")
    assert "greet  " in command(package, "--help")
    assert "Greet a person." in command(package, "greet", "--help")
    assert python(package, "-m", "microagents", "greet", "--person", "Ann").returncode == 0
    refused = python(package, "-m", "microagents", "greet", "--bogus")
    assert (refused.returncode, "No such option" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_a_message_is_added_where_it_is_handled_and_where_it_is_sent(package: Path) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert (
        "| message | its class and its handler in the file of the role that takes it; `asks` in the file of the" in text
    )
    handles, sends = package / "roles" / "redflagger.py", package / "roles" / "voter.py"
    message = 'class Judged(Request[int], frozen=True, kw_only=True):\n    """Count the judged replies."""\n\n\n'
    insert(handles, f"from microagents.base.messages import Request\n\n\n{message}", "class RedFlagger(Role):")
    handler = "    async def judged(self, request: Judged) -> int:\n        return len(self._judged)\n\n"
    insert(handles, handler, "    @eager\n    async def screen")
    imports = "from microagents.base.logs import log\nfrom microagents.roles.redflagger import Judged\n"
    insert(sends, imports, "from microagents.roles.running_election import RunningElection")
    insert(sends, "Judged, ", "Draw, Screen, Record, Recall")
    asks = '        log().warning("judged", replies=await self.ask(Judged()))\n'
    insert(sends, asks, "        self.draws_are_eager = self.reaches_eager(Draw)")
    done = python(package, "-m", "microagents", *DRIFT)
    assert done.returncode == 0, done.stderr
    assert "judged" in done.stderr
