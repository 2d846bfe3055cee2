"""All tensors of a checkpoint folder by name: one file, shards with an index, or several files without one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from ouzel.checkpoint.json_file import read_json
from ouzel.checkpoint.safetensors_file import SafetensorsFile, TensorView, open_safetensors
from ouzel.checkpoint.text import listed, shown, shown_name
from ouzel.errors import CheckpointError, TensorError, UnsupportedError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

# More files than any release has; a hostile index could name millions.
_MAX_FILES = 4096
_SHARD_NAME = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors$")
_PICKLES = ("pytorch_model", "consolidated", "model")
_PICKLE_ENDINGS = (".bin", ".pth", ".pt", ".ckpt")


class TensorIndex(Mapping[str, TensorView]):
    """Tensor names to views. `where` is the file or folder for messages; `files` are the files read."""

    def __init__(self, where: Path, sources: Mapping[str, SafetensorsFile]) -> None:
        self.where = where
        self._sources = dict(sources)

    def __getitem__(self, name: str) -> TensorView:
        return self._sources[name][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def files(self) -> list[Path]:
        """The files that hold the tensors, in the order of their names."""
        return sorted({file.path for file in self._sources.values()})

    def total_bytes(self) -> int:
        """Bytes of all tensors in the files."""
        return sum(self[name].nbytes for name in self)


def open_tensors(folder: Path) -> TensorIndex:
    """The tensors of `folder`.

    As in transformers, model.safetensors goes first, then the index with its shards; a folder with neither may hold
    its tensors in any *.safetensors files. Raises `CheckpointError` when there are none, `TensorError` when a file or
    the index is damaged, `UnsupportedError` for pickled weights.
    """
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file():
        file = open_safetensors(single)
        return TensorIndex(single, dict.fromkeys(file, file))
    if index.is_file():
        return _from_index(folder, index)
    paths = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    if not paths:
        raise _no_tensors(folder)
    _check_complete(folder, paths)
    return TensorIndex(folder, _join(paths))


def _join(paths: list[Path]) -> dict[str, SafetensorsFile]:
    """Every tensor of `paths`; a name that stands in two files is an error."""
    if len(paths) > _MAX_FILES:
        raise TensorError(f"reading {paths[0].parent}", expected=f"at most {_MAX_FILES} files", got=f"{len(paths)}")
    sources: dict[str, SafetensorsFile] = {}
    for path in paths:
        file = open_safetensors(path)
        for name in file:
            if name in sources:
                raise TensorError(
                    f"reading {path}",
                    expected=f"the tensor {shown_name(name)} in one file",
                    got=f"also in {sources[name].path.name}",
                )
            sources[name] = file
    return sources


def _from_index(folder: Path, index: Path) -> TensorIndex:
    weight_map = _weight_map(index)
    shards = sorted(set(weight_map.values()))
    if len(shards) > _MAX_FILES:
        raise TensorError(f"reading {index}", expected=f"at most {_MAX_FILES} shards", got=f"{len(shards)}")
    for shard in shards:
        _check_plain(index, shard)
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise CheckpointError(
            f"reading {index}",
            expected="the shards that it names",
            got=f"no file {listed(missing)}",
            fix="download the missing files",
        )
    opened = {shard: open_safetensors(folder / shard) for shard in shards}
    absent = [name for name, shard in weight_map.items() if name not in opened[shard]]
    if absent:
        shard = weight_map[absent[0]]
        raise TensorError(
            f"reading {folder / shard}", expected=f"the tensors that {INDEX} places there", got=f"no {listed(absent)}"
        )
    sources = {name: opened[shard] for name, shard in weight_map.items()}
    # Tensors that the index forgot count too: a table that does not know them names them as left over.
    for file in opened.values():
        for name in file:
            sources.setdefault(name, file)
    return TensorIndex(index, sources)


def _weight_map(index: Path) -> dict[str, str]:
    value = read_json(index).get("weight_map")
    if not isinstance(value, dict) or not all(isinstance(shard, str) for shard in value.values()):
        raise CheckpointError(
            f"reading {index}", expected="'weight_map' to be an object of file names", got=shown(value)
        )
    if not value:
        raise CheckpointError(f"reading {index}", expected="'weight_map' to name tensors", got="an empty object")
    return value


def _check_plain(index: Path, shard: str) -> None:
    """A shard is a plain file name: never a path that could lead out of the folder."""
    bad = not shard.isprintable() or any(c in shard for c in '/\\:*?"<>|') or len(shard) > 255
    if bad or shard.startswith(".") or not shard.endswith(".safetensors"):
        raise CheckpointError(
            f"reading {index}", expected="plain *.safetensors file names in 'weight_map'", got=shown(shard)
        )


def _check_complete(folder: Path, paths: list[Path]) -> None:
    """Files named "...-00001-of-00004" must all be there even when no index says so."""
    names = {path.name for path in paths}
    for name in sorted(names):
        match = _SHARD_NAME.match(name)
        if match is None or int(match["count"]) > _MAX_FILES:
            continue
        wanted = [
            f"{match['stem']}-{number:05d}-of-{match['count']}.safetensors"
            for number in range(1, int(match["count"]) + 1)
        ]
        missing = [one for one in wanted if one not in names]
        if missing:
            raise CheckpointError(
                f"reading {folder}",
                expected=f"all {len(wanted)} shards",
                got=f"no file {listed(missing)}",
                fix="download the missing files",
            )


def _no_tensors(folder: Path) -> Exception:
    files = sorted(path.name for path in folder.iterdir())
    pickles = [
        name for name in files if name.startswith(_PICKLES) and name.endswith(_PICKLE_ENDINGS)
    ]
    if pickles:
        return UnsupportedError(
            f"reading {folder}",
            expected="weights in *.safetensors files",
            got=f"pickled weights ({pickles[0]}), which could run code when they are read",
            fix="take the safetensors version of this model, or load it once with transformers and save_pretrained it",
        )
    if any(name.startswith("adapter_model") for name in files):
        return UnsupportedError(
            f"reading {folder}",
            expected="a whole model",
            got="an adapter (LoRA)",
            fix="merge it into its base model with peft's merge_and_unload and save that",
        )
    gguf = [name for name in files if name.lower().endswith(".gguf")]
    if gguf:
        return CheckpointError(
            f"reading {folder}",
            expected="weights in *.safetensors files",
            got=f"GGUF ({gguf[0]})",
            fix=f"give the file: {folder / gguf[0]}",
        )
    return CheckpointError(
        f"reading {folder}",
        expected=f"{SINGLE}, {INDEX} or other *.safetensors files",
        got="none of them",
        fix="download the weights of the model into this folder",
    )
