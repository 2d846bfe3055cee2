"""What the five gates conclude from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import TensorError
from ouzel.verify.decisions import Decisions
from ouzel.verify.function import Function
from ouzel.verify.golden import Golden, rows_of
from ouzel.verify.interface import Check
from ouzel.verify.pixels import PixelDifference
from ouzel.verify.report import GATES, MADE, OUTLIER, PASSED, Gate, StageReport, first_flip

RANGE = 2.0
"""A stage whose root mean square is off by this factor is not the same stage."""

GROSS = 2.0
"""A rounding format's stage may add this many times its formula before the numbers gate fails. Budgets of the divergence alone
are wide at four bits and let swapped layers pass; right runs on the fixtures and the embedded model stayed below 1.3."""


def all_gates(
    checks: Sequence[Check],
    pixels: Sequence[PixelDifference],
    stages: Sequence[StageReport],
    decisions: Decisions | None,
    function: Function | None,
    exact: bool,
) -> tuple[Gate, ...]:
    """The gates in their order."""
    later = [_decisions(decisions), _function(function, decisions)]
    holds = all(ok is not False for ok, _ in later)
    made = [_interface(checks, function), _sanity(stages), _numbers(pixels, stages, decisions, exact, holds), *later]
    return tuple(Gate(at + 1, name, ok, tuple(lines)) for at, (name, (ok, lines)) in enumerate(zip(GATES, made)))


Verdict = tuple["bool | None", list[str]]


def _interface(checks: Sequence[Check], function: Function | None) -> Verdict:
    lines = [f"{c.name}: expected {c.expected}, got {c.got}" for c in checks if not c.ok]
    if function is not None and function.cache_wanted != function.cache_found:
        lines.append(f"cache length: expected {function.cache_wanted} tokens, got {function.cache_found}")
    if lines:
        return False, lines
    more = "" if function is None else f", {function.cache_found} tokens in the cache"
    return True, [f"{', '.join(c.name for c in checks)} equal{more}"]


def _sanity(stages: Sequence[StageReport]) -> Verdict:
    if not stages:
        return None, []
    lines = [f"{s.name} is not finite" for s in stages if not s.propagated.finite]
    # With errors of less than half the length the size cannot be off by two.
    far = [s for s in stages if s.propagated.finite and s.propagated.relative > 1 + RANGE]
    lines += [f"{s.name} is more than {RANGE:g} times too large" for s in far]
    return (False, lines) if lines else (True, [f"{len(stages)} stages finite and in range"])


def _numbers(
    pixels: Sequence[PixelDifference], stages: Sequence[StageReport], decisions: Decisions | None, exact: bool, later: bool
) -> Verdict:
    if not stages:
        return None, []
    bad_pixels = [p for p in pixels if not p.ok]
    lines = [f"{p.name}: {p.share:.1%} of the values differ, by up to {p.steps:.1f} grey levels" for p in bad_pixels]
    if not exact:
        return _budgets(decisions, [*lines, *_gross(stages)])
    first = next((s for s in stages if s.verdict in (MADE, PASSED)), None)
    if first is not None:
        count = sum(s.departs for s in stages)
        lines.append(f"{count} of {len(stages)} stages depart, the first is {first.name} ({first.verdict})")
    outliers = [s for s in stages if s.verdict == OUTLIER]
    if outliers:
        word = "later gates hold" if later else "later gates fail"
        lines.append(f"outlier channels only: {', '.join(s.name for s in outliers)} ({word})")
    ok = not bad_pixels and first is None and (later or not outliers)
    worst = max(stages, key=lambda s: max(_ratio(s)))
    own, whole = _ratio(worst)
    lines.append(f"largest error: {worst.name}, {own:.2f} of what it may add, {whole:.2f} of what may come from the prompt")
    return ok, lines


def _gross(stages: Sequence[StageReport]) -> list[str]:
    """Stages that add more, from the reference's own inputs, than any rounding of their format explains."""
    found = [(s.name, _ratio(s)[0]) for s in stages if _ratio(s)[0] > GROSS]
    return [f"{name}: made here, {own:.1f} times what its format's rounding may add" for name, own in found[:3]]


