"""The verifier names the guilty stage of each classic mistake, and of nothing else."""

from __future__ import annotations

import pytest

from goldens import FIXTURES
from mutants import CONTROL, FURTHER, MUTATIONS, Mutation
from ouzel import load
from ouzel.verify.formats import rounding_of
from ouzel.verify.golden import read_goldens
from ouzel.verify.report import MADE, CaseReport
from ouzel.verify.verifier import verify_case

FAMILY = FIXTURES / "qwen3_vl"


def verified(mutation: Mutation, patch: pytest.MonkeyPatch, engine: str = "reference") -> CaseReport:
    mutation.apply(patch)
    model = load(FAMILY / "tiny", engine=engine)
    (golden,) = read_goldens(FAMILY / "golden", [mutation.case])
    return verify_case(model, golden, rounding_of(model))


def test_there_are_twelve() -> None:
    assert len({mutation.name for mutation in MUTATIONS}) == 12


@pytest.mark.parametrize("mutation", [*MUTATIONS, *FURTHER], ids=lambda mutation: mutation.name.replace(" ", "_"))
def test_guilty_stage(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    case = verified(mutation, monkeypatch)
    assert not case.ok
    assert (case.findings[0].stage, case.findings[0].verdict) == (mutation.guilty, MADE)
    assert next(gate.number for gate in case.gates if gate.ok is False) == mutation.gate


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.family and not m.patches], ids=lambda m: m.name.replace(" ", "_"))
def test_guilty_stage_on_the_native_engine(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    case = verified(mutation, monkeypatch, "native")
    assert not case.ok
    assert (case.findings[0].stage, case.findings[0].verdict) == (mutation.guilty, MADE)


def test_control(monkeypatch: pytest.MonkeyPatch) -> None:
    assert verified(CONTROL, monkeypatch).ok


def test_later_stages_only_pass_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in layer 2 arrives in layer 3, which is right by itself."""
    case = verified(MUTATIONS[0], monkeypatch)
    verdicts = {stage.name: stage.verdict for stage in case.stages}
    assert verdicts["text.layers.1"] == "holds" and verdicts["text.layers.2"] == "made here"
    assert {verdicts[name] for name in ("text.layers.3", "text.final_norm", "logits")} == {"passed on"}
    lines = " ".join(case.findings[0].lines)
    assert "layer 2" in lines and "channel" in lines and "token" in lines and "outlier channel" in lines
    assert "gates after it: decisions fail, function fail" in lines
