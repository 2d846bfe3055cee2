"""Sizes and special tokens of the embedded reader: a very small `qwen3_vl` network.

The numbers here are the single source for the training network, the exported `config.json` and the tokenizer.
"""

from __future__ import annotations

PATCH = 16
MERGE = 2
CELL = PATCH * MERGE  # pixels covered by one picture token, along each side

SPECIAL_TOKENS = [
    ("<|endoftext|>", True), ("<|im_start|>", True), ("<|im_end|>", True),
    ("<|object_ref_start|>", True), ("<|object_ref_end|>", True),
    ("<|box_start|>", True), ("<|box_end|>", True),
    ("<|quad_start|>", True), ("<|quad_end|>", True),
    ("<|vision_start|>", True), ("<|vision_end|>", True), ("<|vision_pad|>", True),
    ("<|image_pad|>", True), ("<|video_pad|>", True),
    ("<tool_call>", False), ("</tool_call>", False),
    ("<|fim_prefix|>", False), ("<|fim_middle|>", False), ("<|fim_suffix|>", False), ("<|fim_pad|>", False),
    ("<|repo_name|>", False), ("<|file_sep|>", False),
    ("<tool_response>", False), ("</tool_response>", False),
    ("<think>", False), ("</think>", False),
]
"""The 26 added tokens of the Qwen3-VL releases: (text, special), in the order of their ids."""

# A byte is its own id; the added tokens follow. 288 rows: the next multiple of 32.
TOKEN_ID = {text: 256 + i for i, (text, _) in enumerate(SPECIAL_TOKENS)}
VOCAB = 288
END_OF_TEXT = TOKEN_ID["<|endoftext|>"]
IM_START = TOKEN_ID["<|im_start|>"]
IM_END = TOKEN_ID["<|im_end|>"]
VISION_START = TOKEN_ID["<|vision_start|>"]
VISION_END = TOKEN_ID["<|vision_end|>"]
IMAGE_PAD = TOKEN_ID["<|image_pad|>"]
VIDEO_PAD = TOKEN_ID["<|video_pad|>"]

# Every matrix is a multiple of 32 along its input, so that grouped integer formats fit.
TEXT = {
    "hidden_size": 192,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    # A small base: the whole context is a few hundred positions, and neighbouring columns must be told apart.
    "rope_theta": 1000,
    "mrope_section": [6, 5, 5],
    "max_position_embeddings": 2048,
}
VISION = {
    "depth": 5,
    "hidden_size": 160,
    "intermediate_size": 512,
    "num_heads": 5,
    "num_position_embeddings": 144,
    "deepstack_visual_indexes": [2],
}

# Pixel counts: pictures are scaled up to the first and down to the second (see docs/reader.md).
MIN_PIXELS = CELL * CELL * 4
MAX_PIXELS = CELL * CELL * 75
