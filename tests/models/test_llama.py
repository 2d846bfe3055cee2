"""Llama: the logits of transformers' own implementation on random weights, as a folder and as a GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from goldens import FIXTURES, relative_error
from gguf_files import add, paired, write_text

import ouzel
from ouzel.engines.registry import engine_names
from ouzel.errors import ImageError, TensorError, UnsupportedError

TOKENIZER = FIXTURES / "qwen3" / "tiny"
TOLERANCE = 1e-4
"""Norm of the difference over norm of the reference in float32; rounding alone gives about 1e-6 at this depth."""

BASE: dict[str, Any] = {
    "vocab_size": 992, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "bos_token_id": 958, "eos_token_id": 960,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "tied": {"tie_word_embeddings": True},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "one key head": {"num_key_value_heads": 1},
    "all key heads": {"num_key_value_heads": 4},
    "wide heads": {"head_dim": 24},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    "llama3": {"rope_parameters": LLAMA3},
}
IDS = [int(token) for token in np.random.default_rng(8).integers(0, 900, 150)]


def checkpoint(folder: Path, kind: str) -> tuple[Path, np.ndarray]:
    """A random checkpoint with the tiny tokenizer, and the reference's logits for IDS, [150, 992]."""
    torch.manual_seed(sorted(KINDS).index(kind))
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**BASE | KINDS[kind])).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Norms away from one and biases away from zero, so that leaving one out shows.
            parameter.copy_(torch.randn_like(parameter) * 0.1 + (1.0 if parameter.ndim == 1 else 0.0))
        logits = model(torch.tensor([IDS])).logits[0].numpy()
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((TOKENIZER / name).read_bytes())
    return folder, logits


def logits_of(model: ouzel.Model) -> np.ndarray:
    return model.stages(model._raw(IDS), ["logits"])["logits"]


@pytest.mark.parametrize("engine", engine_names())
@pytest.mark.parametrize("kind", KINDS)
def test_folder(tmp_path: Path, kind: str, engine: str) -> None:
    folder, wanted = checkpoint(tmp_path, kind)
    model = ouzel.load(folder, engine=engine)
    assert model.family.name == "llama"
    assert relative_error(logits_of(model), wanted) <= TOLERANCE


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("linear", "llama3")])
def test_gguf_is_the_folder(tmp_path: Path, kind: str) -> None:
    """Queries and keys are stored in another order of rows there; the loaded weights are bit for bit the folder's."""
    folder, _ = checkpoint(tmp_path / "hf", kind)
    path = write_text(folder, tmp_path / "m.gguf", "llama")
    found, wanted = ouzel.load(path), ouzel.load(folder)
    assert {n: w.array.tobytes() for n, w in found.weights.items()} == {n: w.array.tobytes() for n, w in wanted.weights.items()}
    assert np.array_equal(logits_of(found), logits_of(wanted))


def test_gguf_with_linear_scaling(tmp_path: Path) -> None:
    folder, wanted = checkpoint(tmp_path / "hf", "linear")
    scaling = {"{arch}.rope.scaling.type": "linear", "{arch}.rope.scaling.factor": 4.0}
    assert relative_error(logits_of(ouzel.load(write_text(folder, tmp_path / "m.gguf", "llama", extra=scaling))), wanted) <= TOLERANCE


def test_gguf_with_frequency_divisors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of Llama 3.1 hold rope_freqs.weight in place of the rule."""
    folder, wanted = checkpoint(tmp_path / "hf", "llama3")
    model = ouzel.load(folder)
    plain = 500000.0 ** -(np.arange(0, 16, 2) / 16)
    divisors = (plain / model.family._frequencies.astype(np.float64)).astype(np.float32)
    assert divisors.max() > 2
    finish = gguf.GGUFWriter.write_header_to_file

    def with_divisors(writer: gguf.GGUFWriter) -> None:
        add(writer, "rope_freqs.weight", divisors)
        finish(writer)

    monkeypatch.setattr(gguf.GGUFWriter, "write_header_to_file", with_divisors)
    found = ouzel.load(write_text(folder, tmp_path / "m.gguf", "llama"))
    assert relative_error(logits_of(found), wanted) <= TOLERANCE


def test_quantised_rows_move_whole(tmp_path: Path) -> None:
    """Undoing the order of query and key rows keeps blocks exactly too."""
    folder, _ = checkpoint(tmp_path / "hf", "grouped")
    kinds = dict.fromkeys(("attn_q", "attn_k", "ffn_up"), gguf.GGMLQuantizationType.Q8_0)
    model = ouzel.load(write_text(folder, tmp_path / "m.gguf", "llama", kinds))
    q = ouzel.load(folder).weights["text.layers.0.q.weight"].array
    blocks = gguf.quants.quantize(paired(q, 4), gguf.GGMLQuantizationType.Q8_0)
    stored = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
    found = model.weights["text.layers.0.q.weight"]
    assert found.format.name == "q8"
    assert np.array_equal(paired(found.f32(), 4), stored.reshape(q.shape))


def test_refused(tmp_path: Path) -> None:
    folder, _ = checkpoint(tmp_path, "grouped")
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    for key, value, kind in (
        ("hidden_act", "gelu", UnsupportedError), ("head_dim", 18, TensorError), ("attention_bias", True, TensorError),
        ("quantization_config", {"quant_method": "gptq"}, UnsupportedError),
    ):  # fmt: skip
        path.write_text(json.dumps(config | {key: value}), encoding="utf-8")
        with pytest.raises(kind):
            ouzel.load(folder)
    path.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(ImageError, match="llama"):
        ouzel.load(folder).chat([{"role": "user", "content": [{"type": "image", "image": np.zeros((8, 8, 3), np.uint8)}]}])
