"""Documents whose sections must agree: what an author sees it repeats, the rest it invents, and validators see contradictions."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from microagents import Strategy, run
from microagents.replies.data_prompts import prompt_of
from microagents.systems.documents import (
    Part,
    Ranking,
    Segment,
    Text,
    ToRank,
    ToSplit,
    ToValidate,
    ToWrite,
    Version,
    WorkedDocument,
)
from microagents.systems.documents.seqcv import SeqCV
from microagents.systems.documents.subtask_baselines import Parallel, Sequential
from microagents.systems.documents.subtasks import fault_of
from tests.papers.consistency import Consistency

OWN = "Section 2: the unit of section 2 is u7"
OPEN = "Section 2: the limit of section 1 is ?"
SUBTASK = f"Write these lines:\n{OWN}\n{OPEN}"
FIXED = "Section 1: the limit of section 1 is 417"
USED = "Section 2: the limit of section 1 is 417"
TASK = Consistency()
MODELS = ["sim:perfect", "sim:perfect@error=0.1", "sim:perfect@error=0.2"]
seeds = st.integers(0, 10**6)


def to_write(finished: str = FIXED, subtask: str = SUBTASK, written: str = "") -> ToWrite:
    return ToWrite(objective="", finished=finished, subtask=subtask, written=written, round=1, rounds=10)


def to_validate(
    segment: str, finished: str = FIXED, written: str = "", status: str = "complete", mode: str = "continue"
) -> ToValidate:
    return ToValidate(
        objective="", finished=finished, subtask=SUBTASK, written=written, segment=segment, status=status, mode=mode
    )


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("Section")]


def sequentially(task: WorkedDocument) -> str:
    """What an expert makes of the document who sees all finished text."""
    finished: list[str] = []
    for part in task.subtasks():
        finished.append(task.expert_segment(to_write("\n\n".join(finished), part.objective)).text)
    return "\n\n".join(finished) + "\n"


async def written(task: Consistency, strategy: Strategy) -> str:
    models = MODELS if isinstance(strategy, SeqCV) else MODELS[0]
    result = await run(task, models=models, strategy=strategy, runs_dir=None)
    text = result.value["answer"]["text"]
    assert result.value["correct"] is result.value["checks"]["consistent"] is task.correct(Text(text=text))
    return str(text)


# -- the document ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (lambda text: text, 0),
        (lambda text: text.partition("\n")[2], 1),
        (lambda text: text + text.partition("\n")[0], 1),
        (lambda text: text + "Section 9: the limit of section 9 is 1\n", 1),
        (lambda _: "", sum(len(section.lines) for section in TASK.plan)),
    ],
    ids=["nothing", "a line lost", "a line twice", "a line of no section", "no text"],
)
def test_lines_that_are_lost_repeated_or_not_asked_for_are_faults(change: object, faults: int) -> None:
    assert callable(change)
    text = change(sequentially(TASK))
    assert TASK.contradictions(text) == faults
    assert TASK.checks(text) == {"consistent": not faults}


def test_a_wrong_value_that_later_sections_repeat_is_one_fault_and_else_one_for_each() -> None:
    text = sequentially(TASK)
    line = next(
        str(line)
        for section in TASK.plan
        for line in section.lines
        if line.fixes and text.count(f" is {line.value}\n") > 1
    )
    value = line.rpartition(" ")[2]
    assert TASK.contradictions(text.replace(f" is {value}\n", " is 1\n")) == 1
    assert TASK.contradictions(text.replace(line, line.replace(value, "1"))) == text.count(f" is {value}\n")


# -- authors -----------------------------------------------------------------------------------------------------------


@given(seeds)
def test_a_mistaken_segment_has_one_other_value_and_no_validator_lets_it_pass(seed: int) -> None:
    right = TASK.expert_segment(to_write())
    wrong = TASK.mistaken_segment(to_write(), right, Random(seed))
    assert sum(one != other for one, other in zip(lines(right.text), lines(wrong.text), strict=True)) == 1
    assert not TASK.expert_validation(to_validate(wrong.text)).passes


# -- validators, splitters and rankers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "passes"),
    [
        (to_validate(f"{OWN}\n{USED}"), True),
        (to_validate(f"{OWN}\n{USED.replace('417', '9')}"), False),
        (to_validate(USED), False),
        (to_validate(USED, status="ongoing"), True),
        (to_validate(USED, written=OWN), True),
        (to_validate(USED, written=OWN, mode="override"), False),
        (to_validate(f"{OWN}\n{USED}\n{USED.replace('417', '9')}", finished=""), False),
        (to_validate(f"Here it is:\n{OWN}\n{USED}"), False),
    ],
    ids=[
        "right",
        "against the finished text",
        "incomplete",
        "a part of it",
        "the rest of it",
        "an override by a part",
        "against itself",
        "idle text",
    ],
)
def test_a_validator_objects_to_what_it_can_see(asked: ToValidate, *, passes: bool) -> None:
    validation = TASK.expert_validation(asked)
    assert validation.passes is passes, validation.reason


@given(st.integers(0, 50))
def test_a_split_divides_the_terms_until_single_ones_are_left(instance: int) -> None:
    task = Consistency(instance=instance)

    def leaves(objective: str, above: Sequence[str]) -> list[str]:
        parts = task.expert_parts(ToSplit(objective="", finished="", subtask=objective, max_subtasks=8)).subtasks
        if len(lines(objective)) == 1:
            assert fault_of(parts, [*above, objective], 8) is not None
            return lines(objective)
        assert fault_of(parts, [*above, objective], 8) is None
        assert max(len(lines(part.objective)) for part in parts) < len(lines(objective))
        return [line for part in parts for line in leaves(part.objective, [*above, objective])]

    part: Part
    for part in task.subtasks():
        assert leaves(part.objective, []) == lines(part.objective)


def test_a_ranker_prefers_the_version_that_agrees_with_the_finished_text() -> None:
    right, wrong = f"{OWN}\n{USED}", f"{OWN}\n{USED.replace('417', '9')}"
    versions = (Version(label="A", text=wrong), Version(label="B", text=right), Version(label="C", text=OWN))
    asked = ToRank(objective="", finished=FIXED, subtask=SUBTASK, versions=versions)
    ranking = TASK.expert(prompt_of("", asked), Ranking)
    assert isinstance(ranking, Ranking)
    assert ranking.best == "B"
    other = TASK.expert(prompt_of("", structs.replace(asked, finished=FIXED.replace("417", "9"))), Ranking)
    assert isinstance(other, Ranking)
    assert other.best == "A"


# -- whole runs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Parallel(), Sequential(), SeqCV()], ids=repr)
async def test_without_errors_and_with_all_dependencies_every_strategy_is_consistent(strategy: Strategy) -> None:
    task = Consistency(undeclared=0, error=0, accuracy=1)
    assert task.contradictions(await written(task, strategy)) == 0


async def test_side_by_side_a_section_contradicts_those_that_it_does_not_declare_and_in_sequence_it_does_not() -> None:
    task = Consistency(error=0, accuracy=1)
    hidden = [
        line
        for section in task.plan
        for line in section.lines
        if not line.fixes and line.term.section not in section.parents
    ]
    assert 0 < task.contradictions(await written(task, Parallel())) <= len(hidden)
    assert task.contradictions(await written(task, Sequential())) == 0


@pytest.mark.slow
async def test_validation_and_splits_stop_the_errors_of_authors() -> None:
    task = Consistency(error=0.3, accuracy=0.95)
    assert task.contradictions(await written(task, Sequential())) > 1
    assert task.contradictions(await written(task, SeqCV())) == 0


def test_validators_err_as_often_as_the_task_says_or_else_as_their_models_do() -> None:
    prompt = prompt_of("", to_validate(USED))
    assert Consistency(accuracy=0.7).difficulty(prompt, Segment) == pytest.approx(0.3)
    assert Consistency(accuracy=None).difficulty(prompt, Segment) is None
