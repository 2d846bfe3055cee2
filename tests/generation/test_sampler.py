"""The sampler: settings, greedy choice, penalties, draws, log-probabilities."""

from __future__ import annotations

import collections
import math

import numpy as np
import pytest

from ouzel.errors import NumericError, RequestError
from ouzel.generation.penalties import TokenCounts
from ouzel.generation.sampler import Sampler, SamplingParams

SEED = 20240611


def scores(count: int = 500, seed: int = SEED, scale: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(count) * scale).astype(np.float32)


def draws(params: SamplingParams, logits: np.ndarray, count: int) -> list[int]:
    sampler = Sampler(params)
    return [sampler.sample(logits).id for _ in range(count)]


BAD = [
    ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf), ("temperature", "1"), ("temperature", True),
    ("temperature", 10**5000), ("seed", 10**5000),
    ("top_k", -1), ("top_k", 1.5), ("top_k", False), ("top_p", 0.0), ("top_p", 1.01), ("top_p", None),
    ("min_p", -0.01), ("min_p", 1.5), ("repetition_penalty", 0.0), ("repetition_penalty", -1.0), ("presence_penalty", 2.5),
    ("frequency_penalty", -3), ("seed", 1.0), ("seed", 1 << 64), ("logprobs", -1), ("logprobs", 10**6), ("logprobs", True),
    ("logit_bias", {-1: 1.0}), ("logit_bias", {1: 101.0}), ("logit_bias", {"1": 1.0}), ("logit_bias", {2: math.nan}),
    ("logit_bias", [1]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}-{index}" for index, (name, _) in enumerate(BAD)])
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=name):
        SamplingParams(**{name: value}).validate()  # type: ignore[arg-type]


def test_good_settings_pass_and_the_head_bounds_the_bias() -> None:
    params = SamplingParams(0.7, 20, 0.8, 0.05, 1.1, 0.5, -0.5, {5: 100.0}, -3, 5)
    assert params.validate(6) is params
    with pytest.raises(RequestError, match="logit_bias"):
        params.validate(5)
    with pytest.raises(RequestError, match="logit_bias"):
        Sampler(params).sample(scores(5))


def test_greedy_takes_the_lowest_id_of_equal_scores() -> None:
    logits = np.array([0.0, 2.0, 1.0, 2.0, 2.0], np.float32)
    assert Sampler(SamplingParams()).sample(logits).id == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_scores_that_are_not_finite_stop_with_an_error(value: float) -> None:
    logits = scores()
    logits[17] = value
    for params in (SamplingParams(), SamplingParams(temperature=1.0, seed=1)):
        with pytest.raises(NumericError, match="token 17"):
            Sampler(params).sample(logits)


def test_the_scores_of_the_caller_are_not_changed() -> None:
    logits = scores()
    before = logits.copy()
    params = SamplingParams(0.5, 10, 0.9, 0.1, 1.3, 1.0, 1.0, {3: 5.0}, 1, 4)
    sampler = Sampler(params, [1, 2, 3])
    sampler.accept(sampler.sample(logits).id)
    sampler.sample(logits)
    np.testing.assert_array_equal(logits, before)


def test_presence_and_frequency_count_generated_tokens_only() -> None:
    logits = np.array([5.0, 4.0, 3.0], np.float32)
    sampler = Sampler(SamplingParams(presence_penalty=0.6, frequency_penalty=0.5), prompt_ids=[0, 0, 0, 1])
    chosen = []
    for _ in range(5):
        chosen.append(sampler.sample(logits).id)
        sampler.accept(chosen[-1])
    # Scores of token 0: 5, 3.9, 3.4, ...; of token 1: 4, 2.9, 2.4; of token 2: 3, ...
    assert chosen == [0, 1, 0, 0, 2]


def test_repetition_penalty_counts_the_prompt_once() -> None:
    logits = np.array([3.0, 2.0, -1.0], np.float32)
    assert Sampler(SamplingParams(repetition_penalty=1.4), [0]).sample(logits).id == 0
    assert Sampler(SamplingParams(repetition_penalty=1.6), [0]).sample(logits).id == 1
    assert Sampler(SamplingParams(repetition_penalty=1.4), [0] * 9).sample(logits).id == 0
    # Negative scores are multiplied, so that they too become less likely.
    assert Sampler(SamplingParams(repetition_penalty=2.0), [1]).sample(np.array([-1.5, -1.0], np.float32)).id == 0


def test_penalties_remember_more_tokens_than_they_start_with() -> None:
    sampler = Sampler(SamplingParams(presence_penalty=2.0), range(300))
    for token in range(500, 700):
        sampler.accept(token)
    logits = np.zeros(701, np.float32)
    logits[500:700] = 1.5
    logits[700] = 1.0
    assert sampler.sample(logits).id == 700


def test_bias_is_added() -> None:
    logits = np.array([3.0, 2.0, 1.0], np.float32)
    assert Sampler(SamplingParams(logit_bias={2: 2.5})).sample(logits).id == 2
    assert Sampler(SamplingParams(logit_bias={0: -100})).sample(logits).id == 1


