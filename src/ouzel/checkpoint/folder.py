"""A checkpoint folder in Hugging Face layout as typed data."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from ouzel.checkpoint import hub
from ouzel.checkpoint.config import ConfigReader, refuse_quantized
from ouzel.checkpoint.generation_config import GenerationDefaults, eos_token_ids
from ouzel.checkpoint.json_file import os_error, read_bytes, read_json
from ouzel.checkpoint.packed import HEADER, PackedHeader, is_packed, open_packed_tensors, read_header
from ouzel.checkpoint.tensor_index import TensorIndex, open_tensors
from ouzel.checkpoint.text import shown_name
from ouzel.errors import CheckpointError, RequestError, UnsupportedError

CONFIG = "config.json"


class Checkpoint:
    """An opened folder: its configuration at once, its tensors when asked for.

    `path` is the folder, `config` the object in config.json, `name` what the user gave (a path or a hub id), `packed`
    the header of a packed folder, whose configuration stands there; None for a model folder.
    """

    def __init__(self, path: Path, config: dict[str, Any], name: str, packed: PackedHeader | None = None) -> None:
        self.path = path
        self.config = config
        self.name = name
        self.packed = packed

    @staticmethod
    def open(
        path_or_hub_id: str | os.PathLike[str],
        *,
        revision: str | None = None,
        offline: bool | None = None,
        mmproj: str | os.PathLike[str] | None = None,
    ) -> Checkpoint:
        """The checkpoint in a folder, in a GGUF file, or of a hub id ("organisation/name") that is no existing path.

        `revision` and `offline` are for hub ids (see `hub.fetch`), `mmproj` is the picture file of a GGUF model. Raises
        `CheckpointError` when the folder or its config.json is not there or cannot be used, `UnsupportedError` for
        quantised checkpoints.
        """
        name = os.fsdecode(path_or_hub_id)
        if name.lower().endswith(".gguf") and not os.path.isdir(name):
            from ouzel.checkpoint.gguf import open_gguf  # it builds on this module

            return open_gguf(name, mmproj)
        if mmproj is not None:
            raise RequestError("mmproj", expected="a picture file with a GGUF model only", got=f"the model {shown_name(name)}")
        folder = _find(name, revision, offline)
        if is_packed(folder):
            header = read_header(folder)
            return Checkpoint(folder, header.config, name, header)
        config = read_json(_config_file(folder))
        checkpoint = Checkpoint(folder, config, name)
        refuse_quantized(checkpoint.reader())
        return checkpoint

    @property
    def model_type(self) -> str:
        """The family's word in config.json; `ConfigError` when it has none."""
        return self.reader().str("model_type")

    def reader(self) -> ConfigReader:
        """A typed reader of config.json."""
        return ConfigReader(self.config, str(self.path / (CONFIG if self.packed is None else HEADER)))

    def file(self, name: str) -> Path | None:
        """The path of the file `name` in the folder, None when there is none."""
        path = self.path / name
        try:
            return path if path.is_file() else None
        except OSError as error:
            raise os_error(f"reading {name}", path, error) from None

    @property
    def has_tokenizer(self) -> bool:
        """Whether the folder has the files of a tokenizer."""
        return any(self.file(name) for name in ("tokenizer.json", "vocab.json"))

    def json(self, name: str) -> dict[str, Any] | None:
        """The JSON object in the file `name`, None when there is no such file; `CheckpointError` when it is damaged."""
        path = self.file(name)
        return None if path is None else read_json(path)

    def json_reader(self, name: str) -> ConfigReader | None:
        """A typed reader of the JSON file `name`, None when there is no such file."""
        data = self.json(name)
        return None if data is None else ConfigReader(data, str(self.path / name))

    def text(self, name: str) -> str | None:
        """The text (UTF-8) in the file `name`, None when there is no such file."""
        path = self.file(name)
        if path is None:
            return None
        try:
            return read_bytes(path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"reading {path}", expected="UTF-8 text", got=f"an invalid byte at position {error.start}"
            ) from None

    @cached_property
    def tensors(self) -> TensorIndex:
        """All tensors by name, mapped, with every header checked on first use."""
        try:
            return open_tensors(self.path) if self.packed is None else open_packed_tensors(self.path)
        except OSError as error:
            raise os_error("reading the weights", self.path, error) from None

    @cached_property
    def generation(self) -> GenerationDefaults:
        """The sampling defaults of generation_config.json; greedy when there is no such file."""
        return GenerationDefaults.read(self.json_reader("generation_config.json"))

    def eos_token_ids(self, token_id: Callable[[str], int | None]) -> tuple[int, ...]:
        """The ids that end a text: the union of what config, generation config and tokenizer config say.

        `token_id` gives the id of a token's text, None when there is no such token.
        """
        return eos_token_ids(
            self.reader(),
            self.json_reader("generation_config.json"),
            self.json_reader("tokenizer_config.json"),
            token_id,
        )


def _find(name: str, revision: str | None, offline: bool | None) -> Path:
    """The folder that `name` means; only a name that is no path on this machine goes to the hub."""
    if not name or "\0" in name:
        raise CheckpointError("loading a model", expected="the path of a folder or a hub id", got=repr(name))
    path = Path(name).expanduser() if name.startswith("~") else Path(name)
    operation = f"loading the model {shown_name(name)}"
    try:
        if path.is_dir():
            if revision is not None:
                raise RequestError(
                    operation, expected="a revision with a hub id only", got=f"the folder {path}", fix="leave it off"
                )
            return path
        exists = path.exists()
    except OSError as error:
        raise os_error(operation, path, error) from None
    if exists:
        raise _not_a_folder(operation, path)
    if hub.is_hub_id(name):
        return hub.fetch(name, revision=revision, offline=offline)
    raise CheckpointError(
        operation, expected="an existing folder or a hub id ('organisation/name')", got="no such folder"
    )


def _not_a_folder(operation: str, path: Path) -> Exception:
    return CheckpointError(
        operation,
        expected="a checkpoint folder",
        got="a file",
        fix=f"give the folder that holds it ({path.parent})",
    )


def _config_file(folder: Path) -> Path:
    path = folder / CONFIG
    try:
        if path.is_file():
            return path
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise os_error("reading the checkpoint folder", folder, error) from None
    operation = f"reading the checkpoint folder {folder}"
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    if gguf:
        raise CheckpointError(
            operation, expected=CONFIG, got=f"GGUF ({gguf[0]})", fix=f"give the file: {folder / gguf[0]}"
        )
    if "adapter_config.json" in names:
        raise UnsupportedError(
            operation,
            expected="a whole model",
            got="an adapter (LoRA)",
            fix="merge it into its base model with peft's merge_and_unload and save that",
        )
    got = "an empty folder" if not names else "no such file"
    raise CheckpointError(
        operation, expected=CONFIG, got=got, fix="give a folder as Hugging Face models have it"
    )
