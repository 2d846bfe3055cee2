"""Packing whole matrices in parallel: row blocks over threads, with memory for little more than the result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.buffers import aligned_empty
from ouzel.checkpoint.safetensors_file import TensorView
from ouzel.checkpoint.text import shown_name
from ouzel.errors import TensorError
from ouzel.weights.packing import ROWS, Packing, blocks_of
from ouzel.weights.quantise import NotStorable, normal_importance, quantise_rows

# Values that one thread takes at a time; the NumPy code needs some forty bytes of scratch for each.
_PIECE = 1 << 19


def worker_count(threads: int | None = None) -> int:
    """Threads that packing uses: `threads`, or the processors that this process may run on."""
    if threads is not None:
        return max(1, threads)
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


class Packer:
    """Packs one matrix after another on a pool of threads; see `packer`."""

    def __init__(self, pool: ThreadPoolExecutor, search: bool = True) -> None:
        self._pool = pool
        self._search = search

    def pack(
        self, data: NDArray[Any], dtype: str, packing: Packing, importance: NDArray[Any] | None = None
    ) -> NDArray[np.uint8]:
        """A matrix [n, k] stored as `dtype` ("F32", "BF16", "F16") in packed bytes, on a multiple of 64.

        importance: mean squares [k] of what the matrix is multiplied with. Raises NotStorable.
        """
        rows, columns = data.shape
        out: NDArray[Any] = aligned_empty(packing.shape(rows, columns), np.uint8, 64)
        weights = normal_importance(importance, columns)
        step = max(1, _PIECE // max(1, ROWS * columns)) * ROWS

        def piece(start: int) -> None:
            block = slice(start // ROWS, blocks_of(min(start + step, rows), ROWS))
            try:
                quantise_rows(data[start : start + step], dtype, packing, out[block], weights, self._search)
            except NotStorable as error:
                raise NotStorable((error.place[0] + start, error.place[1])) from None

        # The order of the pieces decides which error is told.
        for done in [self._pool.submit(piece, start) for start in range(0, rows, step)]:
            done.result()
        return out

    def pack_view(
        self, view: TensorView, data: NDArray[Any], form: str, packing: Packing, importance: NDArray[Any] | None = None
    ) -> NDArray[np.uint8]:
        """As `pack` for the tensor of a file (`data` is it, reshaped); TensorError names the tensor and the place."""
        try:
            return self.pack(data, view.dtype, packing, importance)
        except NotStorable as error:
            raise TensorError(
                f"converting the tensor {shown_name(view.name)} of {view.file} to {form}",
                expected="finite numbers with scales that half precision can hold",
                got=f"{_value(data, view.dtype, error.place)} at {list(error.place)}",
                fix="choose f32 or bf16 for this part, or download the file again",
            ) from None


@contextmanager
def packer(threads: int | None = None, search: bool = True) -> Iterator[Packer]:
    """A packer with its threads, which end with the context."""
    with ThreadPoolExecutor(worker_count(threads), "ouzel-pack") as pool:
        yield Packer(pool, search)


def _value(data: NDArray[Any], dtype: str, place: tuple[int, int]) -> str:
    raw = data[place]
    value = np.array(raw, np.uint16).astype(np.uint32) << np.uint32(16) if dtype == "BF16" else np.float32(raw)
    number = float(np.asarray(value, np.uint32).view(np.float32)) if dtype == "BF16" else float(value)
    return f"{number:g}" if np.isfinite(number) else "NaN or infinity"
