"""The native engine as its users see it: results, repeatability, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from native_graphs import decoder, decoder_step, tokens, weights_of
from op_cases import make_weight
from ouzel import _native
from ouzel.engines.base import Executable, Step
from ouzel.engines.native.engine import NativeEngine
from ouzel.engines.reference.engine import ReferenceEngine
from ouzel.errors import EngineError, RequestError
from ouzel.graph.builder import GraphBuilder

BLOCKS = [2, 0, 1]
IDS = tokens(77)


def compiled(engine: NativeEngine | ReferenceEngine, fmt: str = "f32", keep: tuple[str, ...] = ()) -> Executable:
    graph = decoder()
    executable = engine.compile(graph, weights_of(graph, fmt), keep)
    executable.ensure_blocks(3)
    return executable


@pytest.mark.parametrize("fmt", ["f32", "bf16", "f16"])
def test_decoder_equals_the_reference(fmt: str) -> None:
    step = decoder_step(IDS, 0, BLOCKS, ("logits", "layer.0", "layer.1"))
    wanted = compiled(ReferenceEngine(), fmt).run(step)
    found = compiled(NativeEngine(2), fmt).run(step)
    for name, values in wanted.items():
        # Two layers, each some ten sums of 50 to 80 products of numbers near 1.
        assert np.linalg.norm(found[name] - values) <= 2e-6 * np.linalg.norm(values), name


@pytest.mark.parametrize("chunk", [1, 7, 32, 64])
def test_chunks_give_the_same_bits(chunk: int) -> None:
    executable = compiled(NativeEngine(2))
    whole = executable.run(decoder_step(IDS, 0, BLOCKS))["logits"]
    for at in range(0, len(IDS), chunk):
        found = executable.run(decoder_step(IDS[at : at + chunk], at, BLOCKS))["logits"]
    np.testing.assert_array_equal(found, whole)


@pytest.mark.parametrize("isa", _native.isas_available())
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_and_instruction_sets_give_the_same_bits(isa: str, threads: int) -> None:
    step = decoder_step(IDS, 0, BLOCKS, ("logits", "layer.0"))
    wanted = compiled(NativeEngine(1, "plain")).run(step)
    found = compiled(NativeEngine(threads, isa)).run(step)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_kept_stages_have_the_bits_of_fused_ones() -> None:
    step = decoder_step(IDS, 0, BLOCKS)
    plain = compiled(NativeEngine(1))
    kept = compiled(NativeEngine(1), keep=decoder().values)
    assert set(kept.stages()) == {name for name, value in decoder().values.items() if value.dtype == "f32"}
    assert "down.0" not in plain.stages() and "layer.0" in plain.stages()
    np.testing.assert_array_equal(kept.run(step)["logits"], plain.run(step)["logits"])


def test_every_stage_can_be_wanted_at_once() -> None:
    executable = compiled(NativeEngine(2), keep=decoder().values)
    found = executable.run(decoder_step(IDS, 0, BLOCKS, executable.stages()))
    wanted = compiled(ReferenceEngine()).run(decoder_step(IDS, 0, BLOCKS, executable.stages()))
    for name in executable.stages():
        assert np.linalg.norm(found[name] - wanted[name]) <= 2e-6 * np.linalg.norm(wanted[name]), name


def test_inputs_can_be_wanted_and_are_copies() -> None:
    executable = compiled(NativeEngine(1))
    step = decoder_step(IDS, 0, BLOCKS, ("cos",))
    found = executable.run(step)["cos"]
    np.testing.assert_array_equal(found, step.inputs["cos"])
    assert not np.shares_memory(found, step.inputs["cos"])


def test_results_stay_after_the_next_step() -> None:
    executable = compiled(NativeEngine(1))
    first = executable.run(decoder_step(IDS, 0, BLOCKS, ("layer.0",)))["layer.0"]
    copy = first.copy()
    executable.run(decoder_step(IDS[::-1].copy(), 0, BLOCKS, ("layer.0",)))
    np.testing.assert_array_equal(first, copy)


def test_no_rows() -> None:
    found = compiled(NativeEngine(2)).run(decoder_step(IDS[:0], 0, [], ("logits", "layer.1")))
    assert found["logits"].shape == (0, 50) and found["layer.1"].shape == (0, 48)


def test_cache_grows_and_keeps_its_contents() -> None:
    executable = compiled(NativeEngine(2))
    whole = executable.run(decoder_step(IDS, 0, BLOCKS))["logits"]
    one_block = executable.cache_bytes // 3
    executable.run(decoder_step(IDS[:70], 0, BLOCKS))
    executable.ensure_blocks(9)
    executable.ensure_blocks(4)
    assert executable.cache_bytes == 9 * one_block
    # Two layers of keys and values, padded to the vector: at least their plain size.
    assert one_block >= 2 * 32 * 4 * 2 * (12 + 12)
    np.testing.assert_array_equal(executable.run(decoder_step(IDS[70:], 70, BLOCKS))["logits"], whole)


def test_a_block_of_a_damaged_sequence_harms_nobody() -> None:
    executable = compiled(NativeEngine(1))
    wanted = executable.run(decoder_step(IDS[:5], 0, [0]))["logits"]
    bad = decoder_step(IDS[:40], 0, [0, 1])
    bad.inputs["cos"][:] = np.nan
    executable.run(bad)
    np.testing.assert_array_equal(executable.run(decoder_step(IDS[:5], 0, [0]))["logits"], wanted)


def test_weights_are_used_where_they_lie() -> None:
    b = GraphBuilder("g")
    graph = b.finish(b.node("linear", "y", b.input("x", "r", 33), weights=(b.weight("w", 19, 33),)))
    rng = np.random.default_rng(4)
    values, x = rng.standard_normal((19, 33)).astype(np.float32), rng.standard_normal((3, 33)).astype(np.float32)
    wanted = NativeEngine(1).compile(graph, {"w": make_weight("w", values)}).run(Step({"x": x}, ("y",)))["y"]
    for shift in (0, 1, 4, 12):
        memory = np.zeros(values.nbytes + shift, np.uint8)
        memory[shift:] = values.view(np.uint8).reshape(-1)
        moved = memory[shift:].view(np.float32).reshape(values.shape)
        moved.flags.writeable = False
        weight = make_weight("w", values)
        object.__setattr__(weight, "array", moved)
        executable = NativeEngine(1).compile(graph, {"w": weight})
        del memory, moved, weight
        np.testing.assert_array_equal(executable.run(Step({"x": x}, ("y",)))["y"], wanted)


def test_refused_weights() -> None:
    graph = decoder()
    weights = weights_of(graph)
    for name, weight, words in (
        ("q.0.w", None, "q.0.w"),
        ("q.0.w", make_weight("w", np.zeros((3, 4), np.float32)), "[3, 4]"),
        ("norm.0.w", make_weight("w", np.zeros(48, np.float32), "bf16"), "bf16"),
    ):
        changed = {key: value for key, value in weights.items() if key != name} | ({name: weight} if weight else {})
        with pytest.raises(EngineError) as error:
            NativeEngine(1).compile(graph, changed)
        assert name in str(error.value) and words in str(error.value)


def test_refused_steps_run_nothing() -> None:
    executable = compiled(NativeEngine(1))
    good = decoder_step(IDS, 0, BLOCKS)
    wanted = executable.run(good)["logits"]
    for name, array, words in (
        ("ids", IDS + 1000, "ids"),
        ("ids", -1 - IDS, "ids"),
        ("ids", IDS.astype(np.int64), "int64"),
        ("cos", good.inputs["cos"].astype(np.float64), "float64"),
        ("cos", good.inputs["cos"][:, :5].copy(), "cos"),
        ("cos", good.inputs["cos"][:, ::-1], "contiguous"),
        ("sin", good.inputs["sin"][:-1], "sin"),
        ("picked", np.array([[77]], np.int32), "picked"),
    ):
        with pytest.raises(EngineError, match=words):
            executable.run(Step({**good.inputs, name: array}, good.wanted, good.sequences))
    for step in (
        decoder_step(IDS, 0, [2, 0]),
        decoder_step(IDS, 0, [2, 0, 3]),
        decoder_step(IDS, 0, [2, 0, -1]),
        Step(good.inputs, good.wanted),
        Step(good.inputs, ("nothing",), good.sequences),
        Step(good.inputs, ("ids",), good.sequences),
        Step({name: array for name, array in good.inputs.items() if name != "cos"}, good.wanted, good.sequences),
    ):
        with pytest.raises(EngineError):
            executable.run(step)
    np.testing.assert_array_equal(executable.run(good)["logits"], wanted)


def test_describe_and_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert NativeEngine(3, "plain").describe() == "native, plain, 3 threads"
    assert NativeEngine(1, "plain").describe() == "native, plain, 1 thread"
    monkeypatch.setenv("OUZEL_ISA", "plain")
    monkeypatch.setenv("OUZEL_THREADS", "2")
    assert NativeEngine().describe() == "native, plain, 2 threads"
    widest = _native.isas_available()[0]
    assert NativeEngine(1, widest).isa == widest


def test_refused_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match=r"plain.*got sse9"):
        NativeEngine(1, "sse9")
    for threads in (0, -1, 5000):
        with pytest.raises(EngineError, match=str(threads)):
            NativeEngine(threads)
    missing = "neon" if "neon" not in _native.isas_available() else "avx2"
    monkeypatch.setenv("OUZEL_ISA", missing)
    with pytest.raises(EngineError, match=rf"one of .*plain.*got {missing}"):
        NativeEngine(1)
    monkeypatch.setenv("OUZEL_ISA", "sse9")
    with pytest.raises(RequestError, match="OUZEL_ISA"):
        NativeEngine(1)


def test_without_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ouzel.engines.native.engine._native", None)
    monkeypatch.setattr("ouzel.engines.native.engine._why_not", "not built", raising=False)
    with pytest.raises(EngineError, match="pip install"):
        NativeEngine(1)
