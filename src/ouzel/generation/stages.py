"""Named stages of one prompt as arrays: what the verifier compares and what `Model.stages` gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.base import BLOCK_TOKENS, Executable, SequenceRows, Step
from ouzel.errors import RequestError
from ouzel.generation.request import Prompt
from ouzel.generation.runner import join_features
from ouzel.models.family import Family, Picture

Arrays = dict[str, NDArray[Any]]

PROMPT_STAGES = ("input_ids", "position_ids", "pixel_values", "pixel_values_videos", "image_grid_thw", "video_grid_thw")
"""Stages that no graph makes: what enters the model."""

VIDEO_PREFIX = "video."


class StageRunner:
    """Runs a prompt once and keeps what was asked for.

    `compiled(part, names)` gives an executable of "vision" or "text" in which `names` are values of their own.
    """

    def __init__(self, family: Family, compiled: Callable[[str, Sequence[str]], Executable]) -> None:
        self._family = family
        self._compiled = compiled

    def available(self) -> tuple[str, ...]:
        """Every stage name of the model."""
        graphs = [g for g in (self._family.vision_graph(), self._family.text_graph()) if g is not None]
        made = [node.output for graph in graphs for node in graph.nodes]
        return (*PROMPT_STAGES, *made, *self._family.stage_names)

    def of_prompt(self, prompt: Prompt) -> tuple[str, ...]:
        """Every stage that this prompt has."""
        graphs = [self._family.text_graph()]
        vision = self._family.vision_graph()
        if vision is not None and prompt.pictures:
            graphs.insert(0, vision)
        made = [node.output for graph in graphs for node in graph.nodes]
        further = [name for name, own in self._family.stage_names.items() if own in made]
        return (*_prompt_stages(prompt), *made, *further)

    def run(self, prompt: Prompt, names: Sequence[str]) -> Arrays:
        """The stages `names` of a prompt, each [rows, width] float32 (ids and grids int64, positions [axes, tokens]).

        Vision stages of several images follow each other; those of videos stand under "video." + name, and under the
        plain name as well when the prompt has no image. Raises RequestError for names that the model does not have.
        """
        self._check(names)
        found = _prompt_stages(prompt)
        features = self._vision(prompt, names, found)
        self._text(prompt, names, features, found)
        missing = [name for name in names if name not in found]
        if missing:
            raise RequestError("stages", expected="stages that this prompt has", got=", ".join(missing[:5]))
        return {name: found[name] for name in names}

    def _check(self, names: Sequence[str]) -> None:
        known = set(self.available())
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise RequestError("stages", expected="a list of names", got=repr(names)[:60])
        bad = [str(name) for name in names if not isinstance(name, str) or name.removeprefix(VIDEO_PREFIX) not in known]
        if bad:
            layers = self._family.sizes.layers
            raise RequestError(
                "stages", expected=f"names such as text.inputs_embeds, text.layers.0 to {layers - 1}, text.final_norm, logits",
                got=", ".join(bad[:5]), fix="`ouzel inspect --stages` lists them all",
            )  # fmt: skip

    def _own(self, name: str) -> str:
        return self._family.stage_names.get(name, name)

    def _vision(self, prompt: Prompt, names: Sequence[str], found: Arrays) -> Mapping[str, NDArray[np.float32]]:
        graph = self._family.vision_graph()
        if graph is None or not prompt.pictures:
            return {}
        plain = [name.removeprefix(VIDEO_PREFIX) for name in names]
        wanted = {name: self._own(name) for name in plain if self._own(name) in graph.values}
        executable = self._compiled("vision", tuple(wanted.values()))
        values = tuple(dict.fromkeys([*self._family.feature_inputs, *wanted.values()]))
        results = [self._picture(executable, picture, values) for picture in prompt.pictures]
        for kind in ("video", "image"):
            parts = [r for r, picture in zip(results, prompt.pictures) if picture.kind == kind]
            if not parts:
                continue
            joined = join_features(parts)
            named = {name: joined[own] for name, own in wanted.items()}
            found.update(named)
            if kind == "video":
                found.update({VIDEO_PREFIX + name: rows for name, rows in named.items()})
        return join_features(results)

    def _picture(self, executable: Executable, picture: Picture, values: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        prepared = self._family.vision_inputs(picture)
        return executable.run(Step(prepared.inputs, values, segments=prepared.segments))

    def _text(
        self, prompt: Prompt, names: Sequence[str], features: Mapping[str, NDArray[np.float32]], found: Arrays
    ) -> None:
        graph = self._family.text_graph()
        wanted = {name: self._own(name) for name in names if self._own(name) in graph.values}
        if not wanted:
            return
        executable = self._compiled("text", tuple(wanted.values()))
        blocks = -(-len(prompt.ids) // BLOCK_TOKENS)
        executable.ensure_blocks(blocks)
        rows = SequenceRows(0, len(prompt.ids), 0, np.arange(blocks, dtype=np.int32))
        step = Step(text_inputs(self._family, prompt, features), tuple(wanted.values()), sequences=(rows,))
        result = executable.run(step)
        found.update({name: result[own] for name, own in wanted.items()})


def text_inputs(family: Family, prompt: Prompt, features: Mapping[str, NDArray[np.float32]]) -> Arrays:
    """Inputs of the text graph for a whole prompt with the logits of every row."""
    count = len(prompt.ids)
    inputs: Arrays = {
        "ids": np.array(prompt.ids, np.int32)[:, None],
        "logit_rows": np.arange(count, dtype=np.int32)[:, None],
        **family.text_inputs(prompt.positions.ids),
    }
    if family.feature_inputs:
        rows = np.flatnonzero(prompt.visual >= 0).astype(np.int32)
        inputs["visual_rows"] = rows[:, None]
        empty = np.zeros((0, family.sizes.hidden), np.float32)
        for output, name in family.feature_inputs.items():
            inputs[name] = features[output] if features else empty
    return inputs


def _prompt_stages(prompt: Prompt) -> Arrays:
    found: Arrays = {
        "input_ids": np.array(prompt.ids, np.int64),
        "position_ids": prompt.positions.ids,
    }
    for kind, pixels, grids in (
        ("image", "pixel_values", "image_grid_thw"),
        ("video", "pixel_values_videos", "video_grid_thw"),
    ):
        pictures = [p for p in prompt.pictures if p.kind == kind]
        if pictures:
            found[pixels] = np.concatenate([p.pixels for p in pictures])
            found[grids] = np.array([p.grid for p in pictures], np.int64)
    return found
