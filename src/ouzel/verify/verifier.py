"""Takes one case through the five gates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import NumericError, TensorError
from ouzel.generation.request import Prompt
from ouzel.model import Model
from ouzel.settings import split_settings
from ouzel.verify import explain, gates
from ouzel.verify.decisions import Decisions, decide
from ouzel.verify.formats import Rounding
from ouzel.verify.function import Decoded, Function, answer, decode
from ouzel.verify.golden import Golden, check_family
from ouzel.verify.interface import Check, prompt_checks
from ouzel.verify.metrics import Difference, compare, heat
from ouzel.verify.pixels import PixelDifference, compare_pixels
from ouzel.verify.report import HOLDS, MADE, OUTLIER, PASSED, CaseReport, Finding, Gate, StageReport
from ouzel.verify.stages import Run, Stage, not_compared, run_stages, stages_of, with_reference
from ouzel.verify.tolerance import FORMAT_GROWTH, own_tolerance, propagated_tolerance

F32 = NDArray[np.float32]


def verify_case(model: Model, golden: Golden, rounding: Rounding) -> CaseReport:
    """One case of goldens against the loaded model.

    rounding: how much model and reference round their weights. Raises CheckpointError and TensorError for goldens that do
    not belong to this model or are damaged.
    """
    check_family(golden, model.family.name, model.checkpoint.model_type)
    return _Case(model, golden, rounding).run()


@dataclass
class _State:
    """What is known so far."""

    checks: list[Check] = field(default_factory=list)
    pixels: list[PixelDifference] = field(default_factory=list)
    stages: list[StageReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    logits: Run | None = None
    decoded: Decoded | None = None
    decisions: Decisions | None = None
    function: Function | None = None
    heat: tuple[str, list[list[float]]] = ("", [])
    worst: float = -1.0


class _Case:
    """The order of the work; what the numbers mean is in `gates`, what people read in `explain`."""

    def __init__(self, model: Model, golden: Golden, rounding: Rounding) -> None:
        self.model, self.golden, self.rounding = model, golden, rounding
        self.state = _State()
        self.cuts: dict[str, set[str]] = {}
        self.sum: list[float] = []

    def run(self) -> CaseReport:
        """All gates; the later ones do not run when ids or pictures have other counts than the reference's."""
        model, golden, state = self.model, self.golden, self.state
        prompt = model.prepare(golden.messages(), split_settings(golden.settings(), model.checkpoint.generation))
        state.checks = prompt_checks(model, golden, prompt)
        if all(check.ok or check.name in ("position_ids", "rope_deltas") for check in state.checks):
            prompt = self._pixels(prompt)
            self._stages(prompt)
            try:
                self._decode(prompt)
                self._decide()
                if state.decoded is not None:
                    state.function = answer(model, golden, prompt, state.decoded.cache_unchanged)
            except NumericError as error:
                # The gates after it did not run, and the case does not hold; the stages say where it began.
                state.notes.append(str(error))
        return self._report(len(prompt.ids))

    def _pixels(self, prompt: Prompt) -> Prompt:
        """Compares pixels; where ours differ by the rounding of another resizer, the network gets the reference's."""
        state = self.state
        state.pixels = compare_pixels(self.model, self.golden, prompt)
        if not state.pixels or not all(p.ok for p in state.pixels) or all(p.share == 0 for p in state.pixels):
            return prompt
        state.notes += [
            f"{p.name}: {p.share:.2%} of the values differ by up to {p.steps:.1f} grey levels (another resizer's rounding);"
            " everything after it was run on the reference's pixels" for p in state.pixels if p.share
        ]  # fmt: skip
        return with_reference(self.golden, prompt, ids=False)

    def _stages(self, prompt: Prompt) -> None:
        golden = self.golden
        stages = stages_of(self.model, golden, prompt)
        for stage in stages:
            self.cuts.setdefault(stage.part, set()).add(stage.value)
        left = not_compared(golden, stages)
        if left:
            self.state.notes.append(f"tensors of the golden without a counterpart: {', '.join(left)}")
        for run in run_stages(self.model, golden, prompt, with_reference(golden, prompt), stages):
            self.state.stages.append(self._stage(run, prompt))
            if run.stage.value == "logits":
                self.state.logits = run

    def _stage(self, run: Run, prompt: Prompt) -> StageReport:
        stage = run.stage
        own, propagated = compare(run.own, run.wanted), compare(run.propagated, run.wanted)
        allowed, allowed_from_prompt = self._tolerances(stage, len(run.wanted))
        verdict = _verdict(own, allowed, propagated, allowed_from_prompt)
        self._keep_heat(stage.name, max(own.row / allowed, propagated.row / allowed_from_prompt), run.propagated, run.wanted)
        return StageReport(
            stage.name, stage.part, _layer(stage.name), (len(run.wanted), run.wanted.shape[1]), verdict, propagated, own,
            allowed_from_prompt, allowed, explain.place(self.model, self.golden, prompt, stage, own if verdict == MADE else propagated),
        )  # fmt: skip

    def _tolerances(self, stage: Stage, rows: int) -> tuple[float, float]:
        graph = self.model.family.text_graph() if stage.part == "text" else self.model.family.vision_graph()
        assert graph is not None
        own = own_tolerance(graph, stage.value, self.cuts[stage.part], rows, self.rounding.by_weight)
        self.sum.append(own)
        return own, propagated_tolerance(self.sum)

    def _decode(self, prompt: Prompt) -> None:
        """The reference's answer over the cache: its own error is the distance to the same in one pass."""
        generated, golden = self.golden.generated, self.golden
        if not generated:
            return
        if not 0 <= min(generated) <= max(generated) < self.model.family.sizes.vocab:
            raise TensorError(
                f"reading {golden.origin}, tensor generated_ids", expected=f"ids below {self.model.family.sizes.vocab}",
                got=f"{min(generated)} to {max(generated)}",
            )  # fmt: skip
        self.state.decoded = made = decode(self.model, prompt, generated)
        if "step_logits" not in golden.arrays:
            return
        wanted = gates.step_logits(golden, made.steps.shape)
        own, propagated = compare(made.steps, made.whole), compare(made.steps, wanted)
        allowed = propagated_tolerance(self.sum)
        verdict = _verdict(own, allowed, propagated, allowed)
        self._keep_heat("step_logits", max(own.row, propagated.row) / allowed, made.steps, wanted)
        where = explain.step_place(self.model, own if verdict == MADE else propagated, generated)
        self.state.stages.append(
            StageReport("step_logits", "text", None, wanted.shape, verdict, propagated, own, allowed, allowed, where)
        )

    def _decide(self) -> None:
        """Over every position of the prompt and every step of the answer."""
        found, wanted = [], []
        if self.state.logits is not None:
            found, wanted = [self.state.logits.propagated], [self.state.logits.wanted]
        if self.state.decoded is not None and "step_logits" in self.golden.arrays:
            found.append(self.state.decoded.steps)
            wanted.append(gates.step_logits(self.golden, self.state.decoded.steps.shape))
        if not found:
            return
        relative = propagated_tolerance(self.sum) if self.rounding.exact else FORMAT_GROWTH * self.rounding.relative
        joined = np.concatenate(found), np.concatenate(wanted)
        steps = len(wanted[-1]) if self.state.logits is None or len(wanted) == 2 else 0
        self.state.decisions = replace(decide(*joined, relative, centred=not self.rounding.exact), steps=steps)
        self.state.logits = None

    def _keep_heat(self, name: str, ratio: float, found: F32, wanted: F32) -> None:
        """The picture of the stage that is farthest beyond what it may be."""
        if ratio > self.state.worst:
            self.state.worst, self.state.heat = ratio, (name, heat(found, wanted))

    def _report(self, positions: int) -> CaseReport:
        state = self.state
        made = gates.all_gates(state.checks, state.pixels, state.stages, state.decisions, state.function, self.rounding.exact)
        findings = self._findings(made)
        return CaseReport(
            self.golden.name, self.golden.origin, made, tuple(state.checks), tuple(state.stages), findings, state.decisions,
            state.function, state.heat[0], tuple(tuple(row) for row in state.heat[1]), tuple(state.notes), positions,
        )  # fmt: skip

    def _findings(self, made: Sequence[Gate]) -> tuple[Finding, ...]:
        state = self.state
        return tuple([
            *explain.of_checks(state.checks), *explain.of_pixels(state.pixels),
            *explain.of_stages(state.stages, made), *explain.of_function(state.function, state.decisions, made),
        ])  # fmt: skip


def _verdict(own: Difference, allowed: float, propagated: Difference, allowed_from_prompt: float) -> str:
    made, passed = own.row > allowed, propagated.row > allowed_from_prompt
    if not made and not passed:
        return HOLDS
    inside = own.row_inside <= allowed and propagated.row_inside <= allowed_from_prompt
    # What is left of a wrong stage without its outlier channels is wrong, too; rounding in the outliers leaves nothing.
    if inside and own.finite and propagated.finite:
        return OUTLIER
    return MADE if made else PASSED


def _layer(name: str) -> int | None:
    found = re.search(r"layers\.(\d+)", name)
    return int(found.group(1)) if found else None