def _ratio(stage: StageReport) -> tuple[float, float]:
    own = 0.0 if stage.own is None else stage.own.row / stage.own_tolerance
    return own, stage.propagated.row / stage.propagated_tolerance


def _budgets(decisions: Decisions | None, lines: list[str]) -> Verdict:
    """A rounding format is held to budgets of the divergence, because its stages differ by design."""
    if decisions is None:
        return (False, lines) if lines else (None, [])
    d = decisions
    ok = not lines and d.kl_mean <= d.kl_mean_budget and d.kl_p99 <= d.kl_p99_budget
    lines.append(
        f"rounding format: KL mean {d.kl_mean:.2e} (budget {d.kl_mean_budget:.2e}), P99 {d.kl_p99:.2e} (budget {d.kl_p99_budget:.2e}),"
        f" top-1 {d.top1:.1%} (budget {d.top1_budget:.1%})"
    )
    return ok, lines


def _decisions(decisions: Decisions | None) -> Verdict:
    if decisions is None:
        return None, []
    d = decisions
    lines = [
        f"top-1 {d.top1:.2%}, top-2 {d.top2:.2%}, top-10 overlap {d.overlap:.2%} over {d.positions} positions;"
        f" KL mean {d.kl_mean:.1e}, max {d.kl_max:.1e}; smallest margin {min(d.margins):.2g}"
    ]
    if d.flips:
        lines.append(f"{len(d.flips)} other first choices, {d.allowed_flips} explained by noise{first_flip(d)}")
    if d.kl_mean > d.kl_mean_budget or d.kl_p99 > d.kl_p99_budget:
        lines.append(f"KL beyond its budget (mean {d.kl_mean_budget:.1e}, P99 {d.kl_p99_budget:.1e})")
    return d.ok, lines


def _function(function: Function | None, decisions: Decisions | None) -> Verdict:
    if function is None:
        return None, []
    f = function
    if f.ok:
        end = "" if f.end_wanted is None else f", first end token at {f.end_wanted}"
        return True, [f"{len(f.found_ids)} tokens and the text equal{end}; earlier cache unchanged"]
    lines = []
    if f.first is not None:
        lines.append(f"token {f.first} is {f.found_ids[f.first]}, not {f.wanted_ids[f.first]}")
    if f.first is None and not f.same_text:
        lines.append("equal tokens, other text")
    if f.end_wanted != f.end_found:
        lines.append(f"end token at {f.end_found}, not {f.end_wanted}")
    if f.cache_wanted != f.cache_found:
        lines.append(f"{f.cache_found} tokens in the cache, not {f.cache_wanted}")
    if not f.cache_unchanged:
        lines.append("the cache of earlier positions changed")
    tie = near_tie_at(f, decisions)
    if tie is not None and f.cache_wanted == f.cache_found and f.cache_unchanged:
        return True, [*lines, f"a near tie in the reference (margin {tie:.2g}): either token is right"]
    return False, lines


def near_tie_at(function: Function, decisions: Decisions | None) -> float | None:
    """The reference's margin at the first other token when noise can turn it over, else None."""
    if function.first is None or decisions is None or decisions.steps != len(function.wanted_ids):
        return None
    # The answer's steps are the last positions that decisions were made over.
    at = decisions.positions - len(function.wanted_ids) + function.first
    flip = next((flip for flip in decisions.flips if flip.position == at), None)
    return flip.margin if flip is not None and flip.near_tie else None


def step_logits(golden: Golden, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The reference's logits of every step. Raises TensorError naming file and tensor when they do not fit."""
    rows = rows_of(golden, "step_logits", shape[1])
    if rows.shape != shape:
        raise TensorError(
            f"reading {golden.origin}, tensor step_logits",
            expected=f"{list(shape)} (a row for each of generated_ids)",
            got=str(list(rows.shape)),
        )
    return rows
