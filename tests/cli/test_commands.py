"""The commands as a user runs them: what they print, with which code they end, and one sentence for whatever is wrong.

A few run as processes of their own, as installed; the others, by far faster, through typer's own runner.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.commands import (
    COMPLETED,
    FAILED,
    PAPERS,
    STOPPED,
    UNDECIDED,
    WAIT_S,
    WRONG_USAGE,
    Ran,
    installed,
    microagents,
    started,
    write,
)
from tests.forking import Forked

CONTRACT = {
    *("run_id", "outcome", "task", "strategy", "models", "seed", "runtime", "steps", "decided", "errors"),
    *("wrong_at", "verdict", "price", "calls", "valid", "flagged"),
    *("wasted_calls", "votes_per_step", "undecided_at", "input_tokens", "output_tokens", "cost_usd", "wall_s"),
    *("result", "journal"),
    *("decisions_sha256", "ballots_sha256"),
}
"""The keys of ``run --json`` that scripts rely on."""

BEYOND = {
    *("created_at", "reason", "settled_at", "contested_at", "climbed", "lost_in_flight", "go_on", "k", "unit"),
    *("checked", "right"),
    *(
        "votes",
        "samples",
        "votes_per_decision",
        "outvoted",
        "misled",
        "first_wrong",
        "deaths",
        "certified",
        "masses",
        "composed",
        "shared",
        "reused",
        "saved_usd",
        "fields",
        "outvoted_fields",
        "first_wrong_fields",
        "unanimous_errors",
    ),
    *("batches", "bound_usd", "by_persons", "facts"),
    *("repeated", "refused", "unanswered", "unmeasured", "estimated_usd", "cached_tokens", "cache_write_tokens"),
    *("expected_usd", "promise", "unsettled_usd", "unsettled_tokens", "unpriced", "miscounted", "joined", "fallbacks"),
}
"""Keys that came later."""


STALEMATE = ("run", "drift", "--model", "sim:perfect@error=0.5,alternatives=1,flag=0.8", "-k", "9")
"""Elections that reach their cap."""


def python(code: str, *options: str) -> Ran:
    """A process of this Python."""
    ran = subprocess.run(
        [sys.executable, *options, "-c", dedent(code)], capture_output=True, text=True, check=False, timeout=WAIT_S
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def watched_task() -> str:
    """A user's task that leaves a file behind when it is started."""
    write(
        "watched.py",
        """
        from pathlib import Path
        from microagents.tasks.drift import Drift, Place

        class RunControl(Drift):
            length: int = 2

            def done(self, state: Place) -> bool:
                Path("started").touch()
                return super().done(state)
        """,
    )
    return "watched.py:RunControl"


def assert_one_sentence(ran: Ran, *said: str) -> None:
    """The command refused with one sentence on stderr that says all this, and started nothing."""
    assert "Traceback" not in ran.err
    assert ran.code == WRONG_USAGE
    assert ran.out == ""
    assert not Path("started").exists()
    (sentence,) = ran.err.splitlines()
    assert sentence.startswith("microagents: ")
    for words in said:
        assert words in sentence


# -- run ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_tower_of_seven_disks_is_solved_without_an_error_and_stdout_is_one_json_object() -> None:
    ran = started("run", "hanoi", "-o", "disks=7", "--json")
    assert (ran.code, ran.err) == (COMPLETED, "")
    assert ran.out.count("\n") == 1
    shown = ran.json
    assert CONTRACT <= shown.keys() <= CONTRACT | BEYOND
    assert (shown["outcome"], shown["steps"], shown["decided"], shown["errors"]) == ("completed", 127, 127, 0)
    assert shown["result"] == {"solved": True, "moves": 127, "pegs": [[], [], list(range(7, 0, -1))]}
    assert (shown["task"], shown["runtime"], shown["seed"], shown["models"]) == (
        "hanoi",
        "local",
        0,
        ["sim:gpt-4.1-mini"],
    )
    assert shown["undecided_at"] == []
    assert shown["calls"] == shown["valid"] + sum(shown["flagged"].values()) + shown["wasted_calls"]
    assert shown["valid"] == pytest.approx(shown["votes_per_step"] * 127)
    assert min(shown["input_tokens"], shown["output_tokens"], shown["cost_usd"], shown["wall_s"]) > 0


