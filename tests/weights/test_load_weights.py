"""Loading weights through a table: matching, shapes, formats, copies, alignment, sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ouzel.checkpoint import Checkpoint
from ouzel.errors import TensorError, UnsupportedError
from ouzel.weights import FLOATS, FORMATS, FormatPlan, TensorSpec, load_weights

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"


def spec(name, shape, kind="linear", part="text", sources=None, **more):
    return TensorSpec(name, sources or (f"model.{name}",), tuple(shape), kind, part, **more)


TABLE = [
    spec("embed.weight", (11, 8), "embedding", "embedding"),
    spec("q.weight", (6, 8)),
    spec("q.bias", (6,), "bias"),
    spec("norm.weight", (8,), "norm"),
    spec("patch.weight", (4, 3, 2, 2, 2), "conv", "vision"),
    spec("head.weight", (11, 8), part="head"),
]


@pytest.fixture
def arrays(stored):
    def make(name="bf16"):
        return {f"model.{s.name}": stored(name, s.shape, seed) for seed, s in enumerate(TABLE)}

    return make


def message_of(kind, call) -> str:
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and len(message) < 1500
    return message


# -- formats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_as_stored_is_the_mapped_file(checkpoint, arrays, name):
    tensors = checkpoint(arrays(name))
    weights = load_weights(tensors, TABLE)
    assert list(weights) == [s.name for s in TABLE]
    for s in TABLE:
        weight, source = weights[s.name], tensors[s.sources[0]]
        assert weight.source == source.name and weight.file == source.file and not weight.array.flags.writeable
        assert np.array_equal(weight.f32().reshape(s.shape), source.to_f32())
        assert weight.array.flags.c_contiguous
        if s.kind in ("norm", "bias"):
            assert weight.format is FORMATS["f32"] and not weight.mapped
            assert not np.shares_memory(weight.array, source.data)
        else:
            assert weight.format is FORMATS[name] and weight.mapped
            assert np.shares_memory(weight.array, source.data)
    assert weights["patch.weight"].shape == (4, 24)
    assert np.array_equal(weights["patch.weight"].array, tensors["model.patch.weight"].data.reshape(4, 24))


@pytest.mark.parametrize("wanted", sorted(FLOATS))
@pytest.mark.parametrize("name", sorted(FLOATS))
def test_conversion_rounds_the_stored_values(checkpoint, arrays, name, wanted):
    tensors = checkpoint(arrays(name))
    weights = load_weights(tensors, TABLE, FormatPlan.uniform(wanted))
    for s in TABLE:
        weight = weights[s.name]
        target = FORMATS["f32"] if s.kind in ("norm", "bias") else FORMATS[wanted]
        assert weight.format is target and weight.array.dtype == target.storage
        exact = tensors[s.sources[0]].to_f32().reshape(weight.shape)
        assert np.array_equal(weight.array, target.encode(exact))
        assert weight.mapped == (wanted == name and s.kind not in ("norm", "bias"))
        if not weight.mapped:
            assert weight.array.__array_interface__["data"][0] % 64 == 0


@pytest.mark.parametrize("columns", [1, 1000, (1 << 19) - 1, 1 << 19, (1 << 19) + 1])
def test_conversion_in_blocks_of_rows(checkpoint, stored, columns):
    rows = max(1, (1 << 20) // columns) + 3
    array = stored("f32", (rows, columns))
    tensors = checkpoint({"model.x": array})
    weights = load_weights(tensors, [spec("x", array.shape)], FormatPlan.uniform("bf16"))
    assert np.array_equal(weights["x"].array, FORMATS["bf16"].encode(array))


def test_each_part_has_its_own_format(checkpoint, arrays):
    plan = FormatPlan(vision="f32", head="f16")
    weights = load_weights(checkpoint(arrays("bf16")), TABLE, plan)
    names = {name: weight.format.name for name, weight in weights.items()}
    assert names == {
        "embed.weight": "bf16",
        "q.weight": "bf16",
        "q.bias": "f32",
        "norm.weight": "f32",
        "patch.weight": "f32",
        "head.weight": "f16",
    }


def test_a_format_that_the_table_does_not_allow(checkpoint, stored):
    tensors = checkpoint({"model.pos": stored("bf16", (3, 4))})
    table = [spec("pos", (3, 4), "embedding", "vision", formats=("f32",))]
    for plan in (FormatPlan(), FormatPlan.uniform("bf16"), FormatPlan.uniform("f16")):
        assert load_weights(tensors, table, plan)["pos"].format is FORMATS["f32"]


def test_values_that_do_not_fit(checkpoint):
    tensors = checkpoint({"model.x": np.array([[1.0, 70000.0]], np.float32)})
    table = [spec("x", (1, 2))]
    message = message_of(TensorError, lambda: load_weights(tensors, table, FormatPlan.uniform("f16")))
    assert "'model.x'" in message and "f16" in message and "70000" in message and "bf16" in message
    assert load_weights(tensors, table, FormatPlan.uniform("bf16"))["x"].f32()[0, 0] == 1.0


# -- matching --------------------------------------------------------------------------------------------------------


def test_missing_tensors_are_named_in_one_error(checkpoint, arrays):
    data = arrays()
    for s in TABLE[:3]:
        del data[s.sources[0]]
    message = message_of(TensorError, lambda: load_weights(checkpoint(data), TABLE))
    assert all(f"'{s.sources[0]}'" in message for s in TABLE[:3]) and "model.safetensors" in message
    assert "no such tensors" in message


def test_left_over_tensors_are_named_in_one_error(checkpoint, arrays):
    data = arrays()
    data.update({f"model.extra.{i}": np.zeros(1, np.float32) for i in range(7)})
    message = message_of(TensorError, lambda: load_weights(checkpoint(data), TABLE))
    assert "left over 'model.extra." in message and message.count("model.extra") == 5
    assert "2 more (7 in all)" in message and "model.safetensors" in message


def test_both_at_once(checkpoint, arrays):
    data = arrays()
    data["model.Q.weight"] = data.pop("model.q.weight")
    message = message_of(TensorError, lambda: load_weights(checkpoint(data), TABLE))
    assert "'model.q.weight'" in message and "left over 'model.Q.weight'" in message


def test_names_in_several_releases(checkpoint, stored):
    table = [spec("x", (2, 3), sources=("new.x", "old.x"))]
    for name in ("new.x", "old.x"):
        assert load_weights(checkpoint({name: stored("f32", (2, 3))}), table)["x"].source == name
    message = message_of(TensorError, lambda: load_weights(checkpoint({}), table))
    assert "'new.x'" in message
    both = checkpoint({"new.x": stored("f32", (2, 3)), "old.x": stored("f32", (2, 3), 1)})
    assert "left over 'old.x'" in message_of(TensorError, lambda: load_weights(both, table))


def test_optional_tensors(checkpoint, stored):
    table = [spec("x", (2, 3)), spec("b", (2,), "bias", optional=True)]
    assert list(load_weights(checkpoint({"model.x": stored("f32", (2, 3))}), table)) == ["x"]
    both = checkpoint({"model.x": stored("f32", (2, 3)), "model.b": stored("f32", (2,))})
    assert list(load_weights(both, table)) == ["x", "b"]


def test_ignored_tensors(checkpoint, stored):
    data = {"model.x": stored("f32", (2, 3)), "model.layers.0.rotary_emb.inv_freq": stored("f32", (4,))}
    tensors = checkpoint(data)
    assert list(load_weights(tensors, [spec("x", (2, 3))])) == ["x"]
    message = message_of(TensorError, lambda: load_weights(tensors, [spec("x", (2, 3))], ignore=()))
    assert "inv_freq" in message
    assert list(load_weights(tensors, [spec("x", (2, 3))], ignore=("model.layers.*",))) == ["x"]


@pytest.mark.parametrize("shape", [(8, 6), (6, 7), (5, 8), (48,), (6, 8, 1)])
def test_wrong_shapes(checkpoint, arrays, stored, shape):
    data = arrays()
    data["model.q.weight"] = stored("bf16", shape)
    message = message_of(TensorError, lambda: load_weights(checkpoint(data), TABLE))
    assert "'model.q.weight'" in message and "model.safetensors" in message
    assert "[6, 8]" in message and f"got {list(shape)}" in message


@pytest.mark.parametrize("dtype", ["f8", "i4", "u1"])
@pytest.mark.parametrize("name", ["model.q.weight", "model.norm.weight"])
def test_types_that_are_no_weights(checkpoint, arrays, dtype, name):
    data = arrays()
    data[name] = np.zeros(data[name].shape, dtype)
    message = message_of(UnsupportedError, lambda: load_weights(checkpoint(data), TABLE))
    assert f"'{name}'" in message and {"f8": "F64", "i4": "I32", "u1": "U8"}[dtype] in message


def test_a_table_with_mistakes_is_our_fault(checkpoint):
    with pytest.raises(ValueError, match="stands twice"):
        load_weights(checkpoint({}), [spec("x", (1,)), spec("x", (1,))])
    for wrong in (
        {"kind": "lineer"},
        {"part": "tail"},
        {"formats": ("q9",)},
        {"formats": ()},
        {"sources": "model.x"},
        {"shape": (-1, 2)},
    ):
        with pytest.raises(ValueError, match="x: "):
            TensorSpec(**{"name": "x", "sources": ("a",), "shape": (1,), "kind": "linear", "part": "text", **wrong})


# -- NaN -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FLOATS))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("row", range(len(TABLE)))
def test_numbers_that_are_not_finite(checkpoint, arrays, name, bad, row):
    data = arrays(name)
    source = TABLE[row].sources[0]
    values = FORMATS[name].decode(data[source]).copy()
    values.reshape(-1)[3] = bad
    data[source] = np.ascontiguousarray(FORMATS[name].encode(values))
    tensors = checkpoint(data)
    message = message_of(TensorError, lambda: load_weights(tensors, TABLE))
    assert f"'{source}'" in message and "NaN or infinity" in message and "model.safetensors" in message
    loaded = load_weights(tensors, TABLE, check_finite=False)
    assert not np.isfinite(loaded[TABLE[row].name].f32()).all()


def test_large_checkpoints_are_checked_on_request_only(checkpoint, monkeypatch):
    tensors = checkpoint({"model.x": np.array([[np.nan]], np.float32)})
    table = [spec("x", (1, 1))]
    monkeypatch.setattr("ouzel.weights.load.CHECK_BELOW_BYTES", 4)
    assert np.isnan(load_weights(tensors, table)["x"].array[0, 0])
    assert "NaN" in message_of(TensorError, lambda: load_weights(tensors, table, check_finite=True))
    # A conversion to fewer bits looks at every value anyway.
    assert "NaN" in message_of(TensorError, lambda: load_weights(tensors, table, FormatPlan.uniform("bf16")))


# -- rearranging, alignment, sums ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["auto", "f32", "f16"])
def test_transforms_see_the_stored_array(checkpoint, stored, wanted):
    tensors = checkpoint({"fused": stored("bf16", (6, 4))})
    table = [
        spec("a", (6, 4), sources=("fused",), transform=lambda x: x[:2]),
        spec("b", (6, 4), sources=("fused",), transform=lambda x: x[2:].T),
    ]
    weights = load_weights(tensors, table, FormatPlan.uniform(wanted))
    values = tensors["fused"].to_f32()
    assert np.array_equal(weights["a"].f32(), values[:2]) and np.array_equal(weights["b"].f32(), values[2:].T)
    assert weights["a"].mapped == (wanted == "auto") and not weights["b"].mapped
    assert all(weight.array.flags.c_contiguous for weight in weights.values())


@pytest.mark.parametrize("shift", [0, 1, 2, 8, 32])
@pytest.mark.parametrize("align", [1, 2, 16, 64])
def test_alignment(tmp_path, stored, shift, align):
    array = stored("bf16", (3, 5))
    header = b'{"model.x":{"dtype":"BF16","shape":[3,5],"data_offsets":[0,30]}}'
    header += b" " * ((shift - 8 - len(header)) % 64)
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + array.tobytes())
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    weight = load_weights(Checkpoint.open(tmp_path).tensors, [spec("x", (3, 5))], align=align)["x"]
    needed = max(align, 2)
    assert weight.array.__array_interface__["data"][0] % needed == 0
    assert weight.array.flags.aligned and np.array_equal(weight.array, array)
    assert weight.mapped == (shift % needed == 0)


def test_sums(checkpoint, arrays):
    weights = load_weights(checkpoint(arrays("bf16")), TABLE)
    assert weights.bytes_by_part() == {"embedding": 176, "text": 96 + 24 + 32, "vision": 192, "head": 176}
    assert weights.total_bytes() == sum(weights.bytes_by_part().values())
    assert weights.parameters() == sum(int(np.prod(s.shape)) for s in TABLE)


@pytest.mark.parametrize("name", ["qwen3/tiny", "qwen3/tiny_untied", "qwen3_vl/tiny"])
def test_fixture_checkpoints(name):
    tensors = Checkpoint.open(FIXTURES / name).tensors
    table = [
        TensorSpec(f"w.{key}", (key,), view.shape, "norm" if len(view.shape) == 1 else "linear", "text")
        if len(view.shape) < 3
        else TensorSpec(f"w.{key}", (key,), view.shape, "conv", "vision")
        for key, view in tensors.items()
    ]
    weights = load_weights(tensors, table)
    assert weights.total_bytes() == tensors.total_bytes()
    for key, view in tensors.items():
        assert np.array_equal(weights[f"w.{key}"].array.reshape(view.shape), view.data)
