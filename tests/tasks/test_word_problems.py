"""Word problems: a known graph, an expert that reads the text alone, mistakes that change the answer, errors that grow with the steps."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from microagents.replies.data_prompts import prompt_of
from microagents.replies.reply import Reply
from microagents.replies.trajectories import trajectory_of
from microagents.systems.questions.aot import to_contract
from microagents.systems.questions.problem import answer_type
from microagents.systems.questions.questions import Contraction, Subquestions, ToSolve, ToTrace
from microagents.tasks.word_problems import Story, Total, WordProblem

Way = trajectory_of(Total)
TASKS = [WordProblem(instance=instance) for instance in range(60)]


def expert(task: WordProblem, asked: Any, reply: type[Reply]) -> Any:
    return task.expert(prompt_of("", asked), reply)


def graph_of(task: WordProblem, question: str) -> Subquestions:
    graph = expert(task, ToTrace(problem=question, reasoning=""), Subquestions)
    assert isinstance(graph, Subquestions)
    assert graph.flaw() is None
    return graph


@pytest.mark.parametrize("depth", [1, 2, 4, 7])
def test_the_depth_is_the_longest_path_of_the_graph(depth: int) -> None:
    for instance in range(20):
        task = WordProblem(depth=depth, instance=instance)
        assert graph_of(task, task.statement()).longest_path == depth


@pytest.mark.parametrize("task", TASKS[:6])
def test_each_contraction_keeps_the_answer_and_takes_a_layer_away(task: WordProblem) -> None:
    question = task.statement()
    depth = graph_of(task, question).longest_path
    while depth > 1:
        graph = graph_of(task, question)
        question = expert(task, to_contract(question, graph, guided=True), Contraction).question
        assert task.correct(expert(task, ToSolve(problem=question), Total))
        depth -= 1
        assert graph_of(task, question).longest_path == depth


@pytest.mark.parametrize("task", TASKS[:6])
def test_a_mistake_changes_the_answer(task: WordProblem) -> None:
    question = task.statement()
    contract = to_contract(question, graph_of(task, question), guided=True)
    for seed in range(20):
        way = task.mistake(
            prompt_of("", ToSolve(problem=question)), expert(task, ToSolve(problem=question), Way), Random(seed)
        )
        assert isinstance(way, Way)
        assert not task.correct(way.answer)
        right = expert(task, contract, Contraction)
        contracted = task.mistake(prompt_of("", contract), right, Random(seed))
        assert isinstance(contracted, Contraction)
        assert not task.correct(expert(task, ToSolve(problem=contracted.question), Total))


def test_a_story_is_read_as_it_was_told() -> None:
    for task in TASKS:
        assert Story.read(task.statement()).text().split()[-3:] == task.statement().split()[-3:]
        assert sorted(map(repr, Story.read(task.statement()).facts)) == sorted(map(repr, task.story.facts))
    assert answer_type(WordProblem) is Total
