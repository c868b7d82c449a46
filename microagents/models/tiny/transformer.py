"""A small transformer in numpy: pre-norm layers without biases, four heads, and keys and values kept by slot.

The slots of a sequence hold the prompt, some of them empty, then the reply, so rows with prompts of different lengths
move on together. It computes in double precision: how many rows do so changes no digit that matters.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

HEADS = 4
EPSILON = 1.1920929e-07
"""Addition to the mean square that a row is divided by, as PyTorch has it for 32 bits."""

Floats = NDArray[np.float64]


class Memory:
    """Keys and values of some sequences, and which of their slots are filled."""

    def __init__(self, keys: Floats, values: Floats, filled: NDArray[np.bool_]) -> None:
        self.keys, self.values, self.filled = keys, values, filled
        """Keys and values: layers, rows, heads, slots, width of a head; filled: rows, slots."""

    @classmethod
    def joined(cls, memories: list[Memory]) -> Memory:
        """Put memories of single sequences together, one row each."""
        return cls(
            np.concatenate([each.keys for each in memories], axis=1),
            np.concatenate([each.values for each in memories], axis=1),
            np.concatenate([each.filled for each in memories]),
        )

    def of(self, rows: list[int]) -> Memory:
        """Copy some rows, each as often as it is named."""
        return Memory(self.keys[:, rows], self.values[:, rows], self.filled[rows])


class Transformer:
    """The network of one model.

    Args:
        parts: its weights by name.
    """

    def __init__(self, parts: Mapping[str, NDArray[np.float16]]) -> None:
        self._parts = {name: part.astype(np.float64) for name, part in parts.items()}
        self.layers = sum(name.endswith(".qkv") for name in parts)
        self.slots, self.width = parts["place"].shape

    def empty(self, rows: int) -> Memory:
        """Make room for some sequences."""
        shape = (self.layers, rows, HEADS, self.slots, self.width // HEADS)
        return Memory(np.zeros(shape), np.zeros(shape), np.zeros((rows, self.slots), dtype=bool))

    def logits(
        self, ids: NDArray[np.int64], start: int, memory: Memory, given: NDArray[np.bool_] | None = None
    ) -> Floats:
        """Read tokens into the slots from ``start`` on; returns rows, tokens, logits of the token after each.

        Args:
            ids: rows, tokens.
            start: slot of the first one.
            memory: the keys and values of the slots before; gets the new ones.
            given: which of the tokens are there; by default all.
        """
        rows, count = ids.shape
        end, width, parts = start + count, self.width // HEADS, self._parts
        memory.filled[:, start:end] = True if given is None else given
        seen = memory.filled[:, None, None, :end]
        if count > 1:
            seen = seen & np.tri(count, end, start, dtype=bool)
        hidden = np.where(seen, 0.0, -1e30)
        x = (parts["embed"][ids] + parts["place"][start:end]).reshape(-1, self.width)  # flat: one product for all rows
        for layer in range(self.layers):
            qkv = (_normed(x) @ parts[f"{layer}.qkv"]).reshape(rows, count, 3, HEADS, width).transpose(2, 0, 3, 1, 4)
            keys, values = memory.keys[layer, :, :, :end], memory.values[layer, :, :, :end]
            keys[:, :, start:], values[:, :, start:] = qkv[1], qkv[2]
            weights = qkv[0] @ keys.swapaxes(-1, -2) * width**-0.5 + hidden
            np.exp(weights - weights.max(axis=-1, keepdims=True), out=weights)
            weights /= weights.sum(axis=-1, keepdims=True)
            x = x + (weights @ values).swapaxes(1, 2).reshape(-1, self.width) @ parts[f"{layer}.out"]
            x += np.maximum(_normed(x) @ parts[f"{layer}.up"], 0) @ parts[f"{layer}.down"]
        found: Floats = (_normed(x) @ parts["head"]).reshape(rows, count, -1)
        return found


def log_softmax(logits: Floats) -> Floats:
    """Turn logits into log-probabilities, along the last axis."""
    above = logits - logits.max(axis=-1, keepdims=True)
    found: Floats = above - np.log(np.exp(above).sum(axis=-1, keepdims=True))
    return found


def _normed(x: Floats) -> Floats:
    squares = np.einsum("...i,...i->...", x, x)[..., None]
    normed: Floats = x / np.sqrt(squares / x.shape[-1] + EPSILON)
    return normed
