"""The simulated model: it reads the prompt and nothing else, its content follows from seed and sample id, and it errs at the given rates.

Every statistical test fixes its seed and allows five standard deviations; where the rates are as promised, it would fail for fewer than
one seed in 100,000.
"""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal
from hashlib import blake2b
from math import exp
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from microagents import run, run_sync
from microagents.actors.role import Context, Strategy
from microagents.base.errors import InvalidUsage, ModelUnavailable
from microagents.models.model import Call, open_model
from microagents.models.simulation import simulated
from microagents.replies.chat import Prompt, Sample
from microagents.replies.reply import Reply
from microagents.replies.reply_forms import Format
from microagents.systems import Aot, Maker
from microagents.task import Task
from microagents.tasks.drift import Place
from microagents.tasks.hanoi import Hanoi, HanoiStep, Towers
from microagents.tasks.word_problems import WordProblem
from tests.models.simulation import DRIFT, FLAG_ABOVE_TOKENS, NUMBER, RIGHT, call, is_rate, model, read, replies
from tests.papers.consistency import Consistency
from tests.papers.sorting import Sorting

CONTEXT = Context(run_id="r", seed=0, tasks=[DRIFT], strategy=Maker())
TOWERS = Hanoi(disks=6)


def one_prompt(n: int, *, temperature: float | None = None) -> list[Call]:
    return [call(seq, temperature=temperature) for seq in range(n)]


def error_count(spec: str, n: int, *, temperature: float | None = None, seed: int = 0) -> tuple[int, int]:
    """How many of the valid replies to n samples are wrong, and how many are valid."""
    read_replies = [read(sample) for sample in replies(model(spec, seed=seed), one_prompt(n, temperature=temperature))]
    valid = [reply for reply in read_replies if reply is not None]
    return sum(reply != RIGHT for reply in valid), len(valid)


# -- it reads the prompt and nothing else ------------------------------------------------------------------------------


def test_a_task_without_an_expert_is_refused_with_the_way_out() -> None:
    class Blank(Task):
        pass

    with pytest.raises(InvalidUsage, match=r"Blank has no `expert`.*--model openai:"):
        model("sim:perfect", Blank())


# -- content follows from seed and sample id ---------------------------------------------------------------------------

MIXED = [
    call(seq, prompt=DRIFT.prompt(Place(number=number)), path=f"0/step/{number}")
    for number in range(40)
    for seq in range(5)
]
ERRING = "sim:gpt-4.1-nano@flag=0.2"


@given(st.permutations(range(len(MIXED))))
@settings(max_examples=10)
def test_content_does_not_depend_on_the_order_of_the_calls(order: list[int]) -> None:
    in_order = replies(model(ERRING), MIXED)
    shuffled = replies(model(ERRING), [MIXED[at] for at in order])
    assert shuffled == [in_order[at] for at in order]


def test_asking_again_gives_the_same_reply_even_to_a_question_long_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "MAX_CACHED_QUESTIONS", 2)
    asked = model(ERRING)
    assert replies(asked, MIXED) == replies(asked, MIXED) == replies(asked, MIXED[::-1])[::-1]


def test_a_seed_gives_the_same_replies_in_every_process() -> None:
    texts = [sample.text for spec in (ERRING, "sim:gpt-4.1-mini@error=0.5") for sample in replies(model(spec), MIXED)]
    assert blake2b("\0".join(texts).encode(), digest_size=8).hexdigest() == "f087d91fa91e2aa6"


# -- rates -------------------------------------------------------------------------------------------------------------

