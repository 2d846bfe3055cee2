"""Random checkpoints with the sizes of real releases: same names, shapes and bf16 storage, meaningless numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ouzel import env
from ouzel.checkpoint.folder import Checkpoint
from ouzel.models.registry import make_family
from ouzel.weights.formats import f32_to_bf16

_TEXT = {
    "attention_bias": False,
    "head_dim": 128,
    "hidden_act": "silu",
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "vocab_size": 151936,
}
_VISION = {
    "deepstack_visual_indexes": [5, 11, 17],
    "depth": 24,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_heads": 16,
    "num_position_embeddings": 2304,
    "out_hidden_size": 2048,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_ROPE = {"mrope_interleaved": True, "mrope_section": [24, 20, 20], "rope_type": "default"}

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": {"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "rope_theta": 1e6, **_TEXT},
    "qwen3-vl-2b": {
        "model_type": "qwen3_vl",
        "tie_word_embeddings": True,
        "text_config": {"hidden_size": 2048, "intermediate_size": 6144, "rope_theta": 5e6, "rope_scaling": _ROPE, **_TEXT},
        "vision_config": _VISION,
    },
}

_PREPROCESSOR = {
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}

_BLOCK = 1 << 22


def checkpoint(name: str) -> Path:
    """The folder of the random checkpoint `name`, made when it is not in the user's cache yet."""
    folder = env.get("OUZEL_CACHE") / "benchmarks" / name
    if not (folder / "model.safetensors").is_file():
        _write(folder, CONFIGS[name])
    return folder


def _write(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if "vision_config" in config:
        for file in ("preprocessor_config.json", "video_preprocessor_config.json"):
            (folder / file).write_text(json.dumps(_PREPROCESSOR), encoding="utf-8")
    shapes = _shapes(folder)
    temporary = folder / "model.safetensors.part"
    with open(temporary, "wb") as file:
        file.write(_header(shapes))
        for shape in shapes.values():
            for block in _values(shape):
                file.write(block)
    os.replace(temporary, folder / "model.safetensors")


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Source names and shapes of the family's own tensor table; tied heads are not stored."""
    family = make_family(Checkpoint.open(folder))
    return {spec.sources[0]: spec.shape for spec in family.tensor_table() if spec.name not in family.tied}


def _header(shapes: dict[str, tuple[int, ...]]) -> bytes:
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    return len(text).to_bytes(8, "little") + text


def _values(shape: tuple[int, ...]) -> Iterator[bytes]:
    """Norm weights near one; matrices with a deviation that keeps activations of the order of one."""
    rng = np.random.default_rng(0)
    count = int(np.prod(shape))
    if len(shape) == 1:
        yield f32_to_bf16((1 + 0.02 * rng.standard_normal(count)).astype(np.float32)).tobytes()
        return
    scale = np.float32(0.5 / np.sqrt(np.prod(shape[1:])))
    # One block of random numbers, turned a little further each time: quick, and no two rows are equal.
    block = f32_to_bf16(scale * rng.standard_normal(min(count, _BLOCK)).astype(np.float32))
    for start in range(0, count, _BLOCK):
        yield np.roll(block, start // _BLOCK * 4099)[: count - start].tobytes()
