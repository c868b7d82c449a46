"""microagents.toml and .env of the working folder: which goes before which, what is said of them, and how they are left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from microagents.journal.reading import Reader
from microagents.models.prices import read_prices
from microagents.runs.plan import settings_of
from tests.cli.commands import COMPLETED, STOPPED, WRONG_USAGE, Ran, command_line, installed, microagents, write

SHORT = ("run", "drift", "-o", "length=2")


def seed_of(*words: str) -> int:
    """The seed that a run took."""
    seed: int = microagents(*SHORT, *words, "--json").json["seed"]
    return seed


def test_the_command_line_goes_before_the_environment_that_before_env_that_before_config_and_that_before_the_folders_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("microagents.toml", "seed = 1")
    assert seed_of() == 1
    config = ("--config", write("mine.toml", "seed = 2"))
    assert seed_of(*config) == 2
    write(".env", "MICROAGENTS_SEED=3")
    assert seed_of(*config) == 3
    monkeypatch.setenv("MICROAGENTS_SEED", "4")
    assert seed_of(*config) == 4
    assert seed_of(*config, "--seed", "5") == 5
    monkeypatch.setenv("MICROAGENTS_MODEL", "sim:o3-mini sim:perfect")
    assert microagents(*SHORT, "--json").json["models"] == ["sim:o3-mini", "sim:perfect"]
    assert microagents(*SHORT, "--model", "sim:perfect", "--json").json["models"] == ["sim:perfect"]


def test_a_file_that_is_read_is_said_on_stderr_by_its_names_and_never_by_its_values() -> None:
    write("microagents.toml", 'model = ["sim:perfect"]\nseed = 77')
    write(".env", "SOME_API_KEY=sk-secret\nMICROAGENTS_K=2\n")
    ran = microagents(*SHORT, "--json")
    assert ran.err.splitlines() == [
        "microagents: .env sets SOME_API_KEY, MICROAGENTS_K",
        "microagents: microagents.toml gives model, seed",
    ]
    assert ran.json["votes_per_step"] == 2


def test_prices_are_an_option_like_any_other_and_stay_with_the_run() -> None:
    write("own.toml", '["openai:m"]\ninput = 1\noutput = 2')
    write("microagents.toml", 'prices = "own.toml"')
    assert microagents(*SHORT, "--run-id", "r", "--max-calls", "1").code == STOPPED
    Path("own.toml").unlink()
    with Reader(Path("runs/r.sqlite")) as reader:
        assert settings_of(reader.experiment)["prices"] == read_prices({"openai:m": {"input": 1, "output": 2}})
    assert microagents("resume", "r", "--max-calls", "99").code == COMPLETED


def test_variables_of_the_file_end_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_API_KEY", "real")
    write(".env", "ONE_API_KEY=1\nTWO_API_KEY=2")
    assert "sets TWO_API_KEY\n" in microagents(*SHORT).err
    assert os.environ["ONE_API_KEY"] == "real"
    assert "TWO_API_KEY" not in os.environ


def test_a_variable_that_no_option_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    write(".env", "MICROAGENTS_MAXCOST=1")
    monkeypatch.setenv("MICROAGENTS_ZZZ", "1")
    monkeypatch.setenv("MICROAGENTS_MAX_CALLS", "100")
    ran = microagents(*SHORT)
    assert (ran.code, ran.err.splitlines()) == (
        COMPLETED,
        [
            "microagents: .env sets MICROAGENTS_MAXCOST",
            "microagents: the variable MICROAGENTS_MAXCOST is ignored: no option has this name; did you mean MICROAGENTS_MAX_COST?",
            "microagents: the variable MICROAGENTS_ZZZ is ignored: no option has this name",
        ],
    )


def test_a_variable_of_the_file_is_seen_by_the_task() -> None:
    write(".env", "STEPS_API_KEY=3")
    write(
        "mine.py",
        """
        import os
        from microagents.tasks.drift import Drift

        class Mine(Drift):
            length: int = int(os.environ["STEPS_API_KEY"])
        """,
    )
    assert microagents("run", "mine.py", "--json").json["steps"] == 3


def test_commands_that_find_their_settings_in_a_journal_take_the_folder_of_journals_alone() -> None:
    write("microagents.toml", 'runs-dir = "there"\nmax-calls = 5\nk = 1')
    assert microagents(*SHORT, "--run-id", "a").code == COMPLETED
    assert Path("there/a.sqlite").is_file()
    for words in (["show", "a"], ["resume", "a"]):
        ran = microagents(*words)
        assert (ran.code, ran.err) == (COMPLETED, "microagents: microagents.toml gives runs-dir\n")


@pytest.mark.slow
def test_an_option_of_another_command_is_left_to_it() -> None:
    write("microagents.toml", "max-calls = 5\nseed = 1\nmodel = 'sim:perfect'")
    ran = installed(
        "try", "--one", "drift", "--json"
    )  # in a process of its own, in which no other command was imported
    assert (ran.code, ran.err) == (COMPLETED, "microagents: microagents.toml gives seed, model\n")
    assert '"subject":"sim:perfect"' in microagents("try", "--setup", "--json").out


def test_a_command_that_files_cannot_change_reads_none() -> None:
    write("microagents.toml", "k = 1")
    ran = microagents("plan", "--p", "0.9", "--steps", "10")
    assert (ran.code, ran.err) == (COMPLETED, "")


def assert_refused(ran: Ran, said: str) -> None:
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    (sentence,) = ran.err.splitlines()
    assert said in sentence


def assert_last(ran: Ran, *said: str) -> None:
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    assert all(words in ran.err.splitlines()[-1] for words in said), ran.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k = = 3", "the config 'microagents.toml' cannot be read"),
        ("seeed = 3", "no option in the config 'microagents.toml' called 'seeed'; did you mean 'seed'"),
        ("config = 'x'", "no option in the config 'microagents.toml' called 'config'"),
    ],
)
def test_a_broken_file_of_the_folder_is_refused_in_one_sentence(text: str, said: str) -> None:
    write("microagents.toml", text)
    assert_refused(microagents("list"), said)


def test_a_wrong_value_is_refused_with_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("microagents.toml", "k = 'few'")
    ran = microagents(*SHORT)
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    assert ran.err.splitlines()[-1].startswith("microagents: microagents.toml gives k='few': ")
    assert "microagents.toml gives k=" not in microagents(*SHORT, "-k", "more").err
    monkeypatch.setenv("MICROAGENTS_K", "more")
    assert "microagents.toml gives k=" not in microagents(*SHORT).err


def test_true_is_no_number_in_a_file_or_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    options = command_line().get_command(None, "run").params
    numbers = [each for each in options if each.type_descriptor.annotation in (int, float)]
    assert numbers
    for each in numbers:
        write("microagents.toml", f"{each.opts[0].lstrip('-')} = true")
        assert_last(microagents("run", "drift"), f"microagents.toml gives {each.name}='true': must be a ")
        if each.envvar is not None:
            monkeypatch.setenv(each.envvar, "true")
            assert_last(microagents("run", "drift"), f"{each.opts[0]} must be a ", "number, not 'true'")
            monkeypatch.delenv(each.envvar)


@pytest.mark.parametrize("option", ["max-calls", "lanes"])
def test_true_is_no_number_where_words_are_allowed(option: str) -> None:
    write("microagents.toml", f"{option} = true")
    assert_last(microagents(*SHORT), "not 'true'")


@pytest.mark.parametrize("line", ["A_API_KEY='sk-secret", "sk-secret", "A_API_KEY=sk-secret\0"])
def test_a_broken_line_of_env_is_refused_by_its_number_and_never_shown(line: str) -> None:
    write(".env", f"A_API_KEY='b # $C' # d\n\nexport B_API_KEY=\n{line}\n")
    ran = microagents(*SHORT)
    assert_refused(ran, "line 4 of '.env'")
    assert "secret" not in ran.err


def test_an_env_that_is_no_text_is_refused_in_one_sentence() -> None:
    Path(".env").write_bytes(b"\xff\xfe")
    assert_refused(microagents(*SHORT), "'.env' cannot be read")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "k = " + "9" * 5000], ids=["brackets", "digits"])
def test_a_file_that_python_refuses_to_read_is_one_sentence(text: str) -> None:
    write("microagents.toml", text)
    ran = microagents(*SHORT)
    assert ran.code == WRONG_USAGE
    assert len(ran.err.splitlines()) == 1
    assert "cannot be read" in ran.err
