"""Twelve classic mistakes, each made on purpose: in the declared graph, in the inputs, or in the reference engine.

No family with window attention has goldens here yet: for the window order, a tower block is declared to run in another order and
to be put back; the control shows that this changes nothing, the mutant leaves the putting back out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from ouzel.engines.base import SequenceRows
from ouzel.engines.reference import attention, engine as reference_engine
from ouzel.graph.check import check_graph
from ouzel.graph.graph import Graph, Node


class Mutant:
    """A family with some of its methods replaced; everything else is the family's own."""

    def __init__(self, family: Any, **changed: Callable[..., Any]) -> None:
        self._family, self._changed = family, changed

    def __getattr__(self, name: str) -> Any:
        if name in self._changed:
            return lambda *args, **kwargs: self._changed[name](getattr(self._family, name), *args, **kwargs)
        return getattr(self._family, name)


def changed(graph: Graph, output: str, **attrs: Any) -> Graph:
    """The graph with attributes of the node that makes `output` replaced."""
    assert any(node.output == output for node in graph.nodes)
    nodes = tuple(replace(n, attrs={**n.attrs, **attrs}) if n.output == output else n for n in graph.nodes)
    result = replace(graph, nodes=nodes)
    check_graph(result)
    return result


def every_epsilon(graph: Graph, eps: float) -> Graph:
    """All norms of the part, as when the configuration's key is not read."""
    return replace(graph, nodes=tuple(replace(n, attrs={**n.attrs, "eps": eps}) if "eps" in n.attrs else n for n in graph.nodes))


def norm_after_rope(graph: Graph, layer: int) -> Graph:
    """Queries are rotated first and normed then."""
    n = f"text.layers.{layer}"
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.output == f"{n}.q_norm":
            rope = next(m for m in graph.nodes if m.output == f"{n}.q_rope")
            nodes.append(replace(rope, inputs=(node.inputs[0], *rope.inputs[1:]), output=f"{n}.q_norm"))
            nodes.append(replace(node, inputs=(f"{n}.q_norm",), output=f"{n}.q_rope"))
        elif node.output != f"{n}.q_rope":
            nodes.append(node)
    result = replace(graph, nodes=tuple(nodes))
    check_graph(result)
    return result


def text_graph(change: Callable[[Graph], Graph]) -> dict[str, Callable[..., Any]]:
    return {"text_graph": lambda original: change(original())}


def vision_graph(change: Callable[[Graph], Graph]) -> dict[str, Callable[..., Any]]:
    return {"vision_graph": lambda original: change(original())}


def shift_second_picture(original: Callable[..., Any], ids: Any, shown: Any) -> Any:
    """The second picture stands one column too far to the right."""
    found = original(ids, shown)
    first, second = shown[0].tokens, shown[0].tokens + shown[1].tokens
    places = np.flatnonzero(np.isin(np.array(ids), list(original.__self__.visual_tokens)))[first:second]
    moved = found.ids.copy()
    moved[2, places] += 1
    return replace(found, ids=moved)


def one_segment(original: Callable[..., Any], picture: Any) -> Any:
    """Frames of a video see each other: the borders of the attention segments are lost."""
    found = original(picture)
    return replace(found, segments=found.segments[[0, -1]])


def reversed_groups(q: Any, k: Any, v: Any, *args: Any) -> Any:
    """Query head h reads the last key heads first."""
    return attend(q, k[:, ::-1], v[:, ::-1], *args)


def windowed(graph: Graph) -> Graph:
    """Block 1 of the tower runs in window order, as towers with window attention do, and its rows are put back after it."""
    n = "vision.layers.1"
    values = dict(graph.values)
    x = values["vision.layers.0"]
    for name in ("window_index", "window_undo"):
        values[name] = replace(x, name=name, width=1, dtype="i32")
    swaps = {"vision.layers.0": f"{n}.windowed", "rope_cos": f"{n}.rope_cos", "rope_sin": f"{n}.rope_sin"}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.output == f"{n}.norm1":
            nodes += [Node("take_rows", (old, "window_index"), new) for old, new in swaps.items()]
        if node.output == n or node.output.startswith(f"{n}."):
            node = replace(node, inputs=tuple(swaps.get(name, name) for name in node.inputs))
        if node.output == n:
            nodes += [replace(node, output=f"{n}.in_windows"), Node("take_rows", (f"{n}.in_windows", "window_undo"), n)]
        else:
            nodes.append(node)
    values |= {new: replace(values[old], name=new) for old, new in swaps.items()}
    values[f"{n}.in_windows"] = replace(values[n], name=f"{n}.in_windows")
    result = replace(graph, inputs=(*graph.inputs, "window_index", "window_undo"), nodes=tuple(nodes), values=values)
    check_graph(result)
    return result


