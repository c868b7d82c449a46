"""The trained models: they read the prompt's text and nothing else, draw from a law that can be enumerated, and break nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from math import exp, sqrt
from pathlib import Path
from shutil import copytree
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec import structs

from microagents import run_sync
from microagents.actors.role import Context
from microagents.base.errors import InvalidUsage
from microagents.cli.options import complete_model
from microagents.models.model import Call, open_model
from microagents.models.tiny import trained
from microagents.models.tiny.trained import Card, TinyModel, weights_of
from microagents.models.tiny.transformer import log_softmax
from microagents.models.tiny.vocabulary import CHECKERS, HANOI, STOP, SUM, VOCABULARIES
from microagents.replies.chat import Prompt, Sampling
from microagents.replies.reply_forms import write
from microagents.replies.rollouts import rollout_of
from microagents.runs.doctor import examine
from microagents.systems import Maker
from microagents.task import ChainTask
from microagents.tasks.checkers import Checkers, CheckersStep
from microagents.tasks.hanoi import Hanoi, HanoiStep
from tests.benchmarks.tiny import reply_tokens
from tests.models.simulation import call, read, replies

TOWERS = Hanoi(disks=10)
ADDED = Prompt(system="Add the two numbers.", user="2400 and -850")
SIZED: dict[str, Any] = {"disks": Hanoi, "n": Checkers}
"""Tasks by the option that is their size."""


def states(task: ChainTask[Any, Any]) -> Iterator[tuple[Prompt, str]]:
    """The states of the right way: prompt, and right reply."""
    state = task.start()
    while not task.done(state):
        right = task.oracle(state)
        assert right is not None
        yield task.prompt(state), write(right)
        state = task.advance(state, right)


HARDEST = [prompt for prompt, _ in states(TOWERS)][::40]


def warm(prompt: Prompt, seq: int = 1, **other: Any) -> Call:
    return call(seq, prompt=prompt, reply=HanoiStep, temperature=1.0, **other)


# -- what it reads and writes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "prompt", "reply"),
    [
        *[(HANOI, *pair) for pair in states(Hanoi(disks=2))],
        *[(CHECKERS, *pair) for pair in states(Checkers(n=2))],
        (SUM, ADDED, "total = 1550"),
        (SUM, Prompt(user="-12 and 3"), "total = -9"),
    ],
)
def test_the_tokens_of_a_reply_are_its_text(words: Any, prompt: Prompt, reply: str) -> None:
    assert len(words.read(prompt)) <= words.prompt_slots + 1
    assert reply_tokens(words, reply)[-1] == STOP


@pytest.mark.parametrize(
    "user",
    [
        "",
        "Previous move: none\nState: [[eleven, two, one], [], []]",
        "Previous move: none\nState: [[2, 1], [], []]\nMoves left: 3",
    ],
)
async def test_what_it_was_not_trained_to_read_gets_a_reply_without_a_form(user: str) -> None:
    model = TinyModel("hanoi")
    sample = await model.complete(warm(Prompt(system=TOWERS.system, user=user)))
    assert read(sample, HanoiStep, TOWERS) is None
    assert sample.usage.cost_usd == 0
    await model.close()


async def test_a_model_of_checkers_reads_rollouts_of_three_steps() -> None:
    task, kind = Checkers(n=3), rollout_of(CheckersStep, 3)
    for horizon, count in ((3, 3), (4, None)):
        asked = call(1, prompt=task.rollout_prompt(task.start(), horizon), reply=kind, temperature=0.0)
        found: Any = read(await TinyModel("checkers").complete(asked), kind, task)
        assert (found and len(found.steps)) == count


async def test_a_cut_reply_says_so() -> None:
    sample = await TinyModel("hanoi").complete(warm(HARDEST[0], cap=4))
    assert (sample.finish, sample.usage.output_tokens) == ("length", 4)


@pytest.mark.parametrize(
    ("spec", "task", "said"),
    [
        ("tiny:hanoi", Hanoi(disks=11), "it has no token 11; it was trained on towers of 1 to 10 disks"),
        ("tiny:checkers", Checkers(numbered=True), 'it has no token "R1"'),
        ("tiny:hanoy", TOWERS, "did you mean 'hanoi' or"),
        ("tiny:hanoi@temperature=hot", TOWERS, "one option, temperature, from 0 to 2, not temperature=hot"),
    ],
)
def test_what_it_cannot_do_is_refused_before_the_run(spec: str, task: Any, said: str) -> None:
    with pytest.raises(InvalidUsage, match=said):
        open_model(spec, Context(run_id="r", seed=0, tasks=[task], strategy=Maker()))


@pytest.mark.parametrize(
    ("file", "damage", "said"),
    [
        ("hanoi.safetensors", lambda data: data[:-1] + b"?", "are damaged"),
        ("hanoi.json", lambda data: data[:100], "cannot be read"),
    ],
)
def test_damaged_weights_are_refused(
    file: str, damage: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree(trained.WEIGHTS, tmp_path / "weights")
    monkeypatch.setattr(trained, "WEIGHTS", tmp_path / "weights")
    path = tmp_path / "weights" / file
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidUsage, match=f"the weights of tiny:hanoi {said}.*; install the package again"):
        weights_of.__wrapped__("hanoi")


# -- its law -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_draws_side_by_side_are_the_draws_one_at_a_time() -> None:
    calls = [warm(prompt, seq) for prompt in HARDEST for seq in range(4)]
    model, words = TinyModel("hanoi-weak"), HANOI
    together = await asyncio.gather(*[model.draw(each, words.read(each.prompt)) for each in calls])
    again = TinyModel("hanoi-weak")
    for each, drawn in zip(calls, together, strict=True):
        alone = await again.draw(each, words.read(each.prompt))
        assert alone.tokens == drawn.tokens
        assert np.allclose(alone.logprobs, drawn.logprobs, rtol=0, atol=1e-9)
        assert alone.logprobs == alone.logprobs_at_1
    assert len({tuple(drawn.tokens) for drawn in together}) > len(HARDEST)
    other = TinyModel("hanoi-weak", seed=1)
    assert [(await other.draw(each, words.read(each.prompt))).tokens for each in calls] != [
        drawn.tokens for drawn in together
    ]


async def test_a_draw_that_is_given_up_holds_up_no_other() -> None:
    model = TinyModel("hanoi")
    one, two = (asyncio.ensure_future(model.complete(warm(HARDEST[0], seq))) for seq in range(2))
    await asyncio.sleep(0)
    one.cancel()
    assert (await two).text.startswith("move = [")
    assert one.cancelled()
    three = asyncio.ensure_future(model.complete(warm(HARDEST[0], 2)))
    await asyncio.sleep(0)
    await model.close()
    with pytest.raises(asyncio.CancelledError):
        await three


@pytest.mark.slow
def test_masses_are_the_frequencies_of_replies_and_add_up_to_1_at_most() -> None:
    temperature, n = 0.5, 400
    model = TinyModel("hanoi-weak", temperature=temperature)
    step = max(model.card.mostly_wrong["disks 10"])
    prompt, right = list(states(TOWERS))[step]
    law = model.law(prompt, temperature)
    assert 0.9 < sum(law.values()) <= 1 + 1e-9
    drawn = [each.text for each in replies(model, [warm(prompt, seq) for seq in range(n)])]
    for text, mass in list(law.items())[:3]:
        assert abs(drawn.count(text) - n * mass) <= 5 * sqrt(n * mass * (1 - mass)) + 1
    assert next(iter(law)) != right
    (cold,) = replies(TinyModel("hanoi-weak", temperature=0.0), [warm(prompt)])
    assert cold.text in law


# -- the shipped models ------------------------------------------------------------------------------------------------


class Warm(Hanoi):
    sampling: ClassVar[Sampling] = Sampling(first_temperature=1.0, temperature=1.0)


@pytest.mark.slow
def test_runs_of_trained_models_are_right_and_free() -> None:
    for models, task in (
        ("tiny:hanoi", Warm(disks=5)),
        (["tiny:hanoi", "tiny:hanoi-b"], Warm(disks=4)),
        ("tiny:checkers", Checkers(n=3)),
    ):
        result = run_sync(task, models=models, k=3, runs_dir=None)
        assert result.value is not None
        assert (result.value["solved"], result.account.errors, result.account.cost_usd) == (True, 0, 0)


def test_sums_adds_up_the_list_of_the_first_example() -> None:
    model = TinyModel("sums", temperature=0.0)
    assert [each.text for each in replies(model, [warm(ADDED)])] == ["total = 1550"]


async def test_the_doctor_and_the_shell_know_them(tmp_path: Path) -> None:
    found = await examine([f"tiny:{name}" for name in VOCABULARIES], tmp_path)
    assert [each.said for each in found if each.subject.startswith("tiny:")] == ["works without a key"] * 5
    assert {"tiny:hanoi-b", "tiny:hanoi-weak"} <= {*complete_model()}


def test_the_weights_are_small() -> None:
    assert sum(path.stat().st_size for path in trained.WEIGHTS.iterdir()) < 3e6


def log_probability(model: TinyModel, prompt: Prompt, text: str) -> float:
    """The logarithm of the probability of a reply and of the stop behind it, at temperature 1."""
    memory, logits = model._read([tuple(model.vocabulary.read(prompt))])
    reply = reply_tokens(model.vocabulary, text)
    rest = model._network.logits(np.array([reply[:-1]]), model.vocabulary.prompt_slots + 1, memory)
    found = log_softmax(np.concatenate([logits[:, None], rest], axis=1)[0])
    return float(sum(found[place, token] for place, token in enumerate(reply)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hanoi-weak", "checkers"])
def test_the_card_says_how_often_it_errs(name: str) -> None:
    model = TinyModel(name)
    card: Card = model.card
    for label, (mean, low, high) in card.wrong.items():
        option, size = label.split()
        pairs = list(states(SIZED[option](**{option: int(size)})))
        wrong = [1 - exp(log_probability(model, prompt, right)) for prompt, right in pairs]
        assert low <= float(np.mean(wrong)) <= high
        assert np.mean(wrong) == pytest.approx(mean, rel=0.01, abs=1e-4)
        for at, (prompt, right) in enumerate(pairs):
            if at in card.mostly_wrong[label] or wrong[at] > 0.5:
                assert (at in card.mostly_wrong[label]) == (next(iter(model.law(prompt))) != right)
    assert any(card.mostly_wrong.values())


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "law"), [(0.0, "model"), (0.5, "draw")])
async def test_the_mass_of_a_reply_is_its_share_of_the_law_and_its_branch_that_of_the_likeliest_other(
    temperature: float, law: str
) -> None:
    model = TinyModel("hanoi-weak")
    for seq, prompt in enumerate(HARDEST[:8]):
        asked = structs.replace(warm(prompt, seq), temperature=temperature, needs_mass=True)
        sample = await model.complete(asked)
        shares = model.law(prompt, temperature or 1.0, least=1e-4)
        assert sample.mass is not None
        assert sample.mass.law == law
        assert exp(sample.mass.log) == pytest.approx(shares[sample.text], abs=1e-6)
        others = [p for text, p in shares.items() if text != sample.text]
        assert exp(sample.mass.branch or 0) >= max(others, default=0) - 1e-9
        assert (await model.complete(structs.replace(asked, max_output_tokens=3))).mass is None  # cut off
        assert (await model.complete(structs.replace(asked, needs_mass=False))).mass is None
    await model.close()
