"""What a family gives to the rest of Ouzel: its graphs, its tensor table, and the arrays that depend on shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ouzel.graph.graph import Graph
from ouzel.weights.table import TensorSpec


@dataclass(frozen=True)
class Picture:
    """A picture or video, ready for the vision graph.

    kind: "image" or "video".
    pixels: float32 [patches, values of a patch], in the order of the family's processor.
    grid: (temporal groups, patch rows, patch columns).
    tokens: rows that it takes in the text, over all temporal groups.
    key: hash of the content and of every setting that changes its features.
    """

    kind: str
    pixels: NDArray[np.float32]
    grid: tuple[int, int, int]
    tokens: int
    key: str
    source_size: tuple[int, int] = (0, 0)
    resized_size: tuple[int, int] = (0, 0)
    timestamps: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Positions:
    """Position ids of a prompt, int64 [axes, tokens], and what to add to the index of every later token."""

    ids: NDArray[np.int64]
    delta: int

    def after(self, start: int, count: int) -> NDArray[np.int64]:
        """Positions of `count` generated tokens from index `start` on, [axes, count]."""
        run = np.arange(start, start + count, dtype=np.int64) + self.delta
        return np.broadcast_to(run, (len(self.ids), count))


@dataclass(frozen=True)
class VisionInputs:
    """Inputs of the vision graph for one picture, and the borders of its attention segments (int32 [n + 1])."""

    inputs: Mapping[str, NDArray[Any]]
    segments: NDArray[np.int32]


@dataclass(frozen=True)
class Sizes:
    """Numbers that the runtime needs to know about a text model."""

    hidden: int
    vocab: int
    layers: int
    max_context: int


@dataclass(frozen=True)
class PlaceholderText:
    """How one picture stands in the rendered template (`find`) and what takes its place (`put`)."""

    find: str
    put: str


@dataclass(frozen=True)
class PictureOptions:
    """What a request may say about its pictures. None leaves the checkpoint's own setting.

    min_pixels, max_pixels: the pixel budget. alpha: "white" puts transparent pictures on white, "drop" drops the channel.
    video_layout: text around video frames, "release" or "transformers5".
    """

    min_pixels: int | None = None
    max_pixels: int | None = None
    alpha: str = "white"
    video_layout: str = "release"


class Family(Protocol):
    """A declared family with the configuration of one checkpoint."""

    name: str
    sizes: Sizes
    feature_inputs: Mapping[str, str]
    """Outputs of the vision graph -> inputs of the text graph that take their rows; empty for text models."""
    visual_tokens: frozenset[int]
    """Ids whose embeddings are replaced by picture rows."""
    stage_names: Mapping[str, str]
    """Further names of stages -> the value's own name ("vision.final")."""

    tied: Mapping[str, str]
    """Weights that read another weight's tensor (a tied head)."""

    def tensor_table(self) -> Sequence[TensorSpec]:
        """Every tensor of the checkpoint that the graphs read."""
        ...

    def text_graph(self) -> Graph:
        """The decoder; inputs `ids`, `rope_cos`, `rope_sin`, `logit_rows` and, with vision, `visual_rows` and features."""
        ...

    def vision_graph(self) -> Graph | None:
        """The vision tower with its projector, None for text models."""
        ...

    def text_inputs(self, positions: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """Inputs of the text graph that depend on positions [axes, tokens]."""
        ...

    def vision_inputs(self, picture: Picture) -> VisionInputs:
        """Inputs of the vision graph."""
        ...

    def positions(self, ids: Sequence[int], shown: Sequence[Picture]) -> Positions:
        """Position ids of a prompt that shows these pictures, in order."""
        ...

    def prepare_image(self, image: Any, options: PictureOptions) -> Picture:
        """A loaded image as the family's processor sees it. Raises ImageError where the reference refuses."""
        ...

    def prepare_video(
        self, frames: Sequence[Any], fps: float | None, timestamps: Sequence[float] | None, options: PictureOptions
    ) -> Picture:
        """Loaded frames of one size as the family's processor sees them."""
        ...

    def placeholder(self, picture: Picture, options: PictureOptions) -> PlaceholderText:
        """The text around a picture."""
        ...
