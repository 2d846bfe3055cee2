"""A bounded walk over the header of a GGUF file: metadata and tensor places, all checked before use.

The gguf package's own reader is not used at run time: it believes the counts of the file, makes several NumPy objects for
every string (twenty seconds for a vocabulary of fifty thousand), and leaves ends unchecked. The tests compare with it.
Layout, little-endian: "GGUF", version, counts of tensors and of metadata, the metadata, the tensors' names, sizes, types and
offsets, padding, then the data.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ouzel.checkpoint.gguf_blocks import BLOCK_TYPES, TYPE_NAMES, BlockType
from ouzel.checkpoint.text import shown, shown_name
from ouzel.errors import CheckpointError, TensorError, UnsupportedError

VERSIONS = (2, 3)
_MAGIC = b"GGUF"

# Bounds of honest files with room to spare: the largest vocabularies have about 300 thousand tokens and as many merges.
MAX_ENTRIES = 1 << 16
MAX_STRINGS = 1 << 22
MAX_NAME = 1 << 16
MAX_TEXT = 1 << 24
MAX_RANK = 4
MAX_ALIGNMENT = 1 << 16
_MAX_BYTES = 2**62

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor: `shape` is slowest axis first (the reverse of the file's order), `start` its first byte in the file."""

    name: str
    kind: BlockType
    shape: tuple[int, ...]
    start: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """Metadata by key (numbers, text, lists of text, arrays of numbers) and tensors by name."""

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]


def read_header(path: Path, data: mmap.mmap | bytes) -> Header:
    """The checked header of a GGUF file.

    Raises CheckpointError for damaged or hostile metadata, TensorError for tensors that do not fit the file or are of a size
    that cannot be, UnsupportedError for versions, byte orders and tensor types that are not implemented.
    """
    return _Walk(path, data).header()


