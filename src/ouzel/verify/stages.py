"""Runs a case twice: once from the prompt (propagated error), once with the reference's values fed into every stage (own error)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.base import BLOCK_TOKENS, Executable, SequenceRows, Step
from ouzel.errors import TensorError
from ouzel.generation.request import Prompt
from ouzel.generation.stages import text_inputs
from ouzel.graph.cut import GIVEN, cut
from ouzel.graph.graph import Graph
from ouzel.model import Model
from ouzel.models.family import Picture
from ouzel.verify.golden import Golden, rows_of

F32 = NDArray[np.float32]
Features = dict[str, F32]

PIXELS = {"image": "pixel_values", "video": "pixel_values_videos"}
GRIDS = {"image": "image_grid_thw", "video": "video_grid_thw"}
PROMPT_NAMES = ("input_ids", "position_ids", "attention_mask", "rope_deltas", *PIXELS.values(), *GRIDS.values())
GENERATED_NAMES = ("generated_ids", "step_logits")
VIDEO_PREFIX = "video."
ALIASES = {"text.inputs_embeds": "text.embed"}
"""Names for models without a value of that name: the embeddings of a text model are its inputs."""

_NUMBERED = re.compile(r"((?:text|vision)\.layers|deepstack)\.\d+")


@dataclass(frozen=True)
class Stage:
    """A stage that the golden has and the model makes.

    name: the golden's. value: the graph's. part: "vision" or "text". kind: of the pictures, "" for text.
    """

    name: str
    value: str
    part: str
    kind: str = ""


@dataclass(frozen=True)
class Run:
    """One stage as the reference has it, as the whole run gives it, and as it comes from the reference's own inputs."""

    stage: Stage
    wanted: F32
    propagated: F32
    own: F32


def stages_of(model: Model, golden: Golden, prompt: Prompt) -> list[Stage]:
    """Every stage that can be compared, in the order of computation.

    Raises TensorError when the golden has some blocks of a stack and lacks others.
    """
    found: list[Stage] = []
    vision = model.family.vision_graph()
    for kind in _kinds(golden, prompt):
        prefix = _prefix(golden, kind, prompt)
        named = [
            n.removeprefix(prefix) for n in golden.arrays if n.startswith(prefix) and (prefix or not n.startswith(VIDEO_PREFIX))
        ]
        if prefix and f"{prefix}image_embeds" not in golden.arrays and "video_embeds" in golden.arrays:
            found += [Stage("video_embeds", "image_embeds", "vision", kind)]
        assert vision is not None
        found += [Stage(prefix + name, value, "vision", kind) for name, value in _of_graph(model, vision, named)]
    text = model.family.text_graph()
    found += [Stage(name, value, "text") for name, value in _of_graph(model, text, golden.arrays)]
    graphs = [g for g in (vision, text) if g is not None]
    _check_whole(golden, graphs, found)
    return _in_order(found, graphs)


def _check_whole(golden: Golden, graphs: Sequence[Graph], stages: Sequence[Stage]) -> None:
    """A block that is missing between others would go unchecked without a word."""
    made = [node.output for graph in graphs for node in graph.nodes if _NUMBERED.fullmatch(node.output)]
    for kind in {stage.kind for stage in stages}:
        mine = [stage for stage in stages if stage.kind == kind]
        stacks = {found.group(1) for stage in mine if (found := _NUMBERED.fullmatch(stage.name.removeprefix(VIDEO_PREFIX)))}
        there = {stage.value for stage in mine}
        missing = next((name for name in made if name not in there and name.rpartition(".")[0] in stacks), None)
        if missing is not None:
            prefix = VIDEO_PREFIX if any(stage.name.startswith(VIDEO_PREFIX) for stage in mine) else ""
            raise TensorError(
                f"reading {golden.origin}", expected=f"the tensor {prefix}{missing} beside others of its stack", got="no such tensor",
                fix="these goldens belong to another model, or are damaged",
            )  # fmt: skip


def not_compared(golden: Golden, stages: Sequence[Stage]) -> list[str]:
    """Tensors of the golden that have no counterpart here."""
    used = {stage.name for stage in stages} | {*PROMPT_NAMES, *GENERATED_NAMES}
    return sorted(name for name in golden.arrays if name not in used)


def run_stages(model: Model, golden: Golden, prompt: Prompt, reference: Prompt, stages: Sequence[Stage]) -> Iterator[Run]:
    """Both runs of every stage.

    prompt: as Ouzel made it. reference: with the ids, positions and pixels of the golden. Raises TensorError naming file
    and tensor when a golden's rows do not fit the prompt.
    """
    made: dict[int, Features] = {}
    given: dict[int, Features] = {}
    for kind in _kinds(golden, prompt):
        mine = [stage for stage in stages if stage.kind == kind]
        yield from _Vision(model, golden, prompt, reference, kind).run(mine, made, given)
    text = [stage for stage in stages if stage.part == "text"]
    yield from _text(model, golden, (prompt, reference), text, (_joined(made), _joined(given)))


