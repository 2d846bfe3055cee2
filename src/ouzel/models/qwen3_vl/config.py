"""Configuration of Qwen3-VL dense models (transformers `Qwen3VLConfig`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ouzel.checkpoint.config import ConfigReader
from ouzel.models.blocks.decoder import DecoderConfig
from ouzel.models.blocks.vision_tower import TowerConfig


@dataclass(frozen=True)
class VisionConfig:
    """The tower, its patches and its mergers."""

    tower: TowerConfig
    patch: int
    merge: int
    temporal: int
    channels: int
    table_side: int
    deepstack: tuple[int, ...]
    out: int

    @property
    def patch_values(self) -> int:
        """Numbers of one flattened patch: channels x temporal x patch x patch."""
        return self.channels * self.temporal * self.patch * self.patch


def read_vision(config: ConfigReader, text: DecoderConfig) -> VisionConfig:
    """The vision part; checked against the text part's width and depth."""
    v = config.section("vision_config")
    v.refuse_unless("hidden_act", {"gelu_pytorch_tanh"}, default="gelu_pytorch_tanh")
    heads = v.int("num_heads")
    tower = TowerConfig(
        hidden=v.int("hidden_size", multiple_of=4 * heads),
        intermediate=v.int("intermediate_size"),
        layers=v.int("depth", max=4096),
        heads=heads,
        eps=1e-6,
    )
    positions = v.int("num_position_embeddings", default=2304)
    if math.isqrt(positions) ** 2 != positions:
        raise v.error("num_position_embeddings", "a square number", positions)
    out = v.int("out_hidden_size")
    if out != text.hidden:
        raise v.error("out_hidden_size", f"the text part's hidden_size ({text.hidden})", out)
    return VisionConfig(
        tower=tower,
        patch=v.int("patch_size", default=16),
        merge=v.int("spatial_merge_size", default=2),
        temporal=v.int("temporal_patch_size", default=2),
        channels=v.int("in_channels", default=3, min=3, max=3),
        table_side=math.isqrt(positions),
        deepstack=_deepstack(v, tower.layers, text.layers),
        out=out,
    )


def _deepstack(v: ConfigReader, depth: int, text_layers: int) -> tuple[int, ...]:
    indexes = v.ints("deepstack_visual_indexes", default=[8, 16, 24], max=depth - 1)
    if len(indexes) > text_layers or len(set(indexes)) != len(indexes):
        raise v.error("deepstack_visual_indexes", f"at most {text_layers} different blocks", indexes)
    return tuple(indexes)


def read_sections(config: ConfigReader, sections: tuple[int, ...] | None, pairs: int) -> tuple[int, ...]:
    """Rotary pairs of each position axis (release: 24, 20, 20)."""
    found = sections or (24, 20, 20)
    if len(found) != 3 or 3 * max(found[1:]) > pairs + 2:
        raise config.error("text_config.rope_scaling.mrope_section", f"three counts that fit {pairs} rotary pairs", list(found))
    return found
