"""Damaged and hostile GGUF files: one line that names the file, no crash, no memory taken on the file's word."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf_files import ARRAY, TEXT, U32, entry, tensor, text, whole

from ouzel.checkpoint.gguf import open_gguf
from ouzel.checkpoint.gguf_file import GgufFile
from ouzel.checkpoint.gguf_header import MAX_ENTRIES, MAX_STRINGS
from ouzel.errors import CheckpointError, OuzelError, TensorError, UnsupportedError

HUGE = 2**63 - 1
ARCH = entry("general.architecture", TEXT, text("llama"))


def array(kind: int, count: int, data: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + data


GOOD = whole(
    [ARCH, entry("a.number", U32, struct.pack("<I", 7)), entry("a.list", ARRAY, array(TEXT, 2, text("x") + text("yä")))],
    [tensor("one", (2, 3)), tensor("two", (32, 2), kind=8, offset=32)],
    bytes(32 + 68),
)


def opened(tmp_path: Path, data: bytes) -> GgufFile:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return GgufFile(path)


def test_a_sound_file(tmp_path: Path) -> None:
    file = opened(tmp_path, GOOD)
    assert file.metadata == {"general.architecture": "llama", "a.number": 7, "a.list": ["x", "yä"]}
    assert {name: (one.shape, one.dtype) for name, one in file.items()} == {"one": ((3, 2), "F32"), "two": ((2, 32), "F32")}
    assert np.array_equal(file["one"].data, np.zeros((3, 2)))
    assert file["two"].stored == "q8"


HOSTILE = {
    "another magic": (CheckpointError, whole(magic=b"GGML"), "the word GGUF"),
    "version 1": (UnsupportedError, whole(version=1), "version 1"),
    "version 4": (UnsupportedError, whole(version=4), "version 4"),
    "big-endian": (UnsupportedError, whole(version=3 << 24), "big-endian"),
    "many tensors": (CheckpointError, whole(counts=(HUGE, 0)), f"{HUGE}"),
    "many entries": (CheckpointError, whole(counts=(0, HUGE)), f"{HUGE}"),
    "more entries than fit": (CheckpointError, whole([ARCH], counts=(0, 40)), "metadata entries"),
    "more tensors than fit": (CheckpointError, whole([ARCH], counts=(3, 1)), "tensors"),
    "a long key": (CheckpointError, whole([struct.pack("<Q", HUGE) + b"k" * 40]), "a metadata key of at most"),
    "a key past the end": (CheckpointError, whole([struct.pack("<Q", 5000) + b"k" * 40]), "5000 more bytes"),
    "a key that is no text": (CheckpointError, whole([entry("k", U32, bytes(4)).replace(b"k", b"\xff")]), "UTF-8"),
    "a key twice": (CheckpointError, whole([ARCH, ARCH]), "twice"),
    "a long text": (CheckpointError, whole([entry("k", TEXT, struct.pack("<Q", HUGE))]), "the text of 'k'"),
    "a text past the end": (CheckpointError, whole([entry("k", TEXT, struct.pack("<Q", 9999))]), "9999 more bytes"),
    "an unknown type": (CheckpointError, whole([entry("k", 13, bytes(8))]), "type 13"),
    "true that is 2": (CheckpointError, whole([entry("k", 7, b"\x02")]), "true or false"),
    "a list of lists": (CheckpointError, whole([entry("k", ARRAY, array(ARRAY, 1, array(U32, 1, bytes(4))))]), "a list of lists"),
    "deep lists": (CheckpointError, whole([entry("k", ARRAY, array(ARRAY, 1) * 50_000)]), "a list of lists"),
    "many numbers": (CheckpointError, whole([entry("k", ARRAY, array(U32, HUGE))]), "more bytes"),
    "numbers whose bytes wrap around": (CheckpointError, whole([entry("k", ARRAY, array(12, 2**61 + 1, bytes(8)))]), "more bytes"),
    "many texts": (CheckpointError, whole([entry("k", ARRAY, array(TEXT, HUGE))]), "texts in 'k'"),
    "texts past the end": (CheckpointError, whole([entry("k", ARRAY, array(TEXT, 2, text("a") + struct.pack("<Q", 900)))]), "number 1"),
    "a list of an unknown type": (CheckpointError, whole([entry("k", ARRAY, array(99, 1, bytes(8)))]), "type 99"),
    "an odd alignment": (CheckpointError, whole([entry("general.alignment", U32, struct.pack("<I", 48))]), "power of two"),
    "no alignment": (CheckpointError, whole([entry("general.alignment", U32, bytes(4))]), "power of two"),
    "no axes": (TensorError, whole([], [tensor("t", ())]), "from 1 to 4 axes"),
    "many axes": (TensorError, whole([], [tensor("t", (1,) * 9)]), "from 1 to 4 axes"),
    "an axis of 0": (TensorError, whole([], [tensor("t", (4, 0))]), "sizes from 1"),
    "sizes whose product wraps around": (TensorError, whole([], [tensor("t", (2**33, 2**33))]), "fit in memory"),
    "a huge axis": (TensorError, whole([], [tensor("t", (HUGE,))]), "fit in memory"),
    "an offset past the end": (TensorError, whole([], [tensor("t", (8,), offset=2**40)], bytes(64)), "the file is cut short"),
    "an offset that wraps around": (TensorError, whole([], [tensor("t", (8,), offset=2**64 - 32)], bytes(64)), "the file is cut short"),
    "an odd offset": (TensorError, whole([], [tensor("t", (8,), offset=8)], bytes(64)), "a multiple of 32"),
    "data that is cut": (TensorError, whole([], [tensor("t", (8,))], bytes(31)), "the file is cut short"),
    "tensors that overlap": (TensorError, whole([], [tensor("t", (16,)), tensor("u", (8,), offset=32)], bytes(96)), "apart"),
    "a tensor twice": (TensorError, whole([], [tensor("t", (8,)), tensor("t", (8,), offset=32)], bytes(96)), "each name once"),
    "a row that is no whole block": (TensorError, whole([], [tensor("t", (33,), kind=8)], bytes(96)), "a multiple of 32"),
    "an unimplemented type": (UnsupportedError, whole([], [tensor("t", (256,), kind=10)], bytes(96)), "Q2_K"),
    "an unknown tensor type": (UnsupportedError, whole([], [tensor("t", (256,), kind=2**31)], bytes(96)), "type 2147483648"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(tmp_path: Path, name: str) -> None:
    kind, data, words = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(kind) as caught:
            opened(tmp_path, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "model.gguf" in str(caught.value)
    # Some copies of the file at most, and nothing near what its counts claim.
    assert peak < 1_000_000 + 4 * len(data)


def test_every_cut_is_an_error(tmp_path: Path) -> None:
    for size in range(len(GOOD)):
        with pytest.raises(CheckpointError):
            opened(tmp_path, GOOD[:size])


def test_flipped_bytes_never_crash(tmp_path: Path) -> None:
    """Whatever stands in the header, opening gives a file or an error of ours; what is given can be read."""
    random = np.random.default_rng(3)
    errors = 0
    for _ in range(800):
        data = bytearray(GOOD)
        for at in random.integers(0, len(GOOD) - 100, random.integers(1, 4)):
            data[at] = random.integers(0, 256)
        try:
            for one in opened(tmp_path, bytes(data)).values():
                assert one.data.shape == one.shape
        except OuzelError:
            errors += 1
    assert 200 < errors < 800


def test_counts_have_limits_of_their_own(tmp_path: Path) -> None:
    """A file that really is long enough for its counts is refused too."""
    with pytest.raises(CheckpointError, match=f"at most {MAX_ENTRIES} metadata"):
        opened(tmp_path, whole(counts=(0, MAX_ENTRIES + 1)) + bytes(14 * MAX_ENTRIES))
    texts = entry("k", ARRAY, array(TEXT, MAX_STRINGS + 1))
    path = tmp_path / "long.gguf"
    with open(path, "wb") as file:
        file.write(whole([texts]))
        file.truncate(9 * MAX_STRINGS)
    with pytest.raises(CheckpointError, match=f"at most {MAX_STRINGS} texts"):
        GgufFile(path)


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file"):
        open_gguf(tmp_path / "none.gguf")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(CheckpointError, match="a file of 0 bytes"):
        open_gguf(tmp_path / "empty.gguf")
