"""The loop: schedule, run, sample. Several requests run together; each reader drives the loop for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np

from ouzel.engines.base import CancelToken
from ouzel.errors import Cancelled, ContextError
from ouzel.models.family import Family, Picture
from ouzel.text.tokenizer import Tokenizer
from ouzel.generation.blocks import BlockPool, chain_hashes
from ouzel.generation.request import Chunk, GenerationParams, Prompt
from ouzel.generation.runner import Features, TextRunner, VisionRunner, join_features
from ouzel.generation.scheduler import Scheduled, Scheduler
from ouzel.generation.sequence import Sequence
from ouzel.generation.speculate import make_speculator


class Generator:
    """Runs requests over one model. Safe to use from several threads: one step runs at a time."""

    def __init__(
        self,
        family: Family,
        text: TextRunner,
        vision: VisionRunner | None,
        tokenizer: Tokenizer | None,
        eos: frozenset[int],
        *,
        chunk: int,
        keep_blocks: int,
    ) -> None:
        self._family = family
        self._text = text
        self._vision = vision
        self._tokenizer = tokenizer
        self._eos = eos
        self.pool = BlockPool(keep_blocks)
        self.scheduler = Scheduler(self.pool, chunk)
        self._lock = threading.RLock()

    def add(self, prompt: Prompt, params: GenerationParams) -> Sequence:
        """Queues a request. Raises ContextError before anything runs when it cannot fit."""
        params.validate(self._family.sizes.vocab)
        self._check_context(prompt)
        speculator = make_speculator(params.speculate, self._family.sizes.max_context)
        sequence = Sequence(prompt, params, self._eos, self._tokenizer, _hashes(prompt), speculator)
        with self._lock:
            self.scheduler.add(sequence)
        return sequence

    def stream(self, sequence: Sequence) -> Iterator[Chunk]:
        """Pieces of one request as they come. Leaving the loop early cancels the request and frees its blocks."""
        try:
            while True:
                while sequence.pending:
                    yield sequence.pending.popleft()
                if sequence.error is not None:
                    raise sequence.error
                if sequence.finished:
                    return
                with self._lock:
                    if not sequence.pending and not sequence.finished:
                        self.step(sequence.cancel)
        finally:
            self.stop(sequence)

    def stop(self, sequence: Sequence) -> None:
        """Takes a request out and frees its blocks; nothing happens when it has ended already."""
        with self._lock:
            sequence.cancel.cancel()
            sequence.end("cancelled")
            self.scheduler.finish(sequence)

    def encode(self, picture: Picture) -> Features:
        """Features of a picture, between the steps of running requests."""
        assert self._vision is not None
        with self._lock:
            return self._vision.encode(picture)

    def step(self, cancel: CancelToken | None = None) -> bool:
        """Runs one step for all requests; False when there was nothing to do. `cancel` stops the step itself."""
        with self._lock:
            self._drop_cancelled()
            self._encode_next()
            work = self.scheduler.next()
            if not work:
                return False
            start = time.perf_counter()
            try:
                logits = self._text.run(work, self.pool.total, cancel)
            except Cancelled:
                # Nothing of this step counts: other requests run the same tokens again.
                return True
            now = time.perf_counter()
            for item, row in zip(work, logits):
                self._after(item, row, now - start, now)
            return True

    def _drop_cancelled(self) -> None:
        for sequence in [*self.scheduler.waiting, *self.scheduler.running]:
            if sequence.cancel.cancelled:
                sequence.end("cancelled")
                self.scheduler.finish(sequence)

    def _encode_next(self) -> None:
        """Encodes the pictures of waiting requests, so that a failure stays with the request that caused it."""
        for sequence in list(self.scheduler.waiting):
            if sequence.features or not sequence.prompt.pictures or self._vision is None:
                continue
            start = time.perf_counter()
            try:
                parts = [self._vision.encode(picture, sequence.cancel) for picture in sequence.prompt.pictures]
                sequence.features = join_features(parts)
            except Cancelled:
                sequence.end("cancelled")
                self.scheduler.finish(sequence)
            except Exception as error:  # noqa: BLE001 - handed to the reader of this request
                sequence.fail(error)
                self.scheduler.finish(sequence)
            sequence.seconds["encode"] += time.perf_counter() - start

    def _after(self, item: Scheduled, logits: np.ndarray | None, seconds: float, now: float) -> None:
        sequence = item.sequence
        self.scheduler.computed(item)
        if not sequence.count:
            sequence.seconds["prefill"] += seconds
        if logits is None:
            return
        try:
            sequence.take_all(logits, item.draft, now, self._family.sizes.max_context)
        except Exception as error:  # noqa: BLE001 - handed to the reader of this request, who may not drive this step
            sequence.fail(error)
        if sequence.finished:
            self.scheduler.finish(sequence)

    def _check_context(self, prompt: Prompt) -> None:
        limit = self._family.sizes.max_context
        if len(prompt.ids) >= limit:
            pictures = prompt.picture_tokens
            raise ContextError(
                "prompt",
                expected=f"fewer than {limit} tokens (the model's context)",
                got=f"{len(prompt.ids) - pictures} text and {pictures} picture tokens",
                fix="shorten the text, or lower max_pixels",
            )


def _hashes(prompt: Prompt) -> list[bytes]:
    """The prompt's block hashes; a picture row takes part by its picture's key and its place in the picture."""
    content = np.full(len(prompt.ids), b"", dtype="S80")
    rows = prompt.visual
    start = 0
    for picture in prompt.pictures:
        inside = np.flatnonzero((rows >= start) & (rows < start + picture.tokens))
        content[inside] = [f"{picture.key}:{rows[i] - start}".encode() for i in inside]
        start += picture.tokens
    return chain_hashes(np.array(prompt.ids, np.int64), prompt.positions.ids, content)