class _Walk:
    """Reads forward from `at`; every read is checked against the end of the file first."""

    def __init__(self, path: Path, data: mmap.mmap | bytes) -> None:
        self.path = path
        self.data = data
        self.at = 0
        self._strings = 0

    def header(self) -> Header:
        version = self._version()
        # A tensor takes at least 32 bytes of the header, a metadata entry 13: more cannot be in the file.
        tensor_count = self._count("tensors", 32, MAX_ENTRIES)
        metadata_count = self._count("metadata entries", 13, MAX_ENTRIES)
        metadata = self._metadata(metadata_count)
        raw = [self._tensor() for _ in range(tensor_count)]
        return Header(version, metadata, self._place(raw, _alignment(self.path, metadata)))

    # -- small reads -------------------------------------------------------------------------------------------------

    def fail(self, expected: str, got: str) -> CheckpointError:
        return CheckpointError(
            f"reading {self.path}, byte {self.at}", expected=expected, got=got, fix="the file is damaged; download it again"
        )

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if size > len(self.data) - self.at:
            raise self.fail(f"{size} more bytes", f"the end of the file after {len(self.data) - self.at}")
        start, self.at = self.at, self.at + size
        return self.data[start : self.at]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def _count(self, what: str, least: int, limit: int) -> int:
        """A number of things that take at least `least` bytes each."""
        count = self.u64()
        room = (len(self.data) - self.at) // least
        if count > min(limit, room):
            raise self.fail(f"at most {min(limit, room)} {what}", f"{count}")
        return count

    def text(self, limit: int, what: str) -> str:
        """A string with its length before it; UTF-8."""
        size = self.u64()
        if size > limit:
            raise self.fail(f"{what} of at most {limit} bytes", f"{size}")
        raw = self.take(size)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} in UTF-8", f"an invalid byte at position {error.start}") from None

    # -- parts -------------------------------------------------------------------------------------------------------

    def _version(self) -> int:
        magic = self.take(4)
        if magic != _MAGIC:
            self.at = 0
            raise self.fail("the word GGUF", repr(magic))
        version = self.u32()
        if version in VERSIONS:
            return version
        got = f"version {version}"
        if version and not version & 0xFFFF:
            got = "a big-endian file"
        raise UnsupportedError(f"reading {self.path}", expected="GGUF version 2 or 3, little-endian", got=got)

    def _metadata(self, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(count):
            key = self.text(MAX_NAME, "a metadata key")
            if key in found:
                raise self.fail("each metadata key once", f"{shown_name(key)} twice")
            found[key] = self._value(key, self.u32())
        return found

    def _value(self, key: str, kind: int) -> Any:
        if kind == _STRING:
            return self.text(MAX_TEXT, f"the text of {shown_name(key)}")
        if kind == _ARRAY:
            return self._array(key)
        return self._numbers(key, kind, 1)[0].item()

    def _array(self, key: str) -> Any:
        kind = self.u32()
        if kind == _ARRAY:
            raise self.fail("lists of numbers or texts", f"a list of lists in {shown_name(key)}")
        if kind != _STRING:
            return self._numbers(key, kind, self.u64())
        count = self._count(f"texts in {shown_name(key)}", 8, MAX_STRINGS - self._strings)
        self._strings += count
        return self._texts(key, count)

    def _texts(self, key: str, count: int) -> list[str]:
        """Many short strings: as `text`, without a call for each."""
        data, at, end, length = self.data, self.at, len(self.data), struct.Struct("<Q").unpack_from
        out: list[str] = []
        for number in range(count):
            if end - at < 8 or length(data, at)[0] > min(MAX_NAME, end - at - 8):
                self.at = at
                raise self.fail(f"a text of {shown_name(key)}, number {number}", "a length beyond its bounds")
            stop = at + 8 + length(data, at)[0]
            try:
                out.append(data[at + 8 : stop].decode("utf-8"))
            except UnicodeDecodeError:
                self.at = at
                raise self.fail(f"a text of {shown_name(key)}, number {number}, in UTF-8", "invalid bytes") from None
            at = stop
        self.at = at
        return out

    def _numbers(self, key: str, kind: int, count: int) -> np.ndarray:
        """`count` numbers as an array of their own memory."""
        if kind not in _SCALARS:
            raise self.fail(f"a known type of {shown_name(key)}", f"type {kind}")
        dtype = np.dtype("u1" if kind == 7 else _SCALARS[kind])
        numbers = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        if kind != 7:
            return numbers
        if count and numbers.max() > 1:
            raise self.fail(f"true or false in {shown_name(key)}", f"the byte {numbers.max()}")
        return numbers.astype(bool)

    def _tensor(self) -> tuple[str, BlockType, tuple[int, ...], int]:
        name = self.text(MAX_NAME, "a tensor's name")

        def fail(expected: str, got: str) -> TensorError:
            return TensorError(f"reading {self.path}, tensor {shown_name(name)}", expected=expected, got=got)

        rank = self.u32()
        if not 1 <= rank <= MAX_RANK:
            raise fail(f"from 1 to {MAX_RANK} axes", f"{rank}")
        sizes = [self.u64() for _ in range(rank)]
        if not all(0 < size < _MAX_BYTES for size in sizes) or math.prod(sizes) >= _MAX_BYTES:
            raise fail("sizes from 1 that fit in memory", shown(sizes))
        number, offset = self.u32(), self.u64()
        if number not in BLOCK_TYPES:
            raise UnsupportedError(
                f"reading {self.path}, tensor {shown_name(name)}",
                expected=f"a type among {', '.join(kind.name for kind in BLOCK_TYPES.values())} (what is implemented)",
                got=TYPE_NAMES.get(number, f"type {number}"),
                fix="take the file in Q8_0, Q4_0 or another of these types",
            )
        kind = BLOCK_TYPES[number]
        if sizes[0] % kind.values:
            raise fail(f"rows of a multiple of {kind.values} values in {kind.name}", f"{sizes[0]}")
        return name, kind, tuple(reversed(sizes)), offset

    def _place(self, raw: list[tuple[str, BlockType, tuple[int, ...], int]], align: int) -> dict[str, TensorEntry]:
        """Tensors with their places: inside the file, on the boundary, without overlap, each name once."""
        begin = self.at + -self.at % align
        found: dict[str, TensorEntry] = {}
        for name, kind, shape, offset in raw:
            where = f"reading {self.path}, tensor {shown_name(name)}"
            if name in found:
                raise TensorError(where, expected="each name once", got="it twice")
            nbytes = kind.bytes_of(math.prod(shape))
            if offset % align:
                raise TensorError(where, expected=f"an offset that is a multiple of {align}", got=f"{offset}")
            if begin + offset + nbytes > len(self.data):
                raise TensorError(
                    where, expected=f"{nbytes} bytes of data from position {begin + offset} on",
                    got=f"a file of {len(self.data)} bytes", fix="the file is cut short; download it again",
                )  # fmt: skip
            found[name] = TensorEntry(name, kind, shape, begin + offset, nbytes)
        _check_apart(self.path, found)
        return found


def _alignment(path: Path, metadata: dict[str, Any]) -> int:
    value = metadata.get("general.alignment", 32)
    if isinstance(value, bool) or not isinstance(value, int) or not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise CheckpointError(
            f"reading {path}", expected=f"general.alignment to be a power of two from 8 to {MAX_ALIGNMENT}", got=shown(value)
        )
    return value


def _check_apart(path: Path, tensors: dict[str, TensorEntry]) -> None:
    last: TensorEntry | None = None
    for entry in sorted(tensors.values(), key=lambda one: one.start):
        if last is not None and entry.start < last.start + last.nbytes:
            raise TensorError(
                f"reading {path}, tensor {shown_name(entry.name)}",
                expected="tensors apart from each other",
                got=f"bytes that {shown_name(last.name)} has too",
            )
        last = entry
