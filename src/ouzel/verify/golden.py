"""Goldens: what a reference computed for one case, as files or in memory.

A case is `<name>.json` (messages, prompt, settings, text) beside `<name>.safetensors` (every stage); the names of tensors
are those of docs/verification.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.json_file import read_json
from ouzel.checkpoint.safetensors_file import SafetensorsFile
from ouzel.errors import CheckpointError, TensorError

SCHEMA = 1
"""Version of the layout that is written and read; a file without the key is of version 1."""

REQUIRED = ("input_ids", "generated_ids")
INTEGERS = ("input_ids", "position_ids", "generated_ids")

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Golden:
    """One case of a reference.

    name: of the case. origin: the file, or what ran. data: the JSON. arrays: tensors by name, float32 or int64.
    images: folder of the pictures that the messages name.
    """

    name: str
    origin: str
    data: Mapping[str, Any]
    arrays: Arrays
    images: Path | None = None

    def array(self, name: str) -> NDArray[Any]:
        """A tensor that must be there. Raises TensorError naming file and tensor."""
        if name not in self.arrays:
            raise TensorError(f"reading {self.origin}", expected=f"the tensor {name}", got="no such tensor")
        return self.arrays[name]

    def integers(self, name: str, width: int) -> NDArray[np.int64]:
        """A tensor of whole numbers as [rows, width] with at least one row. Raises TensorError naming file and tensor."""
        array = self.array(name)
        if array.dtype.kind not in "iu" or array.size == 0 or width == 0 or array.size % width:
            raise TensorError(
                f"reading {self.origin}, tensor {name}",
                expected=f"whole numbers, {width} in a row",
                got=f"{array.dtype} {list(array.shape)}",
            )
        return array.reshape(-1, width)

    def object(self, key: str) -> Mapping[str, Any]:
        """An object of the JSON, empty when it is not there. Raises CheckpointError naming file and key."""
        found = self.data.get(key)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise CheckpointError(f"reading {self.origin}", expected=f"an object '{key}' in its .json file", got=repr(found)[:60])
        return found

    def messages(self) -> list[dict[str, Any]]:
        """The messages, file names of pictures made whole."""
        found = self.data.get("messages")
        if not isinstance(found, list):
            raise CheckpointError(f"reading {self.origin}", expected="a list 'messages'", got=type(found).__name__)
        return [self._message(message) for message in found]

    def settings(self) -> dict[str, Any]:
        """How the reference reads messages: control text obeyed, alpha dropped, the template's variables."""
        old = self.object("video").get("layout") == "4.57"
        return {
            "control_text": "obey",
            "alpha": "drop",
            "template": dict(self.object("template_kwargs")),
            "video_layout": "release" if old else "transformers5",
        }

    @property
    def repetition_penalty(self) -> float:
        """Of the reference's greedy answer. Raises CheckpointError naming the file when it is no number."""
        found = self.object("generation").get("repetition_penalty")
        if found is None:
            return 1.0
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise CheckpointError(f"reading {self.origin}", expected="a number 'repetition_penalty'", got=repr(found)[:60])
        return float(found or 1.0)

    @property
    def generated(self) -> list[int]:
        """Greedy ids of the reference; empty when the case has none."""
        return [int(i) for i in self.arrays.get("generated_ids", np.zeros(0, np.int64)).reshape(-1)]

    def _message(self, message: Any) -> dict[str, Any]:
        if not isinstance(message, dict):
            raise CheckpointError(f"reading {self.origin}", expected="messages as objects", got=repr(message)[:60])
        content = message.get("content")
        if isinstance(content, list):
            content = [self._part(part) for part in content]
        return message | {"content": content}

    def _part(self, part: Any) -> Any:
        if self.images is None or not isinstance(part, dict):
            return part
        if part.get("type") == "image" and isinstance(part.get("image"), str):
            return part | {"image": self._picture(part["image"])}
        if part.get("type") == "video" and isinstance(part.get("video"), list):
            return part | {"video": [self._picture(frame) for frame in part["video"]]}
        return part

    def _picture(self, name: Any) -> str:
        """Only files of the folder itself: goldens come from others, too."""
        if self.images is None or not isinstance(name, str) or name in ("", ".", "..") or any(c in name for c in "/\\:"):
            raise CheckpointError(f"reading {self.origin}", expected="pictures as file names in images/", got=repr(name)[:60])
        return str(self.images / name)