N = 12_000


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "rate"), [(None, 0.0045), (0.1, 0.0022), (0.55, 0.00335)])
def test_gpt_4_1_mini_errs_as_the_paper_measured_at_each_temperature(temperature: float | None, rate: float) -> None:
    wrong, valid = error_count("sim:gpt-4.1-mini", N, temperature=temperature)
    assert is_rate(wrong, valid, rate)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "rate"),
    [("sim:gpt-4.1-nano", 0.3583), ("sim:gpt-4.1-mini@error=0.2", 0.2)],
)
def test_every_profile_errs_at_its_rate_and_a_given_rate_holds_at_every_temperature(spec: str, rate: float) -> None:
    for temperature in (0.1, None) if "error" in spec else (0.1,):
        wrong, valid = error_count(spec, N // 2, temperature=temperature)
        assert is_rate(wrong, valid, rate)


@pytest.mark.slow
def test_the_flag_share_is_what_the_real_screen_discards() -> None:
    prompt = TOWERS.prompt(TOWERS.start())
    calls = [call(seq, prompt=prompt, reply=HanoiStep) for seq in range(6_000)]
    samples = replies(model("sim:perfect@flag=0.2", TOWERS), calls)
    flags = [read(sample, HanoiStep, TOWERS) is None for sample in samples]
    long = [sample.usage.output_tokens for sample in samples if (sample.usage.output_tokens or 0) > FLAG_ABOVE_TOKENS]
    assert is_rate(sum(flags), len(flags), 0.2)
    assert is_rate(len(long), len(flags), 0.1), "half of them ramble"


# -- broken formats ----------------------------------------------------------------------------------------------------


class Sums(Reply, frozen=True):
    """Numbers and lists."""

    total: int
    parts: list[list[int]]
    share: float | None


class Entry(Reply, frozen=True):
    """Words and amounts."""

    account: str
    balance: Decimal
    paid: bool
    parts: list[str]


class Json(Task):
    """Answered by one JSON object; its expert answers with what its prompt holds."""

    format: ClassVar[Format] = "json"

    def expert(self, prompt: Prompt, reply: type[Reply]) -> Reply:
        return msgspec.json.decode(prompt.user, type=reply)


class Lines(Json):
    """The same as lines."""

    format: ClassVar[Format] = "lines"


def broken(task: Task, right: Reply, prompt: Prompt, *, error: float = 0.0) -> list[Sample]:
    """Replies to one question that all break the format, or try to; those that ramble are left out."""
    asked = model(f"sim:perfect@flag=1,alternatives=1,error={error}", task)
    samples = replies(asked, [call(seq, prompt=prompt, reply=type(right)) for seq in range(300)])
    return [sample for sample in samples if (sample.usage.output_tokens or 0) <= FLAG_ABOVE_TOKENS]


def wrong_readings(task: Task, right: Reply, prompt: Prompt) -> list[Reply]:
    read_replies = [read(sample, type(right), task) for sample in broken(task, right, prompt)]
    return [reply for reply in read_replies if reply is not None and reply.vote() != right.vote()]


def as_prompt(right: Reply) -> Prompt:
    return Prompt(user=msgspec.json.encode(right).decode())


@pytest.mark.parametrize("disks", [2, 12])
def test_every_broken_reply_to_hanoi_is_flagged(disks: int) -> None:
    task = Hanoi(disks=disks)
    state: Towers = task.start()
    for _ in range(min(task.steps(), 6)):
        right = task.oracle(state)
        samples = broken(task, right, task.prompt(state))
        assert [read(sample, HanoiStep, task) for sample in samples] == [None] * len(samples)
        state = task.advance(state, right)


numbers = st.integers(-(10**20), 10**20)
sums = st.builds(
    Sums,
    total=numbers,
    parts=st.lists(st.lists(numbers, max_size=3), max_size=3),
    share=st.none() | st.floats(-1e6, 1e6),
)
words = st.text("abc xyz,.:'", max_size=12)
entries = st.builds(
    Entry,
    account=words,
    balance=st.decimals(-(10**4), 10**4, places=2),
    paid=st.booleans(),
    parts=st.lists(words, max_size=3),
)


@pytest.mark.slow
@pytest.mark.parametrize("task", [Json(), Lines()], ids=["json", "lines"])
@given(right=sums | entries)
@settings(max_examples=20)
def test_no_broken_reply_is_read_as_a_wrong_one(task: Task, right: Reply) -> None:
    assert wrong_readings(task, right, as_prompt(right)) == []


# -- tokens and costs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "price_in", "price_out"),
    [("sim:gpt-4.1-nano@price_in=3,price_out=7,flag=0.3", 3, 7), ("sim:gpt-4.1-mini", 0.4, 1.6)],
)
def test_a_reply_costs_what_its_tokens_cost(spec: str, price_in: float, price_out: float) -> None:
    for sample in replies(model(spec), one_prompt(300)):
        usage = sample.usage
        assert usage.input_tokens == (len(NUMBER.system) + len(NUMBER.user)) // 4
        assert usage.output_tokens == len(sample.text) // 4
        assert usage.cost_usd == pytest.approx((price_in * usage.input_tokens + price_out * usage.output_tokens) / 1e6)


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            "sim:gpt-4.1-mni",
            r"'sim:gpt-4.1-mni'; did you mean 'sim:gpt-4.1-mini' or 'sim:gpt-4.1-nano'\? known: sim:gpt-4.1-nano",
        ),
        ("sim:perfect@eror=0.1", r"option of a simulated model called 'eror'; did you mean 'error'\? known: error"),
        ("sim:perfect@error=often", "error must be a valid number, .*not 'often'"),
        ("sim:perfect@error=1.01", "must be less than or equal to 1, not '1.01'"),
        ("sim:perfect@error=nan", "must be less than or equal to 1, not 'nan'"),
        ("sim:perfect@alternatives=0", "must be greater than or equal to 1"),
        ("sim:perfect@alternatives=1.5", "must be a valid integer"),
        ("sim:perfect@latency=1e400", "must be less than or equal to 86400"),
        ("sim:perfect@sigma=1e308,latency=1e-300", ""),
        ("sim:perfect@price_out=1e308", ""),
    ],
)
def test_an_option_that_is_unknown_or_out_of_range_is_refused(spec: str, why: str) -> None:
    with pytest.raises(InvalidUsage, match=why or None):
        model(spec)


