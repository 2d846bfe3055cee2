"""The tensors of a GGUF file, mapped; block types become float32 when they are looked at."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.gguf_blocks import BlockCodes, BlockType
from ouzel.checkpoint.gguf_header import Header, TensorEntry, read_header
from ouzel.checkpoint.json_file import os_error
from ouzel.checkpoint.safetensors_file import TensorView
from ouzel.errors import CheckpointError

_PLAIN = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}

# Blocks decoded in one go: the scratch arrays stay in the processor's cache.
_STEP_BYTES = 1 << 16

Rows = Callable[[int], NDArray[np.int64]]


class GgufTensor(TensorView):
    """One tensor of a GGUF file as a `TensorView`.

    Types of plain numbers are the mapped file itself. Block types have `dtype` "F32", and `data` makes the values when it is
    looked at and keeps them only as long as somebody holds them; `codes` gives their blocks as they are, for the packed format `form` that holds them exactly (None for others).
    `rows` rearranges the first axis (a function of its length to the file's row for each row).
    """

    def __init__(self, name: str, entry: TensorEntry, file: GgufFile, rows: Rows | None = None) -> None:
        # The base is frozen and holds `data` as a field; here it is made when asked for.
        for key, value in (
            ("name", name),
            ("dtype", entry.kind.name if entry.kind.name in _PLAIN else "F32"),
            ("shape", entry.shape),
            ("file", file.path),
            ("_entry", entry),
            ("_source", file),
            ("_rows", rows),
            ("_made", None),
        ):
            object.__setattr__(self, key, value)

    @property
    def kind(self) -> BlockType:
        """The type in the file."""
        return self._entry.kind  # type: ignore[attr-defined, no-any-return]

    @property
    def form(self) -> str | None:
        """The packed format that holds this tensor exactly, None when there is none."""
        return self.kind.form

    @property
    def stored(self) -> str:
        """`form`, or the file's type."""
        return self.form or self.kind.name

    @property
    def mapped(self) -> bool:
        """Whether `data` is the mapped file."""
        return self.kind.name in _PLAIN and self._rows is None  # type: ignore[attr-defined]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self._entry.nbytes  # type: ignore[attr-defined, no-any-return]

    @property
    def data(self) -> NDArray[Any]:  # type: ignore[override]
        """The values, [shape]: read-only file memory for plain numbers, else a new float32 array."""
        if self.kind.name in _PLAIN:
            values = self._bytes().view(_PLAIN[self.kind.name]).reshape(self.shape)
            return values if self._order() is None else values[self._order()]
        made = None if self._made is None else self._made()  # type: ignore[attr-defined]
        if made is None:
            made = self._decoded()
            object.__setattr__(self, "_made", weakref.ref(made))
        return made  # type: ignore[no-any-return]

    def codes(self) -> BlockCodes:
        """The blocks of a tensor with a `form`, in the order of its rows."""
        assert self.kind.codes is not None
        return self.kind.codes(self._blocks())

    def _bytes(self) -> NDArray[np.uint8]:
        entry: TensorEntry = self._entry  # type: ignore[attr-defined]
        return self._source.bytes(entry.start, entry.nbytes)  # type: ignore[attr-defined, no-any-return]

    def _order(self) -> NDArray[np.int64] | None:
        rows: Rows | None = self._rows  # type: ignore[attr-defined]
        return None if rows is None else rows(self.shape[0])

    def _blocks(self) -> NDArray[np.uint8]:
        """Blocks [n, bytes of a block]; the file itself unless rows are rearranged."""
        raw, order = self._bytes(), self._order()
        if order is not None:
            raw = raw.reshape(self.shape[0], -1)[order]
        return raw.reshape(-1, self.kind.size)

    def _decoded(self) -> NDArray[np.float32]:
        blocks, kind = self._blocks(), self.kind
        assert kind.decode is not None
        values = np.empty((len(blocks), kind.values), np.float32)
        step = max(1, _STEP_BYTES // kind.size)
        for start in range(0, len(blocks), step):
            values[start : start + step] = kind.decode(blocks[start : start + step])
        return values.reshape(self.shape)


class GgufFile(Mapping[str, GgufTensor]):
    """A GGUF file, mapped, with its header checked: `metadata` by key, tensors by the file's names.

    Raises CheckpointError, TensorError or UnsupportedError as `gguf_header.read_header`. Cutting the file while it is mapped
    is outside what this can guard against.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._map = _map_file(self.path)
        self.header: Header = read_header(self.path, self._map)
        self.metadata = self.header.metadata

    def __getitem__(self, name: str) -> GgufTensor:
        return self.renamed(name, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.header.tensors)

    def __len__(self) -> int:
        return len(self.header.tensors)

    def renamed(self, name: str, source: str, rows: Rows | None = None) -> GgufTensor:
        """The tensor `source` of the file under another name, its first axis rearranged by `rows`."""
        return GgufTensor(name, self.header.tensors[source], self, rows)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The shape of a tensor, None when there is none of that name."""
        entry = self.header.tensors.get(name)
        return None if entry is None else entry.shape

    def bytes(self, start: int, count: int) -> NDArray[np.uint8]:
        """Read-only bytes of the mapped file."""
        return np.frombuffer(self._map, np.uint8, count, start)


def _map_file(path: Path) -> mmap.mmap:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 24:  # magic, version and two counts
                raise CheckpointError(f"reading {path}", expected="a GGUF file", got=f"a file of {size} bytes")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise os_error(f"reading {path.name}", path, error) from None
    except (OverflowError, ValueError):
        raise CheckpointError(f"reading {path}", got="a file too large for this machine's address space") from None
