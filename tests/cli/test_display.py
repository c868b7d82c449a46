"""The live display and the summary: what they count, how wide they are, and that a simulated price is called simulated."""

from __future__ import annotations

import html
import io
import re
import sys
from collections.abc import Callable

import pytest
from msgspec.json import decode
from rich.cells import cell_len

from microagents.cli.views.display import live_display
from microagents.journal.ending import ReachedLimit
from microagents.journal.messages import Account, Load
from microagents.runs.driver.graph import RoleGraph
from microagents.runs.driver.role_pictures import svg_of, totals_by_role
from microagents.runs.result import Result
from microagents.runs.settings import Settings, validated
from microagents.runs.words.money import money, prices_of
from microagents.runs.words.summary import summary
from microagents.runs.words.verdict import verdict_on
from tests.cli.commands import microagents

SMALL = Account()
LARGE = Account(
    steps=123_456_789,
    total_steps=987_654_321,
    decided=123_456_789,
    votes=400_000_000,
    valid=400_000_000,
    calls=412_345_678,
    in_flight_by={"Solver/0": {"openai:x": 1000}, "Solver/1": {"openai:y@seed": 20, "anthropic:z": 4}},
    loads={"Voter/0": Load(per_s=340, open=12), "Voter/1": Load(open=1), "Solver/0": Load(per_s=1024, open=1024)},
    flagged={"malformed": 1_234_567},
    cost_usd=1_234_567.89,
    errors=12,
    outage="the model's provider answered 'busy': " + "too many requests " * 20 + "\x1b[2J\n",
)
MANY = Account(
    steps=15_000,
    inputs=100_000,
    inputs_done=999,
    inputs_failed=1,
    decided=15_000,
    votes=45_000,
    valid=45_000,
    calls=45_100,
)
DOCUMENT = Account(steps=3, total_steps=9, samples=88, valid=88, calls=90)


Displayed = Callable[..., list[str]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> Displayed:
    """Shows an account on a terminal of 80 columns; gives the lines, without what moves the cursor or colours."""

    def show(account: Account, title: str = "drift", unit: str = "step") -> list[str]:
        terminal = Terminal()
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("TERM", "xterm")
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", terminal)
            with live_display(title, unit=unit, price=prices_of(["sim:x"]), loads=True) as display:
                display.show(account)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue()).replace("\r", "\n").splitlines()

    return show


