"""Choosing the next token of one request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import NumericError, RequestError
from ouzel.generation.distribution import candidates, highest, log_normaliser
from ouzel.generation.penalties import Penalties

MAX_LOGPROBS = 1000


@dataclass(frozen=True)
class SamplingParams:
    """How tokens are chosen. The defaults are greedy: always the highest score.

    - `temperature`: 0 is greedy; otherwise scores are divided by it.
    - `top_k` (0: off), `top_p` (1: off), `min_p` (0: off) bound the choice, in this order, after the temperature.
    - `repetition_penalty` (1: off) as in transformers: over prompt and generated tokens, positive scores are divided by it and
      negative ones multiplied.
    - `presence_penalty`, `frequency_penalty` (0: off) as in OpenAI's API: over generated tokens, subtracted once, or once for
      each time.
    - `logit_bias`: token id to a number that is added to its score.
    - `seed`: the same seed gives the same draws; None takes a fresh one.
    - `logprobs`: None for none; otherwise the log-probability of the chosen token and of this many most likely ones.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    logprobs: int | None = None

    def validate(self, vocab_size: int | None = None) -> SamplingParams:
        """Returns itself; raises `RequestError` naming the field that is out of range.

        `vocab_size` is the number of rows of the head, for the ids of `logit_bias`.
        """
        _number("temperature", self.temperature, 0, 100)
        _whole("top_k", self.top_k, 0)
        _number("top_p", self.top_p, 0, 1, above=True)
        _number("min_p", self.min_p, 0, 1)
        _number("repetition_penalty", self.repetition_penalty, 0, 100, above=True)
        _number("presence_penalty", self.presence_penalty, -2, 2)
        _number("frequency_penalty", self.frequency_penalty, -2, 2)
        if self.seed is not None:
            _whole("seed", self.seed, -(1 << 63), (1 << 64) - 1)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        self._validate_bias(vocab_size)
        return self

    def _validate_bias(self, vocab_size: int | None) -> None:
        if not isinstance(self.logit_bias, Mapping):
            raise RequestError("logit_bias", expected="token ids with numbers", got=type(self.logit_bias).__name__)
        for token, bias in self.logit_bias.items():
            _whole("logit_bias token id", token, 0, None if vocab_size is None else vocab_size - 1)
            _number(f"logit_bias of {token}", bias, -100, 100)

    @property
    def greedy(self) -> bool:
        """Whether no draw is made."""
        return self.temperature == 0


def _is_real(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _shown(value: object) -> str:
    # Python refuses to print numbers of thousands of digits.
    huge = isinstance(value, int) and value.bit_length() > 200
    return "a huge number" if huge else " ".join(repr(value).split())[:60]


def _number(name: str, value: object, low: float, high: float, *, above: bool = False) -> None:
    good = _is_real(value) and low <= value <= high  # type: ignore[operator]
    if not good or (above and value == low):
        expected = f"a number {'above' if above else 'from'} {low:g} {'and at most' if above else 'to'} {high:g}"
        raise RequestError(name, expected=expected, got=_shown(value))


def _whole(name: str, value: object, low: int, high: int | None = None) -> None:
    good = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not good or value < low or (high is not None and value > high):  # type: ignore[operator]
        bound = f"at least {low}" if high is None else f"from {low} to {high}"
        raise RequestError(name, expected=f"a whole number {bound}", got=_shown(value))


@dataclass(frozen=True)
class Sampled:
    """A chosen token.

    `logprob` and `top` (most likely first, equal ones by id) are natural logarithms of the softmax of the model's raw scores,
    before penalties, bias and temperature, as OpenAI and vLLM report them; None and empty unless asked for.
    """

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Sampler:
    """Chooses the tokens of one request.

    It has its own random generator: the k-th draw depends on the seed and on k alone, so neither the batch nor other requests
    matter. `seed` holds the one in use, which repeats the run.
    """

    def __init__(self, params: SamplingParams, prompt_ids: Iterable[int] = ()) -> None:
        self.params = params.validate()
        self.seed = params.seed
        if self.seed is None and not params.greedy:
            self.seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        # Negative seeds are taken modulo 2**64: NumPy accepts none. A NumPy integer would overflow.
        self._random = np.random.Generator(np.random.PCG64(int(self.seed or 0) % (1 << 64)))
        self._penalties = Penalties(
            params.repetition_penalty, params.presence_penalty, params.frequency_penalty, params.logit_bias, prompt_ids
        )

    def sample(self, logits: NDArray[np.float32]) -> Sampled:
        """The next token for `logits` (float32 [rows of the head], not changed).

        `accept` is separate, since a caller may end the request with this token. Raises `NumericError` for scores that are
        not finite.
        """
        logits = np.asarray(logits, np.float32)
        _check(logits)
        scores = self._penalties.apply(logits)
        token = int(np.argmax(scores)) if self.params.greedy else self._draw(scores)
        if self.params.logprobs is None:
            return Sampled(token)
        return _with_logprobs(token, logits, self.params.logprobs)

    def accept(self, token: int) -> None:
        """Adds a generated token to the history that the penalties look at."""
        self._penalties.accept(token)

    def _draw(self, scores: NDArray[np.float32]) -> int:
        params = self.params
        point = self._random.random()
        ids, shares = candidates(scores, params.temperature, params.top_k, params.top_p, params.min_p)
        sums = np.cumsum(shares)
        place = int(np.searchsorted(sums, point * sums[-1], side="right"))
        return int(ids[min(place, len(ids) - 1)])


def _check(logits: NDArray[np.float32]) -> None:
    if logits.ndim != 1 or not len(logits):
        raise ValueError(f"logits must have one dimension and a value, got shape {logits.shape}")
    # Two reductions see NaN and both infinities without a temporary array.
    if not (math.isfinite(logits.max()) and math.isfinite(logits.min())):
        bad = np.flatnonzero(~np.isfinite(logits))
        raise NumericError(
            "logits",
            expected="finite numbers",
            got=f"{len(bad)} that are not, the first at token {bad[0]}",
            fix="the weights are damaged or the computation overflowed; try f32 weights",
        )


def _with_logprobs(token: int, logits: NDArray[np.float32], count: int) -> Sampled:
    normaliser = log_normaliser(logits)
    top = tuple((int(other), float(logits[other]) - normaliser) for other in highest(logits, count))
    return Sampled(token, float(logits[token]) - normaliser, top)
