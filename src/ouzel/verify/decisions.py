"""Gate 4, decisions: what the model would choose at every position, against what the reference would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ouzel.verify import tolerance

F32 = NDArray[np.float32]

TOP = 10
CHUNK = 64


@dataclass(frozen=True)
class Flip:
    """A position where the likeliest token differs: both candidates, and the reference's margin between them in logits."""

    position: int
    wanted: int
    found: int
    margin: float
    near_tie: bool


@dataclass(frozen=True)
class Decisions:
    """Agreement over `positions` rows of logits. overlap: mean share of the top 10 in common. margins: reference top-1 minus top-2.

    steps: how many of the positions, the last ones, are steps of the answer.
    noise: standard deviation of a logit's error that the tolerance or the format explains. kl_*: KL(reference || found).
    """

    positions: int
    top1: float
    top2: float
    overlap: float
    kl_mean: float
    kl_p99: float
    kl_max: float
    noise: float
    kl_mean_budget: float
    kl_p99_budget: float
    flips: tuple[Flip, ...]
    allowed_flips: int
    margins: tuple[float, ...]
    steps: int = 0

    @property
    def top1_budget(self) -> float:
        """Least agreement of the first choice that noise explains."""
        return max(0.0, 1 - self.allowed_flips / self.positions)

    @property
    def ok(self) -> bool:
        """Divergence within its budget, no flip beyond a near tie, no more flips than the noise explains."""
        within = self.kl_mean <= self.kl_mean_budget and self.kl_p99 <= self.kl_p99_budget
        return within and all(flip.near_tie for flip in self.flips) and len(self.flips) <= max(self.allowed_flips, 0)


def decide(found: F32, wanted: F32, relative: float, *, centred: bool = False) -> Decisions:
    """Compares logits [positions, vocab].

    relative: error that is explained, over the row's root mean square, or, `centred`, over its standard deviation.
    """
    parts = [_rows(found[at : at + CHUNK], wanted[at : at + CHUNK]) for at in range(0, len(wanted), CHUNK)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    spread = float(np.sqrt(np.mean(joined["deviation" if centred else "size"] ** 2)))
    noise = tolerance.logit_noise(relative, spread)
    mean_budget, p99_budget = tolerance.kl_budget(noise)
    flips = tuple(_flip(int(at), joined, noise) for at in np.flatnonzero(joined["first"] != joined["found"]))
    margins = tuple(float(m) for m in joined["margin"])
    kl = joined["kl"]
    return Decisions(
        len(kl), float(np.mean(joined["first"] == joined["found"])), float(np.mean(joined["second"])), float(np.mean(joined["overlap"])),
        float(kl.mean()), float(np.quantile(kl, 0.99, method="higher")), float(kl.max()), noise, mean_budget, p99_budget,
        flips, min(len(kl), tolerance.allowed_flips(tolerance.expected_flips(joined["gaps"].tolist(), noise))), margins,
    )  # fmt: skip


def _flip(at: int, joined: Mapping[str, NDArray[np.float64]], noise: float) -> Flip:
    margin = float(joined["between"][at])
    return Flip(at, int(joined["first"][at]), int(joined["found"][at]), margin, margin <= tolerance.NEAR_TIE * noise)


def _rows(found: F32, wanted: F32) -> dict[str, NDArray[np.float64]]:
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    a[~np.isfinite(a)] = -1e30
    top = min(TOP, b.shape[1])
    best_b, best_a = (np.argsort(-x, axis=1, kind="stable")[:, :top] for x in (b, a))
    rows = np.arange(len(b))
    first, choice = best_b[:, 0], best_a[:, 0]
    log_b, log_a = _log_softmax(b), _log_softmax(a)
    shared = [len(set(x) & set(y)) / top for x, y in zip(best_a.tolist(), best_b.tolist())]
    return {
        "first": first, "found": choice, "second": (best_a[:, :2] == best_b[:, :2]).all(axis=1).astype(np.float64),
        "overlap": np.array(shared), "margin": b[rows, first] - b[rows, best_b[:, min(1, top - 1)]],
        "gaps": b[rows, first][:, None] - np.take_along_axis(b, best_b[:, 1:], axis=1),
        "between": b[rows, first] - b[rows, choice], "deviation": b.std(axis=1),
        "size": np.sqrt(np.mean(b * b, axis=1)),
        # Rounding can make a divergence of equals slightly negative.
        "kl": np.maximum((np.exp(log_b) * (log_b - log_a)).sum(axis=1), 0),
    }  # fmt: skip


def _log_softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = x - x.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
