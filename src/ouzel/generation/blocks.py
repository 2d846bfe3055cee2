"""Accounting of cache blocks: who holds which, which hold a known prefix. Numbers only; no memory is touched here."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.base import BLOCK_TOKENS


class BlockPool:
    """Blocks by number. A block is held by sequences (counted), kept for its known content, or free.

    `keep` bounds how many blocks stay for reuse after the last holder let go; the least recently used goes first.
    `total` is how many blocks must exist in memory; it grows with use and never with the model's maximum context.
    """

    def __init__(self, keep: int) -> None:
        self.total = 0
        self._keep = keep
        self._holders: dict[int, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._by_hash: dict[bytes, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._free: list[int] = []

    def allocate(self) -> int:
        """A block for one new holder, its content to be written."""
        if self._free:
            block = self._free.pop()
        else:
            block = self.total
            self.total += 1
        self._holders[block] = 1
        return block

    def match(self, hashes: Sequence[bytes]) -> list[int]:
        """Blocks of the longest known prefix of the hash chain, each held once more."""
        found: list[int] = []
        for key in hashes:
            block = self._by_hash.get(key)
            if block is None:
                break
            self._kept.pop(block, None)
            self._holders[block] = self._holders.get(block, 0) + 1
            found.append(block)
        return found

    def publish(self, block: int, key: bytes) -> None:
        """Says that a held block is full and what it holds. A second block with the same content stays private."""
        if key not in self._by_hash and block not in self._hash_of:
            self._by_hash[key] = block
            self._hash_of[block] = key

    def release(self, blocks: Sequence[int]) -> None:
        """One holder lets go of these blocks; the deepest of a chain is the first to be forgotten."""
        for block in reversed(blocks):
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            del self._holders[block]
            if block in self._hash_of and self._keep > 0:
                self._kept[block] = None
            else:
                self._forget(block)
        while len(self._kept) > self._keep:
            self._forget(self._kept.popitem(last=False)[0])

    @property
    def held(self) -> int:
        """Blocks that sequences hold now."""
        return len(self._holders)

    def clear(self) -> None:
        """Forgets every kept block."""
        while self._kept:
            self._forget(self._kept.popitem(last=False)[0])

    def _forget(self, block: int) -> None:
        key = self._hash_of.pop(block, None)
        if key is not None:
            self._by_hash.pop(key, None)
        self._free.append(block)


def chain_hashes(ids: NDArray[np.int64], positions: NDArray[np.int64], content: NDArray[np.bytes_]) -> list[bytes]:
    """Hash of every full block of a prompt, each over all that came before it.

    ids [tokens]; positions [axes, tokens]; content [tokens]: for picture rows the hash of picture and row, else empty. A
    picture takes part by what it shows and how it was processed, never by its token id alone.
    """
    hashes: list[bytes] = []
    last = b""
    for start in range(0, len(ids) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
        part = slice(start, start + BLOCK_TOKENS)
        state = hashlib.sha256(last)
        for array in (ids[part], positions[:, part], content[part]):
            state.update(np.ascontiguousarray(array).tobytes())
        last = state.digest()
        hashes.append(last)
    return hashes
