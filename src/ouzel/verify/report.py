"""What the verifier found, as plain data: for JSON, for the page, and for people on a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ouzel.verify.decisions import Decisions
from ouzel.verify.function import Function
from ouzel.verify.interface import Check
from ouzel.verify.metrics import Difference

GATES = ("interface", "sanity", "numbers", "decisions", "function")

HOLDS, MADE, PASSED, OUTLIER = "holds", "made here", "passed on", "outlier"
"""Verdicts on a stage. "made here": its own error is too large. "passed on": only what came in is. "outlier": too large in
channels only that are outliers in the reference; no failure when decisions and function hold."""


@dataclass(frozen=True)
class Gate:
    """One gate of one case. ok is None when it did not run. lines: for people."""

    number: int
    name: str
    ok: bool | None
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class StageReport:
    """One stage. propagated: from the prompt; own: from the reference's inputs (None where there are none to feed)."""

    name: str
    part: str
    layer: int | None
    shape: tuple[int, int]
    verdict: str
    propagated: Difference
    own: Difference | None
    propagated_tolerance: float
    own_tolerance: float
    place: str = ""

    @property
    def departs(self) -> bool:
        """Whether an error is beyond its tolerance."""
        return self.verdict in (MADE, PASSED)


@dataclass(frozen=True)
class Finding:
    """The first stage that departs: whether it was made there, and all that there is to say about it."""

    stage: str
    verdict: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class CaseReport:
    """One case through the five gates."""

    name: str
    origin: str
    gates: tuple[Gate, ...]
    checks: tuple[Check, ...]
    stages: tuple[StageReport, ...]
    findings: tuple[Finding, ...]
    decisions: Decisions | None
    function: Function | None
    heat_stage: str = ""
    heat: tuple[tuple[float, ...], ...] = ()
    notes: tuple[str, ...] = ()
    prompt_positions: int = 0

    @property
    def ok(self) -> bool:
        """Whether all gates hold."""
        return all(gate.ok for gate in self.gates)


@dataclass(frozen=True)
class PartReport:
    """What one part alone in its number format does to the decisions of a case."""

    case: str
    part: str
    format: str
    rounding: float
    decisions: Decisions


@dataclass(frozen=True)
class Report:
    """A whole run. facts: model, configuration, environment and hashes, for the end of the page."""

    title: str
    reference: str
    configuration: str
    exact: bool
    cases: tuple[CaseReport, ...]
    parts: tuple[PartReport, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether all gates of all cases hold."""
        return all(case.ok for case in self.cases)

    def as_json(self) -> dict[str, Any]:
        """Plain data; infinite numbers become the word "inf" (JSON has none)."""
        data = _plain(asdict(self))
        data["ok"] = self.ok
        for case, made in zip(data["cases"], self.cases):
            case["ok"] = made.ok
        return {"format": "ouzel verify", "version": 1, **data}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def as_text(report: Report, everything: bool = False) -> str:
    """The report for a terminal: a line for each gate, and the first stage that departs explained (all: `everything`)."""
    lines = [report.title, f"reference: {report.reference}", f"found: {report.configuration}", ""]
    for case in report.cases:
        lines += _case_lines(case, everything)
    lines += _part_lines(report.parts)
    good = sum(case.ok for case in report.cases)
    lines.append(f"{good} of {len(report.cases)} cases hold all five gates")
    return "\n".join(lines) + "\n"


def _case_lines(case: CaseReport, everything: bool) -> list[str]:
    lines = [f"{case.name}: {'holds' if case.ok else 'FAILS'}"]
    for gate in case.gates:
        word = {True: "ok  ", False: "FAIL", None: "-   "}[gate.ok]
        head, *more = gate.lines or ("not run",)
        lines.append(f"  {gate.number} {gate.name:<10} {word} {head}")
        lines += [f"{' ' * 20}{line}" for line in more]
    for finding in case.findings if everything else case.findings[:1]:
        lines.append(f"  -> {finding.stage}: {finding.verdict}")
        lines += [f"     {line}" for line in finding.lines]
    lines += [f"  note: {note}" for note in case.notes]
    if everything:
        lines += ["", *_stage_table(case.stages)]
    return [*lines, ""]


def _stage_table(stages: Sequence[StageReport]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("stage", "verdict", "own", "allowed", "from prompt", "allowed", "max", "mean", "P99", "P99.9", "P99.99", "cosine")
    ]
    for s in stages:
        p = s.propagated
        own = "-" if s.own is None else f"{s.own.row:.1e}"
        rows.append(
            (s.name, s.verdict, own, f"{s.own_tolerance:.1e}", f"{p.row:.1e}", f"{s.propagated_tolerance:.1e}",
             *(f"{v:.1e}" for v in (p.max_abs, p.mean_abs, p.p99, p.p999, p.p9999)), f"{p.cosine:.9f}")
        )  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _part_lines(parts: Sequence[PartReport]) -> list[str]:
    if not parts:
        return []
    lines = ["one part at a time in its format, the others as stored:"]
    for p in parts:
        d = p.decisions
        lines.append(
            f"  {p.case}, {p.part} in {p.format}: KL mean {d.kl_mean:.2e} (budget {d.kl_mean_budget:.2e}),"
            f" P99 {d.kl_p99:.2e} ({d.kl_p99_budget:.2e}), top-1 {d.top1:.1%} (budget {d.top1_budget:.1%}){first_flip(d)}"
        )
    return [*lines, ""]


def first_flip(d: Decisions) -> str:
    """Where the first decision differs, in words; empty when none does."""
    if not d.flips:
        return ""
    flip = d.flips[0]
    word = "below" if flip.near_tie else "above"
    return (
        f"; first other choice at position {flip.position}: {flip.found} for {flip.wanted}, which the reference prefers by"
        f" {flip.margin:.3g} ({word} what noise of {d.noise:.2g} can turn over)"
    )
