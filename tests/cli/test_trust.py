"""Other people's folders and journals: what they may name unasked, what is asked about, and what is never imported."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from microagents import InvalidUsage, resume
from microagents.base.trust import JOURNALS, TrustList
from tests.benchmarks.harness import served_by
from tests.cli.commands import COMPLETED, WAIT_S, WRONG_USAGE, Ran, anew, installed, microagents, write
from tests.forking import Forked

KEY = "sk-of-this-user"
MINE = """
    from pathlib import Path
    Path("imported").touch()
    from microagents.tasks.drift import Drift

    class Mine(Drift):
        pass
"""
NOISY = (
    *("-o", "length=12", "--model", "sim:perfect@error=0.1", "-k", "2", "-s", "ladder=judge,lookahead"),
    *("--run-id", "r"),
)


@contextmanager
def collecting_keys() -> Iterator[tuple[str, list[str]]]:
    """A host that is not the provider's; gives its address, and the keys that reach it."""
    keys: list[str] = []

    class Collector(BaseHTTPRequestHandler):
        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline()
            if self.parse_request():
                keys.append(self.headers.get("authorization", ""))
                self.send_error(404)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    with served_by(ThreadingHTTPServer(("127.0.0.1", 0), Collector)) as address:
        yield f"{address}/v1", keys


def at_terminal(answer: str, *words: str) -> tuple[int, str]:
    """The command at a terminal of its own, where a person types an answer; gives its code and all that it shows."""
    terminal, shell = pty.openpty()
    with os.fdopen(terminal, "r+b", buffering=0) as person:
        process = Forked(*words, stdin=shell, stdout=shell, stderr=shell)
        os.close(shell)
        person.write(f"{answer}\n".encode())
        shown = b""
        try:
            while some := person.read(4096):
                shown += some
        except OSError:  # the command has closed the terminal
            pass
        return process.wait(WAIT_S), " ".join(shown.decode().split())


@pytest.fixture
def as_another_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever was begun before is somebody else's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state of another user"))


