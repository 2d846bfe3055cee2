"""Comparing a packed folder with its source: errors of the tensors by class, and what becomes of the logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ouzel.conversion.probe import Probe
from ouzel.weights.weight_set import Weight, WeightSet

if TYPE_CHECKING:
    from ouzel.model import Model

# Values of one tensor that are compared: all of small ones, evenly spread rows of larger ones.
_MOST_VALUES = 1 << 22


@dataclass(frozen=True)
class TensorErrors:
    """Relative error of one class of tensors, sqrt(sum (packed - source)^2 / sum source^2), and of its worst tensor."""

    part: str
    kind: str
    format: str
    tensors: int
    values: int
    relative_error: float
    worst_error: float
    worst: str


@dataclass(frozen=True)
class LogitErrors:
    """How the packed model's predictions differ from the source's on one probe.

    kl: mean and largest Kullback-Leibler divergence from the source's distribution, in nats, over `positions`.
    same_top: share of positions with the same likeliest token. perplexity: of the probe's own next tokens.
    """

    probe: str
    positions: int
    kl_mean: float
    kl_max: float
    same_top: float
    perplexity_source: float
    perplexity: float


def tensor_errors(source: WeightSet, packed: WeightSet, tell: Callable[[int, int], None] | None = None) -> list[TensorErrors]:
    """One row for each part, kind and format that is stored in another format than in the source, float32 left out.

    source: the same weights as the source stores them. `tell(done, of)` counts tensors.
    """
    found: dict[tuple[str, str, str], list[tuple[float, float, int, str]]] = {}
    for number, (name, weight) in enumerate(packed.items()):
        # In float32 every stored value is exact.
        if weight.format is not source[name].format and weight.format.name != "f32":
            key = (weight.spec.part, weight.spec.kind, weight.format.name)
            found.setdefault(key, []).append((*_squares(source[name], weight), name))
        if tell is not None:
            tell(number + 1, len(packed))
    return [_summed(key, rows) for key, rows in found.items()]


def _summed(key: tuple[str, str, str], rows: list[tuple[float, float, int, str]]) -> TensorErrors:
    def relative(error: float, size: float) -> float:
        return (error / size) ** 0.5 if size > 0 else 0.0

    worst, name = max((relative(error, size), name) for error, size, _, name in rows)
    total = relative(sum(row[0] for row in rows), sum(row[1] for row in rows))
    return TensorErrors(*key, len(rows), sum(row[2] for row in rows), total, worst, name)


def _squares(source: Weight, packed: Weight) -> tuple[float, float, int]:
    """Sum of squared errors, sum of squares, and the number of values looked at."""
    rows, columns = source.shape if len(source.shape) == 2 else (1, source.size)
    blocks = -(-rows // 16)
    step = max(1, -(-rows * columns // _MOST_VALUES))
    error = size = 0.0
    count = 0
    for block in range(0, blocks, step):
        mine, theirs = (_rows(weight, block).astype(np.float64) for weight in (packed, source))
        error += float(((mine - theirs) ** 2).sum())
        size += float((theirs**2).sum())
        count += theirs.size
    return error, size, count


def _rows(weight: Weight, block: int) -> NDArray[np.float32]:
    """Sixteen rows of a matrix, or a whole vector, in float32."""
    rows = slice(16 * block, 16 * block + 16)
    if weight.format.packing is None:
        return weight.format.decode(weight.array[rows] if weight.array.ndim == 2 else weight.array)
    values = weight.format.decode(weight.array[block : block + 1])
    return values[: min(16, weight.shape[0] - rows.start), : weight.shape[1]]


def logit_errors(probes: Sequence[Probe], source: Sequence[NDArray[np.float32]], packed: Model) -> list[LogitErrors]:
    """Compares `probe_logits` of the source with those of `packed`."""
    mine = probe_logits(probes, packed)
    return [_compared(probe, a, b) for probe, a, b in zip(probes, source, mine)]


def probe_logits(probes: Sequence[Probe], model: Model) -> list[NDArray[np.float32]]:
    """Log-probabilities [scored positions, vocabulary] of every probe."""
    found = []
    for probe in probes:
        logits = model.stages(probe.prompt, ["logits"])["logits"]
        found.append(_log_softmax(logits[probe.start : len(probe.prompt.ids) - 1]))
    return found


def _compared(probe: Probe, source: NDArray[np.float32], packed: NDArray[np.float32]) -> LogitErrors:
    kl = np.array([np.dot(np.exp(a.astype(np.float64)), a.astype(np.float64) - b) for a, b in zip(source, packed)])
    following = np.array(probe.prompt.ids[probe.start + 1 :])
    at = np.arange(len(following))
    return LogitErrors(
        probe.name,
        len(kl),
        float(kl.mean()),
        float(kl.max()),
        float((source.argmax(axis=1) == packed.argmax(axis=1)).mean()),
        _perplexity(source[at, following]),
        _perplexity(packed[at, following]),
    )


def _perplexity(log_probabilities: NDArray[np.float32]) -> float:
    return float(np.exp(-log_probabilities.astype(np.float64).mean()))


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted, dtype=np.float32).sum(axis=1, keepdims=True, dtype=np.float64)).astype(np.float32)


def as_rows(found: Sequence[TensorErrors | LogitErrors]) -> list[dict[str, Any]]:
    """As JSON objects."""
    return [asdict(row) for row in found]
