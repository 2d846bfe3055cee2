"""Pixels: equal, or off by the rounding of another resizer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ouzel.generation.request import Prompt
from ouzel.model import Model
from ouzel.verify.golden import Golden, rows_of
from ouzel.verify.stages import PIXELS, pictures_of

LEVELS = 1.0
"""Two resizers that round to eight bits at other places differ by one grey level."""

SHARE = 0.02
"""They differ at values near a tie of the rounding; with one tie in fifty the arithmetic is not the same any more."""


@dataclass(frozen=True)
class PixelDifference:
    """steps: largest difference in grey levels; share: of values that differ by more than float rounding."""

    name: str
    steps: float
    share: float
    picture: int
    row: int
    column: int

    @property
    def ok(self) -> bool:
        """Whether it is the rounding of another resizer, or nothing."""
        return self.steps <= LEVELS + 1e-3 and self.share <= SHARE


def compare_pixels(model: Model, golden: Golden, prompt: Prompt) -> list[PixelDifference]:
    """Pixels of pictures and of videos, where the golden has them."""
    found = []
    for kind, name in PIXELS.items():
        pictures = pictures_of(golden, prompt, kind)
        if not pictures or name not in golden.arrays:
            continue
        ours = np.concatenate([picture.pixels for picture in pictures])
        error = np.abs(ours.astype(np.float64) - rows_of(golden, name, ours.shape[1]))
        row, column = (int(i) for i in np.unravel_index(error.argmax(), error.shape))
        level = grey_level(model)
        ends = np.cumsum([len(picture.pixels) for picture in pictures])
        at = int(np.searchsorted(ends, row, side="right"))
        # A tenth of a level is far above float rounding and far below a step.
        share = float(np.mean(error > 0.1 * level))
        found.append(
            PixelDifference(name, float(error.max() / level), share, at, row - int(ends[at] - len(pictures[at].pixels)), column)
        )
    return found


def grey_level(model: Model) -> float:
    """One grey level after the processor's normalisation, the largest over channels."""
    settings = model.checkpoint.json("preprocessor_config.json") or {}
    deviations = settings.get("image_std") or [0.5]
    scale = settings.get("rescale_factor") or 1 / 255
    return float(scale) / min(float(value) for value in deviations)
