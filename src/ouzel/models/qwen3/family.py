"""Qwen3, dense text models (Qwen/Qwen3-0.6B to 32B)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.folder import Checkpoint
from ouzel.checkpoint.rope import inv_freq, read_rope
from ouzel.errors import ImageError
from ouzel.graph.graph import Graph
from ouzel.weights.table import TensorSpec
from ouzel.models.blocks import rope
from ouzel.models.blocks.decoder import decoder_layer, head, tied_weights
from ouzel.models.blocks.part import PartBuilder
from ouzel.models.family import Picture, PictureOptions, PlaceholderText, Positions, Sizes, VisionInputs
from ouzel.models.qwen3.config import max_context, read_decoder


class Qwen3:
    """The family with the configuration of one checkpoint (see `models.family.Family`)."""

    name = "qwen3"
    feature_inputs: dict[str, str] = {}
    visual_tokens: frozenset[int] = frozenset()
    stage_names: dict[str, str] = {}

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = checkpoint.reader()
        self.config = c = read_decoder(config)
        self.tied = tied_weights(c)
        self.sizes = Sizes(c.hidden, c.vocab, c.layers, max_context(config))
        self._frequencies, self._rope_scaling = inv_freq(read_rope(config, default_theta=1e6), c.head_dim)
        self._builder, self._graph = self._declare()

    def _declare(self) -> tuple[PartBuilder, Graph]:
        b, c = PartBuilder("text"), self.config
        ids = b.input("ids", "tokens", 1, "i32")
        for name in ("rope_cos", "rope_sin"):
            b.input(name, "tokens", c.head_dim // 2)
        x = b.embed("text.embed", ids, "model.embed_tokens", c.vocab, c.hidden)
        for i in range(c.layers):
            x = decoder_layer(b, c, i, x, "model.")
        return b, b.finish(head(b, c, x, "model.norm"))

    def tensor_table(self) -> Sequence[TensorSpec]:
        """See `Family.tensor_table`."""
        return self._builder.specs

    def text_graph(self) -> Graph:
        """See `Family.text_graph`."""
        return self._graph

    def vision_graph(self) -> None:
        """A text model has none."""
        return None

    def text_inputs(self, positions: NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
        """Rotary tables of one-dimensional positions [1, tokens]."""
        cos, sin = rope.tables(rope.sequence_angles(positions, self._frequencies), self._rope_scaling)
        return {"rope_cos": cos, "rope_sin": sin}

    def positions(self, ids: Sequence[int], shown: Sequence[Picture]) -> Positions:
        """0, 1, 2, ..."""
        return Positions(np.arange(len(ids), dtype=np.int64)[None], 0)

    def vision_inputs(self, picture: Picture) -> VisionInputs:
        """A text model refuses pictures."""
        _no_pictures()

    def prepare_image(self, image: Any, options: PictureOptions) -> Picture:
        """A text model refuses pictures."""
        _no_pictures()

    def prepare_video(
        self, frames: Sequence[Any], fps: float | None, timestamps: Sequence[float] | None, options: PictureOptions
    ) -> Picture:
        """A text model refuses videos."""
        _no_pictures()

    def placeholder(self, picture: Picture, options: PictureOptions) -> PlaceholderText:
        """A text model refuses pictures."""
        _no_pictures()


def _no_pictures() -> NoReturn:
    raise ImageError(
        "reading a picture", expected="a vision-language model", got="a text model (qwen3)", fix="send text only, or load another model"
    )