@pytest.mark.slow
def test_a_seed_repeats_every_ballot_in_every_process_and_another_seed_draws_others() -> None:
    words = ("run", "drift", "-o", "length=40", "--model", "sim:perfect@error=0.4,flag=0.1", "-k", "2", "--json")
    here, again, other = (
        microagents(*words).json,
        installed(*words, env={"PYTHONHASHSEED": "77"}).json,
        microagents(*words, "--seed", "1").json,
    )
    for digest in ("decisions_sha256", "ballots_sha256"):
        assert here[digest] == again[digest]
        assert here[digest] != other[digest]
        assert len(here[digest]) == 64


@pytest.mark.slow
def test_a_command_whose_warnings_are_errors_says_nothing_more() -> None:
    ran = installed("run", "hanoi", "-o", "disks=3", env={"PYTHONWARNINGS": "error"})
    assert (ran.code, ran.err) == (COMPLETED, "")


def test_a_person_is_told_that_the_model_is_simulated() -> None:
    ran = microagents("run", "hanoi", "-o", "disks=3")
    assert (ran.code, ran.err) == (COMPLETED, "")
    assert "simulated: no real model was asked" in ran.out
    assert "7 of 7 steps" in ran.out
    assert "all checked by the task's own oracle" in ran.out


def test_an_undecided_election_ends_the_run_with_4_and_says_where_and_what_to_do() -> None:
    ran = microagents(*STALEMATE)
    assert ran.code == UNDECIDED
    assert "0/step/0" in ran.out
    assert "microagents decide" in ran.out
    assert "--on-undecided" in ran.out


def test_an_undecided_run_shows_no_leader_as_its_result() -> None:
    ran = microagents(*STALEMATE, "--json")
    shown = ran.json
    assert ran.code == UNDECIDED
    assert (shown["outcome"], shown["undecided_at"], shown["result"]) == ("undecided", ["0/step/0"], None)
    assert (shown["steps"], shown["decided"], shown["votes_per_step"]) == (0, 0, None)


def test_a_failure_of_the_users_own_code_ends_the_run_with_1_and_one_sentence() -> None:
    write(
        "faulty.py",
        """
        from microagents.tasks.drift import Drift

        class Faulty(Drift):
            def advance(self, state, reply):
                raise KeyError("no such line")
        """,
    )
    ran = microagents("run", "faulty.py:Faulty", "--json")
    assert (ran.code, ran.out) == (FAILED, "")
    (sentence,) = ran.err.splitlines()
    assert "raised KeyError('no such line') at step " in sentence


# -- known inputs ------------------------------------------------------------------------------------------------------


def test_known_inputs_need_an_oracle() -> None:
    write("blind.py", BLIND)
    ran = microagents("run", "blind.py:Seeing", "-s", "known_inputs=true")
    assert_one_sentence(ran, "Seeing has no oracle", "without known_inputs")


# -- options, models, configuration ------------------------------------------------------------------------------------


def test_half_a_character_in_an_option_is_refused_since_no_journal_can_keep_it() -> None:
    write("near.py", "from microagents.tasks.drift import Drift\n\nclass Near(Drift):\n    stops: list[str] = []\n")
    ran = microagents("run", "near.py", "-o", 'stops=["\\ud800"]')
    assert ran.err.startswith("microagents: the options of Near cannot be kept in a journal"), ran.err
    assert (ran.code, len(ran.err.splitlines())) == (WRONG_USAGE, 1)


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("list[float]", "[0.5, float('nan')]", "held[1] is nan, which JSON lacks"),
        ("Any", "(1, 2)", "held is (1, 2), and would come back as [1, 2]"),
    ],
)
def test_an_option_that_a_journal_cannot_give_back_is_named_before_anything_starts(
    kind: str, value: str, said: str
) -> None:
    imports = "from typing import Any\n\nfrom microagents.tasks.drift import Drift\n"
    write("held.py", f"{imports}\n\nclass Held(Drift):\n    held: {kind} = {value}\n")
    ran = microagents("run", "held.py")
    sys.modules.pop("held")
    assert ran.err.startswith(f"microagents: the options of Held cannot be kept in a journal: {said}"), ran.err
    assert (ran.code, len(ran.err.splitlines())) == (WRONG_USAGE, 1)


