"""GGUF files for tests: byte by byte for damaged ones, and whole models written with the gguf package."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.folder import Checkpoint

U32, TEXT, ARRAY = 4, 8, 9
F32 = gguf.GGMLQuantizationType.F32


def text(value: str | bytes) -> bytes:
    """A string of the file."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, value: bytes) -> bytes:
    """A metadata entry with its value's bytes."""
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, sizes: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    """A tensor's line in the header; sizes fastest first."""
    return text(name) + struct.pack("<I", len(sizes)) + struct.pack(f"<{len(sizes)}Q", *sizes) + struct.pack("<IQ", kind, offset)


def whole(
    metadata: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    align: int = 32,
) -> bytes:
    """A file; `counts` are of tensors and of metadata entries where the header should lie."""
    many = counts or (len(tensors), len(metadata))
    head = magic + struct.pack("<IQQ", version, *many) + b"".join(metadata) + b"".join(tensors)
    return head + bytes(-len(head) % align) + data


TEXT_NAMES = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
VISION_NAMES = {
    "norm1": "ln1", "norm2": "ln2", "attn.qkv": "attn_qkv", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up",
    "mlp.linear_fc2": "ffn_down", "norm": "norm", "linear_fc1": "fc1", "linear_fc2": "fc2",
}  # fmt: skip

Quantise = dict[str, gguf.GGMLQuantizationType]


def write_text(folder: Path, path: Path, arch: str, kinds: Quantise | None = None, extra: dict[str, Any] | None = None) -> Path:
    """The text part of a checkpoint folder as a GGUF file, as llama.cpp's converter writes it.

    kinds: by the file's module name ("attn_q"), the type of a matrix; F32 for others. extra: further metadata.
    """
    checkpoint = Checkpoint.open(folder)
    whole_config = checkpoint.config
    config = whole_config.get("text_config", whole_config)
    writer = gguf.GGUFWriter(path, arch)
    _text_metadata(writer, config, extra or {})
    write_tokenizer(writer, folder)
    for name, view in checkpoint.tensors.items():
        if ".visual." in name or (name == "lm_head.weight" and whole_config.get("tie_word_embeddings")):
            continue
        module, end = name.removeprefix("model.").removeprefix("language_model.").rsplit(".", 1)
        values, target = view.to_f32(), TEXT_NAMES.get(module, module)
        if module.startswith("layers."):
            _, number, inner = module.split(".", 2)
            target = f"blk.{number}.{TEXT_NAMES[inner]}"
            if arch == "llama" and inner in ("self_attn.q_proj", "self_attn.k_proj"):
                values = paired(values, config["num_attention_heads" if "q_proj" in inner else "num_key_value_heads"])
        add(writer, f"{target}.{end}", values, (kinds or {}).get(target.rsplit(".", 1)[-1], F32))
    return finish(writer, path)


def _text_metadata(writer: gguf.GGUFWriter, config: dict[str, Any], extra: dict[str, Any]) -> None:
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta") or rope["rope_theta"])
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if "mrope_section" in rope:
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    for key, value in extra.items():
        add_value(writer, key.replace("{arch}", writer.arch), value)


def add_value(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Adds metadata by its Python type."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def write_tokenizer(writer: gguf.GGUFWriter, folder: Path) -> None:
    """The tokenizer of a Qwen folder, its template and its end tokens; unused rows are padded as the converter does."""
    about = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    rows = config.get("text_config", config)["vocab_size"]
    tokens, types = [f"[PAD{number}]" for number in range(rows)], [5] * rows
    for token, number in about["model"]["vocab"].items():
        tokens[number], types[number] = token, 1
    for added in about["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"], 3 if added["special"] else 4
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    merges = about["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_add_bos_token(False)
    for key, add_id in (("eos_token", writer.add_eos_token_id), ("pad_token", writer.add_pad_token_id)):
        if settings.get(key):
            add_id(tokens.index(settings[key]))
    template = settings.get("chat_template")
    if template is None and (folder / "chat_template.json").is_file():
        template = json.loads((folder / "chat_template.json").read_text(encoding="utf-8"))["chat_template"]
    if template is not None:
        writer.add_chat_template(template)


def write_mmproj(folder: Path, path: Path) -> Path:
    """The picture part of a Qwen3-VL folder as an mmproj file, as llama.cpp's converter writes it."""
    checkpoint = Checkpoint.open(folder)
    config = checkpoint.config["vision_config"]
    settings = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(path, "clip")
    flags = [i in config["deepstack_visual_indexes"] for i in range(config["depth"])]
    for key, value in {
        "clip.has_vision_encoder": True, "clip.projector_type": "qwen3vl_merger", "clip.use_gelu": True,
        "clip.vision.block_count": config["depth"], "clip.vision.embedding_length": config["hidden_size"],
        "clip.vision.feed_forward_length": config["intermediate_size"], "clip.vision.attention.head_count": config["num_heads"],
        "clip.vision.attention.layer_norm_epsilon": 1e-6, "clip.vision.projection_dim": config["out_hidden_size"],
        "clip.vision.patch_size": config["patch_size"], "clip.vision.spatial_merge_size": config["spatial_merge_size"],
        "clip.vision.image_mean": settings["image_mean"], "clip.vision.image_std": settings["image_std"],
        "clip.vision.image_min_pixels": settings["size"]["shortest_edge"], "clip.vision.is_deepstack_layers": flags,
        "clip.vision.image_max_pixels": settings["size"]["longest_edge"],
    }.items():  # fmt: skip
        add_value(writer, key, value)
    for name, view in checkpoint.tensors.items():
        if ".visual." in name:
            _add_vision(writer, name.removeprefix("model.visual."), view.to_f32(), config["deepstack_visual_indexes"])
    return finish(writer, path)


def _add_vision(writer: gguf.GGUFWriter, name: str, values: NDArray[np.float32], deepstack: list[int]) -> None:
    module, end = name.rsplit(".", 1)
    fixed = {"patch_embed.proj": "v.patch_embd", "pos_embed": "v.position_embd", "merger.norm": "v.post_ln",
             "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2"}  # fmt: skip
    if name == "patch_embed.proj.weight":
        add(writer, "v.patch_embd.weight", values[:, :, 0])
        return add(writer, "v.patch_embd.weight.1", values[:, :, 1])
    if module not in fixed:
        kind, number, inner = module.split(".", 2)
        prefix = f"v.blk.{number}" if kind == "blocks" else f"v.deepstack.{deepstack[int(number)]}"
        fixed[module] = f"{prefix}.{VISION_NAMES[inner]}"
    return add(writer, f"{fixed[module]}.{end}", values)


def paired(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of a query or key matrix as llama files have them: the halves of each head in turns."""
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def add(writer: gguf.GGUFWriter, name: str, values: NDArray[np.float32], kind: gguf.GGMLQuantizationType = F32) -> None:
    """Adds a tensor, quantised by the gguf package where its rows are whole blocks."""
    if kind == F32 or values.ndim == 1 or values.shape[-1] % gguf.GGML_QUANT_SIZES[kind][0]:
        writer.add_tensor(name, np.ascontiguousarray(values))
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def finish(writer: gguf.GGUFWriter, path: Path) -> Path:
    """Writes the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
