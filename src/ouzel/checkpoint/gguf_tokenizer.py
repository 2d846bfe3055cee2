"""The tokenizer of a GGUF file as the tokenizer files of a Hugging Face folder."""

from __future__ import annotations

from typing import Any

import numpy as np

from ouzel.checkpoint.gguf_metadata import GgufMetadata
from ouzel.checkpoint.text import shown
from ouzel.errors import UnsupportedError

# ggml's token types.
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = range(1, 7)

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def _split(pattern: str) -> list[dict[str, Any]]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return [split, _BYTE_LEVEL | {"use_regex": False}]


_GPT2 = [_BYTE_LEVEL | {"use_regex": True}]
_SMOLLM = [{"type": "Digits", "individual_digits": True}, *_GPT2]

# How a text is cut before merging, by the word of `tokenizer.ggml.pre`; and whether it is normalised to NFC first.
_CUTS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "llama-bpe": (_split(_LLAMA3), False),
    "llama3": (_split(_LLAMA3), False),
    "llama-v3": (_split(_LLAMA3), False),
    "qwen2": (_split(_QWEN2), True),
    "deepseek-r1-qwen": (_split(_QWEN2), True),
    "smollm": (_SMOLLM, False),
    "gpt-2": (_GPT2, False),
}
_LLAMA3_NAMES = ("llama-bpe", "llama3", "llama-v3")

_NAMED = {"bos_token": "bos_token_id", "eos_token": "eos_token_id", "unk_token": "unknown_token_id", "pad_token": "padding_token_id"}
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")


class GgufTokenizer:
    """Reads the vocabulary once and gives it in the form of the files.

    Raises ConfigError for lists that do not fit each other, UnsupportedError for tokenizers that are not byte-level BPE.
    """

    def __init__(self, meta: GgufMetadata) -> None:
        self._meta = meta
        kind = meta.text("tokenizer.ggml.model")
        if kind != "gpt2":
            raise meta.unsupported("tokenizer.ggml.model", kind, ["gpt2 (byte-level BPE)"])
        self._cut = meta.text("tokenizer.ggml.pre", "")
        if self._cut not in _CUTS:
            raise UnsupportedError(
                f"reading {meta.path}", expected=f"'tokenizer.ggml.pre' to be one of {', '.join(_CUTS)} (what is implemented)",
                got=shown(self._cut) if self._cut else "no such key", fix="take the model's Hugging Face folder",
            )  # fmt: skip
        self.tokens: list[str] = meta.texts("tokenizer.ggml.tokens")
        if not self.tokens:
            raise meta.error("tokenizer.ggml.tokens", "a list of tokens", "an empty one")
        if not all(self.tokens):
            raise meta.error("tokenizer.ggml.tokens", "tokens that are not empty", f"none at {self.tokens.index('')}")
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self._types = self._read_types()

    def _read_types(self) -> np.ndarray:
        count = len(self.tokens)
        types = self._meta.array("tokenizer.ggml.token_type", np.full(count, _NORMAL), count)
        if not np.isin(types, range(_NORMAL, _BYTE + 1)).all():
            raise self._meta.error("tokenizer.ggml.token_type", f"types from {_NORMAL} to {_BYTE}", "others")
        used = [token for token, kind in zip(self.tokens, types.tolist()) if kind != _UNUSED]
        if len(set(used)) != len(used):
            raise self._meta.error("tokenizer.ggml.tokens", "each token once", "one twice")
        return types

    def id_of(self, key: str) -> int | None:
        """The id that `tokenizer.ggml.<key>` names, None when the file does not say."""
        return self._meta.int(f"tokenizer.ggml.{key}", None, low=0, high=len(self.tokens) - 1)  # type: ignore[no-any-return]

    def end_ids(self) -> list[int]:
        """Ids that end a text or a turn."""
        found = [self.id_of(key) for key in _ENDS]
        return list(dict.fromkeys(token for token in found if token is not None))

    def tokenizer_json(self) -> dict[str, Any]:
        """tokenizer.json. Unused tokens (rows that only pad the embedding) are left out."""
        cut, normalised = _CUTS[self._cut]
        types = self._types.tolist()
        vocab = {token: number for number, (token, kind) in enumerate(zip(self.tokens, types)) if kind != _UNUSED}
        added = [
            {"id": number, "content": self.tokens[number], "special": types[number] == _CONTROL, **_ADDED}
            for number in np.flatnonzero(np.isin(self._types, (_CONTROL, _USER))).tolist()
        ]
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": {"type": "NFC"} if normalised else None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": cut},
            "post_processor": self._post_processor(),
            "decoder": _BYTE_LEVEL | {"use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": self._cut in _LLAMA3_NAMES,
                "vocab": vocab,
                "merges": self._merges(vocab),
            },
        }

    def _merges(self, vocab: dict[str, int]) -> list[list[str]]:
        merges = []
        for line in self._meta.texts("tokenizer.ggml.merges"):
            left, _, right = line.partition(" ")
            if left not in vocab or right not in vocab or left + right not in vocab:
                raise self._meta.error("tokenizer.ggml.merges", "pairs of tokens that make a token", line)
            merges.append([left, right])
        return merges

    def _post_processor(self) -> dict[str, Any] | None:
        """The beginning token before every text, where the file says so (Llama 3 files may leave it unsaid)."""
        begin = self.id_of("bos_token_id")
        if begin is None or not self._meta.bool("tokenizer.ggml.add_bos_token", self._cut in _LLAMA3_NAMES):
            return None
        text = self.tokens[begin]
        first = {"SpecialToken": {"id": text, "type_id": 0}}
        single = [first, {"Sequence": {"id": "A", "type_id": 0}}]
        return {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {text: {"id": text, "ids": [begin], "tokens": [text]}},
        }

    def tokenizer_config(self) -> dict[str, Any]:
        """tokenizer_config.json: the named tokens and the chat template (a list when there is one for tools too)."""
        named = {name: self.id_of(key) for name, key in _NAMED.items()}
        config: dict[str, Any] = {name: self.tokens[token] for name, token in named.items() if token is not None}
        template = self._meta.text("tokenizer.chat_template", None)
        tools = self._meta.text("tokenizer.chat_template.tool_use", None)
        if template is not None:
            both = [{"name": "default", "template": template}, {"name": "tool_use", "template": tools}]
            config["chat_template"] = template if tools is None else both
        return config


_ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
