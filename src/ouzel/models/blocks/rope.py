"""Cosines and sines of rotary positions, computed outside the graph."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


def tables(angles: F32, scaling: float = 1.0) -> tuple[F32, F32]:
    """cos and sin of float32 angles [rows, pairs].

    The angles are products in float32, as in the references; their cosines are taken in float64 and rounded once, because
    float32 cosines of NumPy differ between machines.
    """
    wide = np.ascontiguousarray(angles, np.float64)
    cos, sin = (np.float64(scaling) * turn(wide) for turn in (np.cos, np.sin))
    return cos.astype(np.float32), sin.astype(np.float32)


def sequence_angles(positions: NDArray[np.int64], frequencies: F32) -> F32:
    """Angles of one-dimensional positions [1, tokens]: [tokens, pairs]."""
    return positions[0].astype(np.float32)[:, None] * frequencies[None, :]


def interleaved_axes(sections: tuple[int, ...], pairs: int) -> NDArray[np.int64]:
    """The position axis of every rotary pair when the axes take turns: 0 (time), 1 (height), 2 (width).

    Pair j belongs to axis a > 0 when j % 3 == a and j < 3 * sections[a], to time otherwise (transformers, Qwen3-VL).
    """
    axes = np.zeros(pairs, np.int64)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return axes


def axis_angles(positions: NDArray[np.int64], frequencies: F32, axes: NDArray[np.int64]) -> F32:
    """Angles of positions [axes, tokens] where each pair reads its own axis: [tokens, pairs]."""
    return positions[axes].T.astype(np.float32) * frequencies[None, :]


def grid_angles(rows: NDArray[np.integer], columns: NDArray[np.integer], head_dim: int, theta: float = 10000.0) -> F32:
    """Angles of 2-D patch positions: head_dim / 4 of the row, then as many of the column; [patches, head_dim / 2]."""
    half = head_dim // 2
    exponents = np.arange(0, half, 2, dtype=np.float32) / np.float32(half)
    frequencies = (1 / np.power(theta, exponents.astype(np.float64))).astype(np.float32)
    parts = [at.astype(np.float32)[:, None] * frequencies[None, :] for at in (rows, columns)]
    return np.concatenate(parts, axis=1)
