"""GGUF files as checkpoints: a model file, with a picture file (mmproj) beside it for Qwen3-VL.

The metadata become the small files of a Hugging Face folder, in a temporary folder that lives as long as the checkpoint; the
tensors stay in the mapped file under the Hugging Face names. Everything behind a checkpoint then works as for a folder.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ouzel.checkpoint.config import ConfigReader
from ouzel.checkpoint.folder import CONFIG, Checkpoint
from ouzel.checkpoint.gguf_config import ARCHITECTURES, FACTORS, check_text_file, text_config
from ouzel.checkpoint.gguf_file import GgufFile
from ouzel.checkpoint.gguf_metadata import GgufMetadata
from ouzel.checkpoint.gguf_names import PATCH, SECOND_PATCH, half_rows, text_names, vision_names
from ouzel.checkpoint.gguf_tokenizer import GgufTokenizer
from ouzel.checkpoint.gguf_vision import VisionFile
from ouzel.checkpoint.json_file import os_error
from ouzel.checkpoint.safetensors_file import TensorView
from ouzel.errors import ConfigError, OuzelError

_TEXT, _VL_TEXT, _VL_VISION = "model.", "model.language_model.", "model.visual."
_PATCH_NAME = f"{_VL_VISION}patch_embed.proj.weight"
_PLACEHOLDERS = {"image_token_id": "<|image_pad|>", "video_token_id": "<|video_pad|>"}


class GgufTensors(Mapping[str, TensorView]):
    """Tensors by their Hugging Face names; those without one keep the file's name and are left over for the table."""

    def __init__(self, config: Mapping[str, Any], text: GgufFile, arch: str, vision: VisionFile | None) -> None:
        self.where = text.path
        self._text = text
        self._vision = vision
        self._heads = {}
        sizes = config.get("text_config", config)
        if ARCHITECTURES[arch].paired:
            self._heads = {"q_proj": sizes["num_attention_heads"], "k_proj": sizes["num_key_value_heads"]}
        prefix = _TEXT if vision is None else _VL_TEXT
        self._sources = _sources(text, dict(text_names(sizes["num_hidden_layers"], prefix)), {FACTORS})
        self._vision_sources: dict[str, str] = {}
        if vision is not None:
            names = dict(vision_names(vision.layers, vision.deepstack, _VL_VISION))
            self._vision_sources = _sources(vision.file, names, {PATCH, SECOND_PATCH})
            self._vision_sources[_PATCH_NAME] = PATCH

    def __getitem__(self, name: str) -> TensorView:
        if name in self._sources:
            heads = self._heads.get(name.split(".")[-2]) if self._heads and "." in name else None
            return self._text.renamed(name, self._sources[name], None if heads is None else half_rows(heads))
        source = self._vision_sources[name]
        assert self._vision is not None
        return self._vision.patch_tensor(name) if name == _PATCH_NAME else self._vision.file.renamed(name, source)

    def __iter__(self) -> Iterator[str]:
        yield from self._sources
        yield from self._vision_sources

    def __len__(self) -> int:
        return len(self._sources) + len(self._vision_sources)

    @property
    def files(self) -> list[Path]:
        """The files that hold the tensors."""
        return [self._text.path] + ([] if self._vision is None else [self._vision.file.path])

    def total_bytes(self) -> int:
        """Bytes of all tensors in the files."""
        return sum(self[name].nbytes for name in self)


def _sources(file: GgufFile, names: Mapping[str, str], elsewhere: set[str]) -> dict[str, str]:
    found = {target: source for target, source in names.items() if source in file}
    known = {*found.values(), *elsewhere}
    return found | {source: source for source in file if source not in known}


