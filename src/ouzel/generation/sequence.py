"""One running request: its tokens, how far they are computed, and its blocks."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.base import BLOCK_TOKENS, CancelToken
from ouzel.text.stream import StopStrings, StreamDecoder
from ouzel.text.tokenizer import Tokenizer
from ouzel.generation.request import Chunk, GenerationParams, Prompt, Timings, TokenLogprob, Usage
from ouzel.generation.sampler import Sampler
from ouzel.generation.speculate import Speculator


class Sequence:
    """The state of a request between steps. The scheduler and the generator change it; nobody else does."""

    def __init__(
        self,
        prompt: Prompt,
        params: GenerationParams,
        eos: frozenset[int],
        tokenizer: Tokenizer | None,
        hashes: list[bytes],
        speculator: Speculator | None = None,
    ) -> None:
        self.prompt = prompt
        self.params = params
        self.cancel = CancelToken()
        self.ids = list(prompt.ids)
        self.computed = 0
        self.cached = 0
        self.blocks: list[int] = []
        self.hashes = hashes
        self.features: dict[str, NDArray[np.float32]] = {}
        self.pending: deque[Chunk] = deque()
        self.error: Exception | None = None
        self.finish_reason: str | None = None
        self.seconds = {"encode": 0.0, "prefill": 0.0}
        self.first_at = self.last_at = 0.0
        self.speculator = speculator
        self._eos = frozenset() if params.ignore_eos else eos
        self._sampler = Sampler(params.sampling, prompt.ids)
        self._decoder = None if tokenizer is None else StreamDecoder(tokenizer, params.skip_special_tokens)
        self._stops = StopStrings(params.stop)

    @property
    def finished(self) -> bool:
        """Whether no more tokens will come."""
        return self.finish_reason is not None

    @property
    def waiting_tokens(self) -> int:
        """Tokens that are known but not computed: the rest of the prompt, or the last generated one."""
        return len(self.ids) - self.computed

    @property
    def generated(self) -> list[int]:
        """Ids after the prompt."""
        return self.ids[len(self.prompt.ids) :]

    @property
    def count(self) -> int:
        """Tokens generated so far."""
        return len(self.ids) - len(self.prompt.ids)

    def blocks_needed(self, tokens: int) -> int:
        """Further blocks for `tokens` more tokens after the computed ones."""
        return -(-(self.computed + tokens) // BLOCK_TOKENS) - len(self.blocks)

    def draft(self) -> tuple[int, ...]:
        """Tokens that may come after the known ones, to be run with the newest; none without speculation."""
        if self.speculator is None or not self.count:
            return ()
        return self.speculator.guess(self.ids, self.params.max_tokens - self.count - 1)

    def take_all(self, logits: NDArray[np.float32], draft: tuple[int, ...], now: float, limit: int) -> None:
        """Takes from logits [1 + draft, vocab] one token after another as long as the draft's were right.

        limit: tokens of the context, at which the request ends.
        """
        held = 0
        for row, guessed in zip(logits, (*draft, None)):
            self.take(row, now)
            if not self.finished and len(self.ids) >= limit:
                self.end("length")
            if self.finished or self.ids[-1] != guessed:
                break
            held += 1
        self.computed += held
        if self.speculator is not None:
            self.speculator.learn(len(draft), held)

    def take(self, logits: NDArray[np.float32], now: float) -> None:
        """Samples the next token from logits [vocab] and puts what it means for the reader into `pending`."""
        sampled = self._sampler.sample(logits)
        self._sampler.accept(sampled.id)
        if not self.count:
            self.first_at = now
        self.last_at = now
        self.ids.append(sampled.id)
        if self.params.sampling.logprobs is None:
            logprobs: tuple[TokenLogprob, ...] = ()
        else:
            logprobs = (TokenLogprob(sampled.id, sampled.logprob or 0.0, sampled.top),)
        self._emit(sampled.id, logprobs)

    def end(self, reason: str) -> None:
        """Ends the request from outside; held-back text is given."""
        if not self.finished:
            self.pending.append(self._last_chunk("", (), (), reason))

    def fail(self, error: Exception) -> None:
        """Ends the request with an error, which its reader will get."""
        self.error = error
        self.finish_reason = "error"

    def usage(self) -> Usage:
        """Token counts so far."""
        return Usage(len(self.prompt.ids), self.prompt.picture_tokens, self.cached, self.count)

    def timings(self) -> Timings:
        """Seconds so far."""
        return Timings(
            self.prompt.decode_seconds,
            self.prompt.preprocess_seconds,
            self.seconds["encode"],
            self.seconds["prefill"],
            self.last_at - self.first_at,
        )

    def _emit(self, token: int, logprobs: tuple[TokenLogprob, ...]) -> None:
        if token in self._eos:
            self.pending.append(self._last_chunk("", (token,), logprobs, "stop"))
            return
        text, stopped = self._push(token)
        if stopped:
            self.finish_reason = "stop"
            self.pending.append(Chunk(text, (token,), logprobs, "stop"))
        elif self.count >= self.params.max_tokens:
            self.pending.append(self._last_chunk(text, (token,), logprobs, "length"))
        else:
            self.pending.append(Chunk(text, (token,), logprobs))

    def _push(self, token: int) -> tuple[str, bool]:
        if self._decoder is None:
            return "", False
        return self._stops.push(self._decoder.push(token))

    def _last_chunk(self, text: str, ids: tuple[int, ...], logprobs: tuple[TokenLogprob, ...], reason: str) -> Chunk:
        if self._decoder is not None:
            more, stopped = self._stops.push(self._decoder.finish())
            text += more if stopped else more + self._stops.finish()
            reason = "stop" if stopped else reason
        self.finish_reason = reason
        return Chunk(text, ids, logprobs, reason)