@pytest.mark.parametrize("account", [SMALL, LARGE, MANY, DOCUMENT], ids=["small", "large", "many", "document"])
def test_no_line_of_the_live_display_is_wider_than_80_columns(displayed: Displayed, account: Account) -> None:
    lines = displayed(account, "a/very/long/path/to/a/file/of/tasks/dates.py:Dates")
    assert max(map(cell_len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    said = " ".join(" ".join(lines).split())
    assert f"{account.calls:,} calls" in said
    assert f"{money(account.cost_usd)} simulated" in said
    assert "elapsed" in said


def test_of_many_inputs_those_done_the_total_and_the_steps_are_shown(displayed: Displayed) -> None:
    said = " ".join(displayed(MANY))
    for words in ("999 of 100,000 inputs, 15,000 steps", "1 without a result", "3.000 votes a step"):
        assert words in said


def test_roles_and_providers_are_shown_with_what_they_have_to_do(displayed: Displayed) -> None:
    said = " ".join(displayed(LARGE))
    for words in ("1,024 in flight (1,020 openai, 4 anthropic)", "Voter 340/s, 13 open", "Solver 1,024/s, 1,024 open"):
        assert words in said
    graph = decode(microagents("show", "--graph", "hanoi", "--json").out, type=RoleGraph)
    picture = svg_of(graph, totals_by_role(graph, LARGE, "step"))
    for words in ("1,020 openai, 4 anthropic", ">340/s, 13 open<", ">123,456,789 decided<"):
        assert words in picture


@pytest.mark.parametrize(
    ("specs", "shown"),
    [
        (["openai:x"], "$0.50"),
        (["sim:x"], "$0.50 simulated"),
        (["sim:x", "openai:y"], "$0.50 partly simulated"),
    ],
)
def test_a_price_says_how_much_of_it_is_simulated(specs: list[str], shown: str) -> None:
    assert prices_of(specs)(0.5) == shown
    assert prices_of(specs)(None) == "cost unknown"


def test_every_command_that_prints_a_price_calls_a_simulated_one_simulated() -> None:
    ran = microagents("run", "drift", "-o", "length=2", "--run-id", "r")
    microagents("run", "multiplication", "-o", "digits=2", "--run-id", "tree")
    shown = (("try", "drift", "--one"), ("list",), ("show", "r"), ("show", "r", "0/step/0"), ("show", "tree"))
    for out in (ran.out, *[microagents(*words).out for words in shown]):
        assert "$" in out
        assert "simulated" in out


def result(account: Account, **fields: object) -> Result:
    settings = validated(Settings, "the run", {"models": {"": ("openai:x",)}, "run_id": "r"})
    given = {
        "outcome": "completed",
        "reason": None,
        "recorded": None,
        "run_id": "r",
        "task": "t",
        "strategy": "maker",
        "k": 3,
        **fields,
    }
    return Result(settings=settings, account=account, journal=None, **{"wall_s": 1.0, **given})  # type: ignore[arg-type]


def rows_of(account: Account, **fields: object) -> dict[str, str]:
    return dict(line.split(maxsplit=1) for line in summary(result(account, **fields)).splitlines())


def voting(account: Account, **fields: object) -> str | None:
    return rows_of(account, **fields).get("voting")


def test_the_summary_tells_of_calls_that_did_not_go_as_they_should() -> None:
    account = Account(
        steps=1, calls=20, repeated={"straggler": 1, "busy": 12}, unanswered=5, estimated_usd=0.25, unmeasured=1
    )
    assert rows_of(account)["calls"] == (
        "13 repeated (busy 12, straggler 1); 5 cancelled or timed out, for which the cost has an estimate of $0.25; "
        "1 reply of unknown length, not flagged as too_long"
    )
    assert "calls" not in rows_of(Account(steps=1, calls=20))


def test_the_summary_warns_of_timeouts_above_one_percent_of_the_samples() -> None:
    many = Account(steps=1, calls=250, valid=180, flagged={"malformed": 20}, repeated={"timeout": 3, "busy": 50})
    assert rows_of(many)["timeouts"].startswith(
        "3 calls timed out for 200 samples: slow answers are being selected out"
    )
    assert "timeouts" not in rows_of(
        Account(steps=1, calls=250, valid=180, flagged={"malformed": 20}, repeated={"timeout": 2, "busy": 50})
    )


def test_a_result_has_a_short_repr_and_a_table_for_notebooks() -> None:
    shown = result(Account(steps=7, total_steps=7, decided=7, calls=9), task="<b>", recorded={"a": "<i>"})
    assert repr(shown) == "<Result of run r: completed, <b>, 7 of 7 steps, 9 calls>"
    cells = re.findall(r"<tr><th>(.*?)</th><td[^>]*>(.*?)</td></tr>", shown._repr_html_())
    assert [tuple(map(html.unescape, row)) for row in cells] == [
        tuple(line.split(maxsplit=1)) for line in str(shown).splitlines()
    ]
    assert "<i>" not in shown._repr_html_()


def test_a_slow_run_tells_its_steps_by_the_hour() -> None:
    assert rows_of(Account(steps=1), wall_s=7.2)["took"] == "7.2 s, 500 steps an hour; run r"
    assert rows_of(Account(), wall_s=7.2)["took"] == "7.2 s; run r"


@pytest.mark.parametrize(
    ("unit", "account", "said"),
    [
        (
            "step",
            Account(steps=7, decided=7, checked=7, errors=0),
            "7 steps, all checked by the task's own oracle",
        ),
        (
            "step",
            Account(steps=7, decided=7, checked=3, errors=2),
            "7 steps, 3 of them checked by the task's own oracle; 2 of 3 steps WRONG (by the task's own oracle)",
        ),
        (
            "problem",
            Account(steps=7, checked=1, errors=1),
            "only the final answer checked by the task's own check; 1 of 1 answer WRONG (by the task's own check)",
        ),
        (
            "problem",
            Account(steps=7, inputs=4, checked=4, errors=0),
            "only 4 final answers checked by the task's own check",
        ),
        (
            "subtask",
            Account(steps=3, checked=1, errors=1),
            "only the final text checked by the checks of the brief; 1 of 1 text FAILED (by the checks of the brief)",
        ),
    ],
)
def test_the_summary_says_how_much_was_checked_and_by_what(unit: str, account: Account, said: str) -> None:
    first = summary(result(account, unit=unit)).splitlines()[0]
    assert first.startswith("completed, WRONG  " if account.errors else "completed  ")
    assert first.endswith(said)


CHECKED = Account(steps=7, total_steps=7, decided=7, checked=7, errors=0)
ERRED = Account(steps=7, total_steps=9, decided=7, checked=7, errors=2, wrong_at="0/step/3")
ASKED = ("0/step/4/call/0/approval", "0/step/9")


@pytest.mark.parametrize(
    ("outcome", "account", "fields", "kind", "said"),
    [
        ("completed", CHECKED, {}, "right", "right: 7 of 7 steps, all checked by the task's own oracle"),
        ("completed", CHECKED, {"recorded": {"solved": False}}, "wrong", "the result is WRONG by the task's own check"),
        ("completed", ERRED, {}, "wrong", "2 of 7 steps WRONG, the first at 3 (by the task's own oracle)"),
        ("completed", Account(steps=7), {}, "done", "completed, not checked: 7 steps"),
        ("completed", Account(steps=7), {"strategy": "Measuring"}, "done", "measured: 7 steps"),
        (
            "running",
            Account(steps=59, total_steps=255),
            {"wall_s": 59},
            "running",
            "running: 59 of 255 steps, 3:16 left",
        ),
        ("running", Account(steps=1, paused="me"), {}, "running", "paused: 1 step"),
        (
            "running",
            Account(steps=5, undecided_at=ASKED[:1]),
            {},
            "running",
            "running: 5 steps; waits for you: 1 call of tools",
        ),
        ("running", ERRED, {"wall_s": 7}, "wrong", "(by the task's own oracle); running: 7 of 9 steps, 0:02 left"),
        (
            "undecided",
            Account(undecided_at=ASKED),
            {},
            "waits",
            "of tools; 1 decision undecided, the first at 0/step/9",
        ),
        (
            "stopped",
            ERRED,
            {"limit": ReachedLimit(setting="max_calls", value=9, enough=10)},
            "wrong",
            "at its limit, --max-calls 9, after 7 of 9 steps",
        ),
        ("stopped", Account(), {"reason": "the disk is full"}, "stopped", "stopped after 0 steps: the disk is full"),
        ("failed", Account(), {"reason": "no key"}, "failed", "failed after 0 steps: no key"),
        ("cut off", Account(), {"reason": "it ended"}, "stopped", "cut off after 0 steps: it ended"),
        ("interrupted", Account(), {"reason": "Ctrl-C"}, "stopped", "interrupted after 0 steps: Ctrl-C"),
    ],
)
def test_how_a_run_stands_is_one_sentence_and_what_is_wrong_comes_first(
    outcome: str, account: Account, fields: dict[str, object], kind: str, said: str
) -> None:
    verdict = verdict_on(result(account, outcome=outcome, **{"reason": None, **fields}))
    assert (verdict.kind, verdict.text.endswith(said)) == (kind, True), verdict
    assert verdict.text.startswith("2 of 7 steps WRONG, the first at 3") == (account is ERRED)


def test_votes_that_were_unanimous_and_wrong_are_called_beyond_more_votes() -> None:
    unanimous = Account(steps=9, decided=9, votes=40, checked=9, errors=3, misled=10, unanimous_errors=2)
    assert "; 2 of 3 wrong decisions unanimous: more votes do not mend that; smaller steps" in (voting(unanimous) or "")
    contested = Account(steps=9, decided=9, votes=40, checked=9, errors=2, misled=9)
    assert "; no wrong decision was unanimous" in (voting(contested) or "")
    assert "unanimous" not in (voting(Account(steps=9, decided=9, votes=40, checked=9, errors=0)) or "")


def test_the_summary_tells_the_share_of_cached_input() -> None:
    account = Account(steps=1, calls=20, input_tokens=2000, cached_tokens=1500, cache_write_tokens=100)
    assert (
        rows_of(account)["cached"] == "75.0% of 2,000 input tokens read from the provider's cache, 5.0% written into it"
    )
    assert "cached" not in rows_of(Account(steps=1, calls=20, input_tokens=2000))


def test_samples_of_a_ladder_are_told_from_votes() -> None:
    account = Account(steps=2, decided=2, votes=16, valid=19, samples=3, climbed={"lookahead": 1}, calls=19)
    assert rows_of(account)["how"].startswith("maker: 8.000 votes a step, 3 samples of rungs; 19 calls")
    account.climbed, account.calls = {}, 1
    assert rows_of(account)["how"].startswith("maker: 8.000 votes a step, 3 samples; 1 call,")


def test_the_summary_says_what_voting_did() -> None:
    chain = Account(steps=1000, decided=1000, votes=3015, valid=3015, outvoted=7, first_wrong=4, errors=0)
    assert voting(chain) == (
        "k = 3; 7 wrong samples outvoted; one sample would have been wrong or flagged in 4 of 1,000 elections"
    )
    chain.errors = None
    assert voting(chain) == (
        "k = 3; 7 samples outvoted; one sample would have been another reply or flagged in 4 of 1,000 elections"
    ), "without an oracle nobody knows which were wrong"
    chain.outvoted, chain.first_wrong = 1, 0
    assert voting(chain) == "k = 3; 1 sample outvoted"
    wrong = Account(steps=10, decided=10, votes=40, valid=40, outvoted=3, misled=20, errors=6)
    assert voting(wrong) == (
        "k = 3; 3 wrong samples outvoted; at least 23 of 40 votes were for wrong replies: voting does not help a model that is wrong more "
        "often than right; make the steps smaller, or ask another; no wrong decision was unanimous"
    )
    chain.outvoted = 0
    assert voting(chain) == "k = 3; no sample was outvoted"
