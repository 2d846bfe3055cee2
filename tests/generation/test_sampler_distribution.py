"""The arithmetic below the sampler, and equality with transformers' processors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.generation import logits_process as reference

from ouzel.generation.distribution import candidates, exp, highest, log_normaliser, total
from ouzel.generation.penalties import Penalties

SEED = 77


def scores(count: int, seed: int = SEED, scale: float = 4.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(count) * scale).astype(np.float32)


def test_exp_is_right_to_the_last_bits() -> None:
    x = -np.abs(np.random.default_rng(SEED).standard_normal(20000) * 150)
    x[:4] = [0.0, -1e-300, -700.0, -1e9]
    # Long double is the reference where the machine has it; plain doubles are good to 1e-15 everywhere.
    wanted = np.exp(np.maximum(x, -700.0).astype(np.longdouble))
    assert np.max(np.abs(exp(x) - wanted) / wanted) < 1e-15


def test_exp_does_not_depend_on_place_or_company() -> None:
    x = -np.abs(scores(20000).astype(np.float64))
    whole = exp(x)
    np.testing.assert_array_equal(whole[8190:8200], exp(x[8190:8200].copy()))
    assert total(whole) == sum(whole.tolist())


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 255, 999, 1000, 1001])
@pytest.mark.parametrize("levels", [3, 100000])
@pytest.mark.parametrize("size", [1000, 200_003])
def test_highest_breaks_ties_by_id(count: int, levels: int, size: int) -> None:
    values = np.random.default_rng(SEED).integers(0, levels, size).astype(np.float32)
    wanted = np.argsort(-values, kind="stable")[:count]
    assert highest(values, count).tolist() == wanted.tolist()


def test_log_normaliser() -> None:
    logits = scores(30000)
    wanted = torch.logsumexp(torch.from_numpy(logits).double(), 0).item()
    assert log_normaliser(logits) == pytest.approx(wanted, abs=1e-12)


SETTINGS = [
    (1.0, 0, 1.0, 0.0), (0.7, 20, 1.0, 0.0), (0.7, 20, 0.8, 0.0), (0.6, 20, 0.95, 0.0), (1.0, 0, 0.9, 0.0), (2.0, 0, 0.99, 0.0),
    (1.0, 0, 1.0, 0.1), (1.5, 50, 0.95, 0.02), (0.3, 0, 0.5, 0.3), (1.0, 1, 1.0, 0.0), (1.0, 0, 1e-9, 0.0), (1.0, 0, 1.0, 1.0),
    (5.0, 0, 0.999, 0.0), (1.0, 10**6, 1.0, 0.0),
]  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize(("count", "scale"), [(1000, 4.0), (151936, 2.5)])
def test_candidates_equal_the_reference(setting: tuple[float, int, float, float], count: int, scale: float) -> None:
    temperature, top_k, top_p, min_p = setting
    logits = scores(count, scale=scale)
    warpers: list[reference.LogitsProcessor] = [reference.TemperatureLogitsWarper(temperature)]
    if top_k:
        warpers.append(reference.TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(reference.TopPLogitsWarper(top_p))
    if min_p > 0:
        warpers.append(reference.MinPLogitsWarper(min_p))
    # Double precision: in single precision the reference's own sums move the border of top-p.
    warped = torch.from_numpy(logits).double()[None]
    for warper in warpers:
        warped = warper(torch.zeros((1, 0), dtype=torch.long), warped)
    wanted = torch.softmax(warped, -1)[0].numpy()
    ids, shares = candidates(logits, temperature, top_k, top_p, min_p)
    assert set(ids.tolist()) == set(np.flatnonzero(torch.isfinite(warped)[0].numpy()).tolist())
    np.testing.assert_allclose(shares, wanted[ids], rtol=1e-9, atol=1e-300)
    if len(ids) < count:
        assert np.all(np.diff(shares) <= 0)


def test_ties_at_the_border_of_top_k_keep_the_lowest_ids() -> None:
    ids, shares = candidates(np.array([1, 3, 2, 2, 2], np.float32), 1.0, 3, 1.0, 0.0)
    assert ids.tolist() == [1, 2, 3]
    assert shares.sum() == pytest.approx(1)


@pytest.mark.parametrize("penalty", [0.8, 1.05, 1.3, 2.0])
def test_repetition_penalty_equals_the_reference(penalty: float) -> None:
    logits = scores(400)
    history = np.random.default_rng(SEED).integers(0, 400, 60)
    ours = Penalties(penalty, 0, 0, {}, history[:40].tolist())
    for token in history[40:].tolist():
        ours.accept(token)
    processor = reference.RepetitionPenaltyLogitsProcessor(penalty)
    wanted = processor(torch.from_numpy(history)[None], torch.from_numpy(logits)[None])[0].numpy()
    np.testing.assert_array_equal(ours.apply(logits), wanted)


def test_presence_and_frequency_equal_the_formula() -> None:
    logits = scores(50)
    generated = np.random.default_rng(SEED).integers(0, 50, 30)
    ours = Penalties(1.0, 0.7, 0.3, {3: -2.0}, [1, 2, 3])
    for token in generated.tolist():
        ours.accept(token)
    counts = np.bincount(generated, minlength=50)
    wanted = logits.astype(np.float64) - 0.3 * counts - 0.7 * (counts > 0)
    wanted[3] -= 2.0
    # Four roundings in single precision of values below 32.
    np.testing.assert_allclose(ours.apply(logits), wanted, atol=4 * 32 * 2**-24)


def test_without_penalties_nothing_is_copied() -> None:
    logits = scores(10)
    assert Penalties(1.0, 0.0, 0.0, {}, [1, 2]).apply(logits) is logits