# -- folders -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("try", "--setup"), ("run", "drift", "--max-outage", "0")],
    ids=lambda words: words[-1],
)
@pytest.mark.parametrize("file", ["microagents.toml", ".env"])
def test_a_key_goes_to_no_host_that_only_a_folder_names(
    words: tuple[str, ...], file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with collecting_keys() as (host, keys):
        model = f"openai:m@base_url={host}"
        write(file, f'model = "{model}"' if file.endswith("toml") else f"MICROAGENTS_MODEL='{model}'")
        ran = microagents(*words)
        assert (ran.code, ran.out, keys) == (WRONG_USAGE, "", [])
        assert f"{file} of this folder gives model = {model}" in ran.err
        assert "add --trust-folder; or begin the run in another folder" in ran.err
        Path(file).unlink()
        microagents(*words, "--model", model)
        assert {*keys} - {""} == {f"Bearer {KEY}"}, "the user may name any host"


@pytest.mark.slow
def test_a_folder_is_trusted_by_an_option_once_for_each_version_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with collecting_keys() as (host, keys):
        text = f'model = "openai:m@base_url={host}"'
        write("microagents.toml", text)
        microagents("try", "--setup", "--trust-folder")
        microagents("try", "--setup")
        asked = keys.count(f"Bearer {KEY}")
        assert asked > 1
        write("microagents.toml", f"{text}\n")
        assert microagents("try", "--setup").code == WRONG_USAGE
        assert keys.count(f"Bearer {KEY}") == asked


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code"), [("y", COMPLETED), ("n", WRONG_USAGE)])
def test_a_terminal_asks_once_about_a_folder(answer: str, code: int) -> None:
    write("microagents.toml", 'task = "mine.py"')
    write("mine.py", MINE)
    asked, shown = at_terminal(answer, "run", "-o", "length=2", "--model", "sim:perfect")
    assert (asked, "task = mine.py" in shown, Path("imported").exists()) == (code, True, answer == "y")
    assert microagents("run", "-o", "length=2", "--model", "sim:perfect").code == code


def test_a_detached_run_of_a_folder_that_nobody_trusts_is_refused() -> None:
    write("microagents.toml", 'strategy = "mine.py:Mine"')
    ran = microagents("run", "drift", "--detach")
    assert (ran.code, "--trust-folder" in ran.err, Path("runs").exists()) == (WRONG_USAGE, True, False)


@pytest.mark.parametrize(
    "line",
    [
        'model = "openai:m@api_key_env=AWS_SECRET_ACCESS_KEY"',
        'model = "mine.py:answer"',
        'model = ["sim:perfect", "verifier=openai:m@base_url=http://h"]',
        'on-undecided = "openai:m@base_url=http://h"',
        'strategy = "mine:Mine"',
        'tool = "mcp:sh -c id"',
        "o = ['tool=[\"mine.py:answer\"]']",
        'o = { brief = "@/etc/passwd" }',
        'o = { output = "../.bashrc" }',
        'address = "10.0.0.1:6379"',
        "insecure = true",
        'run-id = "theirs"',
    ],
)
def test_what_reaches_out_of_a_folder_is_refused_unless_it_is_trusted(line: str) -> None:
    write("microagents.toml", line)
    ran = microagents("run", "drift")
    assert (ran.code, "microagents.toml of this folder gives" in ran.err) == (WRONG_USAGE, True), ran


@pytest.mark.parametrize(
    "line",
    [
        'model = ["sim:gpt-4.1-mini@error=0.01", "openai-responses:gpt-6-luna"]',
        'runs-dir = "/data/runs"',
        "insecure = false",
        'o = { goal = "Say: this and/or that", numbers = [1, 2], brief = "@brief.md" }',
        's = { ladder = "judge,model=openai:gpt-6" }',
    ],
)
def test_models_limits_and_plain_options_of_a_folder_are_taken_unasked(line: str) -> None:
    write("microagents.toml", line)
    assert (
        "trust"
        not in microagents("try", "--setup" if line.startswith("model") else "run", *["drift"] * (line[0] != "m")).err
    )


def test_a_folder_serves_nothing_to_other_machines() -> None:
    write("microagents.toml", 'port = "0.0.0.0:0"')
    ran = microagents("serve", "--model", "openai:m@base_url=http://127.0.0.1:9/v1")
    assert (ran.code, "microagents.toml of this folder gives port = 0.0.0.0:0" in ran.err) == (WRONG_USAGE, True), ran


def test_the_env_of_a_folder_redirects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (
        *("OPENAI_BASE_URL", "BROWSER", "LD_PRELOAD", "SSL_CERT_FILE", "HTTPS_PROXY", "PYTHONPATH"),
        "XDG_CONFIG_HOME",
    )
    for name in names:
        monkeypatch.delenv(name, raising=False)
    write(".env", "".join(f"{name}=/evil\n" for name in names) + "OTHER_API_KEY=k\nMICROAGENTS_SEED=3\n")
    write(
        "mine.py",
        f"""
        import os
        from microagents.tasks.drift import Drift

        assert all(os.environ.get(name) != "/evil" for name in {names})

        class Mine(Drift):
            pass
        """,
    )
    ran = microagents("run", "mine.py", "-o", "length=1", "--json")
    assert ran.json["seed"] == 3
    assert ran.err.splitlines() == [
        f"microagents: .env may set only MICROAGENTS_... and ..._API_KEY; ignored: {', '.join(names)}",
        "microagents: .env sets OTHER_API_KEY, MICROAGENTS_SEED",
    ]


def trapped(*names: str) -> None:
    """Files of the working folder that stand in for packages, and leave a mark where they are imported."""
    for name in names:
        write(f"{name}.py", f"open({str(Path('imported').absolute())!r}, 'w').close()")


@pytest.mark.slow
def test_no_file_of_the_working_folder_stands_in_for_a_package_in_a_detached_run() -> None:
    trapped("microagents", "msgspec", "structlog", "random")
    write("sub/mine.py", "import sibling\nfrom microagents.tasks.drift import Drift\nclass Mine(Drift): ...\n")
    write("sub/sibling.py", "")
    ran = installed("run", "sub/mine.py", "-o", "length=2", "--model", "sim:perfect", "--run-id", "r", "--detach")
    assert ran.code == COMPLETED, ran
    assert microagents("show", "r", "--live").code == COMPLETED
    assert not Path("imported").exists()


@pytest.mark.slow
def test_no_file_of_the_working_folder_stands_in_for_a_package_on_ray() -> None:
    trapped("microagents", "msgspec", "pydantic", "numpy", "psutil", "random", "setproctitle")
    write("sub/mine.py", "import sibling\nfrom microagents.tasks.drift import Drift\nclass Mine(Drift): ...\n")
    write("sub/sibling.py", "")
    words = ("-o", "length=2", "--model", "sim:perfect", "--runtime", "ray")
    assert installed("run", "sub/mine.py", *words).code == COMPLETED
    assert not Path("imported").exists()


@pytest.mark.slow
def test_a_task_file_by_the_name_of_a_package_is_refused_and_its_folder_is_searched_last() -> None:
    write("sub/colorsys.py", "raise SystemExit('it ran')")
    ran = installed("run", "sub/colorsys.py")
    assert (ran.code, "rename 'sub/colorsys.py'" in ran.err, "it ran" in ran.err) == (WRONG_USAGE, True, False)
    write("mine.py", "import sys, colorsys\nfrom microagents.tasks.drift import Drift\nclass Mine(Drift): ...\n")
    trapped("colorsys")
    assert installed("run", "mine.py", "-o", "length=1", "--model", "sim:perfect").code == COMPLETED
    assert not Path("imported").exists()


@pytest.mark.slow
def test_a_task_file_may_be_named_like_a_folder_of_the_checkout() -> None:
    write("tasks.py", "from microagents.tasks.drift import Drift\nclass Thing(Drift): ...\n")
    ran = installed("run", "tasks.py:Thing", "-o", "length=1", "--model", "sim:perfect", cwd=Path.cwd())
    assert (ran.code, ran.out.startswith("completed  Thing")) == (COMPLETED, True), ran


# -- journals ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def begun() -> None:
    """A run of a task's file."""
    write("mine.py", MINE)
    assert anew("run", "mine.py", *NOISY).code == COMPLETED
    Path("imported").unlink()


LOOKS = (
    ("show", "r"),
    ("show", "r", "--verify", "--json"),
    ("show", "r", "step/4"),
    ("view", "r", "-o", "r.html"),
    ("export", "r"),
    ("list",),
    ("list", "--live"),
    ("show", "r", "--live"),
    ("ctl", "r", "status"),
)


@pytest.mark.slow
@pytest.mark.usefixtures("begun", "as_another_user")
def test_looking_at_a_foreign_journal_gives_its_rows_and_imports_nothing() -> None:
    for words in LOOKS:
        ran = anew(*words)
        assert (ran.code, bool(ran.out), Path("imported").exists()) == (COMPLETED, True, False), (words, ran)
    assert "was not imported, since you did not begin run r here" in anew("show", "r", "step/4", "--json").json["note"]


@pytest.mark.usefixtures("begun", "as_another_user")
def test_code_is_imported_where_it_is_asked_for_and_the_journal_is_trusted_then() -> None:
    assert "is not in the journal" not in anew("show", "r", "step/4", "--trust-journal").out
    Path("imported").unlink()
    assert "is not in the journal" not in anew("show", "r", "step/4").out
    assert Path("imported").exists()


@pytest.mark.usefixtures("as_another_user")
def test_a_tool_that_a_foreign_journal_gives_a_shipped_task_is_not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        "tools.py",
        "from pathlib import Path\nPath('imported').touch()\ndef look(at: str) -> str:\n    '''Look.'''\n    return at\n",
    )
    write("none.jsonl", "")
    words = ("-o", "goal=g", "--tool", "tools.py:look", "--model", "scripted:none.jsonl", "--run-id", "r")
    anew("run", "agent", *words, "--max-calls", "1")
    Path("imported").unlink(missing_ok=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("nobody").absolute()))
    assert Path("runs/r.sqlite").exists()
    for looked in (("show", "r"), ("export", "r", "--actions"), ("view", "r", "-o", "r.html"), ("show", "r", "step/0")):
        ran = anew(*looked)
        assert not Path("imported").exists(), ran