def test_what_is_missing_within_an_option_is_named_without_advice_that_does_not_fit() -> None:
    write(
        "stops.py",
        """
        from microagents.tasks.drift import Drift

        class Stops(Drift):
            stops: list[tuple[int, int]]
        """,
    )
    assert_one_sentence(microagents("run", "stops.py"), "needs stops; give it with --inputs FILE or -o stops=VALUE")
    ran = microagents("run", "stops.py", "-o", "stops=[[1,2],[3]]")
    assert_one_sentence(ran, "needs stops.1.1, which [3] lacks")
    assert "-o" not in ran.err


@pytest.mark.slow
def test_a_text_that_is_the_name_of_a_file_is_warned_of_and_taken() -> None:
    write("brief.md", "Two sentences about rain.")
    write(
        "texts.py",
        """
        from microagents.tasks.drift import Drift

        class Texts(Drift):
            length: int = 1
            brief: str = ""
            source_path: str | None = None
        """,
    )
    ran = microagents("run", "texts.py", "-o", "brief=brief.md", "-o", "source_path=brief.md")
    assert (ran.code, ran.err) == (
        COMPLETED,
        "microagents: brief is the text 'brief.md'; for the content of that file write brief=@brief.md\n",
    )
    for brief in ("@brief.md", "brief", "b" * 5000, "."):
        assert microagents("run", "texts.py", "-o", f"brief={brief}").err == ""


def test_a_model_for_a_role_that_asks_none_is_refused_with_the_roles_that_do() -> None:
    alone = microagents("run", "drift", "--model", "validator=sim:perfect")
    beside = microagents("run", "drift", "--model", "sim:perfect", "--model", "voter=sim:perfect")
    step = microagents("try", "--one", "drift", "--model", "sim:perfect", "--model", "keeper=sim:perfect")
    for ran, role in ((alone, "validator"), (beside, "voter"), (step, "keeper")):
        assert_one_sentence(ran, f"there is no role with a model called {role!r}")
        assert ran.err.endswith("known: solver\n")


def test_an_unknown_key_of_the_config_is_refused() -> None:
    assert_one_sentence(microagents("run", "drift", "--config", write("run.toml", "seeed = 3")), "seeed", "seed")


# -- one question --------------------------------------------------------------------------------------------------------------


def test_step_shows_prompt_replies_flags_votes_and_price_of_one_step() -> None:
    ran = microagents(
        "try", "--one", "hanoi", "-o", "disks=3", "--step", "3", "--model", "sim:gpt-4.1-mini@flag=0.5", "--seed", "1"
    )
    assert ran.code == COMPLETED
    for words in (
        *("Previous move: [1, ", "State: [[3]", "RED FLAG", "=> vote", "temperature 0.1"),
        *("decided, right by the task's own oracle", "$"),
    ):
        assert words in ran.out


def test_step_as_json_holds_the_whole_step() -> None:
    shown = microagents("try", "--one", "hanoi", "-o", "disks=3", "--step", "1", "--json").json
    assert shown["outcome"] == "decided"
    assert shown["correct"] is True
    assert shown["step"] == 1
    assert [reply["seq"] for reply in shown["replies"]] == list(range(shown["calls"]))
    assert shown["replies"][0]["temperature"] == 0.0
    assert {reply["temperature"] for reply in shown["replies"][1:]} == {0.1}
    assert shown["tally"] == [[{"move": [2, 0, 1], "next_state": [[3], [2], [1]]}, 3]]
    assert "Previous move: [1, 0, 2]" in shown["user"]
    assert "plain JSON" in shown["system"], "the prompt is shown as it is sent, with the format instructions"
    assert shown["cost_usd"] == pytest.approx(sum(reply["cost_usd"] for reply in shown["replies"]))


