"""The facts of a run, and its verdict: how it stands, in one sentence, and how to continue it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from microagents.elections.election import USD_DIGITS
from microagents.journal.ending import ReachedLimit
from microagents.journal.messages import Account, InputEnding, RunOutcome, verdict_of
from microagents.journal.requests import PersonDecision
from microagents.replies.persons import ANSWERED
from microagents.runs.accuracy import Accuracy
from microagents.runs.settings import NO_LIMIT, Settings, limit_text, option_of
from microagents.runs.words.money import Price, prices_of, specs_in

RUNS_DIR = Path("runs")
"""Folder of journals by default."""


WAITS = ("undecided", "refused")
"""Outcomes of runs that ask nothing again until something has changed."""
ROUNDING_USD = 1e-6
"""Errors of sums of costs are below this."""
MEASURING = "Measuring"
"""Strategy of the runs of a measurement or a try, whose report says how many replies are right."""


class _Check(NamedTuple):
    """Check of a work by code."""

    by: str
    """The code."""
    fault: str
    """Its word for a fault."""
    judged: str
    """The thing that it judges."""


_CHECKS = {
    "step": _Check("the task's own oracle", "WRONG", "step"),
    "problem": _Check("the task's own check", "WRONG", "answer"),
    "action": _Check("the task's own check", "WRONG", "result"),
    "subtask": _Check("the checks of the brief", "FAILED", "text"),
}
"""Checks of a work by its unit. A chain has an oracle."""


class RunFacts(Struct, frozen=True, kw_only=True):
    """Part of a result that its summary shows."""

    outcome: RunOutcome
    reason: str | None
    """Why the run did not complete, in one sentence; None if it did."""
    limit: ReachedLimit | None = None
    """The limit that has stopped it; None if none has."""
    recorded: Any
    """The task's ``result`` as JSON-like values; for a list of inputs the `Results`, in their order. None if the run has no result."""
    run_id: str
    task: str
    strategy: str
    settings: Settings
    account: Account
    """Its totals; ``paused`` lasts until `ctl resume`, so a run that has ended may be paused, too."""
    k: int | None = None
    """The strategy's k; None for a strategy without one."""
    unit: str = "step"
    """Name of a unit of progress: step, problem or subtask."""
    wall_s: float
    """Seconds of all sittings."""
    journal: Path | None
    """Path of the journal; None for a run without one."""
    failed_inputs: tuple[InputEnding, ...] | None = None
    """Endings of inputs of a list that failed or are undecided; None for a run with one task and no list."""
    options: dict[str, Any] = {}
    """Options of the task; empty for a list of inputs."""
    accuracy: Accuracy | None = None
    """Accuracy of rows that gold columns or an oracle judge; None of other work."""
    by_gold: bool = False
    """Whether gold columns judge, in place of the task's oracle."""
    promise: str = ""
    """The promise on the wrong rows of a table, with its condition; empty without one."""
    needs_program: bool = False
    """Whether only the program that began the run can continue it, since its task, strategy or a model has no name for others."""
    by_persons: Mapping[str, PersonDecision] = {}
    """Decisions of persons that the next sitting takes up, by path."""
    shards: Mapping[str, str] = {}
    """States of its shards by their names; empty of a run that is not in shards."""
    outputs: tuple[Path, ...] = ()
    """Files that hold the texts of documents, as written by this process or found complete; empty without output files."""

    @property
    def models(self) -> Sequence[str]:
        """Specs of all models of the run."""
        return specs_in(self.settings["models"])

    @property
    def price(self) -> Price:
        """Writes amounts of the run."""
        return prices_of(self.models)

    @property
    def right(self) -> bool | None:
        """Whether the task's own code finds all right that it checked, decisions and results; None if it checked nothing."""
        account = self.account
        says = verdict_of(self.recorded) if self.failed_inputs is None else None
        if account.errors or account.inputs_wrong or says is False:
            return False
        if account.errors == 0 or account.inputs_right or says:
            return True
        return None

    @property
    def waiting_at(self) -> list[str]:
        """Paths of undecided elections that no person has decided for the next sitting."""
        return [path for path in self.account.undecided_at if path not in self.by_persons]

    @property
    def resumes(self) -> bool:
        """Whether `resume` alone continues it."""
        return self.journal is not None and self.go_on == resume_command(self.run_id, self.journal.parent)

    @property
    def go_on(self) -> str | None:
        """How to continue it; None for a run without a journal, and if there is nothing to continue."""
        if self.journal is None:
            return None
        return go_on_text(self, self.journal.parent)


def is_wrong(result: RunFacts) -> bool:
    """Whether a run is completed, and the task's own code finds it wrong."""
    return result.outcome == "completed" and result.right is False


def outcome_text(result: RunFacts) -> str:
    """Write how a run ended: also of one that is completed, whether it is wrong; of one that waited, whether persons decided all."""
    if result.outcome in WAITS and result.by_persons and not result.waiting_at:
        return "decided"
    if result.outcome == "running" and result.account.paused:
        return "paused"
    if is_wrong(result):
        return f"{result.outcome}, WRONG"
    return result.outcome


