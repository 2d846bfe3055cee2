"""How much the number formats of a loaded model round: measured on its own weights, whatever the format is called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ouzel.errors import OuzelError
from ouzel.model import Model
from ouzel.weights.formats import Format
from ouzel.weights.load import load_weights
from ouzel.weights.weight_set import Weight

FULL = ("f32", "bf16", "f16")
"""Formats whose arithmetic is float32 on float32 activations."""

ACTIVATION_ROUNDING = 2.6 / 127 / math.sqrt(12)
"""Activations of integer formats become int8 by groups of 32: a step is the group's largest, about 2.6 deviations, over 127."""

SAMPLE_ROWS = 64


@dataclass(frozen=True)
class Rounding:
    """Relative rounding errors of a model's weights.

    by_weight: root mean square error over root mean square, activations of integer formats included. by_part: the largest
    formats of each part, by name. exact: whether every weight has the checkpoint's own numbers in float arithmetic.
    """

    by_weight: Mapping[str, float] = field(default_factory=dict)
    by_part: Mapping[str, str] = field(default_factory=dict)
    exact: bool = True

    @property
    def relative(self) -> float:
        """One number for the model: the parts' largest, as independent errors."""
        return math.sqrt(sum(value**2 for value in self.parts.values()))

    parts: Mapping[str, float] = field(default_factory=dict)


def rounding_of(model: Model) -> Rounding:
    """Compares a sample of each matrix with the checkpoint's own numbers."""
    by_weight: dict[str, float] = {}
    parts: dict[str, float] = {}
    names: dict[str, set[str]] = {}
    exact = _as_stored(model)
    for name, weight in model.weights.items():
        if weight.spec.kind in ("norm", "bias"):
            continue
        part = weight.spec.part
        names.setdefault(part, set()).add(weight.format.name)
        if exact is None:
            error = 0.0 if weight.format.name in FULL else _nominal(weight.format)
        elif weight.format is exact[name].format:
            error = 0.0
        else:
            values = weight.f32()
            error = _relative(values.reshape(len(values), -1), exact[name].f32())
        if weight.format.name not in FULL:
            error = math.hypot(error, ACTIVATION_ROUNDING)
        by_weight[name] = error
        parts[part] = max(parts.get(part, 0.0), error)
    return Rounding(by_weight, {part: "+".join(sorted(found)) for part, found in names.items()}, not any(parts.values()), parts)


def _as_stored(model: Model) -> Mapping[str, Weight] | None:
    """The checkpoint's own numbers; None for a folder that holds rounded ones only."""
    try:
        return load_weights(model.checkpoint.tensors, model.family.tensor_table(), tied=model.family.tied, check_finite=False)
    except OuzelError:
        return None


def _nominal(form: Format) -> float:
    """What a format rounds of normally distributed numbers."""
    values = np.random.default_rng(0).standard_normal((SAMPLE_ROWS, 1024)).astype(np.float32)
    return _relative(form.decode(form.encode(values)), values)


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    rows = np.linspace(0, len(wanted), min(len(wanted), SAMPLE_ROWS), endpoint=False).astype(np.int64)
    a, b = found[rows].astype(np.float64), wanted.reshape(len(wanted), -1)[rows].astype(np.float64)
    size = float(np.linalg.norm(b))
    return float(np.linalg.norm(a - b)) / size if size else 0.0
