"""Changes of the raw scores before a token is chosen: repetition, presence and frequency penalties, logit bias."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import RequestError


class TokenCounts:
    """The distinct tokens of one sequence, and how often each was generated. Adding one takes constant time."""

    def __init__(self, prompt_ids: Iterable[int]) -> None:
        self._place: dict[int, int] = {}
        self._ids = np.empty(64, np.int64)
        self._counts = np.zeros(64, np.float32)
        for token in prompt_ids:
            self._place_of(int(token))

    def add(self, token: int) -> None:
        """Counts one generated token."""
        place = self._place_of(token)  # first: it may put a longer array in place
        self._counts[place] += 1

    def _place_of(self, token: int) -> int:
        place = self._place.setdefault(token, len(self._place))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[place] = token
        return place

    @property
    def ids(self) -> NDArray[np.int64]:
        """Distinct ids of prompt and generation, each once."""
        return self._ids[: len(self._place)]

    @property
    def counts(self) -> NDArray[np.float32]:
        """How often each of `ids` was generated; 0 for those of the prompt alone."""
        return self._counts[: len(self._place)]


class Penalties:
    """Applies a request's penalties and bias to scores; does nothing, and copies nothing, when all are off."""

    def __init__(
        self, repetition: float, presence: float, frequency: float, bias: Mapping[int, float], prompt_ids: Iterable[int]
    ) -> None:
        self._repetition = np.float32(repetition)
        self._presence = np.float32(presence)
        self._frequency = np.float32(frequency)
        self._bias_ids = np.fromiter(bias.keys(), np.int64, len(bias))
        self._bias = np.fromiter(bias.values(), np.float32, len(bias))
        self._counting = repetition != 1 or presence != 0 or frequency != 0
        self._tokens = TokenCounts(prompt_ids if self._counting else ())

    def accept(self, token: int) -> None:
        """Counts one generated token."""
        if self._counting:
            self._tokens.add(token)

    def apply(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Changed scores, in a copy if anything changes. `logits`: float32 [vocabulary]."""
        if not self._counting and not len(self._bias_ids):
            return logits
        out = logits.copy()
        self._penalise(out)
        if len(self._bias_ids):
            if self._bias_ids.max() >= len(out):
                raise RequestError(
                    "logit_bias", expected=f"token ids below {len(out)}", got=str(int(self._bias_ids.max()))
                )
            out[self._bias_ids] += self._bias
        return out

    def _penalise(self, out: NDArray[np.float32]) -> None:
        # A prompt may hold ids that the head has no row for only by mistake of the caller; they cannot be generated.
        inside = self._tokens.ids < len(out)
        ids, counts = self._tokens.ids[inside], self._tokens.counts[inside]
        if self._repetition != 1:
            scores = out[ids]
            out[ids] = np.where(scores < 0, scores * self._repetition, scores / self._repetition)
        if self._presence != 0 or self._frequency != 0:
            out[ids] -= counts * self._frequency + (counts > 0) * self._presence
