"""Qwen3-VL, dense (Qwen/Qwen3-VL-2B, 4B, 8B, 32B): images and videos into a Qwen3 decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.config import ConfigReader
from ouzel.checkpoint.folder import Checkpoint
from ouzel.checkpoint.rope import inv_freq, read_rope
from ouzel.graph.graph import Graph
from ouzel.processors import qwen_positions
from ouzel.weights.table import TensorSpec
from ouzel.models.blocks import rope
from ouzel.models.blocks.decoder import tied_weights
from ouzel.models.family import Picture, PictureOptions, PlaceholderText, Positions, Sizes, VisionInputs
from ouzel.models.qwen3.config import max_context, read_decoder
from ouzel.models.qwen3_vl import pictures
from ouzel.models.qwen3_vl.config import read_sections, read_vision
from ouzel.models.qwen3_vl.text import declare_text
from ouzel.models.qwen3_vl.vision import declare_vision


class Qwen3VL:
    """The family with the configuration of one checkpoint (see `models.family.Family`)."""

    name = "qwen3_vl"

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = checkpoint.reader()
        self.config = c = read_decoder(config)
        self.tied = tied_weights(c)
        self.vision = v = read_vision(config, c)
        self.sizes = Sizes(c.hidden, c.vocab, c.layers, max_context(config))
        self._read_rope(config)
        self._image_token = config.int("image_token_id", default=151655, max=c.vocab - 1)
        self._video_token = config.int("video_token_id", default=151656, max=c.vocab - 1)
        self.visual_tokens = frozenset((self._image_token, self._video_token))
        self._settings = pictures.read_settings(checkpoint, v)
        self.feature_inputs = {"image_embeds": "visual_embeds"}
        self.feature_inputs |= {f"deepstack.{j}": f"visual_deepstack.{j}" for j in range(len(v.deepstack))}
        self.stage_names = {"vision.final": f"vision.layers.{v.tower.layers - 1}"}
        self._text_builder, self._text = declare_text(c, len(v.deepstack), "model.language_model.")
        self._vision_builder, self._vision = declare_vision(v, "model.visual.")

    def _read_rope(self, config: ConfigReader) -> None:
        settings = read_rope(config, default_theta=5e6)
        if settings.params.get("mrope_interleaved") is False:
            raise config.unsupported("text_config.rope_scaling.mrope_interleaved", False, {True})
        pairs = self.config.head_dim // 2
        self._frequencies, self._rope_scaling = inv_freq(settings, self.config.head_dim)
        self._axes = rope.interleaved_axes(read_sections(config, settings.sections, pairs), pairs)

    def tensor_table(self) -> Sequence[TensorSpec]:
        """See `Family.tensor_table`."""
        return [*self._vision_builder.specs, *self._text_builder.specs]

    def text_graph(self) -> Graph:
        """See `Family.text_graph`."""
        return self._text

    def vision_graph(self) -> Graph:
        """See `Family.vision_graph`."""
        return self._vision

    def text_inputs(self, positions: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """Rotary tables of positions [3 (time, height, width), tokens]."""
        cos, sin = rope.tables(rope.axis_angles(positions, self._frequencies, self._axes), self._rope_scaling)
        return {"rope_cos": cos, "rope_sin": sin}

    def vision_inputs(self, picture: Picture) -> VisionInputs:
        """Position taps and rotary tables of the grid; every temporal group is a segment of its own."""
        t, h, w = picture.grid
        grid = qwen_positions.vision_grid_tables(picture.grid, self.vision.merge, self.vision.table_side)
        cos, sin = rope.tables(rope.grid_angles(grid.rows, grid.columns, self.vision.tower.head_dim))
        inputs = {
            "pixels": picture.pixels,
            "position_taps": grid.taps,
            "position_weights": grid.weights,
            "rope_cos": cos,
            "rope_sin": sin,
        }
        return VisionInputs(inputs, np.arange(t + 1, dtype=np.int32) * np.int32(h * w))

    def positions(self, ids: Sequence[int], shown: Sequence[Picture]) -> Positions:
        """Three axes; a picture counts by its larger side."""
        grids = {kind: [p.grid for p in shown if p.kind == kind] for kind in ("image", "video")}
        found, delta = qwen_positions.rope_index(
            ids, grids["image"], grids["video"], image_token=self._image_token, video_token=self._video_token, merge=self.vision.merge
        )
        return Positions(found, delta)

    def prepare_image(self, image: Any, options: PictureOptions) -> Picture:
        """See `Family.prepare_image`."""
        return pictures.image(image, self._settings, options)

    def prepare_video(
        self, frames: Sequence[Any], fps: float | None, timestamps: Sequence[float] | None, options: PictureOptions
    ) -> Picture:
        """See `Family.prepare_video`."""
        return pictures.video(frames, fps, timestamps, self._settings, options)

    def placeholder(self, picture: Picture, options: PictureOptions) -> PlaceholderText:
        """See `Family.placeholder`."""
        return pictures.placeholder(picture, options)