@pytest.mark.parametrize(("limit", "flag"), [("--flag-above-tokens", "too_long"), ("--max-output-tokens", "cut_off")])
def test_a_step_shows_what_another_limit_of_replies_does(limit: str, flag: str) -> None:
    ran = microagents("try", "--one", "drift", "--model", "sim:perfect", "-s", "max_draws=3", limit, "20", "--json")
    assert [reply["flag"] for reply in ran.json["replies"]] == [flag] * 3


def test_a_step_that_would_climb_says_where_to_what_was_not_counted_and_whether_its_leader_is_right() -> None:
    words = ("drift", "-o", "length=60", "--step", "30", "--model", "sim:gpt-4.1-mini@error=0.02,hard=1", "-k", "10")
    climbing = ("try", "--one", *words, "-s", "ladder=lookahead,judge", "-s", "p=0.98")
    ran, shown = microagents(*climbing), microagents(*climbing, "--json").json
    assert (ran.code, shown["outcome"], shown["correct"], shown["leader_correct"]) == (UNDECIDED, "argmax", None, False)
    late = [reply for reply in shown["replies"] if not reply["counted"]]
    assert late
    assert ran.out.count("=> drawn, but not counted") == len(late)
    assert sum(votes for _, votes in shown["tally"]) == len(shown["replies"]) - len(late)
    assert "not decided by the vote" in ran.out
    assert "a run would climb to lookahead\nthe leader is WRONG by the task's own oracle" in ran.out


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("multiplication",), "0/solve/decompose"),
        ((f"{PAPERS}/relay.py:Relay",), "0/loop/0/plan/workers/2"),
        ((f"{PAPERS}/consistency.py:Consistency", "--model", "sim:perfect", "--model", "sim:o3-mini"), "0/write"),
    ],
)
def test_step_shows_the_first_question_of_work_without_given_steps(words: tuple[str, ...], path: str) -> None:
    shown = microagents("try", "--one", *words, "--json").json
    assert shown["path"].startswith(path)
    assert shown["outcome"] == "decided"
    assert all(reply["text"] for reply in shown["replies"])
    assert_one_sentence(microagents("try", "--one", *words, "--step", "2"), "has no numbered steps", "leave --step out")


def test_step_ends_and_shows_whole_replies_where_nearly_all_of_them_are_flagged() -> None:
    ran = microagents("try", "--one", "hanoi", "-o", "disks=3", "--model", "sim:perfect@flag=1", "--json")
    assert ran.code == STOPPED
    assert "replies all were flagged" in ran.json["reason"]
    assert len(ran.json["replies"]) >= 10
    assert {reply["vote"] for reply in ran.json["replies"]} == {None}
    assert all(reply["flag"] for reply in ran.json["replies"])


MUTE = """
    async def mute(call):
        return "I do not know"
"""


@pytest.mark.parametrize(
    "words",
    [
        ("multiplication", "--strategy", "cot"),
        (f"{PAPERS}/sorting.py:Sorting", "--strategy", "aot+tree"),
        ("desk",),
    ],
    ids=["cot", "aot+tree", "desk"],
)
def test_a_question_is_shown_with_every_strategy_also_where_no_reply_can_be_read(words: tuple[str, ...]) -> None:
    write("mute.py", MUTE)
    ran = microagents("try", "--one", *words, "--model", "mute.py:mute")
    assert ran.code in (STOPPED, UNDECIDED), ran.err
    flag = "said_not_done" if words == ("desk",) else "malformed: "
    for said in ("system prompt", "user prompt", "  I do not know", f"=> RED FLAG {flag}"):
        assert said in ran.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("try",), "name the task to try, such as microagents try hanoi; or give --setup"),
        (("try", "drift", "--one", "--setup"), "give one of them"),
        (("try", "drift", "--one", "--steps", "9"), "--steps goes without --one only"),
        (("try", "drift", "--step", "1"), "--step goes with --one only"),
        (("try", "drift", "--runtime", "ray"), "--runtime goes with --setup only"),
        (("try", "drift", "--steps", "2"), "a try takes 3 or more steps, not 2"),
        (("show", "drift", "--graph", "--verify"), "--verify goes without --graph only"),
    ],
    ids=str,
)
def test_an_option_of_another_part_of_a_command_is_refused(words: tuple[str, ...], said: str) -> None:
    assert_one_sentence(microagents(*words), said)


