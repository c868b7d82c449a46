"""Agents on the command line: tools as options, what waits for a person, and what was done."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from microagents import run_sync
from microagents.base.foreign_text import fenced_in
from microagents.cli import watching
from microagents.replies.persons import Approval, FoundOutcome
from microagents.roles.executor import Executor
from microagents.systems.agents.act import Act
from microagents.tools.effect_keys import effect_key
from tests.cli.commands import COMPLETED, UNDECIDED, WRONG, WRONG_USAGE, microagents
from tests.systems.agents.shop import Ticket, done

HELPDESK = Path(__file__).parents[2] / "docs/examples/helpdesk.py"

TOOLS = '''
from microagents import tool

@tool("read_only")
def order(number: int) -> dict[str, int]:
    """Look up an order."""
    return {"number": number, "paid_cents": 4900}

@tool("destructive")
def refund(number: int, cents: int) -> str:
    """Pay money back."""
    with open("ledger.txt", "a") as ledger:
        ledger.write(f"{cents} for {number}\\n")
    return "paid back"
'''
AGENT = ("run", "agent", "--tool", "tools.py:order", "--tool", "tools.py:refund", "--model", "scripted:replies.jsonl")


@pytest.fixture
def agent_files() -> None:
    """The tools, and the replies of a model to two tickets."""
    Path("tools.py").write_text(TOOLS, encoding="utf-8")
    actions = [
        [{"tool": "order", "arguments": {"number": 7}}],
        [{"tool": "refund", "arguments": {"number": 7, "cents": 4900}}],
        [{"tool": "end", "arguments": {"answer": "paid"}}],
    ]
    lines = [
        {"path": f"{of_input}/step/{step}", "seq": seq, "text": f"calls = {json.dumps(action)}"}
        for of_input in range(2)
        for step, action in enumerate(actions)
        for seq in range(4)
    ]
    Path("replies.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


def waiting(run_id: str = "r", approve: str = "refund,mail") -> None:
    """An agent whose refund waits for an approval, after a label."""
    result = run_sync(Ticket(), models="sim:perfect", strategy=Act(approve=approve), run_id=run_id)
    assert result.outcome == "undecided"


def effects() -> list[str]:
    return [each["what"] for each in done()]


@pytest.mark.usefixtures("agent_files")
def test_an_agent_needs_no_file_besides_its_tools() -> None:
    ran = microagents(*AGENT, "-o", "goal=Pay order 7 back.", "--json")
    assert ran.code == COMPLETED, ran.err
    assert ran.json["result"] == {"result": {"answer": "paid"}, "actions": 2, "errors": 0, "correct": None}
    assert Path("ledger.txt").read_text(encoding="utf-8") == "4900 for 7\n"


@pytest.mark.slow
@pytest.mark.usefixtures("agent_files")
def test_many_tickets_are_many_inputs_and_each_waits_at_a_place_of_its_own() -> None:
    Path("tickets.jsonl").write_text('{"goal": "Pay order 7."}\n{"goal": "Order 7 broke."}\n', encoding="utf-8")
    assert microagents(*AGENT, "--inputs", "tickets.jsonl", "-s", "approve=refund", "--run-id", "r").code == UNDECIDED
    both = microagents("decide", "r", "step/1", "approve")
    assert (both.code, "names 2 places" in both.err) == (WRONG_USAGE, True)
    assert microagents("decide", "r", "1/step/1", "approve").code == COMPLETED
    assert microagents("resume", "r").code == UNDECIDED
    assert Path("ledger.txt").read_text(encoding="utf-8") == "4900 for 7\n"


@pytest.mark.usefixtures("agent_files")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tool", "foo"), "a tool is FILE.py:function, or mcp:COMMAND"),
        (("--tool", "tools.py:nothing"), "there is no function in tools called 'nothing'; known: order, refund"),
        (("--tool", "tools.py:order"), "two tools are called order"),
        (
            ("-s", "approve=refnud"),
            "approve names 'refnud', which is neither a tool nor an effect; tools: order, refund",
        ),
        (("-s", "approve=refund.cent>5"), "approve names the argument 'cent', which refund lacks"),
        (("-s", "approve=order"), "approve names 'order', which only reads"),
    ],
)
def test_a_wrong_option_is_told_in_one_sentence(words: tuple[str, ...], said: str) -> None:
    ran = microagents(*AGENT, "-o", "goal=x", *words)
    assert ran.code == WRONG_USAGE
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


def test_bounds_are_options_and_a_higher_one_lets_the_agent_go_on() -> None:
    stopped = microagents("run", "desk", "--run-id", "r", "-s", "max_steps=2")
    assert "took 2 actions without an end; -s max_steps=2 bounds them" in stopped.err
    assert microagents("resume", "r", "-s", "max_steps=20").code == COMPLETED


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        ("approve", Approval, Approval(approved=True)),
        ("reject  not yet", Approval, Approval(approved=False, text="not yet")),
        ("done paid back", FoundOutcome, FoundOutcome(was_made=True, value="paid back")),
        ('done {"id": 5}', FoundOutcome, FoundOutcome(was_made=True, value={"id": 5})),
        ("done", FoundOutcome, FoundOutcome(was_made=True, value="done")),
        ("not done", FoundOutcome, None),
    ],
)
def test_a_person_answers_in_words(words: str, kind: type[Approval | FoundOutcome], said: object) -> None:
    assert kind.in_words(words) == said


@pytest.mark.slow
def test_a_short_path_names_what_waits_there_and_the_words_reach_the_agent() -> None:
    waiting()
    for words in (("step/2", "yes"), ("step/1", "approve"), ("step/2/call", "approve")):
        assert microagents("decide", "r", *words).code == WRONG_USAGE
    assert microagents("decide", "r", "step/2", "approve").code == COMPLETED
    assert microagents("resume", "r").code == UNDECIDED
    assert microagents("decide", "r", "step/3", "reject", "no", "mails").code == COMPLETED
    completed = microagents("resume", "r")
    assert effects() == ["label", "refund"]
    assert "0/step/2/call/0/approval by person, 0/step/3/call/0/approval by person" in " ".join(completed.out.split())
    shown = microagents("show", "r").out
    assert "-> done (a person: approved)" in shown
    assert "-> rejected (a person: rejected): no mails" in shown


@pytest.mark.slow
def test_a_person_at_a_terminal_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "has_terminal", lambda: True)
    words = (
        *("run", "tests.systems.agents.shop:Ticket", "-s", "approve=refund,mail", "--model", "sim:perfect"),
        "--run-id",
    )
    assert microagents(*words, "left", stdin="\n").code == UNDECIDED
    assert effects() == ["label"]
    asked = microagents(*words, "asked", stdin="yes\napprove\nreject no mails\n")
    assert asked.code == WRONG, "the check of the task misses the mail"
    assert "say `approve` or `reject TEXT` there, not 'yes'" in asked.err
    assert effects() == ["label", "label", "refund"]


def test_showing_an_action_calls_no_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting()

    async def refuse(*_: Any) -> Any:
        raise AssertionError("a tool is called")

    monkeypatch.setattr(Executor, "execute", refuse)
    shown = microagents("show", "r", "step/2", "--json").json
    assert 'Action 2: {"arguments":{"order":7,"text":"refund"},"tool":"label"}\n<observation ' in shown["user"]
    assert fenced_in(shown["user"], "observation")[1] == "labelled"
    (call,) = shown["action"]["calls"]
    assert (call["tool"], call["effect"], call["outcome"], call["observation"]) == (
        "refund",
        "destructive",
        "waits",
        None,
    )
    assert call["key"] == effect_key("r", "0/step/2", "refund", {"order": 7, "cents": 700})
    assert effects() == ["label"]


def test_actions_are_exported_a_row_for_each_call() -> None:
    waiting(approve="mail")
    rows = [json.loads(line) for line in microagents("export", "r", "--actions").out.splitlines()]
    assert [(row["tool"], row["effect"], row["outcome"], row["observation"]) for row in rows] == [
        ("look_up", "read_only", "done", '{"order":7,"paid_cents":700}'),
        ("label", "idempotent", "done", "labelled"),
        ("refund", "destructive", "done", "paid back"),
        ("mail", "destructive", "waits", None),
    ]
    assert [sum(votes for _, votes in row["votes"]) for row in rows] == [1, 2, 4, 4]
    flat = list(csv.DictReader(microagents("export", "r", "--actions", "--format", "csv").out.splitlines()))
    for row, right in zip(flat, rows, strict=True):
        given = {name.partition(".")[2]: each for name, each in row.items() if name[:10] == "arguments." and each}
        assert given == {name: str(each) for name, each in right["arguments"].items()}


def test_a_run_without_an_agent_has_no_actions() -> None:
    microagents("run", "drift", "--run-id", "r")
    assert microagents("export", "r", "--actions").code == WRONG_USAGE


def test_the_first_question_of_an_agent_is_shown() -> None:
    shown = microagents("try", "--one", "desk", "--json").json
    assert (shown["outcome"], shown["path"]) == ("decided", "0/step/0")
    assert "get_customer" in shown["system"]


@pytest.mark.slow
@pytest.mark.usefixtures("agent_files")
def test_an_agent_with_effects_that_begins_anew_under_a_name_that_was_used_says_what_its_keys_mean() -> None:
    goal, said = (
        ("-o", "goal=Pay order 7 back."),
        "run r7 begins anew: its effects have the keys of every other run of this name",
    )
    named = (*AGENT, *goal, "--run-id", "r7")
    assert [said in microagents(*named, *more).err for more in ((), (), ("--runs-dir", "other"))] == [
        False,
        False,
        True,
    ]
    assert "begins anew" not in microagents(*AGENT, *goal).err
    assert "begins anew" not in microagents("run", "drift", "--run-id", "r8").err


@pytest.mark.slow
def test_decide_without_arguments_goes_through_all_that_waits() -> None:
    stalemate = ("drift", "--model", "sim:perfect@error=0.4,alternatives=1", "-k", "9", "-s", "max_draws=13")
    microagents("run", "desk", "-s", "approve=send_mail", "--model", "sim:perfect", "--run-id", "a")
    microagents("run", *stalemate, "--run-id", "b")
    left = microagents("decide", stdin="\nq\n")
    assert (left.code, "decided by you" in left.out) == (COMPLETED, False)
    ran = microagents("decide", stdin="perhaps\nreject not now\n1\n")
    assert ran.code == COMPLETED
    for said in (
        *("1 of 2: 0/step/6/call/0/approval of run a, desk", "goal: Ticket 1."),
        *("may this call be made? send_mail(customer=237", "say `approve` or `reject TEXT` there, not 'perhaps'"),
        *(
            "/approval of run a is decided by you: reject not now",
            "2 of 2: 0/step/0 of run b, drift",
            "1: 6 votes for ",
        ),
        "go on: microagents resume b",
    ):
        assert said in ran.out, said
    assert microagents("decide").out == "nothing waits for a person\n"
    assert microagents("decide", "a", "0/step/6").code == WRONG_USAGE
    assert microagents("decide", "a", "--label", "browser").err.endswith("add --audit FILE\n")


def test_the_queue_shows_the_question_to_a_customer_and_takes_the_answer() -> None:
    microagents("run", str(HELPDESK), "--run-id", "h", "--model", "sim:perfect")
    ran = microagents("decide", stdin="yes\nanswer order 7\n")
    for said in (
        "1 of 1: 0/step/0/call/0/answer of run h",
        'what does the customer answer? ask(text="Which order is it?")',
        "Say answer TEXT; Enter leaves it open",
        "say `answer TEXT` there, not 'yes'",
        "is decided by you: answer order 7",
    ):
        assert said in ran.out, said
