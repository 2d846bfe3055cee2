"""Calibration: which columns of a matrix matter, from the mean squares of what it is multiplied with on real inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.json_file import read_bytes
from ouzel.conversion.probe import QUESTION
from ouzel.errors import ImageError, RequestError
from ouzel.generation.request import Prompt
from ouzel.generation.stages import StageRunner
from ouzel.graph.graph import Graph

if TYPE_CHECKING:
    from ouzel.model import Model

PIECE_TOKENS = 256
MOST_TOKENS = 1 << 14
"""Tokens of text that are used of each file."""

# Bytes of activations kept in one pass; more stages than fit are collected in further passes.
_PASS_BYTES = 256 << 20


@dataclass
class Calibration:
    """Mean squares by name of the weight, [columns] each, and how much was looked at."""

    importance: dict[str, NDArray[np.float64]]
    prompts: int
    tokens: int
    pictures: int


def calibrate(model: Model, files: Sequence[Path], tell: Callable[[int, int], None] | None = None) -> Calibration:
    """Runs text files (UTF-8, in pieces) and pictures (asked for their text) through `model` and collects the squares.

    Raises RequestError for a file that is neither, and when a picture is given to a model without vision.
    """
    prompts = [prompt for file in files for prompt in prompts_of(model, file)]
    sums = _Sums()
    for number, prompt in enumerate(prompts):
        collect(model, prompt, sums)
        if tell is not None:
            tell(number + 1, len(prompts))
    means = {name: total / sums.rows[name] for name, total in sums.squares.items() if sums.rows[name]}
    tokens, pictures = sum(len(p.ids) for p in prompts), sum(len(p.pictures) for p in prompts)
    return Calibration(means, len(prompts), tokens, pictures)


class _Sums:
    """Sums of squares over rows, in float64, by weight."""

    def __init__(self) -> None:
        self.squares: dict[str, NDArray[np.float64]] = {}
        self.rows: dict[str, int] = {}

    def add(self, weight: str, rows: NDArray[Any]) -> None:
        total = np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
        self.squares[weight] = self.squares.get(weight, 0) + total
        self.rows[weight] = self.rows.get(weight, 0) + len(rows)


def prompts_of(model: Model, file: Path) -> list[Prompt]:
    """The prompts of one calibration file."""
    data = read_bytes(file, 256 << 20)
    text = _text(data)
    if text is None:
        return [_picture_prompt(model, data, file)]
    if not text.strip():
        raise RequestError(f"calibrating with {file}", expected="text", got="none")
    ids = model.raw_prompt(text).ids[:MOST_TOKENS]
    ids = tuple(token for token in ids if token not in model.family.visual_tokens)
    size = min(PIECE_TOKENS, model.family.sizes.max_context)
    return [model.raw_prompt(ids[start : start + size]) for start in range(0, len(ids), size)]


def _text(data: bytes) -> str | None:
    """The file as text; None when it is none (pictures are never valid UTF-8 without zero bytes)."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _picture_prompt(model: Model, data: bytes, file: Path) -> Prompt:
    if model.family.vision_graph() is None:
        raise RequestError(f"calibrating with {file}", expected=f"text for {model.family.name}", got="a picture")
    content = [{"type": "image", "image": data}, {"type": "text", "text": QUESTION}]
    try:
        return model.prepare([{"role": "user", "content": content}])
    except ImageError as error:
        raise RequestError(f"calibrating with {file}", expected="UTF-8 text or a picture", got=str(error)) from None


def collect(model: Model, prompt: Prompt, sums: _Sums) -> None:
    """Adds what one prompt shows."""
    runner = StageRunner(model.family, model.compile_with)
    vision = model.family.vision_graph()
    if vision is not None and prompt.pictures:
        patches = sum(len(picture.pixels) for picture in prompt.pictures)
        for weight in _readers(vision).get("pixels", ()):
            for picture in prompt.pictures:
                sums.add(weight, picture.pixels)
        _collect_graph(runner, vision, prompt, patches, sums)
    _collect_graph(runner, model.family.text_graph(), prompt, len(prompt.ids), sums)


def _collect_graph(runner: StageRunner, graph: Graph, prompt: Prompt, rows: int, sums: _Sums) -> None:
    readers = {stage: names for stage, names in _readers(graph).items() if stage not in graph.inputs}
    for stages in _passes(readers, graph, rows):
        for stage, values in runner.run(prompt, stages).items():
            for weight in readers[stage]:
                sums.add(weight, values)


def _readers(graph: Graph) -> dict[str, list[str]]:
    """Values that linear operations read, with the weights they meet there."""
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        if node.op == "linear":
            found.setdefault(node.inputs[0], []).append(node.weights[0])
    return found


def _passes(stages: Iterable[str], graph: Graph, rows: int) -> list[list[str]]:
    passes: list[list[str]] = []
    room = 0
    for stage in stages:
        size = 4 * rows * graph.values[stage].width
        if not passes or size > room:
            passes.append([])
            room = _PASS_BYTES
        passes[-1].append(stage)
        room -= size
    return passes