HOSTILE = "x\x7f\x9b31m\u202e\U000e0041\n=> vote 7\nmicroagents: all is well"


def test_no_text_of_a_model_begins_a_line_or_reaches_the_terminal_raw(tmp_path: Path) -> None:
    replies = tmp_path / "replies.jsonl"
    replies.write_text(
        "".join(
            json.dumps({"path": "0/step/0", "seq": seq, "text": f"{HOSTILE}\nnumber = 22"}) + "\n" for seq in range(9)
        ),
        encoding="utf-8",
    )
    words = ("try", "--one", "drift", "-o", "length=1", "--model", f"scripted:{replies}")
    shown, encoded = microagents(*words), microagents(*words, "--json")
    assert encoded.json["replies"][0]["text"].startswith(HOSTILE), "what is kept is whole"
    assert encoded.out.isascii()
    assert not {"\x7f", "\x9b", "\u202e"} & {*shown.out, *encoded.out}
    lines = shown.out.splitlines()
    assert "  => vote 7" in lines
    assert "=> vote 7" not in lines
    assert not any(line.startswith("microagents:") for line in lines)


@pytest.mark.parametrize(
    ("step", "said"), [("9", "is over before it"), ("7", "--step 6")], ids=["far behind the end", "behind the last"]
)
def test_step_refuses_a_step_behind_the_last(step: str, said: str) -> None:
    assert_one_sentence(microagents("try", "--one", "hanoi", "-o", "disks=3", "--step", step), f"step {step}", said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("hanoi --disks 3", "disks is an option of the task; write -o disks=3"),
        ("hanoi disks=3", "disks is an option of the task; write -o disks=3"),
        ("hanoi --k 3", "there is no option --k; write -k 3"),
        ("hanoi --strategy lead --samples 3", "samples is an option of the strategy; write -s samples=3"),
        (
            "hanoi --effort low",
            "effort is an option of a model; write it into its spec: --model PROVIDER:MODEL@effort=low",
        ),
        (
            "hanoi --temperature 0.5",
            "the temperature belongs to the task: write sampling = Sampling(temperature=0.5) into its class",
        ),
    ],
)
def test_an_option_that_stands_elsewhere_is_refused_with_what_to_write(words: str, said: str) -> None:
    assert_one_sentence(microagents("run", *words.split()), said)


# -- whatever is wrong, one sentence -----------------------------------------------------------------------------------

