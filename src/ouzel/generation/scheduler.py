"""Chooses which tokens run in the next step. It counts tokens and blocks and knows no arrays."""

from __future__ import annotations

from dataclasses import dataclass

from ouzel.engines.base import BLOCK_TOKENS as BLOCK
from ouzel.generation.blocks import BlockPool
from ouzel.generation.sequence import Sequence


@dataclass(frozen=True)
class Scheduled:
    """`count` tokens of a sequence, from its first uncomputed one on; the last ones are `draft`, guessed and not yet its own."""

    sequence: Sequence
    count: int
    draft: tuple[int, ...] = ()

    @property
    def last(self) -> bool:
        """Whether the step reaches the sequence's newest token, so that its logits, and those of the draft, are wanted."""
        return self.count - len(self.draft) == self.sequence.waiting_tokens


class Scheduler:
    """First come, first served: every decoding sequence gets its row, then waiting prompts fill the rest of the chunk.

    chunk: most prompt tokens in one step. max_running: most sequences that hold blocks at a time.
    """

    def __init__(self, pool: BlockPool, chunk: int, max_running: int = 256) -> None:
        self.pool = pool
        self.chunk = chunk
        self.max_running = max_running
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence."""
        self.waiting.append(sequence)

    def next(self) -> list[Scheduled]:
        """The work of the next step, blocks allocated; empty when there is nothing to do."""
        self._admit()
        decoding = [s for s in self.running if s.waiting_tokens == 1]
        drafts = [s.draft() for s in decoding]
        work = [Scheduled(s, 1 + len(draft), draft) for s, draft in zip(decoding, drafts)]
        room = self.chunk
        for sequence in self.running:
            if sequence.waiting_tokens > 1 and room > 0:
                count = min(room, sequence.waiting_tokens)
                work.append(Scheduled(sequence, count))
                room -= count
        for item in work:
            needed = item.sequence.blocks_needed(item.count)
            item.sequence.blocks += [self.pool.allocate() for _ in range(needed)]
        return work

    def computed(self, item: Scheduled) -> None:
        """A step has run: its tokens are in the cache, and full blocks of the prompt may serve others.

        The draft does not count: `Sequence.take_all` counts what held of it, and later tokens take the places of the rest.
        """
        sequence = item.sequence
        sequence.computed += item.count - len(item.draft)
        self._publish(sequence)

    def finish(self, sequence: Sequence) -> None:
        """Takes a sequence out and gives its blocks back."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence in self.running:
            self.running.remove(sequence)
        self.pool.release(sequence.blocks)
        sequence.blocks = []

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.max_running:
            sequence = self.waiting.pop(0)
            # At least one token must be computed, since its logits are wanted.
            reusable = (len(sequence.ids) - 1) // BLOCK
            sequence.blocks = self.pool.match(sequence.hashes[:reusable])
            sequence.computed = sequence.cached = len(sequence.blocks) * BLOCK
            self.running.append(sequence)

    def _publish(self, sequence: Sequence) -> None:
        full = min(sequence.computed // BLOCK, len(sequence.hashes))
        for at in range(sequence.cached // BLOCK, full):
            self.pool.publish(sequence.blocks[at], sequence.hashes[at])
