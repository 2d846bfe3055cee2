"""From scores to the tokens that may be drawn, with their probabilities; and log-probabilities.

Arithmetic is double precision made of additions and multiplications in a fixed order, so that the same scores give
the same draw on every machine; NumPy's own `exp` differs in the last bit between instruction sets.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_CHUNK = 8192
_STEPS = 256
_STEPS_PER_UNIT = _STEPS / math.log(2)
# ln 2 / 256 in two parts; the first ends in 21 zero bits, so its product with a whole number below 2**21 is exact.
_STEP_HIGH = 0.693147180369123816490 / _STEPS
_STEP_LOW = 1.90821492927058770002e-10 / _STEPS
# exp of this is far below the smallest share of a double that can matter in a sum of a vocabulary.
_EXP_FLOOR = -700.0
# How many of the highest scores to look at first when only `top_p` or `min_p` bounds the choice.
_FIRST_LOOK = 256
_GROUP = 64


@lru_cache(maxsize=1)
def _roots() -> NDArray[np.float64]:
    """2 to the power i / 256, rounded correctly; decimal arithmetic is the same everywhere, `pow` is not."""
    return np.array([float(Decimal(2) ** (Decimal(step) / _STEPS)) for step in range(_STEPS)])


def exp(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """e to the power x for x <= 0, within 1e-15 relative; values below -700 count as -700."""
    roots = _roots()
    out = np.empty_like(x)
    for start in range(0, len(x), _CHUNK):
        rest = np.maximum(x[start : start + _CHUNK], _EXP_FLOOR)
        steps = np.rint(rest * _STEPS_PER_UNIT)
        rest -= steps * _STEP_HIGH
        rest -= steps * _STEP_LOW
        whole = steps.astype(np.int64)
        # |rest| < 0.0014: the first term left out, rest**5 / 120, is below 5e-17.
        value = rest * (1 / 24) + 1 / 6
        value *= rest
        value += 1 / 2
        value *= rest
        value += 1
        value *= rest
        value += 1
        value *= roots[whole & (_STEPS - 1)]
        # 2 to the power whole // 256, built from the bits of a double, which is faster than ldexp; at least 2**-1010.
        value *= (((whole >> 8) + 1023) << 52).view(np.float64)
        out[start : start + _CHUNK] = value
    return out


def total(x: NDArray[np.float64]) -> float:
    """The sum in a fixed order."""
    return float(np.cumsum(x)[-1])


def log_normaliser(logits: NDArray[np.float32]) -> float:
    """log(sum(exp(logits))), natural logarithm. `logits`: [vocabulary], finite."""
    highest = float(logits.max())
    return highest + math.log(total(exp(logits.astype(np.float64) - highest)))


def highest(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Ids of the `count` highest scores, descending; of equal scores the lowest ids."""
    count = min(count, len(scores))
    if count == 0:
        return np.empty(0, np.int64)
    ids = _not_below(scores, count)
    values = scores[ids]
    if count < len(ids):
        bound = np.partition(values, len(ids) - count)[len(ids) - count]
        above = np.flatnonzero(values > bound)
        equal = np.flatnonzero(values == bound)[: count - len(above)]
        ids = ids[np.concatenate([above, equal])]
    return ids[np.lexsort((ids, -scores[ids]))]


def _not_below(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Ascending ids that surely hold the `count` highest scores, ties included; usually few more than `count`.

    The maxima of disjoint groups: `count` of them are at least as high as the count-th, so nothing below it is needed.
    """
    groups = len(scores) // _GROUP
    if groups < 2 * count:
        return np.arange(len(scores))
    maxima = scores[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
    bound = np.partition(maxima, groups - count)[groups - count]
    return np.flatnonzero(scores >= bound)


def candidates(
    scores: NDArray[np.float32], temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Tokens that may be drawn and their probabilities, which sum to one.

    The scores are divided by `temperature`; then `top_k` keeps the highest scores (0: all), `top_p` the fewest of these whose
    probabilities reach that sum, `min_p` those with at least that share of the highest probability. Candidates stand in
    descending order, or in the order of ids when nothing bounds them.
    """
    if top_k:
        ids = highest(scores, top_k)
        weights = _weights(scores[ids], float(scores[ids[0]]), temperature)
        normaliser = total(weights)
    elif top_p < 1 or min_p > 0:
        ids, weights, normaliser = _bounded(scores, temperature, top_p, min_p)
    else:
        weights = _weights(scores, float(scores.max()), temperature)
        return np.arange(len(scores)), weights / total(weights)
    keep = _kept(weights, normaliser, top_p, min_p)
    ids, weights = ids[:keep], weights[:keep]
    return ids, weights / total(weights)


def _weights(scores: NDArray[np.float32], reference: float, temperature: float) -> NDArray[np.float64]:
    """exp((score - reference) / temperature); subtracting first keeps tiny temperatures finite."""
    return exp((scores.astype(np.float64) - reference) / temperature)


def _kept(weights: NDArray[np.float64], normaliser: float, top_p: float, min_p: float) -> int:
    """How many of the descending `weights` stay; at least one."""
    keep = len(weights)
    if top_p < 1:
        # A token stays while those before it have not reached the sum.
        keep = int(np.searchsorted(np.cumsum(weights), top_p * normaliser)) + 1
    if min_p > 0:
        keep = min(keep, int(np.count_nonzero(weights >= min_p * weights[0])))
    return max(1, min(keep, len(weights)))


def _bounded(
    scores: NDArray[np.float32], temperature: float, top_p: float, min_p: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], float]:
    """The highest tokens, enough of them for `top_p` and `min_p`, without sorting the whole vocabulary."""
    everything = _weights(scores, float(scores.max()), temperature)
    normaliser = total(everything)
    count = _FIRST_LOOK
    while True:
        ids = highest(scores, count)
        weights = everything[ids]
        if len(ids) == len(scores) or _kept(weights, normaliser, top_p, min_p) < len(ids):
            return ids, weights, normaliser
        count *= 8