BLIND = """
    from msgspec import Struct
    from microagents import ChainTask, Prompt, Reply

    class At(Struct, frozen=True):
        number: int = 0

    class Next(Reply, frozen=True):
        number: int

    class Blind(ChainTask[At, Next]):
        def start(self) -> At:
            return At()

        def done(self, state: At) -> bool:
            return state.number == 2

        def prompt(self, state: At) -> Prompt:
            return Prompt(user=str(state.number))

        def advance(self, state: At, reply: Next) -> At:
            return At(number=reply.number)

    class Seeing(Blind):
        def expert(self, prompt: Prompt, reply: type[Reply]) -> Next:
            return Next(number=int(prompt.user) + 1)
    """


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("hanio", ["no task 'hanio'", "did you mean 'hanoi'", "hanoi, ", "path/file.py:Class"]),
        ("hanoi -o disk=3", ["'disk'", "did you mean 'disks'", "known: disks"]),
        ("hanoi -o disks=a=b", ["disks must be an integer from 1 to 64, not 'a=b'"]),
        ("hanoi -o disks", ["-o 'disks'", "NAME=VALUE"]),
        ("hanoi -o disks=@nowhere.txt", ["microagents: 'nowhere.txt' cannot be read: no such file or directory"]),
        ("hanoi -o disks=@/dev/zero", ["'/dev/zero' cannot be read: it has more than 16 MiB"]),
        ("nowhere.py:Mine", ["'nowhere.py' is not there"]),
        ("broken.py:Mine", ["'broken.py:Mine' cannot be imported", "SyntaxError", "line 2"]),
        ("raising.py:Mine", ["cannot be imported", "ZeroDivisionError"]),
        ("two_lines.py:Mine", ["first second"]),
        ("no-name.py:Mine", ["'no-name.py'", "rename 'no-name.py'"]),
        ("blind.py:Bland", ["'Bland' is not there in blind; it has Blind, Seeing"]),
        ("blind.py:At", ["'At' is no Task", "Blind"]),
        ("json.py:Mine", ["'json.py'", "already another module", "rename"]),
        ("nowhere.module:Mine", ["cannot be imported", "ModuleNotFoundError"]),
    ],
)
def test_a_task_that_cannot_be_had_is_refused(words: str, said: list[str]) -> None:
    write("broken.py", "x = 1\ndef (\n")
    write("raising.py", "1 / 0")
    write("two_lines.py", "raise ValueError('first\\nsecond')")
    write("no-name.py", "")
    write("json.py", "")
    write("blind.py", BLIND)
    assert_one_sentence(microagents("run", *words.split(), "--json"), *said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--strategy", "makr"], ["no strategy 'makr'", "did you mean 'maker'", "known: ", " maker, "]),
        (["-s", "k"], ["-s 'k'", "NAME=VALUE"]),
        (["-k", "0"], ["k must be an integer of at least 1, not 0"]),
        (["-s", "rule=loudest"], ["rule must be one of ahead-by, first-to, certify, not 'loudest'"]),
        (["--model", "sim:gpt-4.1-mni"], ["did you mean 'sim:gpt-4.1-mini'", "sim:o3-mini"]),
        (["--model", "smi:perfect"], ["'smi:perfect'", "did you mean 'sim'", "openai, "]),
        (["--model", "sim:perfect@error=1.5"], ["error must be less than or equal to 1, not '1.5'"]),
        (["--model", "openai:gpt-6-luna"], ["OPENAI_API_KEY"]),
        (
            ["--model", "scripted:nowhere.jsonl"],
            ["the script 'nowhere.jsonl' cannot be read: no such file or directory"],
        ),
        (["--run-id", "a/b"], ["run_id='a/b'", "letters, digits, dots, dashes and underscores"]),
        (["--run-id", "../a"], ["run_id='../a'"]),
        (["--strategy", "mine.py:Lonely"], ["Asker asks for mine:Ping", "no deployed role handles", "deployments()"]),
        (["--strategy", "wrong_argument.py:Lonely"], ["Asker.ping", "annotate `request` with a Request or a Stream"]),
        (["--strategy", "wrong_reply.py:Lonely"], ["Asker.ping returns str, but Ping is answered with int"]),
        (["--strategy", "wrong_task.py:Picky"], ["Picky solves hanoi, and RunControl is a chain of steps"]),
    ],
    ids=" ".join,
)
def test_whatever_else_is_wrong_with_a_run_is_refused_before_it_starts(words: list[str], said: list[str]) -> None:
    strategy = """
        from microagents import Deployment, Request, Role
        from microagents.systems import Maker

        class Ping(Request[int], frozen=True):
            pass

        class Asker(Role):
            asks = (Ping,)
            {}

        class Lonely(Maker):
            def deployments(self) -> list[Deployment]:
                return [*super().deployments(), Deployment(role=Asker)]
        """
    write("mine.py", strategy.format(""))
    write("wrong_argument.py", strategy.format("async def ping(self, request: str) -> int: return 1"))
    write("wrong_reply.py", strategy.format("async def ping(self, request: Ping) -> str: return ''"))
    write(
        "wrong_task.py",
        """
        from microagents.systems import Maker
        from microagents.tasks.hanoi import Hanoi

        class Picky(Maker):
            solves = (Hanoi,)
        """,
    )
    assert_one_sentence(microagents("run", watched_task(), *words, "--json"), *said)
    assert not [*Path().rglob("*.sqlite*")]


