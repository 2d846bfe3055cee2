"""What is asked of the generator and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import RequestError
from ouzel.models.family import Picture, Positions
from ouzel.generation.sampler import SamplingParams
from ouzel.generation.speculate import SPECULATION


@dataclass(frozen=True)
class Prompt:
    """A prompt ready to run.

    ids: token ids. positions: [axes, tokens] with the delta of later tokens. pictures: in the order of their tokens.
    visual: int32 [tokens], the row of each picture token in the pictures' features laid one after another, -1 for text.
    text: the rendered template with placeholders expanded, empty for raw ids.
    """

    ids: tuple[int, ...]
    positions: Positions
    visual: NDArray[np.int32]
    pictures: tuple[Picture, ...] = ()
    text: str = ""
    decode_seconds: float = 0.0
    preprocess_seconds: float = 0.0

    @property
    def picture_tokens(self) -> int:
        """Tokens that stand for picture rows."""
        return int((self.visual >= 0).sum())


@dataclass(frozen=True)
class GenerationParams:
    """How to continue a prompt.

    max_tokens: most tokens to generate. stop: strings that end the text (cut before them). ignore_eos: go on past end tokens.
    skip_special_tokens: leave special tokens out of the text. speculate: "off", or "ngram": guess what repeats ahead; the
    tokens are the same.
    """

    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    speculate: str = "off"

    def validate(self, vocab: int | None = None) -> None:
        """Raises RequestError naming the setting that is out of range; `vocab` bounds the ids of `logit_bias`."""
        if not isinstance(self.max_tokens, int) or isinstance(self.max_tokens, bool) or self.max_tokens < 1:
            raise RequestError("max_tokens", expected="a whole number from 1", got=repr(self.max_tokens))
        if any(not isinstance(text, str) or not text for text in self.stop):
            raise RequestError("stop", expected="strings that are not empty", got=repr(self.stop))
        if self.speculate not in SPECULATION:
            raise RequestError("speculate", expected=f"one of {', '.join(SPECULATION)}", got=repr(self.speculate)[:40])
        self.sampling.validate(vocab)


@dataclass(frozen=True)
class TokenLogprob:
    """One generated token with its log-probability and the most likely alternatives (id, log-probability)."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Chunk:
    """A piece of a stream: new text (may be empty), the new token ids, and, on the last piece, the finish reason."""

    text: str = ""
    ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: str | None = None


@dataclass(frozen=True)
class Usage:
    """Token counts. `cached_tokens` of the prompt were taken from the cache of earlier prompts."""

    prompt_tokens: int
    picture_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt and completion."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Timings:
    """Seconds of each phase; `generate` is from the first token to the last."""

    decode_picture: float = 0.0
    preprocess: float = 0.0
    encode: float = 0.0
    prefill: float = 0.0
    generate: float = 0.0

    @property
    def first_token(self) -> float:
        """Seconds from the pictures to the first token."""
        return self.decode_picture + self.preprocess + self.encode + self.prefill

    def tokens_per_second(self, completion_tokens: int) -> float:
        """Speed of the tokens after the first; 0 when there are none."""
        return (completion_tokens - 1) / self.generate if completion_tokens > 1 and self.generate > 0 else 0.0


@dataclass(frozen=True)
class Result:
    """A finished text. finish_reason: "stop" (end token or stop string), "length", or "cancelled"."""

    text: str
    ids: tuple[int, ...]
    finish_reason: str
    usage: Usage
    timings: Timings
    prompt_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None
    pictures: Sequence[Mapping[str, object]] = ()
