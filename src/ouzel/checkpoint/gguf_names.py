"""Tensor names of GGUF files (llama.cpp's) for the names of the Hugging Face checkpoints that they were made from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.gguf_file import Rows

_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_VISION_BLOCK = {
    "ln1": "norm1",
    "ln2": "norm2",
    "attn_qkv": "attn.qkv",
    "attn_out": "attn.proj",
    "ffn_up": "mlp.linear_fc1",
    "ffn_down": "mlp.linear_fc2",
}
_ENDS = ("weight", "bias")

PATCH, SECOND_PATCH = "v.patch_embd.weight", "v.patch_embd.weight.1"
"""The two time slices of the patch embedding, which the checkpoint holds as one tensor."""


def text_names(layers: int, prefix: str) -> Iterator[tuple[str, str]]:
    """Pairs of the checkpoint's name and the file's for a decoder; `prefix` is the decoder's, with its dot."""
    for source, target in (("token_embd", f"{prefix}embed_tokens"), ("output_norm", f"{prefix}norm"), ("output", "lm_head")):
        yield f"{target}.weight", f"{source}.weight"
    for i in range(layers):
        for source, target in _BLOCK.items():
            for end in _ENDS:
                yield f"{prefix}layers.{i}.{target}.{end}", f"blk.{i}.{source}.{end}"


def vision_names(layers: int, deepstack: tuple[int, ...], prefix: str) -> Iterator[tuple[str, str]]:
    """As `text_names` for the tower and mergers of Qwen3-VL. Deepstack mergers are numbered by their block in the file."""
    yield f"{prefix}patch_embed.proj.bias", "v.patch_embd.bias"
    yield f"{prefix}pos_embed.weight", "v.position_embd.weight"
    modules = {"v.post_ln": "merger.norm", "mm.0": "merger.linear_fc1", "mm.2": "merger.linear_fc2"}
    for i in range(layers):
        modules |= {f"v.blk.{i}.{source}": f"blocks.{i}.{target}" for source, target in _VISION_BLOCK.items()}
    for j, block in enumerate(deepstack):
        for source, target in (("norm", "norm"), ("fc1", "linear_fc1"), ("fc2", "linear_fc2")):
            modules[f"v.deepstack.{block}.{source}"] = f"deepstack_merger_list.{j}.{target}"
    for source, target in modules.items():
        for end in _ENDS:
            yield f"{prefix}{target}.{end}", f"{source}.{end}"


def half_rows(heads: int) -> Rows:
    """Rows of a query or key matrix back in the checkpoint's order.

    Files of the architecture llama hold each head's rows for rotation in neighbouring pairs (0, d/2, 1, d/2 + 1, ...);
    checkpoints hold them for rotation in halves.
    """

    def rows(count: int) -> NDArray[np.int64]:
        return np.arange(count, dtype=np.int64).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)

    return rows