def read_goldens(folder: Path, names: Sequence[str] = ()) -> list[Golden]:
    """The cases of a folder, all or those called `names`, in the order of their names.

    Raises CheckpointError for a folder without cases and for a missing case, TensorError for damaged tensors.
    """
    if not folder.is_dir():
        raise CheckpointError("reading goldens", expected="a folder", got=str(folder), fix="make one with `ouzel golden capture`")
    there = {path.stem: path for path in sorted(folder.glob("*.safetensors"))}
    if not there:
        raise CheckpointError(
            f"reading goldens in {folder}", expected="cases (<name>.json beside <name>.safetensors)", got="none",
            fix="make some with `ouzel golden capture`",
        )  # fmt: skip
    missing = [name for name in names if name not in there]
    if missing:
        raise CheckpointError(f"reading goldens in {folder}", expected=f"cases among {', '.join(there)}", got=", ".join(missing))
    return [read_golden(path) for name, path in there.items() if not names or name in names]


def read_golden(path: Path) -> Golden:
    """One case by its .safetensors file. Raises CheckpointError and TensorError naming file and tensor."""
    described = path.with_suffix(".json")
    if not described.is_file():
        raise CheckpointError(f"reading {path}", expected=f"{described.name} beside it", got="no such file")
    data = read_json(described)
    version = data.get("schema", SCHEMA)
    if type(version) is not int or version != SCHEMA:
        raise CheckpointError(
            f"reading {described}", expected=f"goldens of schema version {SCHEMA}", got=f"version {version!r}",
            fix="make them again with `ouzel golden capture` of this version",
        )  # fmt: skip
    arrays = {name: _array(view) for name, view in SafetensorsFile(path).items()}
    golden = Golden(path.stem, str(path), data, arrays, path.parent / "images")
    for name in REQUIRED:
        if golden.array(name).size == 0:
            raise TensorError(f"reading {path}, tensor {name}", expected="at least one id", got="none")
    if "logits" not in arrays and "step_logits" not in arrays:
        raise TensorError(f"reading {path}", expected="the tensor logits or the tensor step_logits", got="neither")
    text = data.get("text")
    if text is not None and not isinstance(text, str):
        raise CheckpointError(f"reading {described}", expected="a string 'text'", got=repr(text)[:60])
    for name in INTEGERS:
        if name in arrays and arrays[name].dtype.kind not in "iu":
            raise TensorError(f"reading {path}, tensor {name}", expected="whole numbers", got=str(arrays[name].dtype))
    if arrays["input_ids"].min() < 0:
        raise TensorError(f"reading {path}, tensor input_ids", expected="ids of 0 and more", got=str(arrays["input_ids"].min()))
    return golden


def _array(view: Any) -> NDArray[Any]:
    if view.dtype in ("F32", "F16", "BF16"):
        return view.to_f32()
    if view.dtype.startswith(("I", "U", "BOOL")):
        return np.array(view.data).astype(np.int64)
    raise TensorError(f"reading {view.file}, tensor {view.name}", expected="F32 or I64", got=view.dtype)


def check_family(golden: Golden, family: str, model_type: str) -> None:
    """Raises CheckpointError when the goldens were made with a model of another family."""
    found = golden.data.get("family")
    if found is not None and found not in (family, model_type):
        raise CheckpointError(
            f"reading {golden.origin}", expected=f"goldens of a {family} model", got=f"goldens of a {found} model",
            fix="give the goldens that belong to this model",
        )  # fmt: skip


def rows_of(golden: Golden, name: str, width: int) -> NDArray[np.float32]:
    """A float tensor as [rows, width]: leading axes of length one dropped, trailing ones joined.

    Raises TensorError naming file and tensor when its shape does not fit.
    """
    array = golden.array(name)
    if array.dtype.kind != "f":
        raise TensorError(f"reading {golden.origin}, tensor {name}", expected="float32", got=str(array.dtype))
    if width == 0 or array.size % width or (array.ndim and not _joins(array.shape, width)):
        raise TensorError(
            f"reading {golden.origin}, tensor {name}", expected=f"[rows, {width}] (as this model has it)",
            got=str(list(array.shape)), fix="these goldens belong to another model, or are damaged",
        )  # fmt: skip
    finite = np.isfinite(array)
    if not finite.all():
        at = [int(i) for i in np.argwhere(~finite)[0]]
        raise TensorError(
            f"reading {golden.origin}, tensor {name}", expected="finite numbers", got=f"NaN or infinity at {at}",
            fix="these goldens are damaged, or the reference's own run failed",
        )  # fmt: skip
    return np.ascontiguousarray(array.reshape(-1, width), np.float32)


def _joins(shape: tuple[int, ...], width: int) -> bool:
    """Whether the last axes together are one row."""
    size = 1
    for length in reversed(shape):
        size *= length
        if size == width:
            return True
        if size > width:
            return False
    return False
