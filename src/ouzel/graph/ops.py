"""The operation table: what each operation takes, gives and means.

Every activation is a 2-D array `[rows, width]`, float32 unless the operand is an index (int32). Heads are column ranges.
A weight matrix is `[out, in]`, a small vector `[width]`. The meaning of an operation is its NumPy function in
`engines/reference/ops.py`; this table only says the form, and `graph/check.py` holds every graph against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ACTIVATIONS = ("none", "gelu_tanh", "gelu_erf", "silu")


@dataclass(frozen=True)
class Attr:
    """One attribute of an operation: its Python type, its default (None: required) and the values allowed."""

    kind: type
    default: Any = None
    choices: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Op:
    """The form of one operation.

    `inputs` and `weights` name the operands in order; a name that ends in "?" may be left out (only at the end).
    `integer_inputs` are int32. `width(in_widths, weight_shapes, attrs)` is the width of the output.
    `rows_of` names the input whose row symbol the output takes; None where the node states it (`fold_rows`).
    `in_place` names the input whose memory the output may take over.
    """

    name: str
    inputs: tuple[str, ...]
    width: Callable[[Mapping[str, int], Mapping[str, tuple[int, ...]], Mapping[str, Any]], int]
    weights: tuple[str, ...] = ()
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    integer_inputs: tuple[str, ...] = ()
    rows_of: str | None = "x"
    in_place: str | None = None
    doc: str = ""


def _same(widths: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> int:
    return widths["x"]


_TABLE = (
    Op(
        "embed",
        ("ids",),
        lambda w, s, a: s["table"][1],
        weights=("table",),
        integer_inputs=("ids",),
        rows_of="ids",
        doc="Row ids[r, 0] of the table.",
    ),
    Op(
        "linear",
        ("x", "residual?"),
        lambda w, s, a: s["weight"][0],
        weights=("weight", "bias?"),
        attrs={"activation": Attr(str, "none", ACTIVATIONS)},
        in_place="residual",
        doc="activation(x @ weight.T + bias) + residual.",
    ),
    Op(
        "rms_norm",
        ("x",),
        _same,
        weights=("weight",),
        attrs={"eps": Attr(float), "heads": Attr(int, 1)},
        in_place="x",
        doc="x / sqrt(mean(x^2) + eps) * weight, over each of `heads` equal column ranges; weight is as wide as one.",
    ),
    Op(
        "layer_norm",
        ("x",),
        _same,
        weights=("weight", "bias"),
        attrs={"eps": Attr(float)},
        in_place="x",
        doc="(x - mean) / sqrt(variance + eps) * weight + bias, over the row.",
    ),
    Op(
        "rotary",
        ("x", "cos", "sin"),
        _same,
        attrs={"heads": Attr(int), "style": Attr(str, "halves", ("halves", "pairs"))},
        in_place="x",
        doc=(
            "Rotates the first 2*width(cos) columns of every head. Pair j is columns (j, j + width(cos)) for halves and"
            " (2j, 2j + 1) for pairs: (a cos - b sin, b cos + a sin)."
        ),
    ),
    Op(
        "attention",
        ("x", "k", "v"),
        lambda w, s, a: a["heads"] * a["value_dim"],
        attrs={
            "heads": Attr(int),
            "kv_heads": Attr(int),
            "head_dim": Attr(int),
            "value_dim": Attr(int),
            "scale": Attr(float),
            "mode": Attr(str, "causal", ("causal", "segments")),
            "layer": Attr(int, -1),
        },
        doc=(
            "softmax(scale * q k^T) v per head; query head h reads key head h // (heads / kv_heads). causal: the step's"
            " sequences, with the cache of `layer` before them; segments: rows see exactly the rows of their segment."
        ),
    ),
    Op("silu_mul", ("x", "up"), _same, in_place="x", doc="x * sigmoid(x) * up."),
    Op(
        "gelu",
        ("x",),
        _same,
        attrs={"form": Attr(str, None, ("tanh", "erf"))},
        in_place="x",
        doc="Gaussian error linear unit, tanh approximation or exact.",
    ),
    Op("add", ("x", "y"), _same, in_place="x", doc="x + y."),
    Op("mul", ("x", "y"), _same, in_place="x", doc="x * y."),
    Op(
        "take_rows",
        ("x", "index"),
        _same,
        integer_inputs=("index",),
        rows_of="index",
        doc="Row index[r, 0] of x for every row r of index.",
    ),
    Op(
        "put_rows",
        ("x", "values", "index"),
        _same,
        integer_inputs=("index",),
        in_place="x",
        doc="x with row index[i, 0] replaced by row i of values.",
    ),
    Op(
        "add_rows",
        ("x", "values", "index"),
        _same,
        integer_inputs=("index",),
        in_place="x",
        doc="x with row i of values added to row index[i, 0]; an index appears once.",
    ),
    Op(
        "fold_rows",
        ("x",),
        lambda w, s, a: w["x"] * a["count"],
        attrs={"count": Attr(int), "rows": Attr(str)},
        rows_of=None,
        doc="Every `count` rows, one after another, become one wide row.",
    ),
    Op(
        "blend_rows",
        ("taps", "x"),
        lambda w, s, a: s["table"][1],
        weights=("table",),
        integer_inputs=("taps",),
        doc="sum over taps t of x[r, t] * table[taps[r, t]]: a weighted gather, for interpolated position tables.",
    ),
)

OPS: dict[str, Op] = {op.name: op for op in _TABLE}


def operand_names(op: Op, given: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """The operand names for `given` operands, without the "?" of optional ones."""
    return tuple(name.rstrip("?") for name in names[:given])
