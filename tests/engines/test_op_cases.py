"""Every case of the operation table on every engine, against the reference's functions in float64."""

from __future__ import annotations

import numpy as np
import pytest

from op_cases import OpCase, op_cases, packed_op_cases
from ouzel.engines.reference.engine import ReferenceExecutable
from ouzel.engines.registry import engine_names, make_engine
from ouzel.graph.ops import OPS

CASES = [*op_cases(), *packed_op_cases()]


class _Wide:
    """A weight in float64."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def f32(self) -> np.ndarray:
        return self._values


def exact(case: OpCase) -> list[np.ndarray]:
    """The reference's own functions on float64 copies of everything."""
    weights = {
        name: weight if weight.format.packing else _Wide(weight.f32().astype(np.float64)) for name, weight in case.weights.items()
    }
    executable = ReferenceExecutable(case.graph, weights, np.float64)
    executable.ensure_blocks(case.blocks)
    return [executable.run(step)["y"] for step in case.steps]


def run(case: OpCase, engine: str) -> list[np.ndarray]:
    executable = make_engine(engine).compile(case.graph, case.weights)
    executable.ensure_blocks(case.blocks)
    return [executable.run(step)["y"] for step in case.steps]


@pytest.mark.parametrize("engine", engine_names())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_within_its_bound(case: OpCase, engine: str) -> None:
    for found, wanted, bound in zip(run(case, engine), exact(case), case.bounds):
        assert found.dtype == np.float32 and found.shape == wanted.shape
        excess = np.abs(found - wanted) - bound
        assert (excess <= 0).all(), f"largest excess {excess.max():.3e} over a bound of {np.max(bound):.3e}"


def test_every_operation_has_cases() -> None:
    assert {case.op for case in CASES} == set(OPS)


def test_names_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