class GgufCheckpoint(Checkpoint):
    """A checkpoint out of a GGUF file. `path` is the temporary folder with the small files, `source` the model file."""

    def __init__(self, source: Path, mmproj: Path | None, name: str) -> None:
        self.source = source
        self._file = GgufFile(source)
        self._meta = meta = GgufMetadata(source, self._file.metadata)
        check_text_file(meta)
        text = text_config(meta, self._file)
        _check_heads(meta, text)
        self._vision = None if mmproj is None else VisionFile(GgufFile(mmproj), meta, text)
        self._tokenizer = GgufTokenizer(meta)
        if len(self._tokenizer.tokens) > text["vocab_size"]:
            raise meta.error("tokenizer.ggml.tokens", f"at most {text['vocab_size']} tokens, the embedding's rows", self._tokenizer.tokens)
        super().__init__(_temporary_folder(self), self._whole_config(text), name)
        self._write_files()

    def reader(self) -> ConfigReader:
        """A typed reader of the configuration; its errors name the GGUF file."""
        return ConfigReader(self.config, str(self.source))

    @cached_property
    def tensors(self) -> Any:
        """All tensors by their Hugging Face names, mapped."""
        return GgufTensors(self.config, self._file, self._meta.arch, self._vision)

    def _whole_config(self, text: dict[str, Any]) -> dict[str, Any]:
        """config.json: the text part alone, or both parts."""
        ends = self._tokenizer.end_ids()
        begin = self._tokenizer.id_of("bos_token_id")
        text |= {"eos_token_id": ends} if ends else {}
        text |= {} if begin is None else {"bos_token_id": begin}
        tied = {"tie_word_embeddings": "output.weight" not in self._file}
        if self._vision is None:
            return text | tied
        sections = self._meta.array(".rope.dimension_sections")[:3].tolist()
        text |= {"rope_scaling": {"rope_type": "default", "mrope_section": sections, "mrope_interleaved": True}}
        return {"model_type": ARCHITECTURES[self._meta.arch].pictures, "text_config": text, "vision_config": self._vision.config, **tied, **self._placeholders()}

    def _placeholders(self) -> dict[str, int]:
        missing = [token for token in _PLACEHOLDERS.values() if token not in self._tokenizer.ids]
        if missing:
            raise ConfigError(f"reading {self.source}", expected=f"the token {missing[0]} in the vocabulary", got="none")
        return {key: self._tokenizer.ids[token] for key, token in _PLACEHOLDERS.items()}

    def _write_files(self) -> None:
        files = {
            CONFIG: self.config,
            "generation_config.json": {"eos_token_id": self._tokenizer.end_ids()},
            "tokenizer.json": self._tokenizer.tokenizer_json(),
            "tokenizer_config.json": self._tokenizer.tokenizer_config(),
        }
        if self._vision is not None:
            files["preprocessor_config.json"] = self._vision.preprocessor(video=False)
            files["video_preprocessor_config.json"] = self._vision.preprocessor(video=True)
        try:
            for name, content in files.items():
                (self.path / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8", newline="")
        except OSError as error:
            raise os_error("writing temporary files", self.path, error) from None


def _temporary_folder(owner: object) -> Path:
    """A folder that goes with its owner, or with the process."""
    try:
        folder = tempfile.mkdtemp(prefix="ouzel-gguf-")
    except OSError as error:
        raise os_error("making a temporary folder", tempfile.gettempdir(), error) from None
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _check_heads(meta: GgufMetadata, text: Mapping[str, Any]) -> None:
    """Widths that the rearrangement of rows relies on, before any is computed with them."""
    heads, kv_heads, width = text["num_attention_heads"], text["num_key_value_heads"], text["head_dim"]
    if width % 2 or width > 4096 or heads > 4096:
        raise meta.error(".attention.key_length", "an even width of at most 4096, with at most 4096 heads", width)
    if heads % kv_heads:
        raise meta.error(".attention.head_count_kv", f"a divisor of the number of heads ({heads})", kv_heads)


def open_gguf(path: str | os.PathLike[str], mmproj: str | os.PathLike[str] | None = None) -> GgufCheckpoint:
    """The checkpoint of a GGUF file; `mmproj` is the picture file of a Qwen3-VL model. Without it that model reads text only.

    Raises CheckpointError and its kinds for damaged and hostile files, UnsupportedError for what is not implemented.
    """
    name = os.fsdecode(path)
    try:
        return GgufCheckpoint(Path(name).expanduser(), None if mmproj is None else Path(mmproj).expanduser(), name)
    except OuzelError:
        raise
    except MemoryError:
        raise ConfigError(f"reading {name}", got="a file too large for this machine's memory") from None