def window_inputs(undone: bool) -> Callable[..., Any]:
    """Whole merged patches change places; without `undone` nobody puts them back."""

    def inputs(original: Callable[..., Any], picture: Any) -> Any:
        found = original(picture)
        count = len(found.inputs["pixels"])
        order = np.arange(count, dtype=np.int32).reshape(-1, 4)[::-1].reshape(-1, 1)
        back = np.argsort(order[:, 0]).astype(np.int32)[:, None] if undone else np.arange(count, dtype=np.int32)[:, None]
        return replace(found, inputs={**found.inputs, "window_index": np.ascontiguousarray(order), "window_undo": back})

    return inputs


attend = attention.attend
extend = attention.PagedCache.extend


def see_the_next(q: Any, k: Any, v: Any, scale: float, seen: Any) -> Any:
    """The causal mask ends one token late."""
    if seen is not None:
        seen = seen | np.roll(seen, 1, axis=1) & (np.arange(seen.shape[1]) > 0)
    return attend(q, k, v, scale, seen)


def write_one_too_early(self: attention.PagedCache, rows: SequenceRows, k: Any, v: Any) -> Any:
    """A decoded token is stored over the one before it."""
    if rows.past == 0 or rows.count != 1:
        return extend(self, rows, k, v)
    at = rows.past - 1
    block, slot = rows.blocks[at // 32], at % 32
    self.keys[block, slot], self.values[block, slot] = k.reshape(self.keys.shape[2:]), v.reshape(self.values.shape[2:])
    places = np.arange(rows.past + 1)
    return self.keys[rows.blocks[places // 32], places % 32], self.values[rows.blocks[places // 32], places % 32]


def add_shifted(x: Any, values: Any, index: Any) -> Any:
    """Deepstack rows go to their neighbours' tokens."""
    out = x.copy()
    out[index[:, 0]] += np.roll(values, 1, axis=0)
    return out


def fold_swapped(x: Any, *, count: int, rows: str) -> Any:
    """The patches of a merged row are read by column instead of by row."""
    parts = x.reshape(-1, count, x.shape[1])
    side = int(count**0.5)
    return np.ascontiguousarray(parts.reshape(-1, side, side, x.shape[1]).swapaxes(1, 2)).reshape(len(parts), -1)


@dataclass(frozen=True)
class Mutation:
    """name: of the mistake. guilty: the stage that must be named. family: changed methods. patches: of the reference engine.

    gate: number of the first gate that fails. case: of qwen3_vl's goldens.
    """

    name: str
    guilty: str
    family: Mapping[str, Callable[..., Any]]
    patches: tuple[tuple[Any, str, Any], ...] = ()
    case: str = "two_images"
    gate: int = 3

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        """Breaks what `ouzel.load` makes from now on."""
        import ouzel.model

        make = ouzel.model.make_family
        patch.setattr(ouzel.model, "make_family", lambda checkpoint: Mutant(make(checkpoint), **self.family))
        for place, name, value in self.patches:
            if isinstance(place, dict):
                patch.setitem(place, name, value)
            else:
                patch.setattr(place, name, value)


OPS = reference_engine.FUNCTIONS

MUTATIONS = (
    Mutation("QK-norm after rope", "text.layers.2", text_graph(lambda g: norm_after_rope(g, 2))),
    Mutation("pairs for halves", "text.layers.1", text_graph(lambda g: changed(g, "text.layers.1.k_rope", style="pairs"))),
    Mutation("grouped-query mapping reversed", "text.layers.0", {}, ((attention, "attend", reversed_groups),), "text_only"),
    Mutation("wrong position of one picture", "position_ids", {"positions": shift_second_picture}, gate=1),
    Mutation("deepstack rows shifted by one", "text.layers.0.after_deepstack", {}, ((OPS, "add_rows", add_shifted),)),
    Mutation("window order not undone", "vision.layers.1", {**vision_graph(windowed), "vision_inputs": window_inputs(False)}),
    Mutation("epsilon 1e-5 for 1e-6", "text.layers.0", text_graph(lambda g: every_epsilon(g, 1e-5))),
    Mutation("exact gelu for tanh", "vision.layers.2", vision_graph(lambda g: changed(g, "vision.layers.2.gelu", form="erf"))),
    Mutation("cache off by one", "step_logits", {}, ((attention.PagedCache, "extend", write_one_too_early),)),
    Mutation("mask off by one", "text.layers.0", {}, ((attention, "attend", see_the_next),)),
    Mutation("softmax scale missing", "text.layers.3", text_graph(lambda g: changed(g, "text.layers.3.attn", scale=1.0))),
    Mutation("merged patch order", "deepstack.0", {}, ((OPS, "fold_rows", fold_swapped),)),
)
"""The deepstack merger of block 0 is the first to fold rows."""

FURTHER = (Mutation("segment borders lost", "vision.layers.0", {"vision_inputs": one_segment}, case="video_4"),)

CONTROL = Mutation("windows undone", "", {**vision_graph(windowed), "vision_inputs": window_inputs(True)})
"""No mistake: the same reordering, put back."""
