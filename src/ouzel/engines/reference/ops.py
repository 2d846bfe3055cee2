"""The meaning of every operation, in NumPy, in the type of its operands (float32).

Each function takes the operands of the operation table (`graph/ops.py`) in order, weights after inputs, then the
attributes. Attention has its own file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.reference import quantised
from ouzel.engines.reference.quantised import PackedMatrix

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]


def embed(ids: I32, table: F32 | PackedMatrix) -> F32:
    return table.rows(ids[:, 0]) if isinstance(table, PackedMatrix) else table[ids[:, 0]]


def linear(x: F32, residual: F32 | None, weight: F32 | PackedMatrix, bias: F32 | None, *, activation: str) -> F32:
    y = quantised.linear(x, weight) if isinstance(weight, PackedMatrix) else x @ weight.T
    if bias is not None:
        y = y + bias
    y = _ACTIVATIONS[activation](y)
    return y if residual is None else y + residual


def rms_norm(x: F32, weight: F32, *, eps: float, heads: int) -> F32:
    parts = x.reshape(len(x), heads, x.shape[1] // heads)
    scale = 1 / np.sqrt(np.mean(parts * parts, axis=-1, keepdims=True) + x.dtype.type(eps))
    return (parts * scale * weight).reshape(x.shape)


def layer_norm(x: F32, weight: F32, bias: F32, *, eps: float) -> F32:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + x.dtype.type(eps)) * weight + bias


def rotary(x: F32, cos: F32, sin: F32, *, heads: int, style: str) -> F32:
    parts = x.reshape(len(x), heads, x.shape[1] // heads)
    half = cos.shape[1]
    cos, sin = cos[:, None, :], sin[:, None, :]
    first, second = (slice(0, half), slice(half, 2 * half)) if style == "halves" else (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    a, b = parts[..., first], parts[..., second]
    out = parts.copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = b * cos + a * sin
    return out.reshape(x.shape)


def silu_mul(x: F32, up: F32) -> F32:
    return silu(x) * up


def gelu(x: F32, *, form: str) -> F32:
    return gelu_tanh(x) if form == "tanh" else gelu_erf(x)


def add(x: F32, y: F32) -> F32:
    return x + y


def mul(x: F32, y: F32) -> F32:
    return x * y


def take_rows(x: F32, index: I32) -> F32:
    return x[index[:, 0]]


def put_rows(x: F32, values: F32, index: I32) -> F32:
    out = x.copy()
    out[index[:, 0]] = values
    return out


def add_rows(x: F32, values: F32, index: I32) -> F32:
    out = x.copy()
    out[index[:, 0]] += values
    return out


def fold_rows(x: F32, *, count: int, rows: str) -> F32:
    return x.reshape(len(x) // count, x.shape[1] * count)


def blend_rows(taps: I32, x: F32, table: F32) -> F32:
    out = np.zeros((len(x), table.shape[1]), x.dtype)
    for t in range(taps.shape[1]):
        out += x[:, t : t + 1] * table[taps[:, t]]
    return out


def silu(x: F32) -> F32:
    # exp of a large positive number overflows to infinity, and the quotient is then the right limit, -0.
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


def gelu_tanh(x: F32) -> F32:
    inner = x.dtype.type(np.sqrt(2 / np.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
    return x.dtype.type(0.5) * x * (1 + np.tanh(inner))


def gelu_erf(x: F32) -> F32:
    return x.dtype.type(0.5) * x * (1 + erf(x * x.dtype.type(np.sqrt(0.5))))


def erf(x: F32) -> F32:
    """Error function: its Maclaurin series below 3, where float64 loses no more than 1e-11; a continued fraction above."""
    z = np.abs(x.astype(np.float64))
    small = np.minimum(z, 3.0)
    term, total = small.copy(), small.copy()
    for n in range(1, 60):
        term = term * (-small * small) / n
        total = total + term / (2 * n + 1)
    large = np.maximum(z, 3.0)
    fraction = np.zeros_like(large)
    for k in range(40, 0, -1):
        fraction = (k / 2) / (large + fraction)
    tail = 1 - np.exp(-large * large) / np.sqrt(np.pi) / (large + fraction)
    value = np.where(z < 3, 2 / np.sqrt(np.pi) * total, tail)
    return np.copysign(value, x).astype(x.dtype)


_ACTIVATIONS: dict[str, Callable[[F32], F32]] = {
    "none": lambda x: x,
    "gelu_tanh": gelu_tanh,
    "gelu_erf": gelu_erf,
    "silu": silu,
}

FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        embed,
        linear,
        rms_norm,
        layer_norm,
        rotary,
        silu_mul,
        gelu,
        add,
        mul,
        take_rows,
        put_rows,
        add_rows,
        fold_rows,
        blend_rows,
    )
}