Kind = Literal["right", "done", "wrong", "running", "waits", "answered", "stopped", "failed"]


_KINDS: dict[str, Kind] = {"running": "running", "undecided": "waits", "refused": "waits", "failed": "failed"}


class Standing(Struct, frozen=True):
    """The state of a run in one sentence, which lists, pages, reports and the terminal say alike."""

    kind: Kind
    """Kind of state, which its colour shows. ``done``: completed, not checked; ``answered``: persons have decided all that waited."""
    text: str


def verdict_on(result: RunFacts) -> Standing:
    """Say in one sentence how a run stands: a passed limit first, then its faults, its waiting items, and its progress."""
    standing, above = _standing_of(result), above_limits_text(result)
    if above:
        return Standing(standing.kind, f"{above}; {standing.text}")
    return standing


def above_limits_text(result: RunFacts) -> str:
    """Write the cost and the tokens of a run that are above its limits; empty if none is."""
    account, settings = result.account, result.settings
    max_cost_usd, max_tokens = settings["max_cost_usd"], settings["max_tokens"]
    tokens, above = account.input_tokens + account.output_tokens, []
    if max_cost_usd is not None and (account.cost_usd or 0.0) > max_cost_usd + ROUNDING_USD:
        above.append(f"${account.cost_usd:,.6f} spent, above --max-cost {max_cost_usd:g}")
    if max_tokens is not None and tokens > max_tokens:
        above.append(f"{tokens:,} tokens used, above --max-tokens {max_tokens}")
    return "; ".join(above)


def _standing_of(result: RunFacts) -> Standing:
    reason, done = result.reason, progress_text(result)
    wrong = wrong_text(result)
    if result.outcome == "completed":
        if result.strategy == MEASURING:
            return Standing("done", f"measured: {done}")
        if result.right is None:
            return Standing("done", f"completed, not checked: {done}")
        if wrong:
            return Standing("wrong", wrong)
        return Standing("right", f"right: {done_text(result)}")
    waits = "; ".join([*_waiting_in(result.waiting_at), *decided_texts(result)])
    limit, outcome = result.limit, outcome_text(result)
    if result.outcome == "running":
        said = f"{outcome}: {done}{_left_text(result)}{waits and f'; {waits}'}"
    elif result.outcome == "undecided" or outcome == "decided":
        said = waits or f"undecided: {reason}"
    elif limit is not None and limit.enough:
        said = f"stopped at its limit, {limit_text(limit.setting, limit.value)}, after {done}"
    else:
        said = f"{result.outcome} after {done}: {reason}"
    if wrong:
        return Standing("wrong", f"{wrong}; {said}")
    if outcome == "decided":
        return Standing("answered", said)
    return Standing(_KINDS.get(result.outcome, "stopped"), said)


def _waiting_in(paths: Sequence[str]) -> Iterator[str]:
    """Count the items that wait for a person, by kinds."""
    answers = sum(path.endswith(ANSWERED) for path in paths)
    calls = sum("/call/" in path for path in paths) - answers
    others = [path for path in paths if "/call/" not in path]
    if answers:
        yield f"waits for customers: {counted(answers, 'answer')}"
    if calls:
        yield f"waits for you: {counted(calls, 'call')} of tools"
    if others:
        yield f"{counted(len(others), 'decision')} undecided, the first at {others[0]}"


def decided_texts(result: RunFacts) -> Iterator[str]:
    """List the decisions of persons that the next sitting takes up, with their authors and times."""
    found = result.by_persons
    for who in dict.fromkeys([each.who for each in found.values()]):
        own = {path: each for path, each in found.items() if each.who == who}
        what = next(iter(own)) if len(own) == 1 else f"{len(own):,} decisions"
        yield f"{what} {decided_text(max(own.values(), key=lambda each: each.at))}"


def decided_text(person: PersonDecision) -> str:
    """Write the author and the time of a decision that the next sitting takes up."""
    return f"decided by {person.who} at {local_time(person.at)}, not yet resumed"


def local_time(at: str) -> str:
    """Write a recorded time for a person."""
    try:
        return f"{datetime.fromisoformat(at).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError):  # a time of the year 1 or 9999, which is none in every zone
        return at


def wrong_text(result: RunFacts) -> str:
    """Write the findings of the task's own code; empty without any."""
    account = result.account
    if not account.errors:
        if result.right is False:
            return "the result is WRONG by the task's own check"
        return ""
    check = _check(result)
    of = counted(account.checked, check.judged)
    return f"{account.errors:,} of {of} {check.fault}{_first_wrong(result)} (by {check.by})"


def _check(result: RunFacts) -> _Check:
    check = _CHECKS.get(result.unit, _CHECKS["step"])
    if result.by_gold:
        return check._replace(by="its gold columns")
    return check


