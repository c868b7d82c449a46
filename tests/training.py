"""Train the models of microagents/models/tiny again: `pip install -e '.[train]'`, then `python -m tests.training tiny:hanoi`.

Data are the task's own prompts, and its expert's replies to them; seeds are fixed. Training ends when one sample at temperature 1 errs as
rarely as the recipe says. Beside the weights stands a card: what was trained on, how long, and how often the model errs, by enumeration.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from random import Random

import msgspec
import numpy as np
import torch
from msgspec import Struct, structs
from safetensors.numpy import save
from torch.nn import functional

from microagents.models.tiny.trained import WEIGHTS, Card, TinyModel, weights_of
from microagents.models.tiny.vocabulary import CHECKERS, HANOI, SUM, Vocabulary
from microagents.replies.chat import Prompt
from microagents.replies.reply_forms import write
from microagents.replies.rollouts import rollout_of
from microagents.task import ChainTask, chain_types
from microagents.tasks.checkers import Checkers
from microagents.tasks.hanoi import Hanoi
from tests.benchmarks.tiny import reply_tokens, states

BATCH = 64
RATE = 2e-3
WARM_UPDATES = 100
AVERAGED = 0.98
"""Share of the averaged weights that an update leaves."""
LOOK_UPDATES = 50
MAX_UPDATES = 20_000
EASY = 0.02
"""Share of a state in which the model is never wrong, beside that of one in which it always is."""
SELDOM = 9
TESTED = 2000
SUMS_OF_A_SIZE = 20_000

Parts = dict[str, torch.Tensor]


class Addition(Struct, frozen=True):
    """Sums of two numbers, as docs/examples/adding.py asks for them."""

    digits: int
    """Digits of the longer number, at most."""

    def pairs(self) -> Iterator[tuple[Prompt, str]]:
        """Random sums, the same every time; the first `TESTED` are not trained on."""
        rng, most = Random(self.digits), 10**self.digits
        for _ in range(SUMS_OF_A_SIZE):
            first, second = (rng.randrange(1 - most, most) for _ in range(2))
            yield Prompt(system="Add the two numbers.", user=f"{first} and {second}"), f"total = {first + second}"


class Recipe(Struct, frozen=True, kw_only=True):
    """How one model is trained."""

    vocabulary: Vocabulary
    trained_on: str
    tasks: tuple[ChainTask | Addition, ...]
    seed: int = 1
    width: int = 64
    layers: int = 3
    mean_wrong: float
    """Training ends when the mean error of one sample is at most this in every size,"""
    most_wrong: float = 1.0
    """and the greatest error in one state at most this."""
    least_wrong: float = 0.1
    """Share of ``mean_wrong`` that every size errs at least; else another seed is needed."""
    has_drill: bool = True
    """Whether states are shown the more often, the more often the model is wrong in them."""
    horizon: int = 0
    """Steps of the rollouts that are trained on beside single steps; 0 for none."""
    seldom: float = 1.0
    """Share of times that every `SELDOM`-th state is asked about, beside the others."""


_TOWERS = Recipe(
    vocabulary=HANOI,
    trained_on="towers of 1 to 10 disks, one step at a time, in the states of the right way",
    tasks=tuple(Hanoi(disks=disks) for disks in range(1, 11)),
    mean_wrong=0.017,
    most_wrong=0.15,
)
_STOPPED_EARLY = structs.replace(_TOWERS, mean_wrong=0.05, most_wrong=1.0, has_drill=False)
RECIPES = {
    "hanoi": _TOWERS,
    "hanoi-b": structs.replace(_TOWERS, seed=2),
    "hanoi-weak": structs.replace(_STOPPED_EARLY, seed=3),
    "checkers": structs.replace(
        _STOPPED_EARLY,
        vocabulary=CHECKERS,
        trained_on="Checkers Jumping with 1 to 8 checkers of a colour, without names, in the states of the right way, in single steps and "
        "in rollouts of 3; every ninth state is asked about a hundred times as seldom as the others",
        tasks=tuple(Checkers(n=n) for n in range(1, 9)),
        width=48,
        layers=2,
        mean_wrong=0.145,
        horizon=3,
        seldom=0.01,
    ),
    "sums": structs.replace(
        _STOPPED_EARLY,
        vocabulary=SUM,
        trained_on="sums of two numbers with up to four digits each",
        tasks=tuple(Addition(digits=digits) for digits in range(1, 5)),
        layers=2,
        mean_wrong=0.07,
        least_wrong=0.0,
    ),
}


def pairs(task: ChainTask | Addition) -> Iterator[tuple[Prompt, str]]:
    """Each state of the right way: its prompt, and the expert's reply; or random sums."""
    if isinstance(task, Addition):
        yield from task.pairs()
        return
    for state in states(task):
        reply = task.oracle(state)
        assert reply is not None
        yield task.prompt(state), write(reply)


