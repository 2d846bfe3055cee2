"""The graph's specification, its passes and the memory plan; no data, no device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goldens import FIXTURES
from op_cases import op_cases
from ouzel.checkpoint.folder import Checkpoint
from ouzel.errors import GraphError
from ouzel.graph.builder import GraphBuilder
from ouzel.graph.check import check_graph
from ouzel.graph.graph import Graph
from ouzel.graph.passes import fuse
from ouzel.graph.plan import plan_memory
from ouzel.models.registry import make_family


def families() -> list[Graph]:
    paths = [FIXTURES / "qwen3" / "tiny", FIXTURES / "qwen3_vl" / "tiny", FIXTURES / "qwen3_vl" / "tiny_tied"]
    made = [make_family(Checkpoint.open(path)) for path in paths]
    return [graph for family in made for graph in (family.text_graph(), family.vision_graph()) if graph is not None]


GRAPHS = families()
each_graph = pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{graph.name}-{len(graph.nodes)}")


def small() -> GraphBuilder:
    b = GraphBuilder("small")
    b.input("x", "r", 8)
    b.weight("w", 8, 8)
    return b


@each_graph
def test_declared_graphs_pass(graph: Graph) -> None:
    check_graph(graph)
    check_graph(fuse(graph))


def broken_graphs() -> dict[str, Graph]:
    b = small()
    b.node("linear", "y", "x", weights=("w",))
    b.node("add", "z", "x", "y")
    good = b.finish("z")
    first, second = good.nodes
    wide = replace(good.values["y"], width=9)
    return {
        "unknown operation": replace(good, nodes=(replace(first, op="conv"), second)),
        "not made before": replace(good, nodes=(second, first)),
        "made twice": replace(good, nodes=(first, first, second)),
        "never made": replace(good, outputs=("q",)),
        "width": replace(good, values={**good.values, "y": wide}),
        "attributes": replace(good, nodes=(replace(first, attrs={}), second)),
        "attribute": replace(good, nodes=(replace(first, attrs={"activation": "relu"}), second)),
        "weight": replace(good, weights={}),
        "inputs for": replace(good, nodes=(first, replace(second, inputs=("x",)))),
        "is f32": _index_of_floats(),
    }


def _index_of_floats() -> Graph:
    b = GraphBuilder("g")
    b.input("x", "r", 8)
    b.input("i", "s", 1, "i32")
    b.node("take_rows", "y", "x", "i")
    good = b.finish("y")
    return replace(good, values={**good.values, "i": replace(good.values["i"], dtype="f32")})


@pytest.mark.parametrize("what", broken_graphs())
def test_a_broken_graph_is_named(what: str) -> None:
    with pytest.raises(GraphError, match=what):
        check_graph(broken_graphs()[what])


def test_builder_refuses() -> None:
    b = small()
    b.node("linear", "y", "x", weights=("w",))
    with pytest.raises(GraphError, match="made twice"):
        b.node("linear", "y", "x", weights=("w",))
    with pytest.raises(GraphError, match="declared as"):
        b.weight("w", 3, 3)


def test_cache_layers_are_numbered() -> None:
    b = GraphBuilder("g")
    for name in "qkv":
        b.input(name, "r", 8)
    sizes = {"heads": 1, "kv_heads": 1, "head_dim": 8, "value_dim": 8, "scale": 1.0, "mode": "causal"}
    b.node("attention", "y", "q", "k", "v", layer=1, **sizes)
    with pytest.raises(GraphError, match="cache layers"):
        b.finish("y")


def test_fuse_joins_gelu_and_add() -> None:
    b = small()
    b.node("linear", "a", "x", weights=("w",))
    b.node("gelu", "g", "a", form="erf")
    b.node("linear", "c", "g", weights=("w",))
    b.node("add", "y", "x", "c")
    graph = b.finish("y")
    fused = fuse(graph)
    assert [(n.op, n.output, n.inputs, n.attrs["activation"]) for n in fused.nodes] == [
        ("linear", "g", ("x",), "gelu_erf"),
        ("linear", "y", ("g", "x"), "none"),
    ]
    assert [n.output for n in fuse(graph, keep=("a", "c")).nodes] == ["a", "g", "c", "y"]


def test_fuse_leaves_values_with_two_readers() -> None:
    b = small()
    b.node("linear", "a", "x", weights=("w",))
    b.node("add", "s", "a", "a")
    b.node("linear", "c", "s", weights=("w",))
    b.node("add", "t", "c", "x")
    b.node("mul", "y", "t", "c")
    assert len(fuse(b.finish("y")).nodes) == 5


@each_graph
def test_fuse_keeps_the_stages(graph: Graph) -> None:
    """Block outputs, embeddings and results are values after fusing too."""
    kept = set(fuse(graph).values)
    stages = [name for name in graph.values if name.startswith(("text.layers.", "vision.layers.")) and name.count(".") == 2]
    assert stages and set(stages) <= kept and set(graph.outputs) <= kept


@each_graph
@pytest.mark.parametrize("fused", (False, True))
def test_plan_never_overwrites_a_living_value(graph: Graph, fused: bool) -> None:
    graph = fuse(graph) if fused else graph
    _walk(graph)


@pytest.mark.parametrize("case", op_cases()[::7], ids=lambda case: case.name)
def test_plan_of_single_operations(case) -> None:  # noqa: ANN001
    _walk(case.graph)


def _walk(graph: Graph) -> None:
    """Plays the plan: at every read the slot must still hold the value that is read."""
    plan = plan_memory(graph)
    holds: dict[int, str] = {}
    for node in graph.nodes:
        for name in node.inputs:
            if name in plan.slot_of:
                assert holds[plan.slot_of[name]] == name, f"{node.output} reads {name} after it was overwritten"
        slot = plan.slots[plan.slot_of[node.output]]
        value = graph.values[node.output]
        assert slot.rows == value.rows and slot.width >= value.width
        holds[plan.slot_of[node.output]] = node.output
    for name in graph.outputs:
        assert name in graph.inputs or holds[plan.slot_of[name]] == name


def test_plan_reuses_memory() -> None:
    graph = fuse(GRAPHS[0])
    plan = plan_memory(graph)
    assert len(plan.slots) <= 8 < len(plan.slot_of)
    assert plan.bytes({"tokens": 10, "logits": 0}) == sum(40 * s.width for s in plan.slots if s.rows == "tokens")