@pytest.mark.slow
@pytest.mark.usefixtures("begun", "as_another_user")
def test_a_foreign_run_is_resumed_only_by_who_trusts_it() -> None:
    words = ("resume", "r", "--accept-change", "question")
    ran = anew(*words)
    assert (ran.code, ran.out, Path("imported").exists()) == (WRONG_USAGE, "", False)
    assert f"task = {Path('mine.py').absolute()}:Mine" in ran.err
    assert "add --trust-journal" in ran.err
    assert at_terminal("n", *words)[0] == WRONG_USAGE
    assert not Path("imported").exists()
    assert at_terminal("y", *words)[0] == COMPLETED
    assert Path("imported").exists()
    assert anew(*words).code == COMPLETED, "it is asked once"


@pytest.mark.usefixtures("begun", "as_another_user")
async def test_a_program_resumes_a_foreign_run_only_where_it_says_so() -> None:
    with pytest.raises(InvalidUsage, match="pass trust_journal=True"):
        await resume("r")
    assert (await resume("r", trust_journal=True)).outcome == "completed"


@pytest.mark.slow
def test_the_measurement_of_somebody_else_names_no_model_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        "theirs.py",
        """
        from microagents.models.model import ModelSpec
        from microagents.models.simulation.simulated import SimulatedModel

        class Theirs(SimulatedModel):
            @classmethod
            def open(cls, spec, context):
                return SimulatedModel.open(ModelSpec.parse("sim:perfect"), context)
        """,
    )
    measured = microagents("measure", "drift", "--model", "theirs.py:Theirs", "--steps", "5")
    assert measured.code == COMPLETED, measured
    (journal,) = Path("runs").glob("*.sqlite")
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("nobody").absolute()))
    ran = microagents("run", "drift", "--from", journal.stem)
    assert (ran.code, "it gives model = theirs.py:Theirs" in ran.err) == (WRONG_USAGE, True), ran


