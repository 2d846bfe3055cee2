"""Turns scheduled work into one step of the text graph, and pictures into features."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as List

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.base import CancelToken, Executable, SequenceRows, Step
from ouzel.errors import NumericError
from ouzel.models.family import Family, Picture
from ouzel.generation.scheduler import Scheduled

F32 = NDArray[np.float32]
Features = dict[str, F32]


class TextRunner:
    """Runs the text graph over ragged rows."""

    def __init__(self, family: Family, executable: Executable) -> None:
        self._family = family
        self._executable = executable

    def run(self, work: List[Scheduled], blocks: int, cancel: CancelToken | None = None) -> list[F32 | None]:
        """One pass; for each item its logits [1 + draft, vocab] when it reaches the newest token, else None.

        blocks: how many cache blocks must exist.
        """
        self._executable.ensure_blocks(blocks)
        wanted = [1 + len(item.draft) if item.last else 0 for item in work]
        ends = np.cumsum([item.count for item in work], dtype=np.int32)
        rows = [np.arange(end - count, end, dtype=np.int32) for end, count in zip(ends, wanted)]
        step = Step(self.inputs(work, np.concatenate(rows)), ("logits",), sequences=_sequences(work), cancel=cancel)
        logits = self._executable.run(step)["logits"]
        stops = np.cumsum(wanted)
        return [logits[stop - count : stop] if count else None for stop, count in zip(stops, wanted)]

    def inputs(self, work: List[Scheduled], logit_rows: NDArray[np.int32]) -> dict[str, NDArray]:
        """Every input of the text graph for these tokens."""
        ids, positions, rows, features = [], [], [], []
        start = 0
        for item in work:
            s, first = item.sequence, item.sequence.computed
            known = s.ids[first : first + item.count - len(item.draft)]
            ids.append(np.array([*known, *item.draft], np.int32))
            positions.append(_positions(item))
            visual = s.prompt.visual[first : first + item.count]
            at = np.flatnonzero(visual >= 0)
            rows.append((at + start).astype(np.int32))
            features.append((s.features, visual[at]))
            start += item.count
        inputs = {"ids": np.concatenate(ids)[:, None], "logit_rows": logit_rows[:, None]}
        inputs |= self._family.text_inputs(np.concatenate(positions, axis=1))
        if self._family.feature_inputs:
            inputs["visual_rows"] = np.concatenate(rows)[:, None]
            for output, name in self._family.feature_inputs.items():
                taken = [f[output][at] for f, at in features if len(at)]
                empty = np.zeros((0, self._family.sizes.hidden), np.float32)
                inputs[name] = np.concatenate(taken) if taken else empty
        return inputs


def _sequences(work: List[Scheduled]) -> list[SequenceRows]:
    rows, start = [], 0
    for item in work:
        blocks = np.array(item.sequence.blocks, np.int32)
        rows.append(SequenceRows(start, item.count, item.sequence.computed, blocks))
        start += item.count
    return rows


def _positions(item: Scheduled) -> NDArray[np.int64]:
    """Positions [axes, count] of the item's tokens: from the prompt as far as it goes, then counting on."""
    known = item.sequence.prompt.positions
    first, end = item.sequence.computed, item.sequence.computed + item.count
    inside = known.ids[:, first:end]
    beyond = end - max(first, known.ids.shape[1])
    if beyond <= 0:
        return inside
    return np.concatenate([inside, known.after(end - beyond, beyond)], axis=1)


class VisionRunner:
    """Runs the vision graph, a picture at a time, and keeps recent features.

    keep_bytes bounds the kept features; they answer for content and settings (`Picture.key`), never for a name.
    """

    def __init__(self, family: Family, executable: Executable, keep_bytes: int) -> None:
        self._family = family
        self.executable = executable
        self._keep_bytes = keep_bytes
        self._kept: OrderedDict[str, Features] = OrderedDict()

    def encode(self, picture: Picture, cancel: CancelToken | None = None) -> Features:
        """Features of one picture: each output of the vision graph, [tokens of the picture, hidden].

        Raises NumericError when one is not finite.
        """
        if picture.key in self._kept:
            self._kept.move_to_end(picture.key)
            return self._kept[picture.key]
        prepared = self._family.vision_inputs(picture)
        wanted = tuple(self._family.feature_inputs)
        step = Step(prepared.inputs, wanted, segments=prepared.segments, cancel=cancel)
        found = self.executable.run(step)
        for name, rows in found.items():
            if not np.isfinite(rows).all():
                raise NumericError(
                    "encoding a picture", expected=f"finite {name}", got="inf or nan", fix="check the weights with `ouzel inspect`"
                )
        self._keep(picture.key, found)
        return found

    def _keep(self, key: str, features: Features) -> None:
        self._kept[key] = features
        total = sum(rows.nbytes for kept in self._kept.values() for rows in kept.values())
        while total > self._keep_bytes and self._kept:
            _, gone = self._kept.popitem(last=False)
            total -= sum(rows.nbytes for rows in gone.values())


def join_features(parts: List[Features]) -> Features:
    """Features of several pictures, one after another."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