def test_a_task_without_an_expert_is_refused_for_the_simulated_model() -> None:
    write("blind.py", BLIND)
    assert_one_sentence(microagents("run", "blind.py:Blind"), "Blind has no `expert`", "--model openai:")


@pytest.mark.parametrize("config", ["broken.toml", "nowhere.toml", "binary.toml", "/dev/zero"])
def test_a_config_that_cannot_be_read_is_refused(config: str) -> None:
    write("broken.toml", "k = = 3")
    Path("binary.toml").write_bytes(b"\xff\xfe")
    assert_one_sentence(microagents("run", watched_task(), "--config", config), "cannot be read")


@pytest.mark.parametrize(
    "words",
    [
        *("run", "run drift --bogus", "walk drift", "plan --p 0.9 --steps 1e99"),
    ],
)
def test_words_that_no_command_has_end_with_2_and_without_a_traceback(words: str) -> None:
    ran = microagents(*words.split())
    assert (ran.code, ran.out) == (WRONG_USAGE, "")
    assert "Traceback" not in ran.err
    assert ran.err.splitlines()[-1].startswith(("Error: ", "microagents: "))


# -- as installed ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_help_and_a_local_run_import_no_sdk() -> None:
    ran = python(
        """
        import sys
        from microagents.cli import main
        for words in ("--help", "run --help", "run hanoi -o disks=3 --json", "run drift"):
            sys.argv = ["microagents", *words.split()]
            try:
                main()
            except SystemExit as leave:
                assert leave.code in (0, None), leave.code
            if heavy := {"ray", "grpc", "openai", "anthropic", "genai_prices", "httpx2", "aiohttp"} & sys.modules.keys():
                sys.exit(f"{words} imported {heavy}")
        """
    )
    assert ran.code == COMPLETED, ran.err


def test_the_help_names_every_command_and_option_of_the_contract_that_there_is() -> None:
    assert all(command in microagents("--help").out for command in ("run", "try", "plan"))
    shown = microagents("run", "--help").out
    for option in (
        *("-o", "--strategy", "-s", "--model", "-k", "--seed", "--runtime", "--run-id", "--config", "--json"),
    ):
        assert option in shown


@pytest.mark.slow
def test_an_installed_package_brings_a_command_of_its_own_and_a_broken_one_says_why(tmp_path: Path) -> None:
    write("greet.py", "def hello(name: str) -> None:\n    'Greet a person.'\n    print('hello', name)\n")
    write("greet-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
    write(
        "greet-1.0.dist-info/entry_points.txt",
        "[microagents.commands]\nhello = greet:hello\nbroken = greet:bye\nrun = greet:hello\n",
    )
    env = {"PYTHONPATH": str(Path.cwd())}
    assert_one_sentence(
        installed("broken", cwd=tmp_path, env=env), "there is no function in greet called 'bye'; known: hello"
    )
    shown = installed("--help", cwd=tmp_path, env=env)
    assert shown.code == COMPLETED
    assert "Greet a person." in shown.out
    assert "Do a task" in shown.out, "a package replaces no shipped command"


@pytest.mark.parametrize(
    "words",
    ["run drift -s max_draws=2", "try --one drift -s max_draws=2", "compare drift -s max_draws=2"],
)
def test_a_short_form_says_the_same_as_the_option_in_every_command(words: str) -> None:
    ran = microagents(*words.split(), "--model", "sim:perfect")
    assert_one_sentence(ran, "k = 3 votes cannot come from max_draws = 2 samples")


# -- what a first user stumbled over -------------------------------------------------------------------------------------


def test_known_inputs_are_refused_where_the_strategy_cannot_feed_them() -> None:
    write(
        "own.py",
        """
        from microagents import ChainTask, Conductor, Strategy

        class OwnConductor(Conductor):
            async def conduct(self, work):
                return None

        class Own(Strategy):
            solves, conductor = (ChainTask,), OwnConductor
        """,
    )
    assert_one_sentence(
        microagents("run", "drift", "--strategy", "own.py:Own", "-s", "known_inputs=true"),
        "Own",
        "named 'known_inputs'",
    )
    assert_one_sentence(microagents("try", "--one", "drift", "--strategy", "own.py:Own"), "Own asked no model")


def test_a_chain_without_a_needed_method_is_refused_before_anything_is_asked() -> None:
    write(
        "halfway.py",
        """
        from microagents import ChainTask, Prompt
        from microagents.tasks.drift import Onward, Place

        class Halfway(ChainTask[Place, Onward]):
            def start(self): return Place()
            def done(self, state): return False
            def prompt(self, state): return Prompt(user="?")
            def expert(self, prompt, reply): return Onward(number=1)
        """,
    )
    assert_one_sentence(microagents("run", "halfway.py:Halfway"), "Halfway lacks advance()")


def test_a_file_with_several_tasks_is_asked_for_one_of_them() -> None:
    write("blind.py", BLIND)
    assert_one_sentence(
        microagents("run", "blind.py"), "2 classes of this kind", "name one: blind.py:Blind, blind.py:Seeing"
    )


def test_a_file_without_a_task_is_refused() -> None:
    write("some.py", "from microagents import ChainTask")
    assert_one_sentence(microagents("run", "some.py"), "the task's file 'some.py' has no Task: define one in it")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gpt-6-luna", "openai:gpt-6-luna"),
        ("openai/gpt-9", "openai:gpt-9"),
        ("claude-haiku-5.5", "anthropic:claude-haiku-5-5"),
    ],
)
def test_a_model_without_a_provider_is_told_the_spec_that_it_means(typed: str, meant: str) -> None:
    assert f"did you mean {meant}?" in microagents("run", "hanoi", "--model", typed).err