# -- the scripted model ------------------------------------------------------------------------------------------------


def scripted(folder: Path, *lines: dict[str, object]) -> str:
    script = folder / "script.jsonl"
    script.write_bytes(b"\n".join(map(msgspec.json.encode, lines)))
    return f"scripted:{script}"


def line(step: int, seq: int, number: int, **more: object) -> dict[str, object]:
    return {"path": f"0/step/{step}", "seq": seq, "text": f"number = {number}", **more}


def test_a_script_is_replayed_by_place_and_sample_whatever_the_order_of_its_lines(tmp_path: Path) -> None:
    spec = scripted(tmp_path, line(1, 0, 7), line(0, 1, 6, finish="length", output_tokens=9), line(0, 0, 5))
    first, cut, other = replies(open_model(spec, CONTEXT), [call(0), call(1), call(0, path="0/step/1")])
    assert (first.text, first.finish, first.usage.output_tokens, first.usage.cost_usd) == (
        "number = 5",
        "stop",
        None,
        None,
    )
    assert (cut.text, cut.finish, cut.usage.output_tokens) == ("number = 6", "length", 9)
    assert other.text == "number = 7"
    assert first.model == spec


def test_a_sample_that_the_script_does_not_have_is_refused_for_good(tmp_path: Path) -> None:
    asked = open_model(scripted(tmp_path, line(0, 0, 5)), CONTEXT)
    with pytest.raises(ModelUnavailable, match=r"no reply for sample 3 of 0/step/0") as refused:
        replies(asked, [call(3)])
    assert not refused.value.retryable


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"path": "0/step/0", "seq": "0", "text": ""}',
        None,
    ],
)
def test_a_script_that_cannot_be_read_is_refused(content: str | None, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    if content is not None:
        script.write_text(content, encoding="utf-8")
    with pytest.raises(InvalidUsage, match=re.escape(str(script))):
        open_model(f"scripted:{script}", CONTEXT)


@pytest.mark.parametrize(
    ("task", "strategy"),
    [
        (WordProblem(), "swarm"),
        (Sorting(), "aot+tree"),
        (Sorting(), "tot"),
        (Consistency(), "maker"),
        (Consistency(), Aot(transitions=0)),
    ],
    ids=str,
)
def test_a_strategy_whose_questions_the_expert_does_not_know_is_refused_before_the_run(
    task: Task, strategy: str | Strategy, tmp_path: Path
) -> None:
    name = re.escape(strategy) if isinstance(strategy, str) else type(strategy).__name__.lower()
    with pytest.raises(InvalidUsage, match=rf"cannot do the strategy {name} for .*; name a real model"):
        run_sync(task, models="sim:perfect", strategy=strategy, runs_dir=tmp_path)
    assert [*tmp_path.iterdir()] == []


async def test_an_expert_may_answer_for_one_role_only() -> None:
    async def subquestions(_: Call) -> str:
        return '{"nodes": [{"question": "What is it?", "answer": "sorted", "needs": []}]}'

    models: Any = {"": "sim:perfect", "decomposer": subquestions}
    assert (await run(Sorting(n=4), models=models, strategy="aot", runs_dir=None)).outcome == "completed"


def test_the_mass_of_an_answer_is_its_share_of_the_draws() -> None:
    asked = model("sim:perfect@error=0.3,alternatives=2,flag=0.2")
    drawn = replies(asked, [structs.replace(call(seq), needs_mass=True) for seq in range(600)])
    told = {each.mass.text: exp(each.mass.log) for each in drawn if each.mass is not None}
    seen = Counter(each.mass.text for each in drawn if each.mass is not None)
    assert sorted(told.values()) == pytest.approx([0.12, 0.12, 0.56])
    assert all(is_rate(seen[text], len(drawn), p) for text, p in told.items())
