"""The cache in f32, f16 and q8: what it costs, how near it is, and that results do not depend on chunks, batches, threads
or the instruction set."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

_native = pytest.importorskip("ouzel._native", reason="the native core is not built")

from ouzel.engines.base import Executable, SequenceRows, Step  # noqa: E402
from ouzel.engines.native.engine import NativeEngine  # noqa: E402
from ouzel.engines.registry import make_engine  # noqa: E402
from ouzel.errors import EngineError  # noqa: E402
from ouzel.graph.builder import GraphBuilder  # noqa: E402
from ouzel.graph.graph import Graph  # noqa: E402

F32 = NDArray[np.float32]
HEADS, KV_HEADS, DIM = 4, 2, 40
TOKENS = 75
BLOCKS = (5, 2, 7)
each_cache = pytest.mark.parametrize("cache", ["f32", "f16", "q8"])

# Largest relative error of a kept number: half a unit of float16; of codes, half of the largest magnitude / 127, and
# normal numbers lie within about 4 deviations.
ERROR = {"f32": 0.0, "f16": 2.0**-11, "q8": 4 / 254}


def attention_graph() -> Graph:
    graph = GraphBuilder("attention")
    sizes = {"heads": HEADS, "kv_heads": KV_HEADS, "head_dim": DIM, "value_dim": DIM}
    inputs = [graph.input(name, "tokens", n * DIM) for name, n in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))]
    graph.node("attention", "y", *inputs, **sizes, scale=float(DIM**-0.5), mode="causal", layer=0)
    return graph.finish("y")


def rows(seed: int) -> dict[str, F32]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal((TOKENS, n * DIM)).astype(np.float32)
        for name, n in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS))
    }


def executable(cache: str, threads: int = 2, isa: str | None = None) -> Executable:
    made = NativeEngine(threads, isa, cache).compile(attention_graph(), {})
    made.ensure_blocks(16)
    return made


def step(inputs: dict[str, F32], *sequences: tuple[int, int, tuple[int, ...]]) -> Step:
    """(rows, past, blocks) for each sequence, one after another."""
    starts = np.cumsum([0, *(count for count, _, _ in sequences)])
    where = [
        SequenceRows(int(start), count, past, np.array(blocks, np.int32))
        for start, (count, past, blocks) in zip(starts, sequences)
    ]
    return Step(inputs, ("y",), sequences=tuple(where))


def in_chunks(made: Executable, inputs: dict[str, F32], *chunks: int) -> F32:
    parts, at = [], 0
    for count in chunks:
        piece = {name: np.ascontiguousarray(array[at : at + count]) for name, array in inputs.items()}
        parts.append(made.run(step(piece, (count, at, BLOCKS)))["y"])
        at += count
    return np.concatenate(parts)


def same_bits(a: F32, b: F32) -> bool:
    return np.array_equal(a.view(np.uint32), b.view(np.uint32))


@each_cache
def test_chunks_threads_and_instruction_sets_give_the_same_bits(cache: str) -> None:
    inputs = rows(1)
    whole = in_chunks(executable(cache), inputs, TOKENS)
    for chunks in [(31, 1, 43), (1,) * TOKENS, (32, 32, 11), (7, 60, 1, 7)]:
        assert same_bits(in_chunks(executable(cache), inputs, *chunks), whole), chunks
    for isa in _native.isas_available():
        for threads in (1, 3):
            assert same_bits(in_chunks(executable(cache, threads, isa), inputs, 40, 35), whole), (isa, threads)


@each_cache
def test_a_batch_gives_the_same_bits(cache: str) -> None:
    first, second = rows(2), rows(3)
    alone = in_chunks(executable(cache), first, TOKENS)
    both = {name: np.concatenate([second[name][:50], first[name]]) for name in first}
    made = executable(cache)
    found = made.run(step(both, (50, 0, (1, 3)), (TOKENS, 0, BLOCKS)))["y"]
    assert same_bits(found[50:], alone)


@each_cache
def test_used_blocks_leave_no_trace(cache: str) -> None:
    inputs = rows(4)
    fresh = in_chunks(executable(cache), inputs, TOKENS)
    made = executable(cache)
    in_chunks(made, {name: array * np.float32(1e4) for name, array in rows(5).items()}, TOKENS)
    assert same_bits(in_chunks(made, inputs, 33, 42), fresh)


@each_cache
def test_results_are_near_those_of_the_f32_cache(cache: str) -> None:
    inputs = rows(6)
    exact, found = in_chunks(executable("f32"), inputs, TOKENS), in_chunks(executable(cache), inputs, TOKENS)
    # A key's error moves a score by at most error * |q| |k| / sqrt(dim), which moves the weights twice; a value's error acts
    # as it is. Norms of normal vectors are about sqrt(dim); the largest entries about 4.
    bound = ERROR[cache] * (2 * np.sqrt(DIM) * 1.5 + 1) * 4
    assert np.abs(found - exact).max() <= bound
    if cache != "f32":
        assert not same_bits(found, exact)


def test_bytes() -> None:
    made = {cache: executable(cache).cache_bytes for cache in ("f32", "f16", "q8")}
    assert made["f16"] * 2 == made["f32"]
    assert made["f32"] / 4 <= made["q8"] <= made["f32"] / 3


def test_unknown_caches_are_refused() -> None:
    with pytest.raises(EngineError, match="cache"):
        NativeEngine(1, cache="f8")
    with pytest.raises(EngineError, match="cache"):
        _native.Plan(_native.Machine("", 1), _native.Program(), "bf16")
    with pytest.raises(EngineError, match="cache"):
        make_engine("reference", cache="f16")
