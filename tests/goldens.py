"""The fixtures' golden cases: messages in, every stage of the reference implementation."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from ouzel import Model, load

FIXTURES = Path(__file__).parent / "data" / "fixtures"

GROUPS = {
    "qwen3": {"golden": "tiny", "golden_untied": "tiny_untied"},
    "qwen3_vl": {"golden": "tiny", "golden_tied": "tiny_tied"},
}


@dataclass(frozen=True)
class Golden:
    """One case of one checkpoint."""

    family: str
    checkpoint: str
    folder: str
    name: str

    @property
    def id(self) -> str:
        return f"{self.family}-{self.name}"

    @property
    def checkpoint_path(self) -> Path:
        return FIXTURES / self.family / self.checkpoint

    @property
    def images(self) -> Path:
        return FIXTURES / self.family / self.folder / "images"

    def data(self) -> dict[str, Any]:
        return json.loads((FIXTURES / self.family / self.folder / f"{self.name}.json").read_text("utf-8"))

    def arrays(self) -> dict[str, NDArray[Any]]:
        return load_file(FIXTURES / self.family / self.folder / f"{self.name}.safetensors")

    def messages(self) -> list[dict[str, Any]]:
        """The case's messages with whole paths in place of file names."""
        return [self._message(message) for message in self.data()["messages"]]

    def settings(self) -> dict[str, Any]:
        """How the reference was run: greedy, past the end tokens, special tokens shown, control text obeyed."""
        data = self.data()
        layout = "release" if data.get("video", {}).get("layout") == "4.57" else "transformers5"
        return {
            "video_layout": layout,
            "template": data.get("template_kwargs", {}),
            "control_text": "obey",
        }

    def run_settings(self) -> dict[str, Any]:
        return self.settings() | {"max_tokens": 32, "ignore_eos": True, "skip_special_tokens": False}

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if isinstance(content, list):
            content = [self._part(part) for part in content]
        return message | {"content": content}

    def _part(self, part: dict[str, Any]) -> dict[str, Any]:
        if part["type"] == "image":
            return part | {"image": str(self.images / part["image"])}
        if part["type"] == "video":
            return part | {"video": [str(self.images / frame) for frame in part["video"]]}
        return part


def goldens() -> list[Golden]:
    """Every case of every family, by name."""
    return [
        Golden(family, checkpoint, folder, path.stem)
        for family, groups in GROUPS.items()
        for folder, checkpoint in groups.items()
        for path in sorted((FIXTURES / family / folder).glob("*.safetensors"))
    ]


@cache
def model_of(path: Path, engine: str, threads: int | None = None) -> Model:
    """A loaded tiny model, shared by the tests of one run."""
    return load(path, engine=engine, threads=threads)


def relative_error(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Norm of the difference over the norm of the reference, in float64."""
    difference = found.astype(np.float64) - wanted.astype(np.float64)
    return float(np.linalg.norm(difference) / np.linalg.norm(wanted.astype(np.float64)))
