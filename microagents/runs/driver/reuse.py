"""Replies that an earlier run has paid for: the first samples of the same questions, at no cost."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from msgspec import structs

from microagents.actors.registry import reference_to
from microagents.base.errors import InvalidUsage, MicroagentsError
from microagents.elections.count import Count
from microagents.elections.election import AnyBallot, Question, SampleId, total_usd
from microagents.elections.rules import FirstValid
from microagents.journal.messages import RecordSample
from microagents.journal.opening import holds_nothing
from microagents.journal.reading import Reader
from microagents.journal.sharded import reader_of
from microagents.models.model import ModelSpec, without_options
from microagents.runs.driver.shared_questions import SharedQuestions, may_share
from microagents.runs.inspection.replay import Replay
from microagents.runs.plan import RunPlan, plan_of
from microagents.systems.chains.chain import ChainStep
from microagents.systems.chains.maker import Maker, MakerConductor
from microagents.systems.chains.row_task import RowTask
from microagents.task import flags_by_state, verifies
from microagents.work.durable import Work

OF_THE_ADDRESS = ("base_url", "api_key_env", "timeout_s", "price_in", "price_out", "service_tier", "votes_per_request")
"""Options of a spec that say where and how a model is reached, and not which model it is."""
ELECTION_OF_ROW = re.compile(r"(\d+)/step/0")
Samples = Sequence[AnyBallot]


def reused_samples(plan: RunPlan, journal: Path | None) -> tuple[Sequence[RecordSample], float | None]:
    """Return the samples that a new run takes over from the run in its setting ``reuse``, and what they cost that; None if unknown.

    There are none without one, or if it has them already.

    Raises:
        InvalidUsage: the earlier run is missing, is not this user's, or has no reply to a question of this one.
    """
    run_id = plan.settings["reuse"]
    if run_id is None or _has_taken(journal):
        return (), 0.0
    if journal is None or not isinstance(plan.tasks[0], RowTask) or not isinstance(plan.strategy, Maker):
        raise InvalidUsage("--reuse is for the rows of a table, by votes of maker, with a journal; leave it out")
    with reader_of(journal.parent, run_id) as reader:
        found = _paid_samples(reader, plan)
    shared, samples, costs = SharedQuestions(plan.tasks), list[RecordSample](), list[float | None]()
    for number, step in _steps(plan):
        shared.note(number)
        if may_share(plan) and shared.first_of(number) is not None:
            continue
        for each in _needed(step, found.get(_key(step.question, plan), ())):
            costs.append(each.cost_usd)
            free = structs.replace(each, cost_usd=0.0)
            samples.append(RecordSample(id=SampleId(election=step.election, seq=each.seq), ballot=free))
    if not samples:
        raise InvalidUsage(
            f"run {run_id!r} has no reply to a question of this run: none has the same prompt, form of reply, sampling and model; "
            "nothing was started; leave out --reuse"
        )
    return samples, total_usd(costs)


def _has_taken(journal: Path | None) -> bool:
    if journal is None or holds_nothing(journal):
        return False
    with Reader(journal) as reader:
        return reader.account().reused > 0


def _paid_samples(reader: Reader, plan: RunPlan) -> dict[bytes, Samples]:
    """Return the samples of each question of an earlier run, in launch order."""
    run_id, recipe = reader.experiment.run_id, reader.experiment.recipe
    if not reader.is_known:
        raise InvalidUsage(
            f"you did not begin run {run_id!r} here, and its replies would be votes; if you trust it: microagents show {run_id} "
            "--trust-journal"
        )
    if (recipe.task, recipe.strategy) != (reference_to(type(plan.tasks[0])), reference_to(type(plan.strategy))):
        raise InvalidUsage(f"run {run_id!r} does {recipe.task} by {recipe.strategy}, and another task asks otherwise")
    samples = {number: each for number, each in _recorded(reader) if each}
    earlier, found = plan_of(reader), dict[bytes, Samples]()
    for number, step in _steps(earlier, sorted(samples)):
        if len({*step.question.models}) == 1:  # in a pool the samples of another row take turns otherwise
            found.setdefault(_key(step.question, earlier), samples[number])
    return found


def _recorded(reader: Reader) -> Iterator[tuple[int, Samples]]:
    for path, decision in reader.decisions():
        if (row := ELECTION_OF_ROW.fullmatch(path)) is not None:
            mean_usd = None
            if decision.cost_usd is not None and decision.ballots:
                mean_usd = decision.cost_usd / len(decision.ballots)
            yield int(row[1]), [structs.replace(each, cost_usd=mean_usd) for each in _own(decision.ballots)]
    for election in reader.open_elections():
        if (row := ELECTION_OF_ROW.fullmatch(election.id.path)) is not None:
            yield int(row[1]), _own(election.ballots)


def _own(ballots: Samples) -> Samples:
    """Return the first samples up to one that is missing, or that a fallback gave; without their masses."""
    taken = takewhile(lambda each: each[0] == each[1].seq and not each[1].facts.fallback, enumerate(ballots))
    return [structs.replace(each, facts=structs.replace(each.facts, mass=None)) for _, each in taken]


def _steps(plan: RunPlan, numbers: Sequence[int] | None = None) -> Iterator[tuple[int, ChainStep]]:
    """Yield the question of each row that can be asked."""
    conductor = MakerConductor(plan.context(), Replay(plan, lambda _: None, is_changed=False))
    for number in range(len(plan.tasks)) if numbers is None else numbers:
        try:
            chain = conductor.chain(Work(conductor, number, recalls=False))
            yield number, chain.step(0, chain.start())
        except MicroagentsError:  # the row fails by itself, in the words of its own error
            continue


def _key(question: Question, plan: RunPlan) -> bytes:
    """Return a digest of all that a sample depends on."""
    kind = type(plan.tasks[0])
    state = question.state if flags_by_state(kind) or verifies(kind) else b""
    models = tuple(map(_served, question.models))
    asked = structs.replace(question, models=models, rule=FirstValid(), max_draws=1, state=state)
    return asked.id_at("").question_digest


def _served(spec: str) -> str:
    """Return a spec without the options of its address."""
    options = ModelSpec.parse(spec).options
    kept = [f"{name}={value}" for name, value in sorted(options.items()) if name not in OF_THE_ADDRESS]
    return "@".join([without_options(spec), ",".join(kept)])


def _needed(step: ChainStep, samples: Samples) -> Samples:
    """Return the samples that the election of a row needs, at most."""
    count, needed = Count(step.election, step.question), list[AnyBallot]()
    for each in samples:
        if count.is_over:
            break
        count.add(each)
        needed.append(each)
    return needed
