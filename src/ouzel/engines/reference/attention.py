"""Attention of the reference engine: the whole score matrix of one sequence or segment at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.graph.graph import CacheLayer
from ouzel.engines.base import BLOCK_TOKENS, SequenceRows

F32 = NDArray[np.float32]


class PagedCache:
    """Keys and values of one layer in blocks: arrays [blocks, BLOCK_TOKENS, kv_heads, dim], grown on demand."""

    def __init__(self, form: CacheLayer, dtype: type[np.floating[Any]] = np.float32) -> None:
        self.keys: F32 = np.zeros((0, BLOCK_TOKENS, form.kv_heads, form.head_dim), dtype)
        self.values: F32 = np.zeros((0, BLOCK_TOKENS, form.kv_heads, form.value_dim), dtype)

    def ensure(self, blocks: int) -> None:
        """Makes room for at least `blocks` blocks."""
        missing = blocks - len(self.keys)
        if missing > 0:
            self.keys, self.values = (
                np.concatenate([kept, np.zeros((missing, *kept.shape[1:]), kept.dtype)]) for kept in (self.keys, self.values)
            )

    def extend(self, rows: SequenceRows, k: F32, v: F32) -> tuple[F32, F32]:
        """Stores the new tokens' keys and values and gives those of the whole sequence, [tokens, kv_heads, dim]."""
        places = np.arange(rows.past + rows.count)
        blocks, slots = rows.blocks[places // BLOCK_TOKENS], places % BLOCK_TOKENS
        self.keys[blocks[rows.past :], slots[rows.past :]] = k.reshape(rows.count, *self.keys.shape[2:])
        self.values[blocks[rows.past :], slots[rows.past :]] = v.reshape(rows.count, *self.values.shape[2:])
        return self.keys[blocks, slots], self.values[blocks, slots]

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes


def causal(
    q: F32, k: F32, v: F32, cache: PagedCache, sequences: Sequence[SequenceRows], *, heads: int, kv_heads: int, scale: float
) -> F32:
    """Causal attention of ragged rows, each sequence after its cached tokens."""
    value_dim = v.shape[1] // kv_heads
    out = np.zeros((len(q), heads * value_dim), q.dtype)
    for rows in sequences:
        here = slice(rows.start, rows.start + rows.count)
        keys, values = cache.extend(rows, k[here], v[here])
        seen = np.arange(len(keys))[None, :] <= rows.past + np.arange(rows.count)[:, None]
        out[here] = attend(q[here].reshape(rows.count, heads, -1), keys, values, scale, seen)
    return out


def segments(q: F32, k: F32, v: F32, borders: NDArray[np.int32], *, heads: int, kv_heads: int, scale: float) -> F32:
    """Full attention inside every row range borders[i] : borders[i + 1]."""
    out = np.zeros((len(q), heads * (v.shape[1] // kv_heads)), q.dtype)
    for start, end in zip(borders[:-1], borders[1:]):
        n = end - start
        if n == 0:
            continue
        keys, values = (a[start:end].reshape(n, kv_heads, -1) for a in (k, v))
        out[start:end] = attend(q[start:end].reshape(n, heads, -1), keys, values, scale, None)
    return out


def attend(q: F32, k: F32, v: F32, scale: float, seen: NDArray[np.bool_] | None) -> F32:
    """q [rows, heads, dim], k and v [keys, kv_heads, dim], seen [rows, keys] -> [rows, heads * value_dim]."""
    group = q.shape[1] // k.shape[1]
    out = np.empty((q.shape[0], q.shape[1], v.shape[2]), q.dtype)
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // group].T * q.dtype.type(scale)
        if seen is not None:
            scores = np.where(seen, scores, q.dtype.type(-np.inf))
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = weights @ v[:, head // group] / weights.sum(axis=1, keepdims=True)
    return out.reshape(len(q), -1)