def rollouts(task: ChainTask, horizon: int) -> Iterator[tuple[Prompt, str]]:
    """Each state of the right way: the prompt of a rollout, and the steps of the expert."""
    walk, kind = [*states(task)], rollout_of(chain_types(type(task))[1], horizon)
    steps = [task.oracle(state) for state in walk]
    for at, state in enumerate(walk):
        yield task.rollout_prompt(state, horizon), write(kind(steps=tuple(steps[at : at + horizon])))


class Data:
    """All pairs as tokens: prompts in their slots, the opening, and replies, each behind it."""

    def __init__(self, recipe: Recipe) -> None:
        words = recipe.vocabulary
        slots = words.prompt_slots
        self.sizes: list[int] = []
        self.tested: list[int] = []
        rows, shares = list[tuple[list[int], list[int]]](), list[float]()
        for size, task in enumerate(recipe.tasks):
            singles = list(pairs(task))
            tested = range(len(rows), len(rows) + min(len(singles), TESTED))
            self.tested += tested
            for kind in (
                singles,
                rollouts(task, recipe.horizon) if recipe.horizon and isinstance(task, ChainTask) else (),
            ):
                found = [(words.read(prompt), reply_tokens(words, reply)) for prompt, reply in kind]
                rows += found
                self.sizes += [size] * len(found)
                shares += [
                    len(found) ** -0.4 * (recipe.seldom if at % SELDOM == SELDOM - 2 else 1.0)
                    for at in range(len(found))
                ]
            if isinstance(task, Addition):
                shares[tested.start : tested.stop] = [0.0] * TESTED
        self.shares = torch.tensor(shares)
        self.ids = torch.zeros(len(rows), slots + words.reply_slots, dtype=torch.long)
        self.targets = torch.full((len(rows), words.reply_slots), -100)
        self.is_seen = torch.zeros(len(rows), slots + words.reply_slots, dtype=torch.bool)
        for row, (prompt, reply) in enumerate(rows):
            self.ids[row, : len(prompt) - 1] = torch.tensor(prompt[:-1])
            self.is_seen[row, : len(prompt) - 1] = True
            self.ids[row, slots : slots + len(reply)] = torch.tensor([1, *reply[:-1]])
            self.targets[row, : len(reply)] = torch.tensor(reply)
        self.is_seen[:, slots:] = True


def fresh_parts(recipe: Recipe) -> Parts:
    """Weights before the first update."""
    torch.manual_seed(recipe.seed)
    words, width = recipe.vocabulary, recipe.width
    tokens = len(words.tokens) + 2
    shapes = {"embed": (tokens, width), "place": (words.prompt_slots + words.reply_slots, width)}
    for layer in range(recipe.layers):
        shapes |= {f"{layer}.qkv": (width, 3 * width), f"{layer}.out": (width, width)}
        shapes |= {f"{layer}.up": (width, 4 * width), f"{layer}.down": (4 * width, width)}
    shapes["head"] = (width, tokens)
    scale = {"embed": 1.0, "place": 1.0}
    return {
        name: (torch.randn(shape) * scale.get(name, shape[0] ** -0.5)).requires_grad_()
        for name, shape in shapes.items()
    }


