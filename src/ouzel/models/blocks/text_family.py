"""A family of text models without pictures, declared from the shared decoder block; a family adds its name and configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import ImageError
from ouzel.graph.graph import Graph
from ouzel.weights.table import TensorSpec
from ouzel.models.blocks import rope
from ouzel.models.blocks.decoder import DecoderConfig, decoder_layer, head, tied_weights
from ouzel.models.blocks.part import PartBuilder
from ouzel.models.family import Picture, PictureOptions, PlaceholderText, Positions, Sizes, VisionInputs


class TextFamily:
    """See `models.family.Family`.

    frequencies: angle of each rotary pair at position 1, [head_dim / 2], and the factor on cos and sin.
    """

    name: str
    feature_inputs: Mapping[str, str] = {}
    visual_tokens: frozenset[int] = frozenset()
    stage_names: Mapping[str, str] = {}

    def __init__(self, config: DecoderConfig, max_context: int, frequencies: tuple[NDArray[np.float32], float]) -> None:
        self.config = c = config
        self.tied = tied_weights(c)
        self.sizes = Sizes(c.hidden, c.vocab, c.layers, max_context)
        self._frequencies, self._rope_scaling = frequencies
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
        self._no_pictures()

    def prepare_image(self, image: Any, options: PictureOptions) -> Picture:
        """A text model refuses pictures."""
        self._no_pictures()

    def prepare_video(
        self, frames: Sequence[Any], fps: float | None, timestamps: Sequence[float] | None, options: PictureOptions
    ) -> Picture:
        """A text model refuses videos."""
        self._no_pictures()

    def placeholder(self, picture: Picture, options: PictureOptions) -> PlaceholderText:
        """A text model refuses pictures."""
        self._no_pictures()

    def _no_pictures(self) -> NoReturn:
        raise ImageError(
            "reading a picture", expected="a vision-language model", got=f"a text model ({self.name})", fix="send text only, or load another model"
        )
