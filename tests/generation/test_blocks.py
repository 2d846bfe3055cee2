"""Accounting of cache blocks: numbers only."""

from __future__ import annotations

import numpy as np
import pytest

from ouzel.engines.base import BLOCK_TOKENS
from ouzel.generation.blocks import BlockPool, chain_hashes


def keys(text: str) -> list[bytes]:
    return [text[: i + 1].encode() for i in range(len(text))]


def test_blocks_grow_with_use_and_are_taken_again() -> None:
    pool = BlockPool(keep=0)
    held = [pool.allocate() for _ in range(3)]
    assert held == [0, 1, 2] and pool.total == 3
    pool.release(held)
    assert pool.held == 0
    assert sorted(pool.allocate() for _ in range(3)) == [0, 1, 2]
    assert pool.total == 3 and pool.allocate() == 3


def test_published_prefixes_are_found() -> None:
    pool = BlockPool(keep=10)
    first = [pool.allocate() for _ in range(3)]
    for block, key in zip(first, keys("abc")):
        pool.publish(block, key)
    assert pool.match(keys("abx")) == first[:2]
    assert pool.match([b"q"]) == []
    pool.release(first[:2])
    pool.release(first)
    assert pool.held == 0 and pool.match(keys("abc")) == first


def test_the_least_recent_goes_first_and_the_deepest_of_a_chain() -> None:
    pool = BlockPool(keep=2)
    blocks = [pool.allocate() for _ in range(3)]
    for block, key in zip(blocks, keys("abc")):
        pool.publish(block, key)
    pool.release(blocks)
    assert pool.match(keys("abc")) == blocks[:2]


def test_equal_content_is_published_once() -> None:
    pool = BlockPool(keep=5)
    one, two = pool.allocate(), pool.allocate()
    pool.publish(one, b"k")
    pool.publish(two, b"k")
    pool.release([two])
    assert pool.match([b"k"]) == [one]
    pool.release([one])
    pool.release([one])
    pool.clear()
    assert pool.match([b"k"]) == [] and pool.held == 0


def test_random_use_never_shares_a_block_for_writing() -> None:
    rng = np.random.default_rng(1)
    pool = BlockPool(keep=4)
    running: list[list[int]] = []
    for _ in range(2000):
        if running and rng.random() < 0.5:
            pool.release(running.pop(int(rng.integers(len(running)))))
            continue
        chain = keys("".join(rng.choice(list("ab"), 4)))
        found = pool.match(chain)
        fresh = [pool.allocate() for _ in range(4 - len(found))]
        assert not {b for blocks in running for b in blocks} & set(fresh)
        for block, key in zip(found + fresh, chain):
            pool.publish(block, key)
        running.append(found + fresh)
    assert pool.total <= 4 * (len(running) + 200)
    for blocks in running:
        pool.release(blocks)
    assert pool.held == 0


def arrays(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.arange(count), np.arange(count)[None], np.full(count, b"", "S80")


def test_hashes_cover_full_blocks_and_all_before() -> None:
    ids, positions, content = arrays(3 * BLOCK_TOKENS + 5)
    base = chain_hashes(ids, positions, content)
    assert len(base) == 3
    changed = ids.copy()
    changed[BLOCK_TOKENS] += 1
    other = chain_hashes(changed, positions, content)
    assert other[0] == base[0] and other[1] != base[1] and other[2] != base[2]


@pytest.mark.parametrize("what", ("position", "content"))
def test_hashes_see_positions_and_pictures(what: str) -> None:
    ids, positions, content = arrays(BLOCK_TOKENS)
    base = chain_hashes(ids, positions, content)
    if what == "position":
        positions = positions + 1
    else:
        content[3] = b"picture:0"
    assert chain_hashes(ids, positions, content) != base