class _Vision:
    """The pictures of one kind, one after another."""

    def __init__(self, model: Model, golden: Golden, prompt: Prompt, reference: Prompt, kind: str) -> None:
        graph = model.family.vision_graph()
        assert graph is not None
        self._model, self._golden, self._graph = model, golden, graph
        pairs = enumerate(zip(prompt.pictures, reference.pictures))
        self._pairs = [(at, own, given) for at, (own, given) in pairs if seen_as(golden, own) == kind]

    def run(self, stages: Sequence[Stage], made: dict[int, Features], given: dict[int, Features]) -> list[Run]:
        """Also fills `made` with each picture's features, and `given` with the reference's (ours where it has none)."""
        values = tuple(dict.fromkeys([stage.value for stage in stages]))
        outputs = tuple(self._model.family.feature_inputs)
        wanted = {stage.name: self._wanted(stage) for stage in stages}
        by_value = {stage.value: wanted[stage.name] for stage in reversed(stages)}
        counts = [self._counts(picture) for _, picture, _ in self._pairs]
        self._check_rows(stages, wanted, counts)
        weights, engine = self._model.weights, self._model.engine
        whole, parts = engine.compile(self._graph, weights, values), engine.compile(cut(self._graph, values), weights, values)
        wholes, owns, start = [], [], dict.fromkeys(values, 0)
        for (at, own, reference), count in zip(self._pairs, counts):
            slices = {}
            for value in values:
                rows = count[self._graph.values[value].rows]
                slices[value] = by_value[value][start[value] : start[value] + rows]
                start[value] += rows
            wholes.append(self._run(whole, own, tuple(dict.fromkeys([*outputs, *values])), {}))
            owns.append(self._run(parts, reference, values, slices))
            made[at] = {name: wholes[-1][name] for name in outputs}
            given[at] = {name: slices.get(name, wholes[-1][name]) for name in outputs}
        return [Run(stage, wanted[stage.name], _stack(wholes, stage.value), _stack(owns, stage.value)) for stage in stages]

    def _wanted(self, stage: Stage) -> F32:
        return rows_of(self._golden, stage.name, self._graph.values[stage.value].width)

    def _counts(self, picture: Picture) -> dict[str, int]:
        return self._graph.row_counts(self._model.family.vision_inputs(picture).inputs)

    def _check_rows(self, stages: Sequence[Stage], wanted: Mapping[str, F32], counts: Sequence[Mapping[str, int]]) -> None:
        for stage in stages:
            rows = sum(count[self._graph.values[stage.value].rows] for count in counts)
            _check_count(self._golden, stage, rows, len(wanted[stage.name]))

    def _run(self, executable: Executable, picture: Picture, names: Sequence[str], given: Mapping[str, F32]) -> Features:
        prepared = self._model.family.vision_inputs(picture)
        inputs = {**prepared.inputs, **_given(executable, given)}
        return executable.run(Step(inputs, tuple(names), segments=prepared.segments))


def _text(
    model: Model, golden: Golden, prompts: tuple[Prompt, Prompt], stages: Sequence[Stage], features: tuple[Features, Features]
) -> list[Run]:
    graph, values = model.family.text_graph(), tuple(dict.fromkeys(stage.value for stage in stages))
    if not values:
        return []
    wanted = {stage.name: rows_of(golden, stage.name, graph.values[stage.value].width) for stage in stages}
    for stage in stages:
        _check_count(golden, stage, len(prompts[1].ids), len(wanted[stage.name]))
    by_value = {stage.value: wanted[stage.name] for stage in reversed(stages)}
    whole = model.engine.compile(graph, model.weights, values)
    propagated = run_text(whole, model, prompts[0], features[0], values, {})
    del whole
    parts = model.engine.compile(cut(graph, values), model.weights, values)
    own = run_text(parts, model, prompts[1], features[1], values, by_value)
    return [Run(stage, wanted[stage.name], propagated[stage.value], own[stage.value]) for stage in stages]


