"""Reading good safetensors files: equal to the safetensors package, zero copy, with honest alignment."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from ouzel.checkpoint import open_safetensors
from ouzel.errors import CheckpointError, UnsupportedError

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"


@pytest.mark.parametrize("name", ["qwen3/tiny", "qwen3_vl/tiny", "qwen3_vl/tiny_tied"])
def test_equal_to_the_package(name):
    path = FIXTURES / name / "model.safetensors"
    wanted = safetensors.numpy.load_file(path)
    file = open_safetensors(path)
    assert set(file) == set(wanted) and len(file) == len(wanted)
    for key, array in wanted.items():
        view = file[key]
        assert (view.name, view.dtype, view.shape, view.file) == (key, "F32", array.shape, path)
        assert view.data.dtype == np.float32 and np.array_equal(view.data, array)
        assert view.nbytes == array.nbytes


ARRAYS = {
    "F64": np.array([[1.5, -2.0]], "<f8"),
    "F32": np.array([1.5, -0.0, 3e38], "<f4"),
    "F16": np.array([1.5, 65504, -6e-8], "<f2"),
    "I64": np.array([-(2**60)], "<i8"),
    "I32": np.array([[[7]]], "<i4"),
    "I16": np.array([-3], "<i2"),
    "I8": np.array([-128, 127], "i1"),
    "U64": np.array([2**63], "<u8"),
    "U32": np.array([2**31], "<u4"),
    "U16": np.array([65535], "<u2"),
    "U8": np.array([255], "u1"),
}


@pytest.mark.parametrize("dtype", sorted(ARRAYS))
def test_every_numpy_type(tmp_path, dtype):
    path = tmp_path / "one.safetensors"
    safetensors.numpy.save_file({"x": ARRAYS[dtype]}, path, metadata={"format": "np"})
    file = open_safetensors(path)
    view = file["x"]
    assert file.metadata == {"format": "np"}
    assert view.dtype == dtype and view.data.dtype == ARRAYS[dtype].dtype
    assert np.array_equal(view.data, ARRAYS[dtype])


def test_bool_stays_bytes(raw_file):
    path = raw_file({"x": {"dtype": "BOOL", "shape": [3], "data_offsets": [0, 3]}}, bytes([0, 1, 7]))
    assert open_safetensors(path)["x"].data.tolist() == [0, 1, 7]


@pytest.mark.parametrize("shape", [[], [1], [2, 0, 3], [0], [1, 1, 1, 4]])
def test_scalars_and_empty_shapes(raw_file, shape):
    size = int(np.prod(shape)) * 4
    path = raw_file({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}, bytes(size))
    view = open_safetensors(path)["x"]
    assert view.shape == tuple(shape) == view.data.shape and view.to_f32().shape == tuple(shape)


def test_a_file_without_tensors(raw_file):
    assert len(open_safetensors(raw_file({}))) == 0
    assert dict(open_safetensors(raw_file(b"{}      "))) == {}


def test_bfloat16_is_its_bits(raw_file):
    bits = np.array([0x3F80, 0xC000, 0x0001, 0x7F7F], "<u2")
    path = raw_file({"x": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}, bits.tobytes())
    view = open_safetensors(path)["x"]
    assert view.data.dtype == np.uint16 and view.data.reshape(-1).tolist() == bits.tolist()
    wanted = (bits.astype(np.uint32) << 16).view(np.float32).reshape(2, 2)
    assert view.to_f32().dtype == np.float32 and np.array_equal(view.to_f32(), wanted)
    assert view.to_f32()[0].tolist() == [1.0, -2.0]


@pytest.mark.parametrize("dtype", ["F64", "I32", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "C64"])
def test_other_types_are_no_weights(raw_file, dtype):
    size = {"F64": 8, "C64": 8, "I32": 4}.get(dtype, 1)
    path = raw_file({"model.x": {"dtype": dtype, "shape": [1], "data_offsets": [0, size]}}, bytes(size))
    view = open_safetensors(path)["model.x"]
    for use in (view.require_float, view.to_f32):
        with pytest.raises(UnsupportedError) as caught:
            use()
        assert all(part in str(caught.value) for part in (str(path), "'model.x'", dtype, "BF16"))


def test_views_are_read_only_and_not_copies(raw_file):
    path = raw_file({"x": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, bytes(16))
    file = open_safetensors(path)
    a, b = file["x"].data, file["x"].data
    assert np.shares_memory(a, b) and not a.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        a[0] = 1


def test_the_mapping_lives_as_long_as_its_arrays(raw_file):
    values = np.arange(1000, dtype="<f4")
    path = raw_file({"x": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}, values.tobytes())
    array = open_safetensors(path)["x"].data
    gc.collect()
    assert np.array_equal(array, values)


@pytest.mark.parametrize("shift", [0, 1, 2, 3, 4, 7])
def test_alignment_is_told_and_mended(raw_file, shift):
    header = b'{"x":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}}'
    # The mapping starts on a page; the tensor then lies `shift` bytes after a multiple of 64.
    header += b" " * ((shift - 8 - len(header)) % 64)
    values = np.arange(5, dtype="<f4")
    view = open_safetensors(raw_file(header, values.tobytes()))["x"]
    address = view.data.__array_interface__["data"][0]
    assert address % 64 == shift
    assert address % view.alignment == 0 and (view.alignment == 4096 or address % (2 * view.alignment) != 0)
    fixed = view.aligned(64)
    assert fixed.__array_interface__["data"][0] % 64 == 0 and np.array_equal(fixed, values)
    assert np.shares_memory(fixed, view.data) == (shift == 0)
    assert np.array_equal(view.to_f32(), values)


def test_names_of_any_kind(raw_file):
    names = ["", "a.b", "名前", "with space", "__metadata"]
    header = {
        name: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i, name in enumerate(names)
    }
    file = open_safetensors(raw_file(header, bytes(range(5))))
    assert [int(file[name].data[0]) for name in names] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError):
        file["not there"]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CheckpointError, match="no such file"):
        open_safetensors(tmp_path / "none.safetensors")


def test_a_folder_instead_of_a_file(tmp_path):
    with pytest.raises(CheckpointError, match=tmp_path.name):
        open_safetensors(tmp_path)
