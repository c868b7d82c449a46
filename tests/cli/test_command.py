"""What every command has: logs at a level, the version, help on a task's and a strategy's options, and completion in a shell."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from microagents.cli import GROUPS
from tests.cli.commands import COMPLETED, WRONG_USAGE, microagents, write


def help_of(*words: str) -> str:
    """The help of a command, without its line breaks."""
    ran = microagents(*words, "--help")
    assert (ran.code, ran.err) == (COMPLETED, "")
    return " ".join(ran.out.split())


def test_the_version_is_that_of_the_package() -> None:
    ran = microagents("--version")
    assert ran.code == COMPLETED
    assert ran.out.startswith(f"microagents {version('microagents-ray')}, Python 3.")


# -- debug -------------------------------------------------------------------------------------------------------------


def test_debug_shows_the_traceback_of_an_expected_error_above_its_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("run", "drift", "-o", "length=0")
    plain = microagents(*words)
    monkeypatch.setenv("MICROAGENTS_LOG", "debug")
    debugged = microagents(*words)
    assert "Traceback" not in plain.err
    assert debugged.err.startswith("Traceback")
    assert debugged.err.endswith(plain.err)
    assert (plain.code, debugged.code) == (WRONG_USAGE, WRONG_USAGE)


def test_debug_shows_where_a_users_file_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MICROAGENTS_LOG", "debug")
    write("mine.py", "def fail():\n    return {}['x']\n\nfail()\n")
    assert re.search(r'mine\.py", line 2', microagents("run", "mine.py").err)


# -- help on what is named -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "compare"])
def test_help_behind_a_task_lists_its_options_and_those_of_its_strategy(command: str) -> None:
    shown = help_of(command, "hanoi")
    assert "Options of the task hanoi (-o NAME=VALUE): disks Number of disks; n disks take 2^n - 1 steps." in shown
    assert "(an integer from 1 to 64) [default: 10]" in shown
    assert "Options of the strategy maker (-s NAME=VALUE): k Number of votes" in shown


def test_help_lists_the_options_of_a_file() -> None:
    write(
        "mine.py",
        '''
        from microagents.tasks.drift import Drift

        class Mine(Drift):
            names: str
            """Names, one a line."""
            size: int = 3
            text: str = "a line\\n" * 30
        ''',
    )
    shown = help_of("run", "mine.py")
    assert "Options of the task mine.py (-o NAME=VALUE): names Names" in shown
    assert "names Names, one a line. (a text) [required] size (an integer) [default: 3]" in shown
    assert shown.count("a line") < 20, "a long default is cut"


def test_help_of_a_task_that_there_is_not_says_so() -> None:
    assert "no task 'hanio'; did you mean 'hanoi'" in help_of("run", "hanio")
    assert "no strategy 'makr'; did you mean 'maker'" in help_of("run", "hanoi", "--strategy", "makr")


def test_help_of_run_explains_ten_options_and_names_every_other_one() -> None:
    some, every = microagents("run", "--help").out, microagents("run", "--help-all").out
    explained, named = some.split("\nOptions:\n")[1].split("\nMore options, explained by --help-all:\n")
    assert len(re.findall(r"^  -", explained, re.MULTILINE)) == 10
    flags = re.findall(r"^  (?:-\w, )?(-[\w-]+)", every.split("\nOptions:\n")[1], re.MULTILINE)
    assert len(flags) > 40
    assert [flag for flag in flags if flag not in (explained + named).replace(",", " ").split()] == []
    assert "Options of the task hanoi" in help_of("run", "hanoi")


def test_a_command_with_few_options_takes_help_all_too() -> None:
    assert microagents("list", "--help-all") == microagents("list", "--help")


# -- completion ----------------------------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """What bash offers for the last word."""
    line = {"COMP_WORDS": " ".join(["microagents", *words]), "COMP_CWORD": str(len(words))}
    ran = microagents(env={"_MICROAGENTS_COMPLETE": "complete_bash", **line})
    assert (ran.code, ran.err) == (COMPLETED, "")
    return ran.out.split()


def test_the_shell_completes_commands_tasks_files_strategies_and_runs() -> None:
    Path("dates.py").touch()
    Path("runs").mkdir()
    Path("runs/drift-7.sqlite").touch()
    assert completed("me") == ["measure"]
    assert completed("run", "d") == ["desk", "drift", "dates.py"]
    assert completed("run", "drift", "--strategy", "single-") == ["single-shot"]
    assert completed("show", "drift-") == ["drift-7"]


def test_completion_reads_no_files_and_says_nothing() -> None:
    write("microagents.toml", "k = = 3")
    assert completed("run", "ha") == ["hanoi"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("report", "view -o FILE"),
        ("step", "try TASK --one"),
        ("rm", "list --remove RUN"),
        ("stop", "ctl RUN stop"),
    ],
)
def test_a_command_that_was_renamed_answers_with_its_new_name(old: str, new: str) -> None:
    ran = microagents(old, "r")
    assert (ran.code, ran.out, ran.err) == (
        2,
        "",
        f"microagents: {old!r} is not a command; write microagents {new}\n",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "hanoi", "--kk", "3"], "No such option: --kk; microagents run --help has all options"),
        (["run", "hanoi", "-k"], "Option '-k' requires an argument; microagents run --help has all options"),
        (["resume"], "Missing argument 'RUN'; microagents resume --help has all options"),
        (["view", "--port", "99999"], "--port must be at most 65535, not '99999'"),
        (
            ["export", "r", "--format", "xlsx"],
            "--format must be one of 'jsonl', 'csv', 'parquet', 'sealed', not 'xlsx'",
        ),
    ],
)
def test_a_refused_command_line_is_one_sentence_with_a_way_out(words: list[str], said: str) -> None:
    ran = microagents(*words)
    assert (ran.code, ran.out, ran.err) == (2, "", f"microagents: {said}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("view", "-o", "r.html"), "name it: microagents view RUN -o FILE"),
        (("show", "r", "step/1", "--live"), "--live shows the progress of a whole run"),
    ],
)
def test_options_that_exclude_each_other_are_refused(words: tuple[str, ...], said: str) -> None:
    ran = microagents(*words)
    assert (ran.code, said in ran.err, ran.err.count("\n")) == (2, True, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "hanoi", "-k", "three"), "-k must be a whole number, not 'three'\n"),
        (("measur", "hanoi"), "there is no command 'measur'; did you mean 'measure'?"),
        (("run", "hanoi", "--strategy", "x"), "known: maker, lead, cascade, recursive, aot, seqcv, "),
        (("run", "agent", "-o", "goal=x", "--tool", "mine.py:loook"), "called 'loook'; did you mean 'look'?"),
    ],
)
def test_a_slip_of_the_pen_is_answered_in_one_sentence(words: tuple[str, ...], said: str) -> None:
    write("mine.py", "def look():\n    pass\n")
    ran = microagents(*words)
    assert (ran.code, ran.out, said in ran.err, ran.err.count("\n")) == (WRONG_USAGE, "", True, 1), ran.err


def test_help_lists_fourteen_commands_by_group() -> None:
    text = microagents("--help").out
    first = text.partition("To begin with:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in first.splitlines()] == [*next(iter(GROUPS.values()))]
    assert sum(map(len, GROUPS.values())) == 14
    assert all(f"\n  {name} " in text for names in GROUPS.values() for name in names)
