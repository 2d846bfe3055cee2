"""Positions of the Qwen-VL models: of tokens in the text, and of patches in the vision tower.

Everything follows from ids and grids alone. A grid is (t, h, w) in patches; a merged grid divides h and w by `merge`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ouzel.errors import PromptError

Grid = Sequence[int]


def rope_index(
    ids: Sequence[int] | np.ndarray,
    image_grids: Sequence[Grid] | np.ndarray,
    video_grids: Sequence[Grid] | np.ndarray,
    image_token: int,
    video_token: int,
    merge: int,
) -> tuple[np.ndarray, int]:
    """Position ids of one sequence and how far the next position lies from its length.

    ids: [n] token ids, placeholders expanded, without padding. image_grids, video_grids: (t, h, w) of each, in order.
    Returns (int64 [3, n] for time, row and column; delta): token k after the prompt stands at n + k + delta on all
    axes. A picture that starts at s takes (s, s + row, s + column), and the text after it goes on at s + max(h, w) of
    the merged grid. Every temporal group of a video counts as a picture of its own.

    Raises PromptError when the runs of placeholder ids do not match the grids.
    """
    ids = np.asarray(ids, np.int64)
    merged = {
        image_token: _merged_grids(image_grids, merge, "image"),
        video_token: _merged_grids(video_grids, merge, "video"),
    }
    waiting = {token: iter(grids) for token, grids in merged.items()}
    names = {image_token: "image", video_token: "video"}
    positions = np.empty((3, len(ids)), np.int64)
    place = 0
    for start, end in _runs(ids, image_token, video_token):
        token = int(ids[start])
        if token not in names:
            positions[:, start:end] = np.arange(place, place + end - start)
            place += end - start
            continue
        # Pictures with nothing between them make one run; each grid takes its share.
        while start < end:
            grid = next(waiting[token], None)
            if grid is None or grid[0] * grid[1] > end - start:
                raise _count_error(ids, token, names[token], merged[token])
            rows, columns = grid
            count = rows * columns
            positions[0, start : start + count] = place
            positions[1, start : start + count] = place + np.repeat(np.arange(rows), columns)
            positions[2, start : start + count] = place + np.tile(np.arange(columns), rows)
            start += count
            place += max(rows, columns)
    for token, name in names.items():
        if next(waiting[token], None) is not None:
            raise _count_error(ids, token, name, merged[token])
    highest = int(positions.max()) + 1 if len(ids) else 0
    return positions, highest - len(ids)


def _merged_grids(grids: Sequence[Grid] | np.ndarray, merge: int, kind: str) -> list[tuple[int, int]]:
    """(rows, columns) in tokens of every picture or temporal group."""
    found: list[tuple[int, int]] = []
    for grid in grids:
        groups, rows, columns = (int(value) for value in grid)
        if min(groups, rows, columns) < 1 or rows % merge or columns % merge:
            raise PromptError(
                f"place the {kind} tokens", expected=f"a grid with sides that are multiples of {merge}",
                got=str((groups, rows, columns)),
            )  # fmt: skip
        found += [(rows // merge, columns // merge)] * groups
    return found


def _runs(ids: np.ndarray, image_token: int, video_token: int) -> Iterator[tuple[int, int]]:
    """(start, end) of every longest stretch of image ids, of video ids, or of other ids."""
    kinds = np.where(ids == image_token, 1, np.where(ids == video_token, 2, 0))
    borders = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(ids)]
    return ((start, end) for start, end in zip(borders, borders[1:]) if end > start)


def _count_error(ids: np.ndarray, token: int, name: str, grids: list[tuple[int, int]]) -> PromptError:
    wanted = [rows * columns for rows, columns in grids]
    return PromptError(
        f"place the {name} tokens",
        expected=f"runs of {wanted[:8]} placeholder ids for {len(wanted)} {name} grids ({sum(wanted)} in all)",
        got=f"{int((ids == token).sum())} placeholder ids {token}",
        fix="expand one placeholder for each picture, in the order of the grids",
    )


@dataclass(frozen=True)
class VisionTables:
    """Where the patches of one grid stand, in block order; the same for every temporal group.

    rows, columns: int32 [t*h*w], patch indices in the full grid. taps: int32 [t*h*w, 4], rows of the position table;
    weights: float32 [t*h*w, 4], their shares.
    """

    rows: np.ndarray
    columns: np.ndarray
    taps: np.ndarray
    weights: np.ndarray


def vision_grid_tables(grid: Grid, merge: int, table_side: int) -> VisionTables:
    """Patch indices, and taps into a learned table of `table_side` squared positions, for one picture or video.

    grid: (t, h, w) in patches, h and w multiples of `merge`. The table is sampled bilinearly with corners aligned:
    patch i of n stands at i * (side - 1) / max(n - 1, 1). Arithmetic is float32, in the reference's order.
    """
    groups, height, width = (int(value) for value in grid)
    rows, columns = _block_order(height, width, merge)
    row_taps, row_weights = _axis_taps(rows, height, table_side)
    column_taps, column_weights = _axis_taps(columns, width, table_side)
    taps = (row_taps[:, :, None] * table_side + column_taps[:, None, :]).reshape(-1, 4)
    weights = (row_weights[:, :, None] * column_weights[:, None, :]).reshape(-1, 4)
    return VisionTables(
        np.tile(rows, groups).astype(np.int32),
        np.tile(columns, groups).astype(np.int32),
        np.tile(taps, (groups, 1)).astype(np.int32),
        np.tile(weights, (groups, 1)),
    )


def _block_order(height: int, width: int, merge: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every patch, blocks of merge x merge one after another: int64 [height * width] each."""
    shape = (height // merge, merge, width // merge, merge)
    rows = np.broadcast_to(np.arange(height).reshape(shape[0], merge, 1, 1), shape)
    columns = np.broadcast_to(np.arange(width).reshape(1, 1, shape[2], merge), shape)
    return rows.transpose(0, 2, 1, 3).reshape(-1), columns.transpose(0, 2, 1, 3).reshape(-1)


def _axis_taps(index: np.ndarray, size: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """The two neighbours int64 [n, 2] and their weights float32 [n, 2] on one axis of the table."""
    place = index.astype(np.float32) * np.float32(side - 1) / np.float32(max(size - 1, 1))
    low = np.floor(place)
    part = place - low
    taps = np.minimum(low.astype(np.int64)[:, None] + np.arange(2), side - 1)
    # 1 - |distance to the tap|, for both taps.
    weights = np.stack([1 - part, 1 - np.abs(part - 1)], axis=1).astype(np.float32)
    return taps, weights
