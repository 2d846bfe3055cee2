"""Random tiny models of unusual sizes and settings, made and run by transformers here and now, against both engines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goldens import FIXTURES, relative_error
from ouzel import load
from ouzel.engines.registry import engine_names

TOLERANCE = 1e-4

TEXT_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"attention_bias": True, "num_key_value_heads": 1, "head_dim": 10},
    "many_heads": {"num_attention_heads": 6, "num_key_value_heads": 6, "head_dim": 8, "hidden_size": 40},
    "yarn": {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 1e4}},
    "linear": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}},
    "llama3": {
        "rope_parameters": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32, "rope_theta": 1e4,
        }
    },
    "large_epsilon": {"rms_norm_eps": 1e-2, "intermediate_size": 17},
    "tied": {"tie_word_embeddings": True},
}  # fmt: skip

VISION_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no_deepstack": {"deepstack_visual_indexes": []},
    "deepstack_order": {"deepstack_visual_indexes": [2, 0]},
    "merge_3": {"spatial_merge_size": 3, "patch_size": 6},
    "merge_1": {"spatial_merge_size": 1, "patch_size": 10},
    "one_head": {"num_heads": 1, "hidden_size": 12, "intermediate_size": 19, "num_position_embeddings": 9},
    "temporal_1": {"temporal_patch_size": 1},
}


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread() -> None:
    """Threads cost more than they bring at this size, most of all on a busy machine."""
    import torch

    torch.set_num_threads(1)


def randomise(model: Any, seed: int) -> None:
    """Wide weights and non-zero biases, so that every term matters."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        wide = parameter.ndim > 1
        parameter.data = noise * (parameter[0].numel() ** -0.5 if wide else 0.2) + (0 if wide or "bias" in name else 1)


def save(model: Any, folder: Path, base: str) -> Path:
    """The model with the fixture's tokenizer and preprocessor files."""
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "video_preprocessor_config.json"):
        source = FIXTURES / base / "tiny" / name
        if source.is_file():
            shutil.copy(source, folder / name)
    return folder


@pytest.mark.parametrize("variant", TEXT_VARIANTS)
def test_qwen3(variant: str, tmp_path: Path) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    settings = {
        "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "vocab_size": 992, "max_position_embeddings": 256, "attn_implementation": "eager",
    }  # fmt: skip
    model = Qwen3ForCausalLM(Qwen3Config(**settings | TEXT_VARIANTS[variant])).eval()
    randomise(model, 1)
    if TEXT_VARIANTS[variant].get("tie_word_embeddings"):
        model.tie_weights()
    ids = np.random.default_rng(2).integers(0, 992, 70)
    with torch.no_grad():
        wanted = model(torch.tensor(ids[None])).logits[0].numpy()
    save(model, tmp_path, "qwen3")
    for engine in engine_names():
        mine = load(tmp_path, engine=engine)
        prompt = mine._preparer.ids(ids.tolist())
        assert relative_error(mine.stages(prompt, ["logits"])["logits"], wanted) < TOLERANCE, engine


@pytest.mark.parametrize("variant", VISION_VARIANTS)
def test_qwen3_vl(variant: str, tmp_path: Path) -> None:
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    config = json.loads((FIXTURES / "qwen3_vl" / "tiny" / "config.json").read_text("utf-8"))
    config["vision_config"] |= VISION_VARIANTS[variant]
    config.pop("transformers_version")
    model = Qwen3VLForConditionalGeneration._from_config(Qwen3VLConfig(**config), attn_implementation="eager").eval()
    randomise(model, 3)
    save(model, tmp_path, "qwen3_vl")
    vision = config["vision_config"]
    for name in ("preprocessor_config.json", "video_preprocessor_config.json"):
        data = json.loads((tmp_path / name).read_text("utf-8"))
        data |= {"patch_size": vision["patch_size"], "merge_size": vision["spatial_merge_size"]}
        data |= {"temporal_patch_size": vision["temporal_patch_size"]}
        (tmp_path / name).write_text(json.dumps(data), "utf-8")
    messages = _two_pictures()
    for engine in engine_names():
        mine = load(tmp_path, engine=engine)
        found = mine.stages(messages, ["input_ids", "pixel_values", "image_grid_thw", "position_ids", "logits"])
        inputs = {
            "input_ids": torch.tensor(found["input_ids"][None]),
            "pixel_values": torch.tensor(found["pixel_values"]),
            "image_grid_thw": torch.tensor(found["image_grid_thw"]),
            "mm_token_type_ids": torch.tensor((found["input_ids"][None] == config["image_token_id"]).astype(np.int32)),
        }
        with torch.no_grad():
            wanted = model(**inputs).logits[0].numpy()
        assert relative_error(found["logits"], wanted) < TOLERANCE, engine


def _two_pictures() -> list[dict[str, Any]]:
    rng = np.random.default_rng(4)
    pictures = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in ((50, 70, 3), (61, 33, 3))]
    parts = [{"type": "image", "image": picture} for picture in pictures]
    return [{"role": "user", "content": [parts[0], {"type": "text", "text": "and"}, parts[1], {"type": "text", "text": "?"}]}]
