"""The module ouzel._native itself: it checks what it is given, whoever calls it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ouzel import _native
from ouzel.errors import Cancelled, EngineError

MACHINE = _native.Machine("", 2)


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def index(*values: int) -> np.ndarray:
    return np.array(values, np.int32).reshape(-1, 1)


class Small:
    """y = x with some rows put or taken: one node with an index, and what is needed around it."""

    def __init__(self, op: str = "take_rows") -> None:
        self.program = p = _native.Program()
        slot = p.add_slot("picked" if op == "take_rows" else "rows", 4)
        self.x = p.add_input("x", "rows", 4, "f32")
        inputs = [self.x]
        if op != "take_rows":
            inputs.append(p.add_input("values", "picked", 4, "f32"))
        inputs.append(p.add_input("index", "picked", 1, "i32"))
        self.y = p.add_value("y", "picked" if op == "take_rows" else "rows", 4, slot)
        p.add_node(op, inputs, self.y, [], {})
        self.plan = _native.Plan(MACHINE, p)

    def run(self, inputs: list[np.ndarray], rows: int, **changes: Any) -> np.ndarray:
        found = np.full((rows, 4), np.nan, np.float32)
        arguments = {"wanted": [(self.y, found)], "sequences": [], "borders": None, "cancel": None, "poll": False}
        self.plan.run(inputs, **(arguments | changes))
        return found


def test_take_rows() -> None:
    x = array(5, 4)
    np.testing.assert_array_equal(Small().run([x, index(4, 0, 4)], 3), x[[4, 0, 4]])


def test_a_row_named_twice_gets_the_last_value() -> None:
    x, values = array(5, 4), array(3, 4)
    found = Small("put_rows").run([x, values, index(1, 2, 1)], 5)
    np.testing.assert_array_equal(found, np.stack([x[0], values[2], values[1], x[3], x[4]]))


@pytest.mark.parametrize("bad", [-1, 5, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("op", ["take_rows", "put_rows", "add_rows"])
def test_indices_are_bounded(op: str, bad: int) -> None:
    small, x = Small(op), array(5, 4)
    inputs = [x, index(0, bad)] if op == "take_rows" else [x, array(2, 4), index(0, bad)]
    with pytest.raises(EngineError, match=rf"{op} y: expected index in 0 to 4, got {bad}"):
        small.run(inputs, 2 if op == "take_rows" else 5)


@pytest.mark.parametrize(
    "inputs",
    [
        [],
        [array(5, 4)],
        [array(5, 4), index(0), index(0)],
        [array(5, 3), index(0)],
        [array(5, 4), index(0).astype(np.float32)],
        [index(1, 2, 3, 4), index(0)],
        [array(5, 4).astype(np.float64), index(0)],
    ],
)
def test_inputs_are_checked(inputs: list[np.ndarray]) -> None:
    with pytest.raises(EngineError):
        Small().run(inputs, 1)


@pytest.mark.parametrize("inputs", [[array(4, 5).T, index(0)], [array(4), index(0)], ["x", index(0)]])
def test_arrays_of_another_form_are_not_taken(inputs: list[Any]) -> None:
    with pytest.raises(TypeError):
        Small().run(inputs, 1)


def test_wanted_arrays_are_checked() -> None:
    small, inputs = Small(), [array(5, 4), index(0)]
    for number, shape in ((small.y, (2, 4)), (small.y, (1, 3)), (99, (1, 4)), (-1, (1, 4))):
        with pytest.raises(EngineError):
            small.run(inputs, 1, wanted=[(number, np.empty(shape, np.float32))])
    read_only = np.empty((1, 4), np.float32)
    read_only.flags.writeable = False
    for bad in (read_only, np.empty((1, 4), np.float64), np.empty((4, 1), np.float32).T[:, ::-1]):
        with pytest.raises(TypeError):
            small.run(inputs, 1, wanted=[(small.y, bad)])


def test_a_set_flag_stops_the_run() -> None:
    flag = np.ones(1, np.int32)
    with pytest.raises(Cancelled):
        Small().run([array(5, 4), index(0)], 1, cancel=flag)


def test_row_counts_must_fold() -> None:
    p = _native.Program()
    x = p.add_input("x", "rows", 4, "f32")
    p.add_fold("folded", "rows", 3)
    y = p.add_value("y", "folded", 12, p.add_slot("folded", 12))
    p.add_node("fold_rows", [x], y, [], {"count": 3, "rows": "folded"})
    plan = _native.Plan(MACHINE, p)
    found = np.empty((2, 12), np.float32)
    rows = array(6, 4)
    plan.run([rows], [(y, found)], [], None, None, False)
    np.testing.assert_array_equal(found, rows.reshape(2, 12))
    with pytest.raises(EngineError, match="folded"):
        plan.run([array(7, 4)], [(y, found)], [], None, None, False)


def attention(mode: str, layer: int = 0) -> tuple[_native.Plan, int]:
    p = _native.Program()
    inputs = [p.add_input(name, "rows", 16, "f32") for name in "qkv"]
    y = p.add_value("y", "rows", 16, p.add_slot("rows", 16))
    sizes = {"heads": 2, "kv_heads": 2, "head_dim": 8, "value_dim": 8}
    p.add_node("attention", inputs, y, [], {**sizes, "scale": 0.5, "mode": mode, "layer": layer})
    return _native.Plan(MACHINE, p), y


@pytest.mark.parametrize(
    "sequences",
    [
        [],
        [(0, 4, 0, [0])],
        [(0, 6, 0, [0])],
        [(1, 5, 0, [0])],
        [(0, 5, -1, [0])],
        [(0, 5, 0, [])],
        [(0, 5, 0, [2])],
        [(0, 5, 0, [-1])],
        [(0, 5, 28, [0])],
        [(0, 5, 2**62, [0])],
        [(0, 2**62, 2**62, [0])],
        [(0, 2, 0, [0]), (3, 3, 0, [1])],
        [(0, 3, 0, [0]), (2, 2, 0, [1])],
        [(0, -1, 0, [0]), (-1, 6, 0, [1])],
    ],
)
def test_sequences_are_checked(sequences: list[tuple[int, int, int, list[int]]]) -> None:
    plan, y = attention("causal")
    plan.ensure_blocks(2)
    given = [(start, count, past, np.array(blocks, np.int32)) for start, count, past, blocks in sequences]
    with pytest.raises(EngineError, match="attention y"):
        plan.run([array(5, 16)] * 3, [(y, np.empty((5, 16), np.float32))], given, None, None, False)


@pytest.mark.parametrize("borders", [[], [0], [0, 4], [0, 6], [1, 5], [0, 4, 3, 5], [0, -1, 5], [0, 9, 5]])
def test_segments_are_checked(borders: list[int]) -> None:
    plan, y = attention("segments", -1)
    found = np.empty((5, 16), np.float32)
    with pytest.raises(EngineError, match="segment borders"):
        plan.run([array(5, 16)] * 3, [(y, found)], [], np.array(borders, np.int32), None, False)


def test_segments_larger_than_a_pass() -> None:
    """Many heads over many rows are packed a few heads at a time; each head is as if it were alone."""
    heads, rows = 40, 3000
    p = _native.Program()
    inputs = [p.add_input(name, "rows", heads * 64, "f32") for name in "qkv"]
    y = p.add_value("y", "rows", heads * 64, p.add_slot("rows", heads * 64))
    sizes = {"heads": heads, "kv_heads": heads, "head_dim": 64, "value_dim": 64}
    p.add_node("attention", inputs, y, [], {**sizes, "scale": 0.125, "mode": "segments", "layer": -1})
    rng = np.random.default_rng(6)
    one = [rng.standard_normal((rows, 64)).astype(np.float32) for _ in "qkv"]
    found = np.empty((rows, heads * 64), np.float32)
    borders = np.array([0, 700, rows], np.int32)
    _native.Plan(MACHINE, p).run([np.tile(a, heads) for a in one], [(y, found)], [], borders, None, False)
    parts = found.reshape(rows, heads, 64)
    np.testing.assert_array_equal(parts, np.broadcast_to(parts[:, :1], parts.shape))
    q, k, v = (a[:700].astype(np.float64) for a in one)
    scores = np.exp(q @ k.T * 0.125)
    wanted = scores @ v / scores.sum(1, keepdims=True)
    # Scores below 8 in magnitude are off by some 64 roundings of 2**-24; sums of 700 positive terms add as many.
    assert np.abs(parts[:700, 0] - wanted).max() < 2.0**-24 * (64 * 8 + 700)


def test_programs_are_checked() -> None:
    p = _native.Program()
    x = p.add_input("x", "rows", 4, "f32")
    slot = p.add_slot("rows", 4)
    y = p.add_value("y", "rows", 4, slot)
    for call in (
        lambda: p.add_slot("rows", 0),
        lambda: p.add_slot("rows", -5),
        lambda: p.add_input("z", "rows", 4, "f64"),
        lambda: p.add_value("z", "rows", 5, slot),
        lambda: p.add_value("z", "other", 4, slot),
        lambda: p.add_value("z", "rows", 4, 7),
        lambda: p.add_fold("half", "rows", 0),
        lambda: p.add_node("add", [x, 9], y, [], {}),
        lambda: p.add_node("add", [x, x], x, [], {}),
        lambda: p.add_node("linear", [x], y, [0], {}),
        lambda: p.add_matrix("w", array(2, 2), "bf16"),
        lambda: p.add_matrix("w", array(2, 2), "q4"),
        lambda: p.add_matrix("w", array(0, 2), "f32"),
    ):
        with pytest.raises(EngineError):
            call()


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("nothing", {}),
        ("add", {}),
        ("rms_norm", {"eps": 1e-6, "heads": 1}),
        ("gelu", {}),
        ("gelu", {"form": "round"}),
        ("gelu", {"form": 3}),
        ("fold_rows", {"count": 2, "rows": "rows"}),
        ("rotary", {"heads": 1, "style": "halves"}),
        ("attention", {"mode": "causal"}),
    ],
)
def test_nodes_are_checked(op: str, attributes: dict[str, Any]) -> None:
    p = _native.Program()
    x = p.add_input("x", "rows", 4, "f32")
    p.add_node(op, [x], p.add_value("y", "rows", 4, p.add_slot("rows", 4)), [], attributes)
    with pytest.raises(EngineError):
        _native.Plan(MACHINE, p)


def test_weights_must_fit_their_node() -> None:
    for shape, out in (((4, 5), 4), ((5, 4), 4), ((4, 4), 5)):
        p = _native.Program()
        x = p.add_input("x", "rows", 4, "f32")
        weight = p.add_matrix("w", array(*shape), "f32")
        p.add_node("linear", [x], p.add_value("y", "rows", out, p.add_slot("rows", out)), [weight], {"activation": "none"})
        with pytest.raises(EngineError, match="linear y"):
            _native.Plan(MACHINE, p)


def test_cache_layers_are_numbered() -> None:
    with pytest.raises(EngineError, match="cache layers"):
        attention("causal", 1)


def test_a_plan_outlives_what_it_was_made_of() -> None:
    p = _native.Program()
    x = p.add_input("x", "rows", 300, "f32")
    values = array(200, 300)
    weight = p.add_matrix("w", values.copy(), "f32")
    y = p.add_value("y", "rows", 200, p.add_slot("rows", 200))
    p.add_node("linear", [x], y, [weight], {"activation": "none"})
    plan = _native.Plan(_native.Machine("", 2), p)
    del p
    rows, found = array(3, 300), np.empty((3, 200), np.float32)
    plan.run([rows], [(y, found)], [], None, None, False)
    np.testing.assert_allclose(found, rows @ values.T, rtol=0, atol=300 * 2.0**-24 * 60)


def test_peaks_are_measured() -> None:
    flops, read = _native.peaks(1)
    # Any machine since 2005 is between these; wrong units are not.
    assert 1e8 < flops < 1e13 and 1e8 < read < 1e13


def test_refused_sizes_of_pictures() -> None:
    picture = np.zeros((4, 4, 3), np.uint8)
    for height, width in ((0, 4), (4, 0), (-1, 4), (2**30, 2**30)):
        with pytest.raises(EngineError, match="resizing"):
            _native.resize_u8(picture, height, width, "bilinear")
    with pytest.raises(EngineError, match="sharp"):
        _native.resize_u8(picture, 2, 2, "sharp")
    with pytest.raises(EngineError):
        _native.resize_u8(np.zeros((0, 4, 3), np.uint8), 2, 2, "bilinear")
