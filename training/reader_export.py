"""Writes and reads the reader as a Hugging Face checkpoint folder, in the layout of the Qwen3-VL releases."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import AddedToken, Regex

import reader_config as rc
from reader_model import Reader

# Qwen2's split: contractions, words with one leading mark, single digits, runs of marks, line ends, spaces.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def write_folder(folder: Path, model: Reader) -> None:
    """Writes every file of the checkpoint; weights are stored as bfloat16 and replaced in one rename."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in configs().items():
        _write_json(folder / name, content)
    tokenizer().save(str(folder / "tokenizer.json"))
    tensors = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in sorted(model.export_state().items())}
    fresh = folder / "model.safetensors.new"
    save_file(tensors, fresh, metadata={"format": "pt"})
    os.chmod(fresh, 0o644)  # the writer makes it private
    os.replace(fresh, folder / "model.safetensors")


def read_folder(folder: Path, model: Reader) -> None:
    """Loads a checkpoint's weights into `model`; the throw-away head keeps its own."""
    tensors = {k: v.float() for k, v in load_file(folder / "model.safetensors").items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    if unexpected or any(k.startswith("model.") for k in missing):
        raise ValueError(f"{folder}: not this reader's tensors; missing {missing}, left over {unexpected}")


def _write_json(path: Path, content: dict) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


def configs() -> dict[str, dict]:
    """File name -> content of all JSON files but tokenizer.json."""
    return {
        "config.json": _config(),
        "generation_config.json": {
            "bos_token_id": rc.END_OF_TEXT, "pad_token_id": rc.END_OF_TEXT, "do_sample": False,
            "eos_token_id": [rc.IM_END, rc.END_OF_TEXT], "max_new_tokens": 160, "transformers_version": "4.57.0"},
        "preprocessor_config.json": _processor("image_processor_type", "Qwen2VLImageProcessorFast"),
        "video_preprocessor_config.json": _processor("video_processor_type", "Qwen3VLVideoProcessor"),
        "tokenizer_config.json": _tokenizer_config(),
    }


def _config() -> dict:
    t, v = rc.TEXT, rc.VISION
    text = {k: t[k] for k in t if k not in ("rope_theta", "mrope_section")} | {
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": rc.END_OF_TEXT, "dtype": "bfloat16",
        "eos_token_id": rc.IM_END, "hidden_act": "silu", "initializer_range": 0.02, "model_type": "qwen3_vl_text",
        "rope_theta": t["rope_theta"], "tie_word_embeddings": True, "use_cache": True, "vocab_size": rc.VOCAB,
        "rope_scaling": {"mrope_interleaved": True, "mrope_section": t["mrope_section"], "rope_type": "default"}}
    vision = dict(v) | {
        "hidden_act": "gelu_pytorch_tanh", "in_channels": 3, "initializer_range": 0.02, "model_type": "qwen3_vl",
        "out_hidden_size": t["hidden_size"], "patch_size": rc.PATCH, "spatial_merge_size": rc.MERGE,
        "temporal_patch_size": 2}
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"], "dtype": "bfloat16", "image_token_id": rc.IMAGE_PAD,
        "model_type": "qwen3_vl", "text_config": text, "tie_word_embeddings": True, "transformers_version": "4.57.0",
        "video_token_id": rc.VIDEO_PAD, "vision_config": vision, "vision_end_token_id": rc.VISION_END,
        "vision_start_token_id": rc.VISION_START}


def _processor(kind: str, name: str) -> dict:
    return {
        "size": {"longest_edge": rc.MAX_PIXELS, "shortest_edge": rc.MIN_PIXELS}, "patch_size": rc.PATCH,
        "temporal_patch_size": 2, "merge_size": rc.MERGE, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        "processor_class": "Qwen3VLProcessor", kind: name}


def _tokenizer_config() -> dict:
    added = {str(rc.TOKEN_ID[text]): {"content": text, "lstrip": False, "normalized": False, "rstrip": False,
                                      "single_word": False, "special": special}
             for text, special in rc.SPECIAL_TOKENS}
    return {
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": added,
        "additional_special_tokens": [text for text, special in rc.SPECIAL_TOKENS if special and text != "<|endoftext|>"],
        "bos_token": None, "chat_template": chat_template(), "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>", "errors": "replace", "model_max_length": rc.TEXT["max_position_embeddings"],
        "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None}


def chat_template() -> str:
    return (Path(__file__).parent / "reader_template.jinja").read_text(encoding="utf-8").rstrip("\n")


def byte_letters() -> list[str]:
    """The letter by which byte-level BPE writes each byte: printable bytes stand for themselves."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in kept else chr(next(others)) for b in range(256)]


def tokenizer() -> Tokenizer:
    """Byte-level BPE without merges: every byte is a token, and its id is its value."""
    vocabulary = {letter: byte for byte, letter in enumerate(byte_letters())}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    made.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    for text, special in rc.SPECIAL_TOKENS:
        token = AddedToken(text, special=special, normalized=False)
        (made.add_special_tokens if special else made.add_tokens)([token])
    return made