@pytest.mark.slow
def test_an_outage_is_said_at_once_and_in_the_reason_of_an_interrupt() -> None:
    with Forked("run", "drift", "--model", "openai:x@base_url=http://127.0.0.1:1/v1", "--json") as process:
        try:
            assert process.stderr is not None
            assert "calls are tried again" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    shown = json.loads(out)
    assert "while calls were tried again" in shown["reason"]
    assert shown["cost_usd"] is None


def test_a_file_in_the_place_of_a_command_or_a_task_is_told() -> None:
    Path("stock.py").write_text("", encoding="utf-8")
    assert_one_sentence(microagents("stock.py"), "write microagents run stock.py")
    assert_one_sentence(microagents("run", "stock"), "did you mean the file stock.py?")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("drift", "--runtime", "moon"), "no runtime 'moon'; known: local, linked, ray"),
        (("drift", "--concurrency", "0"), "concurrency must be an integer from 1 to 1000000000000000, not 0"),
        (
            ("drift", "--max-cost", "-1"),
            "max_cost_usd (--max-cost) must be a number above 0 and at most 1000000000, not -1",
        ),
        (
            ("drift", "--max-outage", "inf"),
            "max_outage_s (--max-outage) must be a number from 0 to 1000000000, not inf",
        ),
        (("drift", "--max-tokens", "9" * 30), "max_tokens must be an integer from 1 to 1000000000000000"),
        (("desk", "-s", f"k_end={10**30}"), "a number in an option has at most 64 bits, unlike 1000000000"),
        (
            ("drift", "--lanes", "2"),
            "lanes='2' are engines on Ray, but the runtime is 'local'; add --runtime ray, or leave",
        ),
        (("drift", "--address", "auto"), "the address 'auto' is a Ray cluster's, but the runtime is 'local'"),
        (("gsm8k", "-o", "question= "), "question must be a text of 1 or more characters that is not blank, not ' '"),
        (("drift", "--prices", "prices.toml"), "there is no field called 'ouput'; did you mean 'output'"),
    ],
)
def test_a_value_that_will_not_do_is_refused_in_words(words: tuple[str, ...], said: str) -> None:
    Path("prices.toml").write_text('["openai:m"]\ninput = 1\nouput = 2\n')
    assert_one_sentence(microagents("run", *words), said)
