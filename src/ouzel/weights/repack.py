"""Blocks of a file that mean the same as a packed format, laid out anew without a step through numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.buffers import aligned_empty
from ouzel.checkpoint.text import shown_name
from ouzel.errors import TensorError
from ouzel.weights.packing import GROUP, ROWS, Codes, Packing

# Values in one go: bounds the scratch memory to some tens of megabytes.
_PIECE = 1 << 22


def repacked(view: Any, shape: tuple[int, ...], packing: Packing) -> NDArray[np.uint8]:
    """The packed bytes of a tensor whose `stored` form is that packing; read-only, on a multiple of 64.

    `view.codes()` gives its blocks (see `checkpoint.gguf_blocks.BlockCodes`), row by row, `shape` = [rows, columns] with
    whole groups. Raises TensorError when a scale is not finite.
    """
    rows, columns = shape
    blocks, groups = view.codes(), columns // GROUP
    for part in (blocks.scales, blocks.minima):
        if part is not None and not np.isfinite(part).all():
            raise TensorError(
                f"reading {view.file}, tensor {shown_name(view.name)}", expected="finite scales", got="NaN or infinity",
                fix="the file is damaged; download it again",
            )  # fmt: skip
    out = aligned_empty(packing.shape(rows, columns), np.uint8, 64)
    step = max(1, _PIECE // (ROWS * columns)) * ROWS
    for start in range(0, rows, step):
        count = min(step, rows - start)
        part = slice(start * groups, (start + count) * groups)
        padded = -(-count // ROWS) * ROWS
        codes = np.full((padded, columns), packing.zero, np.uint8)
        codes[:count] = blocks.codes[part].reshape(count, columns)
        heads = [None if head is None else _padded(head[part].reshape(count, groups), padded) for head in (blocks.scales, blocks.minima)]
        out[start // ROWS : (start + padded) // ROWS] = packing.pack(Codes(codes, heads[0], heads[1]))  # type: ignore[arg-type]
    out.setflags(write=False)
    return out


def _padded(head: NDArray[np.float16], rows: int) -> NDArray[np.float16]:
    whole = np.zeros((rows, head.shape[1]), np.float16)
    whole[: len(head)] = head
    return whole
