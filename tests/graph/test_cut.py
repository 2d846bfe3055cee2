"""Cutting a graph: stages run on given inputs, and nothing else changes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ouzel.engines.base import Step
from ouzel.engines.reference.engine import ReferenceExecutable
from ouzel.errors import GraphError
from ouzel.graph.builder import GraphBuilder
from ouzel.graph.cut import GIVEN, cut, span
from ouzel.graph.graph import Graph


def chain() -> Graph:
    """x -> a = x + x -> b = a * a -> c = b + x; a is read twice."""
    b = GraphBuilder("test")
    x = b.input("x", "rows", 2)
    a = b.node("add", "a", x, x)
    m = b.node("mul", "b", a, a)
    return b.finish(b.node("add", "c", m, x))


def run(graph: Graph, **inputs: list[list[float]]) -> dict[str, list[list[float]]]:
    executable = ReferenceExecutable(graph, {name: SimpleNamespace() for name in graph.weights})
    step = Step({name: np.array(value, np.float32) for name, value in inputs.items()}, ("a", "b", "c"))
    return {name: value.tolist() for name, value in executable.run(step).items()}


def test_each_stage_reads_what_is_given() -> None:
    found = run(cut(chain(), ["a", "b"]), x=[[1, 2]], **{GIVEN + "a": [[10, 20]], GIVEN + "b": [[7, 7]]})
    assert found == {"a": [[2, 4]], "b": [[100, 400]], "c": [[8, 9]]}


def test_the_right_values_given_change_nothing() -> None:
    whole = run(chain(), x=[[1, 2]])
    assert run(cut(chain(), ["a", "b"]), x=[[1, 2]], **{GIVEN + name: whole[name] for name in ("a", "b")}) == whole


def test_a_value_that_nobody_reads_gets_no_input() -> None:
    assert cut(chain(), ["c"]).inputs == ("x",)
    assert cut(chain(), ["a"]).inputs == ("x", "given.a")


def test_unknown_names() -> None:
    with pytest.raises(GraphError, match="no node makes nothing"):
        cut(chain(), ["nothing"])
    with pytest.raises(GraphError, match="no node makes x"):
        cut(chain(), ["x"])


def test_span() -> None:
    graph = chain()
    assert [node.output for node in span(graph, "c", ())] == ["a", "b", "c"]
    assert [node.output for node in span(graph, "c", ["a", "c"])] == ["b", "c"]
    assert [node.output for node in span(graph, "b", ["b"])] == ["a", "b"]
    assert span(graph, "x", ()) == ()
