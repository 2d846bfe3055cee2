"""The configuration of a GGUF file in the keys of Hugging Face's config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ouzel.checkpoint.gguf_file import GgufFile
from ouzel.checkpoint.gguf_metadata import GgufMetadata
from ouzel.errors import TensorError, UnsupportedError


@dataclass(frozen=True)
class Architecture:
    """What an architecture's word in the file means here.

    text: the model type of the text part alone. pictures: the model type with a picture file. paired: rows of queries and keys
    are stored for rotation in neighbouring pairs (see `gguf_names.half_rows`).
    """

    text: str
    pictures: str | None = None
    paired: bool = False


ARCHITECTURES = {
    "llama": Architecture("llama", paired=True),
    "qwen3": Architecture("qwen3"),
    "qwen3vl": Architecture("qwen3", pictures="qwen3_vl"),
}
"""The architectures that are implemented, by their words in the file."""

# Keys that change the mathematics of these architectures and are not implemented, unless they have the value here.
_REFUSED = {
    ".expert_count": 0,
    ".attention.sliding_window": 0,
    ".attention.scale": None,
    ".attention.causal": True,
    ".attention.clamp_kqv": None,
    ".attention.max_alibi_bias": None,
    ".logit_scale": None,
    ".residual_scale": None,
    ".embedding_scale": None,
    ".attn_logit_softcapping": None,
    ".final_logit_softcapping": None,
    ".use_parallel_residual": False,
}

FACTORS = "rope_freqs.weight"
"""In place of a rule for the frequencies, files of Llama 3.1 and later hold the divisor of each."""


def check_text_file(meta: GgufMetadata) -> None:
    """UnsupportedError for architectures and settings that are not implemented, and for split files."""
    if meta.arch not in ARCHITECTURES:
        fix = "give it with --mmproj beside the model's own file" if meta.arch == "clip" else None
        raise UnsupportedError(
            f"reading {meta.path}",
            expected=f"an architecture among {', '.join(ARCHITECTURES)} (what is implemented)", got=f"'{meta.arch}'", fix=fix,
        )  # fmt: skip
    if meta.int("split.count", 0, low=0) > 1:
        raise UnsupportedError(
            f"reading {meta.path}", expected="a whole model in one file", got=f"one of {meta.int('split.count')} parts",
            fix="join them with llama-gguf-split --merge",
        )  # fmt: skip
    for key, allowed in _REFUSED.items():
        if meta.has(key) and meta.values[meta.key(key)] != allowed:
            raise meta.unsupported(key, meta.values[meta.key(key)], ["left out" if allowed is None else str(allowed).lower()])


def text_config(meta: GgufMetadata, file: GgufFile) -> dict[str, Any]:
    """The keys of the text part; sizes that the metadata leaves out are read off the tensors."""
    heads, hidden = meta.int(".attention.head_count"), meta.int(".embedding_length")
    head_dim = meta.int(".attention.key_length", hidden // heads)
    for key in (".attention.value_length", ".rope.dimension_count"):
        if meta.int(key, head_dim) != head_dim:
            raise meta.unsupported(key, meta.int(key), [f"the width of a head ({head_dim})"])
    return {
        "model_type": ARCHITECTURES[meta.arch].text,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": meta.int(".feed_forward_length"),
        "num_hidden_layers": meta.int(".block_count", high=4096),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.int(".attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": meta.float(".attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": meta.int(".context_length"),
        "vocab_size": _rows(file, "token_embd.weight"),
        "attention_bias": file.shape("blk.0.attn_q.bias") is not None,
        "mlp_bias": file.shape("blk.0.ffn_up.bias") is not None,
        "rope_theta": meta.float(".rope.freq_base", 10000.0),
        **_rope_scaling(meta),
        **_factors(file, head_dim),
    }


def _rows(file: GgufFile, name: str) -> int:
    shape = file.shape(name)
    if shape is None or len(shape) != 2:
        raise TensorError(f"reading {file.path}", expected=f"the matrix '{name}'", got="none" if shape is None else f"{list(shape)}")
    return shape[0]


def _rope_scaling(meta: GgufMetadata) -> dict[str, Any]:
    kind = meta.text(".rope.scaling.type", "none")
    if kind == "none":
        return {}
    if kind not in ("linear", "yarn"):
        raise meta.unsupported(".rope.scaling.type", kind, ["none", "linear", "yarn"])
    scaling: dict[str, Any] = {"rope_type": kind, "factor": meta.float(".rope.scaling.factor")}
    if kind == "yarn":
        scaling["original_max_position_embeddings"] = meta.int(".rope.scaling.original_context_length")
    return {"rope_scaling": scaling}


def _factors(file: GgufFile, head_dim: int) -> dict[str, Any]:
    if FACTORS not in file:
        return {}
    tensor = file[FACTORS]
    if tensor.dtype != "F32" or tensor.shape != (head_dim // 2,):
        raise TensorError(f"reading {file.path}", expected=f"'{FACTORS}' in F32 of {head_dim // 2}", got=f"{list(tensor.shape)}")
    return {"rope_frequency_divisors": [float(value) for value in tensor.data]}
