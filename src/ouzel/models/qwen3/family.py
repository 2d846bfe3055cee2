"""Qwen3, dense text models (Qwen/Qwen3-0.6B to 32B)."""

from __future__ import annotations

from ouzel.checkpoint.folder import Checkpoint
from ouzel.checkpoint.rope import inv_freq, read_rope
from ouzel.models.blocks.text_family import TextFamily
from ouzel.models.qwen3.config import max_context, read_decoder


class Qwen3(TextFamily):
    """The family with the configuration of one checkpoint (see `models.family.Family`)."""

    name = "qwen3"

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = checkpoint.reader()
        decoder = read_decoder(config)
        super().__init__(decoder, max_context(config), inv_freq(read_rope(config, default_theta=1e6), decoder.head_dim))
