"""Damaged and hostile safetensors files: every one is one of our errors, on one line, with the file's name."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from ouzel.checkpoint import open_safetensors
from ouzel.errors import CheckpointError, OuzelError, TensorError


def refused(path, *parts: str) -> str:
    """Opens `path`, which must be refused; the message has the file's name, `parts`, and one line."""
    with pytest.raises(TensorError) as caught:
        open_safetensors(path)
    message = str(caught.value)
    assert path.name in message and "\n" not in message and len(message) < 700 and message.isprintable()
    for part in parts:
        assert part in message, message
    return message


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


# -- truncation ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_bytes() -> bytes:
    rng = np.random.default_rng(1)
    return safetensors.numpy.save(
        {"a": rng.normal(size=(5, 3)).astype("f4"), "b": rng.normal(size=7).astype("f2"), "c": np.zeros((0, 4), "f4")},
        metadata={"format": "pt"},
    )


def test_truncation_at_every_byte(tmp_path, small_bytes):
    path = tmp_path / "cut.safetensors"
    for size in range(len(small_bytes)):
        path.write_bytes(small_bytes[:size])
        refused(path, *(["cut short"] if size >= 10 else [f"a file of {size} bytes"]))
    path.write_bytes(small_bytes)
    assert set(open_safetensors(path)) == {"a", "b", "c"}


@pytest.mark.parametrize("extra", [1, 8, 4096])
def test_bytes_after_the_last_tensor(tmp_path, small_bytes, extra):
    path = tmp_path / "long.safetensors"
    path.write_bytes(small_bytes + bytes(extra))
    refused(path, "bytes of data")


# -- the header ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [100_000_001, 2**32, 2**63, 2**64 - 1])
def test_huge_header_lengths(raw_file, length):
    refused(raw_file({"a": entry()}, bytes(8), length=length), "at most 100000000 bytes", str(length))


@pytest.mark.parametrize("length", [200, 100_000_000])
def test_header_longer_than_the_file(raw_file, length):
    refused(raw_file({"a": entry()}, bytes(8), length=length), f"a header of {length} bytes", "cut short")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"null",
        b" {}",
        b"{",
        b"{}{}",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": {"dtype": "U8", "shape": [16], "data_offsets": [0, 16], "more": NaN}}',
        b'{"a": {"dtype": "U8", "shape": [16], "data_offsets": [0, 16], "more": -Infinity}}',
        b'{"\xff": 1}',
        b'{"a": ' + b"1" * 5000 + b"}",
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b"[" * 100_000,
        b'{"a":' + b"[" * 200_000,
        b"\xef\xbb\xbf{}",
        b"PK\x03\x04 a zip file, not a header",
    ],
    ids=range(17),
)
def test_headers_that_are_no_json_object(raw_file, header):
    refused(raw_file(header, bytes(16)))


def test_names_that_stand_twice(raw_file):
    one = json.dumps(entry())
    refused(raw_file(f'{{"a": {one}, "a": {one}}}'.encode(), bytes(8)), "'a' twice")
    refused(raw_file(b'{"a": {"dtype": "F32", "dtype": "F16", "shape": [2], "data_offsets": [0, 8]}}'), "'dtype' twice")


@pytest.mark.parametrize("value", ["text", 5, [], {"a": 1}, {"a": None}, {"a": {}}])
def test_metadata_that_holds_something_else_than_strings(raw_file, value):
    refused(raw_file({"__metadata__": value, "a": entry()}, bytes(8)), "__metadata__")


# -- entries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (5, "an object"),
        (None, "an object"),
        ([], "an object"),
        ({}, "dtype"),
        ({"dtype": "F32"}, "shape"),
        ({"dtype": "F32", "shape": [2]}, "data_offsets"),
        (entry(dtype="F31"), '"F31"'),
        (entry(dtype="f32"), '"f32"'),
        (entry(dtype=""), "dtype"),
        (entry(dtype=32), "32"),
        ({**entry(), "dtype": ["F32"]}, "dtype"),
        ({**entry(), "shape": 2}, "a shape"),
        ({**entry(), "shape": "2"}, "a shape"),
        (entry(shape=[-2]), "a shape"),
        (entry(shape=[2.0]), "a shape"),
        (entry(shape=[True, 2]), "a shape"),
        (entry(shape=["2"]), "a shape"),
        (entry(shape=[None]), "a shape"),
        (entry(shape=[2**70]), "a shape"),
        (entry(shape=[1] * 40 + [2]), "a shape"),
        (entry(shape=[2**40, 2**40], offsets=[0, 8]), "fits in memory"),
        (entry(shape=[2**61, 0], offsets=[0, 0]), "fits in memory"),
        ({**entry(), "data_offsets": 8}, "data_offsets"),
        (entry(offsets=[0]), "data_offsets"),
        (entry(offsets=[0, 8, 8]), "data_offsets"),
        (entry(offsets=[0, 8.0]), "data_offsets"),
        (entry(offsets=[False, 8]), "data_offsets"),
        (entry(offsets=[-8, 0]), "data_offsets"),
        (entry(offsets=[8, 0]), "8 bytes for F32 [2]"),
        (entry(offsets=[0, 4]), "8 bytes for F32 [2]"),
        (entry(offsets=[0, 2**64]), "data_offsets"),
        (entry(shape=[2**62 - 1], offsets=[0, 8]), "fits in memory"),
    ],
)
def test_bad_entries_name_the_tensor(raw_file, value, part):
    refused(raw_file({"model.x": value}, bytes(8)), "'model.x'", part)