def _first_wrong(result: RunFacts) -> str:
    """Write the place of the first wrong decision, of one of many inputs with its number."""
    path = result.account.wrong_at
    if path is None or (result.unit != "step" and result.failed_inputs is None):
        return ""
    of_input, _, place = path.partition("/")
    where = f"input {of_input}" if result.failed_inputs is not None else ""
    if result.unit == "step":
        where += f", {place.replace('/', ' ', 1)}" if where else place.removeprefix("step/")
    return f", the first at {where}"


def measured(account: Account) -> tuple[int, int | None]:
    """Choose the measure of the work of a run: steps, if their number is known, else inputs; the done ones, and all."""
    if account.total_steps is None and account.inputs > 1:
        return account.inputs_done + account.inputs_failed, account.inputs
    return account.steps, account.total_steps


def _left_text(result: RunFacts) -> str:
    """Write the time that the rest of a run takes at the same pace."""
    done, total = measured(result.account)
    if not (total and done) or done >= total:
        return ""
    return f", {clock(result.wall_s / done * (total - done))} left"


def clock(seconds: float) -> str:
    """Write a duration as on a clock, such as 2:05 or 1:00:00."""
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    if hour:
        return f"{hour}:{minute:02}:{second:02}"
    return f"{minute}:{second:02}"


def go_on_text(result: RunFacts, runs_dir: Path) -> str | None:
    """Write the command that continues a run; None if it is completed or running.

    It decides the items that wait for a person, ends a pause, and raises a limit that is reached, above all that is spent or lost, to
    twice the use including the next call.
    """
    if result.outcome in ("completed", "running"):
        return None
    if result.outcome in WAITS and result.waiting_at:
        return command_about("decide", result.run_id, runs_dir)
    name, most = _raised_limit(result)
    if result.needs_program:
        again = f"start the program again with run_id={result.run_id!r}, runs_dir={str(runs_dir)!r}"
        if not name:
            return again
        return f"{again}, {name}={'None' if most == NO_LIMIT else most}"
    command = resume_command(result.run_id, runs_dir)
    if result.account.paused:
        return f"{command} --detach && {command_about('ctl', result.run_id, runs_dir)} resume"
    return f"{command} {option_of(name)} {most}" if name else command


def _raised_limit(result: RunFacts) -> tuple[str, str]:
    """Return the limit that stopped a run, and a value with which it can continue; two empty texts without such a limit."""
    limit = result.limit
    if limit is None or limit.setting == "max_time_s":  # which is anew in each sitting
        return "", ""
    if not limit.enough:
        return limit.setting, NO_LIMIT
    most = 2 * max(limit.enough, result.account.used_at_most[limit.setting])
    return limit.setting, f"{Decimal(str(round(most, USD_DIGITS))).normalize():f}"


def resume_command(run_id: str, runs_dir: Path) -> str:
    """Write the command that continues a run."""
    return command_about("resume", run_id, runs_dir)


def command_about(name: str, run_id: str, runs_dir: Path) -> str:
    """Write a command about a run."""
    where = "" if runs_dir == RUNS_DIR else f" --runs-dir {shlex.quote(str(runs_dir))}"
    return f"microagents {name} {run_id}{where}"


def _share_checked(result: RunFacts) -> str:
    """Write how much of a run was checked: of a problem or a text only the end can be."""
    account, checked = result.account, result.account.checked
    if result.unit == "step" and checked == account.decided:
        return "all"
    if result.unit == "step" and (checked > account.inputs or account.decided <= account.inputs > 1):
        if account.decided:
            return f"{checked:,} of them"
        return counted(checked, "reply", "replies")
    what = _check(result).judged
    if checked == 1:
        return f"only the final {what}"
    return f"only {checked:,} final {what}s"


def counted(count: int, what: str, plural: str | None = None) -> str:
    """Write a number of things in words, such as ``1 call`` and ``2,000 calls``."""
    return f"{count:,} {what if count == 1 else plural or f'{what}s'}"


def progress_text(result: RunFacts) -> str:
    """Write the numbers of done inputs and of done steps, problems or subtasks."""
    return progress_of(result.account, result.unit, is_listed=result.failed_inputs is not None)


def progress_of(account: Account, unit: str, *, is_listed: bool) -> str:
    """Write the same for an account: the numbers of inputs only for a list of them."""
    inputs = f"{account.inputs_done:,} of {account.inputs:,} inputs, " * is_listed
    if account.total_steps is None:
        return f"{inputs}{counted(account.steps, unit)}"
    return f"{inputs}{account.steps:,} of {account.total_steps:,} {unit}s"


def done_text(result: RunFacts) -> str:
    """Write the progress of a run, and how much of it the task's own code has checked."""
    done = progress_text(result)
    if result.account.checked:
        return f"{done}, {_share_checked(result)} checked by {_check(result).by}"
    if result.right is not None:
        return f"{done}, checked by its result"
    if not result.account.steps:
        return done
    return f"{done}, not checked"
