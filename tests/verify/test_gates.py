"""What the gates make of pixels of another resizer, of outlier channels, of near ties, and of rounding formats."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from goldens import FIXTURES, model_of
from mutants import Mutation
from ouzel import load
from ouzel.verify import gates
from ouzel.verify.decisions import decide
from ouzel.verify.formats import ACTIVATION_ROUNDING, _nominal, rounding_of
from ouzel.verify.function import Function
from ouzel.verify.golden import read_goldens
from ouzel.verify.metrics import compare
from ouzel.verify.report import HOLDS, MADE, OUTLIER, PASSED, CaseReport, StageReport
from ouzel.verify.verifier import _verdict, verify_case
from ouzel.weights.formats import FORMATS, FormatPlan

VL = FIXTURES / "qwen3_vl"


def with_pixels_off(levels: float, share: float) -> dict[str, Callable[..., Any]]:
    """A processor whose resizer rounds some values otherwise."""

    def image(original: Callable[..., Any], *args: Any) -> Any:
        picture = original(*args)
        pixels = picture.pixels.copy()
        pixels[np.random.default_rng(0).random(pixels.shape) < share] += np.float32(levels / 127.5)
        return replace(picture, pixels=pixels)

    return {"prepare_image": image}


def verified(family: dict[str, Callable[..., Any]], patch: pytest.MonkeyPatch) -> CaseReport:
    Mutation("", "", family).apply(patch)
    model = load(VL / "tiny")
    (golden,) = read_goldens(VL / "golden", ["two_images"])
    return verify_case(model, golden, rounding_of(model))


def test_one_grey_level_is_another_resizer(monkeypatch: pytest.MonkeyPatch) -> None:
    case = verified(with_pixels_off(1, 0.01), monkeypatch)
    assert case.ok
    assert any("up to 1.0 grey levels" in note and "reference's pixels" in note for note in case.notes)


@pytest.mark.parametrize(("levels", "share"), [(3, 0.01), (1, 0.2)])
def test_more_is_a_mistake(levels: float, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pixels are named; the tower only passes the error on."""
    case = verified(with_pixels_off(levels, share), monkeypatch)
    assert not case.ok and (case.findings[0].stage, case.findings[0].verdict) == ("pixel_values", MADE)
    assert {stage.verdict for stage in case.stages if stage.departs} == {PASSED}


def stage(verdict: str, name: str = "text.layers.0") -> StageReport:
    same = compare(np.ones((2, 4), np.float32), np.ones((2, 4), np.float32))
    return StageReport(name, "text", 0, (2, 4), verdict, same, same, 1e-5, 1e-5)


def test_outlier_channels_alone_do_not_fail_a_run_that_goes_on_to_hold() -> None:
    rng = np.random.default_rng(0)
    wanted = rng.standard_normal((40, 64)).astype(np.float32)
    wanted[:, 5] *= 200
    found = wanted.copy()
    found[7, 5] += 0.5
    got = compare(found, wanted)
    assert _verdict(got, 1e-4, got, 1e-4) == OUTLIER
    found[7, 6] += 0.5
    got = compare(found, wanted)
    assert _verdict(got, 1e-4, got, 1e-4) == MADE
    same = compare(wanted, wanted)
    assert _verdict(same, 1e-4, got, 1e-4) == PASSED
    assert _verdict(same, 1e-4, same, 1e-4) == HOLDS


@pytest.mark.parametrize(("later", "ok"), [(0.0, True), (5.0, False)])
def test_the_gates_after_an_outlier_decide(later: float, ok: bool) -> None:
    logits = np.random.default_rng(1).standard_normal((5, 9)).astype(np.float32)
    moved = logits.copy()
    moved[2, 3] += later
    found = gates.all_gates([], [], [stage(OUTLIER), stage(HOLDS, "text.layers.1")], decide(moved, logits, 1e-5), None, True)
    assert found[2].ok is ok
    assert ("later gates hold" if ok else "later gates fail") in " ".join(found[2].lines)


def function(found: tuple[int, ...], unchanged: bool = True) -> Function:
    first = next((at for at, pair in enumerate(zip((4, 7), found)) if pair[0] != pair[1]), None)
    return Function((4, 7), found, "ab", "ab" if first is None else "ac", first, None, None, 9, 9, unchanged)


def test_another_token_at_a_near_tie_is_right() -> None:
    wanted = np.zeros((2, 9), np.float32)
    wanted[0, 4], wanted[1, 7], wanted[1, 8] = 5, 2, 2 - 1e-5
    moved = wanted.copy()
    moved[1, 8] = 2 + 1e-5
    close, far = (replace(decide(moved, wanted, noise), steps=2) for noise in (1e-4, 1e-9))
    assert gates._function(function((4, 8)), close)[0] is True
    # The same answer with room between the candidates, or with a cache that changed, is not.
    assert gates._function(function((4, 8)), far)[0] is False
    # Nor is one whose steps the decisions were not made over: the last positions are the prompt's.
    assert gates._function(function((4, 8)), replace(close, steps=0))[0] is False
    assert gates._function(function((4, 8), unchanged=False), close)[0] is False
    assert gates._function(function((4, 7)), close)[0] is True


def test_rounding_is_measured() -> None:
    assert rounding_of(model_of(VL / "tiny", "native")).exact
    found = rounding_of(load(VL / "tiny", weights=FormatPlan(vision="bf16")))
    assert not found.exact and set(part for part, error in found.parts.items() if error) == {"vision"}
    # Eight bits of mantissa: steps of 2^-8 to 2^-7 of a value, errors even over a step.
    assert 2**-9 / np.sqrt(12) < found.parts["vision"] < 2**-8
    assert found.relative == pytest.approx(found.parts["vision"])


def test_what_a_format_rounds_without_the_checkpoint() -> None:
    assert _nominal(FORMATS["f32"]) == 0
    assert _nominal(FORMATS["f16"]) < _nominal(FORMATS["bf16"]) < ACTIVATION_ROUNDING
