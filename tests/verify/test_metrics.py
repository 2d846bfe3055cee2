"""The numbers: differences, tolerances, decisions, on arrays whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ouzel.verify import tolerance
from ouzel.verify.decisions import decide
from ouzel.verify.metrics import compare, heat, outlier_channels


def some(rows: int = 20, width: int = 30) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((rows, width)).astype(np.float32)


def test_equal_arrays() -> None:
    found = compare(some(), some())
    assert (found.max_abs, found.relative, found.row, found.worst) == (0, 0, 0, ())
    assert found.cosine == pytest.approx(1) and found.finite


def test_one_wrong_element() -> None:
    wanted, found = some(), some()
    found[3, 17] += 2.5
    got = compare(found, wanted)
    assert got.max_abs == pytest.approx(2.5) and got.mean_abs == pytest.approx(2.5 / 600)
    assert got.worst_row == 3 and (got.worst[0].row, got.worst[0].channel) == (3, 17)
    assert len(got.worst) == 1 and not got.worst[0].outlier
    assert got.p99 == 0 and got.p9999 == pytest.approx(2.5)
    assert got.row == pytest.approx(2.5 / np.linalg.norm(wanted[3]), rel=1e-5)


def test_short_rows_are_measured_against_a_tenth_of_the_median() -> None:
    wanted, found = some(), some()
    wanted[5] = 0
    found[5] = 1e-3
    assert compare(found, wanted).row == pytest.approx(
        1e-3 * math.sqrt(30) / (0.1 * np.median(np.linalg.norm(wanted, axis=1))), rel=1e-4
    )


def test_not_finite_counts_as_infinite() -> None:
    for bad in (np.nan, np.inf):
        found = some()
        found[0, 0] = bad
        got = compare(found, some())
        assert not got.finite and got.row == math.inf and got.max_abs == math.inf and got.worst[0].channel == 0


def test_outlier_channels() -> None:
    wanted = some()
    wanted[:, [4, 9]] *= [20, 50]
    assert outlier_channels(wanted.astype(np.float64)) == (9, 4)
    found = wanted.copy()
    found[2, 9] += 1
    got = compare(found, wanted)
    assert got.worst[0].outlier and got.outlier_channels == (9, 4)
    assert got.row > 0 and got.row_inside == 0


def test_heat_keeps_the_largest() -> None:
    wanted, found = some(200, 300), some(200, 300)
    found[199, 299] += 7
    cells = heat(found, wanted, (10, 12))
    assert (len(cells), len(cells[0])) == (10, 12)
    assert cells[9][11] == pytest.approx(7, rel=1e-4) and cells[0][0] == 0


def test_flips_and_their_margins() -> None:
    wanted = np.zeros((3, 5), np.float32)
    wanted[:, 2], wanted[:, 4] = 3, [2.999, 1, 0]
    found = wanted.copy()
    found[0, 4] = 3.001
    found[1, 4] = 3.5
    got = decide(found, wanted, 1e-3)
    assert [(f.position, f.wanted, f.found, f.near_tie) for f in got.flips] == [(0, 2, 4, True), (1, 2, 4, False)]
    assert got.flips[0].margin == pytest.approx(1e-3, rel=1e-3) and got.flips[1].margin == pytest.approx(2)
    assert got.top1 == pytest.approx(1 / 3) and not got.ok


def test_divergence() -> None:
    wanted = some(50, 100)
    assert decide(wanted, wanted, 1e-6).kl_max == 0
    noise = 0.05
    found = wanted + noise * np.random.default_rng(1).standard_normal(wanted.shape).astype(np.float32)
    got = decide(found, wanted, noise)
    # Noise of one deviation on every logit gives noise^2 / 2, which is what the budget allows.
    assert got.kl_mean == pytest.approx(noise**2 / 2, rel=0.2)
    assert got.kl_mean_budget == pytest.approx((noise * float(np.sqrt(np.mean(wanted**2)))) ** 2 / 2 + tolerance.KL_FLOOR, rel=1e-6)


def test_expected_flips_are_what_noise_makes() -> None:
    rng = np.random.default_rng(3)
    margins, noise = rng.exponential(1.0, 20000), 0.3
    turned = np.count_nonzero(margins + noise * math.sqrt(2) * rng.standard_normal(20000) < 0)
    assert tolerance.expected_flips(margins[:, None].tolist(), noise) == pytest.approx(turned, rel=0.1)
    assert tolerance.expected_flips([[0.1]], 0) == 0
    assert tolerance.expected_flips([[]], 1.0) == 0
    assert tolerance.allowed_flips(0) == 0


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.5, 1.2])
def test_honest_noise_of_any_size_is_no_departure(noise: float) -> None:
    """Large noise turns over a decision by the third and fourth candidate, too: counting the runner-up alone allows too few."""
    rng = np.random.default_rng(5)
    wanted = rng.standard_normal((400, 300)).astype(np.float32)
    found = wanted + noise * rng.standard_normal(wanted.shape).astype(np.float32)
    got = decide(found, wanted, noise)
    assert got.ok and len(got.flips) > 0 and got.allowed_flips <= got.positions


def test_more_flips_than_noise_makes_depart() -> None:
    rng = np.random.default_rng(6)
    wanted = rng.standard_normal((400, 300)).astype(np.float32)
    found = wanted + 0.4 * rng.standard_normal(wanted.shape).astype(np.float32)
    assert not decide(found, wanted, 0.1).ok