def run_text(
    executable: Executable, model: Model, prompt: Prompt, features: Features, names: Sequence[str], given: Mapping[str, F32]
) -> Features:
    """The text graph over a whole prompt in one pass, from an empty cache."""
    blocks = -(-len(prompt.ids) // BLOCK_TOKENS)
    executable.ensure_blocks(blocks)
    rows = SequenceRows(0, len(prompt.ids), 0, np.arange(blocks, dtype=np.int32))
    inputs = {**text_inputs(model.family, prompt, features), **_given(executable, given)}
    return executable.run(Step(inputs, tuple(names), sequences=(rows,)))


def with_reference(golden: Golden, prompt: Prompt, *, ids: bool = True, pixels: bool = True) -> Prompt:
    """The prompt with the golden's ids and positions, and with its pixels. Raises TensorError where they do not fit."""
    pictures = tuple(_reference_pixels(golden, prompt.pictures)) if pixels else prompt.pictures
    if not ids:
        return replace(prompt, pictures=pictures)
    wanted = golden.array("input_ids").reshape(-1)
    found = prompt.positions
    if "position_ids" in golden.arrays:
        rows = golden.integers("position_ids", len(wanted))
        found = replace(found, ids=np.ascontiguousarray(np.broadcast_to(rows[-len(found.ids) :], (len(found.ids), len(wanted)))))
    if "rope_deltas" in golden.arrays:
        found = replace(found, delta=int(golden.integers("rope_deltas", 1)[0, 0]))
    return replace(prompt, ids=tuple(int(i) for i in wanted), positions=found, pictures=pictures)


def _reference_pixels(golden: Golden, pictures: Sequence[Picture]) -> Iterator[Picture]:
    start = dict.fromkeys(PIXELS, 0)
    for at, picture in enumerate(pictures):
        kind = seen_as(golden, picture)
        name, first = PIXELS[kind], start[kind]
        start[kind] += len(picture.pixels)
        if name not in golden.arrays:
            yield picture
            continue
        rows = rows_of(golden, name, picture.pixels.shape[1])[first : first + len(picture.pixels)]
        if len(rows) != len(picture.pixels):
            raise TensorError(
                f"reading {golden.origin}, tensor {name}",
                expected=f"rows of picture {at}",
                got=f"{len(rows)} of {len(picture.pixels)} rows",
            )
        yield replace(picture, pixels=np.ascontiguousarray(rows), key=f"golden {golden.origin} {at}")


def _joined(by_picture: Mapping[int, Features]) -> Features:
    ordered = [by_picture[at] for at in sorted(by_picture)]
    return {name: np.concatenate([features[name] for features in ordered]) for name in ordered[0]} if ordered else {}


def _stack(runs: Sequence[Features], name: str) -> F32:
    return np.concatenate([run[name] for run in runs])


def _given(executable: Executable, given: Mapping[str, F32]) -> Features:
    names = {name: GIVEN + name for name in given}
    return {new: np.ascontiguousarray(given[old]) for old, new in names.items() if new in executable.graph.inputs}


def _check_count(golden: Golden, stage: Stage, rows: int, found: int) -> None:
    if rows != found:
        raise TensorError(
            f"reading {golden.origin}, tensor {stage.name}", expected=f"{rows} rows for this prompt", got=str(found),
            fix="these goldens belong to another model, or are damaged",
        )  # fmt: skip


def seen_as(golden: Golden, picture: Picture) -> str:
    """The kind under which a golden keeps a picture: families without tensors for videos keep frames among the images."""
    return picture.kind if PIXELS["video"] in golden.arrays else "image"


def pictures_of(golden: Golden, prompt: Prompt, kind: str) -> list[Picture]:
    """The pictures that a golden keeps under a kind, in order."""
    return [picture for picture in prompt.pictures if seen_as(golden, picture) == kind]


def _kinds(golden: Golden, prompt: Prompt) -> list[str]:
    return [kind for kind in PIXELS if pictures_of(golden, prompt, kind)]


def _prefix(golden: Golden, kind: str, prompt: Prompt) -> str:
    """Videos beside images have names of their own; a case with videos only has the plain ones."""
    return VIDEO_PREFIX if kind == "video" and len(_kinds(golden, prompt)) > 1 else ""


def _of_graph(model: Model, graph: Graph, names: Iterable[str]) -> list[tuple[str, str]]:
    made = {node.output for node in graph.nodes}
    own = {**{k: v for k, v in ALIASES.items() if k not in made}, **model.family.stage_names}
    pairs = [(name, own.get(name, name)) for name in names]
    return [(name, value) for name, value in pairs if value in made]


def _in_order(stages: Sequence[Stage], graphs: Sequence[Graph]) -> list[Stage]:
    """By kind of picture, then text; inside a part as the graph computes them."""
    places = {node.output: at for graph in graphs for at, node in enumerate(graph.nodes)}
    kinds = [*PIXELS, ""]
    return sorted(stages, key=lambda stage: (kinds.index(stage.kind), places[stage.value], stage.name))
