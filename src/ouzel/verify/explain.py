"""Findings in words: where a departure was made, in which token, layer and channel, and what the gates after it said."""

from __future__ import annotations

from collections.abc import Sequence

from ouzel.generation.request import Prompt
from ouzel.model import Model
from ouzel.verify.decisions import Decisions
from ouzel.verify.function import Function
from ouzel.verify.gates import near_tie_at
from ouzel.verify.golden import Golden
from ouzel.verify.interface import Check
from ouzel.verify.metrics import Difference
from ouzel.verify.pixels import PixelDifference
from ouzel.verify.report import MADE, OUTLIER, PASSED, Finding, Gate, StageReport
from ouzel.verify.stages import Stage, pictures_of


def place(model: Model, golden: Golden, prompt: Prompt, stage: Stage, difference: Difference) -> str:
    """What the worst row is: a token with its text, or a patch of a picture."""
    row = difference.worst_row
    if stage.part == "text":
        return _token(model, prompt.ids, row)
    pictures = pictures_of(golden, prompt, stage.kind)
    graph = model.family.vision_graph()
    assert graph is not None
    symbol = graph.values[stage.value].rows
    start = 0
    for at, picture in enumerate(pictures):
        count = graph.row_counts(model.family.vision_inputs(picture).inputs)[symbol]
        if row < start + count:
            return f"row {row - start} ({symbol}) of {stage.kind} {at}"
        start += count
    return f"row {row}"


def step_place(model: Model, difference: Difference, generated: Sequence[int]) -> str:
    """The worst step of an answer."""
    row = difference.worst_row
    return f"step {row}, after {_token(model, generated, row - 1) if row else 'the prompt'}"


def _token(model: Model, ids: Sequence[int], at: int) -> str:
    text = "" if model.tokenizer is None else f" {model.tokenizer.decode([ids[at]])!r}"
    return f"token {at} (id {ids[at]}{text})"


def of_checks(checks: Sequence[Check]) -> list[Finding]:
    """Interface failures: whole numbers that differ are made where they appear."""
    return [Finding(c.name, MADE, (f"expected {c.expected}", f"got {c.got}")) for c in checks if not c.ok]


def of_pixels(pixels: Sequence[PixelDifference]) -> list[Finding]:
    """Pixels beyond the rounding of another resizer."""
    return [
        Finding(p.name, MADE, (
            f"{p.share:.1%} of the values differ, by up to {p.steps:.1f} grey levels",
            f"worst: picture {p.picture}, patch row {p.row}, column {p.column}",
        ))
        for p in pixels if not p.ok
    ]  # fmt: skip


def of_stages(stages: Sequence[StageReport], gates: Sequence[Gate]) -> list[Finding]:
    """Every stage that departs: those that make an error go before those that only pass one on."""
    departing = [s for s in stages if s.verdict in (MADE, PASSED, OUTLIER)]
    ordered = [s for s in departing if s.verdict == MADE] + [s for s in departing if s.verdict != MADE]
    return [Finding(s.name, s.verdict, tuple(_stage_lines(s, stages, gates))) for s in ordered]


def _stage_lines(s: StageReport, stages: Sequence[StageReport], gates: Sequence[Gate]) -> list[str]:
    shown = s.own if s.verdict == MADE and s.own is not None else s.propagated
    lines = []
    if s.own is not None:
        lines.append(
            f"own error {s.own.row:.2e} of a row's length, {_times(s.own.row, s.own_tolerance)} the allowed {s.own_tolerance:.2e}"
        )
    lines.append(
        f"from the prompt {s.propagated.row:.2e}, {_times(s.propagated.row, s.propagated_tolerance)} the allowed {s.propagated_tolerance:.2e}"
    )
    layer = "" if s.layer is None else f", layer {s.layer}"
    lines.append(f"worst row: {s.place}{layer}")
    for e in shown.worst[:3]:
        kind = "an outlier channel" if e.outlier else "not an outlier channel"
        lines.append(f"row {e.row}, channel {e.channel} ({kind}): {e.found:.6g}, reference {e.wanted:.6g}")
    if s.verdict == PASSED:
        lines.append("its own inputs give the right result: look at the stages before it")
    if not shown.finite:
        lines.append("some values are not finite")
    after = [x for x in stages[stages.index(s) + 1 :] if x.departs]
    made = [x.name for x in after if x.verdict == MADE]
    if after:
        lines.append(
            f"{len(after)} later stages depart, {len(made)} of them by themselves{': ' + ', '.join(made[:4]) if made else ''}"
        )
    lines.append("gates after it: " + ", ".join(f"{g.name} {_word(g.ok)}" for g in gates if g.number > 3))
    return lines


def of_function(function: Function | None, decisions: Decisions | None, gates: Sequence[Gate]) -> list[Finding]:
    """An answer that is another one."""
    if function is None or function.ok or near_tie_at(function, decisions) is not None:
        return []
    return [Finding("generated_ids", PASSED if any(g.ok is False for g in gates[:4]) else MADE, gates[4].lines)]


def _word(ok: bool | None) -> str:
    return "did not run" if ok is None else "hold" if ok else "fail"


def _times(value: float, allowed: float) -> str:
    ratio = value / allowed
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2f} times"