@pytest.mark.parametrize(
    ("entries", "size", "part"),
    [
        ({"a": entry(offsets=[0, 8]), "b": entry(offsets=[4, 12])}, 12, "overlaps with 'a'"),
        ({"a": entry(offsets=[0, 8]), "b": entry(offsets=[0, 8])}, 8, "overlaps with"),
        ({"a": entry(offsets=[0, 8]), "b": entry(offsets=[12, 20])}, 20, "leaves a hole after 'a'"),
        ({"a": entry(offsets=[4, 12])}, 12, "leaves a hole after the header"),
        ({"a": entry(offsets=[0, 8])}, 12, "8 bytes of data"),
        ({"a": entry(offsets=[0, 8]), "b": entry(offsets=[8, 16])}, 12, "cut short"),
        ({"a": entry(offsets=[2**50, 2**50 + 8])}, 8, "cut short"),
        ({}, 8, "0 bytes of data"),
        # A tensor without bytes in the middle of another one.
        ({"a": entry(offsets=[0, 8]), "b": entry(shape=[0], offsets=[4, 4])}, 8, "overlaps"),
    ],
)
def test_layout_without_overlaps_holes_and_ends_beyond_the_file(raw_file, entries, size, part):
    refused(raw_file(entries, bytes(size)), part)


def test_the_order_in_the_header_is_free(raw_file):
    path = raw_file({"b": entry(offsets=[8, 16]), "a": entry(offsets=[0, 8])}, np.arange(4, dtype="<f4").tobytes())
    assert open_safetensors(path)["b"].data.tolist() == [2.0, 3.0]


def test_terminal_codes_in_names_are_not_printed(raw_file):
    message = refused(raw_file({"\x1b[31m\n" + "x" * 9000: 5}))
    assert "\\u001b" in message


def test_a_header_of_many_tensors(raw_file):
    count = 50_000  # a check that compared all pairs would not end
    header = {f"t{i}": {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]} for i in range(count)}
    path = raw_file(header, bytes(count))
    assert len(open_safetensors(path)) == count


# -- no permission ---------------------------------------------------------------------------------------------------


def test_no_permission(monkeypatch, raw_file):
    path = raw_file({"a": entry()}, bytes(8))

    def no(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", no)
    with pytest.raises(CheckpointError, match=r"no permission for .*model\.safetensors"):
        open_safetensors(path)


# -- fuzz ------------------------------------------------------------------------------------------------------------


def agrees_with_the_package(raw: bytes) -> bool:
    try:
        safetensors.deserialize(raw)
    except Exception:
        return False
    return True


def use_all(path) -> None:
    for view in open_safetensors(path).values():
        assert view.data.nbytes == view.nbytes
        view.data.reshape(-1)[:1].copy()
        if view.nbytes:
            view.data.reshape(-1)[-1:].copy()


@pytest.mark.parametrize("seed", range(8))
def test_changed_bytes_give_our_errors_only(tmp_path, small_bytes, seed):
    rng = random.Random(seed)
    header = 8 + int.from_bytes(small_bytes[:8], "little")
    path = tmp_path / "fuzz.safetensors"
    refusals = 0
    for _ in range(250):
        raw = bytearray(small_bytes)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(header)
            raw[place] = rng.choice([rng.randrange(256), ord("9"), ord("0"), ord('"'), ord("["), ord("-"), ord(" ")])
        if rng.random() < 0.2:
            del raw[rng.randrange(len(raw)) :]
        path.write_bytes(raw)
        try:
            use_all(path)
        except OuzelError as error:
            assert path.name in str(error)
            refusals += 1
        else:
            # What we take, the format's own implementation takes too.
            assert agrees_with_the_package(bytes(raw)), bytes(raw[8:header])
    assert refusals > 50


@pytest.mark.parametrize("seed", range(4))
def test_changed_values_give_our_errors_only(raw_file, seed):
    """Headers that stay JSON, so that the checks behind the parser are reached."""
    rng = random.Random(100 + seed)
    odd = [None, True, -1, 0, 1, 2, 3, 8, 2**31, 2**63, 2**64, 1.5]
    odd += ["F32", "BF16", "F8_E4M3", "", [], [0], [2], [0, 8], {}]
    accepted = 0
    for _ in range(300):
        header = {"a": entry(), "b": entry("BF16", (2, 2), (8, 16)), "__metadata__": {"format": "pt"}}
        for _ in range(rng.randint(1, 2)):
            target = rng.choice([header, header.get("a"), header.get("b")])
            if isinstance(target, dict) and target:
                key = rng.choice(sorted(target))
                value = target[key]
                if isinstance(value, list) and value and rng.random() < 0.6:
                    value[rng.randrange(len(value))] = rng.choice(odd)
                else:
                    target[key] = rng.choice(odd)
        path = raw_file(header, bytes(rng.choice([16, 16, 16, 8, 24])))
        try:
            use_all(path)
            accepted += 1
        except OuzelError as error:
            assert path.name in str(error)
        else:
            assert agrees_with_the_package(path.read_bytes()), header
    assert accepted < 150