@pytest.mark.slow
def test_a_long_list_forgets_files_that_are_gone_and_loses_no_line_of_another_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("state").absolute()))
    add = """
import pathlib, sys
from microagents.base import trust
trust.MAX_BYTES = 2000
for n in range(60):
    for path in (pathlib.Path(f"{sys.argv[1]}-{n}"), pathlib.Path("gone")):
        path.touch()
        trust.JOURNALS.add(path, bytes([n]))
    path.unlink(missing_ok=True)
"""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: subprocess.run([sys.executable, "-c", add, str(number)], check=True), range(2)))
    listed = {Path(f"{number}-{n}"): bytes([n]) for number in range(2) for n in range(60)}
    assert all(JOURNALS.has(path, content) for path, content in listed.items())
    monkeypatch.setattr("microagents.base.trust.MAX_BYTES", 2000)
    for path in [*listed][1:]:
        path.unlink()
    write("kept", "")
    JOURNALS.add(Path("kept"), b"")
    assert [JOURNALS.has(path, b"") for path in (Path("kept"), Path("gone"))] == [True, False]
    assert JOURNALS.has(Path("0-0"), bytes([0]))
    file = Path("state/microagents/journals")
    assert len(file.read_text().splitlines()) == 2
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_without_a_state_folder_nothing_is_known_and_runs_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "/dev/null")
    ran: Ran = microagents("run", "drift", "-o", "length=2", "--model", "sim:perfect", "--run-id", "r")
    assert ran.code == COMPLETED
    assert not TrustList("journals").has(Path("runs/r.sqlite"), b"")
    assert microagents("show", "r").code == COMPLETED
