"""A bounded reader of safetensors files: everything is checked against the file before a byte of data is used.

The safetensors package's own reader is not used here: without torch it has no bfloat16, its NumPy reader copies every
tensor, and its messages do not name the file and the tensor. The format is small: eight bytes with the length of the
header (little-endian), the header as JSON, then the tensors one after another without holes.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.buffers import aligned_copy, alignment
from ouzel.checkpoint.json_file import os_error
from ouzel.checkpoint.text import shown, shown_name
from ouzel.errors import CheckpointError, TensorError, UnsupportedError

# The format's own limit.
HEADER_LIMIT = 100_000_000
_MAX_RANK = 32
_MAX_BYTES = 2**62

# Bits an element takes, and the NumPy type that its bytes are shown as.
_DTYPES: dict[str, tuple[int, str]] = {
    "F64": (64, "<f8"),
    "F32": (32, "<f4"),
    "F16": (16, "<f2"),
    "BF16": (16, "<u2"),
    "I64": (64, "<i8"),
    "I32": (32, "<i4"),
    "I16": (16, "<i2"),
    "I8": (8, "|i1"),
    "U64": (64, "<u8"),
    "U32": (32, "<u4"),
    "U16": (16, "<u2"),
    "U8": (8, "|u1"),
    # A byte other than 0 and 1 in a NumPy bool is undefined, so these stay bytes.
    "BOOL": (8, "|u1"),
    "F8_E4M3": (8, "|u1"),
    "F8_E5M2": (8, "|u1"),
    "F8_E8M0": (8, "|u1"),
    "F8_E4M3FNUZ": (8, "|u1"),
    "F8_E5M2FNUZ": (8, "|u1"),
    "C64": (64, "<c8"),
}
_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class TensorView:
    """One tensor of a file, not copied.

    `dtype` is the file's word ("BF16"); `data` has the tensor's shape and is read-only memory of the mapped file, in
    float32, float16 or, for bfloat16, uint16 with its bits. Its address may be a multiple of one byte only: the format
    promises no alignment. The array keeps the mapping alive.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: NDArray[Any]
    file: Path

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.data.nbytes

    @property
    def stored(self) -> str:
        """What the file stores: `dtype`, or the packed format ("q8") that holds its blocks exactly."""
        return self.dtype

    @property
    def mapped(self) -> bool:
        """Whether `data` is the mapped file and not made when it is looked at."""
        return True

    @property
    def alignment(self) -> int:
        """The largest power of two (at most 4096) that divides the data's address."""
        return alignment(self.data)

    def aligned(self, boundary: int = 64) -> NDArray[Any]:
        """`data` itself when its address is a multiple of `boundary`, else a copy that is."""
        return self.data if self.alignment >= boundary else aligned_copy(self.data, boundary)

    def to_f32(self) -> NDArray[np.float32]:
        """A float32 copy. Raises `UnsupportedError` for a type that is no weight format (F64, integers, F8)."""
        self.require_float()
        if self.dtype == "BF16":
            return (self.data.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return self.data.astype(np.float32)

    def require_float(self) -> None:
        """`UnsupportedError` naming the file and the tensor unless the type is F32, F16 or BF16."""
        if self.dtype not in _FLOATS:
            raise UnsupportedError(
                f"reading {self.file}",
                expected=f"the tensor {shown_name(self.name)} in F32, F16 or BF16 (what is implemented)",
                got=self.dtype,
            )


class SafetensorsFile(Mapping[str, TensorView]):
    """The tensors of one file by name, mapped into memory.

    Raises `CheckpointError` when the file cannot be read and `TensorError` when its header is damaged or hostile.
    Cutting the file while it is mapped is outside what this can guard against.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._map = _map_file(self.path)
        length = _header_length(self.path, self._map)
        header = _parse_header(self.path, self._map[8 : 8 + length])
        self.metadata = _metadata(self.path, header.pop("__metadata__", None))
        self._start = 8 + length
        self._entries = {name: _entry(self.path, name, value) for name, value in header.items()}
        _check_layout(self.path, self._entries, len(self._map) - self._start)

    def __getitem__(self, name: str) -> TensorView:
        entry = self._entries[name]
        kind = np.dtype(_DTYPES[entry.dtype][1])
        count = math.prod(entry.shape)
        if count == 0:
            data = np.empty(entry.shape, kind)
        else:
            data = np.frombuffer(self._map, kind, count, self._start + entry.begin).reshape(entry.shape)
        return TensorView(name, entry.dtype, entry.shape, data, self.path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True)
class _Entry:
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _map_file(path: Path) -> mmap.mmap:
    operation = f"reading {path.name}"
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 10:  # the length and "{}"
                raise TensorError(f"reading {path}", expected="a safetensors file", got=f"a file of {size} bytes")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise os_error(operation, path, error) from None


def _header_length(path: Path, data: mmap.mmap) -> int:
    length = int.from_bytes(data[:8], "little")
    if length > HEADER_LIMIT:
        raise TensorError(
            f"reading {path}",
            expected=f"a safetensors header of at most {HEADER_LIMIT} bytes",
            got=f"{length}",
            fix="the file is damaged or is no safetensors file; download it again",
        )
    if 8 + length > len(data):
        raise TensorError(
            f"reading {path}",
            expected=f"a header of {length} bytes",
            got=f"a file of {len(data)} bytes",
            fix="the file is cut short; download it again",
        )
    return length


def _parse_header(path: Path, raw: bytes) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in items:
            if key in result:
                raise TensorError(
                    f"reading {path}", expected="each name once in the header", got=f"{shown_name(key)} twice"
                )
            result[key] = value
        return result

    def constant(word: str) -> Any:
        raise ValueError(f"the number {word}")

    try:
        if raw[:1] != b"{":
            raise ValueError("a header that does not begin with '{'")
        header: dict[str, Any] = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs, parse_constant=constant)
    except RecursionError:
        raise TensorError(f"reading {path}", expected="a JSON header", got="too many nested brackets") from None
    except ValueError as error:  # also JSONDecodeError and UnicodeDecodeError
        raise TensorError(f"reading {path}", expected="a JSON header", got=shown(str(error))) from None
    return header


def _metadata(path: Path, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise TensorError(f"reading {path}", expected="'__metadata__' to hold strings", got=shown(value))
    return value


def _entry(path: Path, name: str, value: Any) -> _Entry:
    """The checked header entry of one tensor."""

    def fail(expected: str, got: Any) -> TensorError:
        return TensorError(f"reading {path}, tensor {shown_name(name)}", expected=expected, got=shown(got))

    if not isinstance(value, dict):
        raise fail("an object with dtype, shape and data_offsets", value)
    dtype, shape, offsets = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise fail(f"a dtype among {', '.join(_DTYPES)}", dtype)
    if not isinstance(shape, list) or len(shape) > _MAX_RANK or not all(map(_is_size, shape)):
        raise fail(f"a shape of at most {_MAX_RANK} sizes", shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise fail("data_offsets of two positions", offsets)
    begin, end = offsets
    size = _byte_size(shape, _DTYPES[dtype][0])
    if size is None:
        raise fail("a shape that fits in memory", shape)
    if end < begin or end - begin != size:
        raise fail(f"{size} bytes for {dtype} {shape}", f"data_offsets {offsets}")
    return _Entry(dtype, tuple(shape), begin, end)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_BYTES


def _byte_size(shape: list[int], bits: int) -> int | None:
    """Bytes that the shape takes; None when no file can be that large (also when another size is zero)."""
    total = bits // 8
    for size in shape:
        if size:
            total *= size
        if total >= _MAX_BYTES:
            return None
    return 0 if 0 in shape else total


def _check_layout(path: Path, entries: dict[str, _Entry], size: int) -> None:
    """Tensors follow one another from the first byte to the last: no overlap, no hole, nothing outside the file."""
    place = 0
    last = ""
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.end > size:
            raise TensorError(
                f"reading {path}, tensor {shown_name(name)}",
                expected=f"{entry.end} bytes of data",
                got=f"{size}",
                fix="the file is cut short; download it again",
            )
        if entry.begin != place:
            what = "overlaps with" if entry.begin < place else "leaves a hole after"
            before = shown_name(last) if last else "the header"
            raise TensorError(
                f"reading {path}, tensor {shown_name(name)}",
                expected=f"data from position {place} on",
                got=f"{entry.begin}, which {what} {before}",
            )
        place, last = entry.end, name
    if place != size:
        raise TensorError(f"reading {path}", expected=f"{place} bytes of data", got=f"{size}")


def open_safetensors(path: str | os.PathLike[str]) -> SafetensorsFile:
    """The tensors of the file `path`; `CheckpointError` or `TensorError` when it cannot be used."""
    try:
        return SafetensorsFile(path)
    except (MemoryError, OverflowError):
        raise CheckpointError(f"reading {path}", got="a file too large for this machine's address space") from None
