"""Llama, dense text models (Llama 2 and 3, SmolLM2 and others with `LlamaForCausalLM`): no norm on queries and keys."""

from __future__ import annotations

from ouzel.checkpoint.folder import Checkpoint
from ouzel.models.blocks.text_family import TextFamily
from ouzel.models.llama.config import max_context, read_decoder, read_frequencies


class Llama(TextFamily):
    """The family with the configuration of one checkpoint (see `models.family.Family`)."""

    name = "llama"

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = checkpoint.reader()
        decoder = read_decoder(config)
        super().__init__(decoder, max_context(config), read_frequencies(config, decoder.head_dim))