def test_the_same_seed_gives_the_same_draws_and_another_does_not() -> None:
    logits = scores()
    first = draws(SamplingParams(temperature=1.0, seed=5), logits, 40)
    assert first == draws(SamplingParams(temperature=1.0, seed=5), logits, 40)
    assert first != draws(SamplingParams(temperature=1.0, seed=6), logits, 40)


def test_a_missing_seed_is_chosen_and_can_be_repeated() -> None:
    logits = scores()
    sampler = Sampler(SamplingParams(temperature=1.0))
    ids = [sampler.sample(logits).id for _ in range(30)]
    assert ids == draws(SamplingParams(temperature=1.0, seed=sampler.seed), logits, 30)
    assert sampler.seed != Sampler(SamplingParams(temperature=1.0)).seed


def test_the_draw_depends_on_seed_and_count_alone() -> None:
    """Other scores before, or other bounds before, do not shift a later draw."""
    logits = scores()
    params = SamplingParams(temperature=1.0, top_p=0.9, seed=9)
    wanted = draws(params, logits, 10)[9]
    sampler = Sampler(params)
    for other in range(9):
        sampler.sample(scores(500, seed=other, scale=1.0 + other))
    assert sampler.sample(logits).id == wanted


@pytest.mark.parametrize("seed", [-1, 0, (1 << 64) - 1])
def test_any_64_bit_seed_works(seed: int) -> None:
    assert len(draws(SamplingParams(temperature=1.0, seed=seed), scores(), 3)) == 3


@pytest.mark.parametrize(
    "bounds", [{}, {"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.2}, {"top_k": 6, "top_p": 0.8, "min_p": 0.05}], ids=str
)
def test_draws_follow_the_distribution(bounds: dict[str, float]) -> None:
    """Chi-square of 6000 draws. The seed is fixed: the bound, mean + 5 standard deviations, is not a matter of luck."""
    logits = scores(12, scale=1.5)
    params = SamplingParams(temperature=0.8, seed=SEED, **bounds)  # type: ignore[arg-type]
    shares = np.exp(logits.astype(np.float64) / 0.8)
    order = np.argsort(-shares)
    if "top_k" in bounds:
        shares[order[int(bounds["top_k"]) :]] = 0
    if "top_p" in bounds:
        before = np.cumsum(shares[order]) - shares[order]
        shares[order[before >= bounds["top_p"] * shares.sum()]] = 0
    shares[shares < bounds.get("min_p", 0) * shares.max()] = 0
    shares /= shares.sum()
    counts = collections.Counter(draws(params, logits, 6000))
    assert set(counts) <= set(np.flatnonzero(shares).tolist())
    live = np.flatnonzero(shares)
    chi_square = sum((counts[int(i)] - 6000 * shares[i]) ** 2 / (6000 * shares[i]) for i in live)
    freedom = len(live) - 1
    assert chi_square < freedom + 5 * math.sqrt(2 * freedom) + 1e-9


def test_tiny_temperatures_become_greedy_without_overflow() -> None:
    logits = scores() * 30
    assert set(draws(SamplingParams(temperature=1e-6, seed=1), logits, 20)) == {int(np.argmax(logits))}


def test_a_vocabulary_of_one() -> None:
    for params in (SamplingParams(), SamplingParams(temperature=1, top_k=3, top_p=0.5, min_p=0.5, seed=1, logprobs=4)):
        assert Sampler(params).sample(np.zeros(1, np.float32)).id == 0


def test_logprobs_are_of_the_raw_scores() -> None:
    logits = scores()
    exact = logits.astype(np.float64)
    exact -= exact.max() + math.log(np.exp(exact - exact.max()).sum())
    params = SamplingParams(temperature=0.1, repetition_penalty=3.0, logit_bias={7: 100.0}, seed=1, logprobs=6)
    sampled = Sampler(params, range(100)).sample(logits)
    assert sampled.id == 7
    assert sampled.logprob == pytest.approx(exact[7], abs=1e-12)
    wanted = np.argsort(-exact)[:6]
    assert [token for token, _ in sampled.top] == wanted.tolist()
    np.testing.assert_allclose([value for _, value in sampled.top], exact[wanted], atol=1e-12)


def test_logprobs_none_zero_and_more_than_there_are() -> None:
    logits = np.array([1.0, 1.0, 0.0], np.float32)
    none = Sampler(SamplingParams()).sample(logits)
    assert none.logprob is None and none.top == ()
    zero = Sampler(SamplingParams(logprobs=0)).sample(logits)
    assert zero.logprob is not None and zero.top == ()
    many = Sampler(SamplingParams(logprobs=9)).sample(logits)
    assert [token for token, _ in many.top] == [0, 1, 2]
    assert sum(math.exp(value) for _, value in many.top) == pytest.approx(1)


@pytest.mark.parametrize("prompt", [0, 1, 63, 64, 65, 127, 128])
def test_counts_grow_with_the_generated_tokens(prompt: int) -> None:
    counts = TokenCounts(range(prompt))
    for token in range(300):
        counts.add(token)
        counts.add(token)
    assert dict(zip(counts.ids.tolist(), counts.counts.tolist())) == {token: 2.0 for token in range(300)}