def logits(parts: Parts, recipe: Recipe, ids: torch.Tensor, is_seen: torch.Tensor) -> torch.Tensor:
    """Logits of the tokens of the replies, for many rows; the same network as `transformer.py` computes."""
    slots, width = recipe.vocabulary.prompt_slots, recipe.width
    rows, length = ids.shape
    mask = (torch.ones(length, length, dtype=torch.bool).tril() & is_seen[:, None, :])[:, None]
    mask = mask | torch.eye(length, dtype=torch.bool)  # padding sees itself, and nobody sees it
    x = parts["embed"][ids] + parts["place"][:length]
    for layer in range(recipe.layers):
        first = slots if layer == recipe.layers - 1 else 0
        q, k, v = (
            each.reshape(rows, length, 4, width // 4).transpose(1, 2)
            for each in (functional.rms_norm(x, (width,)) @ parts[f"{layer}.qkv"]).chunk(3, dim=-1)
        )
        seen = functional.scaled_dot_product_attention(q[:, :, first:], k, v, attn_mask=mask[:, :, first:])
        x = x[:, first:] + seen.transpose(1, 2).reshape(rows, length - first, width) @ parts[f"{layer}.out"]
        x = x + functional.relu(functional.rms_norm(x, (width,)) @ parts[f"{layer}.up"]) @ parts[f"{layer}.down"]
    return functional.rms_norm(x, (width,)) @ parts["head"]


def errors(parts: Parts, recipe: Recipe, data: Data) -> list[np.ndarray]:
    """Probability of a wrong reply in every tested state of each size, at temperature 1, with weights as they are written."""
    found, rounded = [], {key: each.half().float() for key, each in parts.items()}
    with torch.no_grad():
        for rows in torch.tensor(data.tested).split(256):
            given = logits(rounded, recipe, data.ids[rows], data.is_seen[rows])
            lost = functional.cross_entropy(given.transpose(1, 2), data.targets[rows], reduction="none")
            found.append(1 - torch.exp(-lost.sum(1)))
    wrong, sizes = np.asarray(torch.cat(found)), np.array(data.sizes)[data.tested]
    return [wrong[sizes == size] for size in range(len(recipe.tasks))]


def trained(recipe: Recipe, data: Data) -> tuple[Parts, int]:
    """Train until the recipe's error is reached; returns weights and the number of updates."""
    parts, shares = fresh_parts(recipe), data.shares.clone()
    averaged = {key: each.detach().clone() for key, each in parts.items()}
    optimizer = torch.optim.AdamW(parts.values(), lr=RATE, weight_decay=0.01)
    generator, began = torch.Generator().manual_seed(recipe.seed), time.time()
    for updates in range(1, MAX_UPDATES + 1):
        optimizer.param_groups[0]["lr"] = RATE * min(1, updates / WARM_UPDATES)
        rows = torch.multinomial(shares, BATCH, replacement=True, generator=generator)
        given = logits(parts, recipe, data.ids[rows], data.is_seen[rows])
        loss = functional.cross_entropy(given.transpose(1, 2), data.targets[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parts.values(), 1.0)
        optimizer.step()
        for key, each in averaged.items():
            each.lerp_(parts[key].detach(), 1 - AVERAGED)
        if updates % LOOK_UPDATES:
            continue
        wrong = errors(averaged, recipe, data)
        if recipe.has_drill:
            shares = data.shares * (EASY + torch.tensor(np.concatenate(wrong)))
        mean, most = max(map(np.mean, wrong)), max(map(np.max, wrong))
        print(f"{updates} updates, {time.time() - began:.0f} s: wrong {mean:.4f}, at most {most:.3f}", flush=True)
        if mean <= recipe.mean_wrong and most <= recipe.most_wrong:
            return averaged, updates
    raise SystemExit(f"not trained after {MAX_UPDATES} updates")


def train(name: str) -> None:
    """Train a model, and write its weights and its card."""
    recipe = RECIPES[name]
    data = Data(recipe)
    parts, updates = trained(recipe, data)
    weights = save({key: each.half().numpy() for key, each in parts.items()})
    (WEIGHTS / f"{name}.safetensors").write_bytes(weights)
    by_size = dict(zip(map(size_of, recipe.tasks), errors(parts, recipe, data), strict=True))
    low, high = recipe.least_wrong * recipe.mean_wrong, recipe.mean_wrong
    if min(each.mean() for each in by_size.values()) < low:
        raise SystemExit(f"{name} errs too rarely: take another seed")
    card = Card(
        sha256=sha256(weights).hexdigest(),
        trained_on=recipe.trained_on,
        seed=recipe.seed,
        updates=updates,
        batch=BATCH,
        wrong={label: (float(wrong.mean()), low, high) for label, wrong in by_size.items()},
        mostly_wrong={},
    )
    write_card(name, card)
    model, mostly = TinyModel(name), dict[str, list[int]]()
    for task, (label, wrong) in zip(recipe.tasks, by_size.items(), strict=True):
        tested = zip(islice(pairs(task), TESTED), wrong > 0.5, strict=True)  # else the right one is the likeliest
        mostly[label] = [
            at for at, ((prompt, right), may) in enumerate(tested) if may and next(iter(model.law(prompt))) != right
        ]
    write_card(name, structs.replace(card, mostly_wrong=mostly))


def write_card(name: str, card: Card) -> None:
    """Write a card beside the weights."""
    weights_of.cache_clear()
    (WEIGHTS / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(card), indent=1))


def size_of(task: ChainTask | Addition) -> str:
    """Name the size of a task by its option."""
    match task:
        case Hanoi():
            return f"disks {task.disks}"
        case Checkers():
            return f"n {task.n}"
        case Addition() | _:
            return f"digits {getattr(task, 'digits', '')}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    WEIGHTS.mkdir(exist_ok=True)
    for each in sys.argv[1:]:
        train(each.removeprefix("tiny:"))
