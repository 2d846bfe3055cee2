"""Charts as inline SVG. Colours are CSS variables of the page, so that light and dark need no second picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from ouzel.verify.report import StageReport

WIDTH, LEFT, RIGHT, TOP = 860, 56, 44, 14
SHADES = 10


class Log:
    """A logarithmic axis from `low` to `high` on pixels `bottom` to `top`; zero and less stand at the bottom."""

    def __init__(self, values: Sequence[float], top: float, bottom: float) -> None:
        finite = [v for v in values if 0 < v < math.inf]
        self.low = math.floor(math.log10(min(finite, default=1e-9)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(finite, default=1.0))))
        self._top, self._bottom = top, bottom

    def __call__(self, value: float) -> float:
        if value <= 0:
            return self._bottom
        place = 1.0 if value == math.inf else (math.log10(value) - self.low) / (self.high - self.low)
        return self._bottom + (self._top - self._bottom) * min(max(place, 0.0), 1.0)

    def grid(self) -> str:
        """Lines and labels, at most eight."""
        step = max(1, math.ceil((self.high - self.low) / 8))
        lines = []
        for power in range(self.low, self.high + 1, step):
            y = self(10.0**power)
            lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            lines.append(f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>')
        return "".join(lines)


def error_chart(stages: Sequence[StageReport]) -> str:
    """Largest error of a row by stage: from the prompt, own, and what each may be."""
    height, bottom = 430, 240
    own = [None if s.own is None else s.own.row for s in stages]
    values = [v for s in stages for v in (s.propagated.row, s.propagated_tolerance, s.own_tolerance)] + [
        v for v in own if v is not None
    ]
    axis, step = Log(values, TOP, bottom), (WIDTH - LEFT - RIGHT) / max(1, len(stages))
    x = [LEFT + step * (i + 0.5) for i in range(len(stages))]
    body = [axis.grid()]
    body.append(_line("allow whole", x, [axis(s.propagated_tolerance) for s in stages]))
    body.append(_line("allow own", x, [axis(s.own_tolerance) for s in stages]))
    body.append(_line("whole", x, [axis(s.propagated.row) for s in stages]))
    for at, stage in enumerate(stages):
        body.append(_dot("whole", x[at], axis(stage.propagated.row), f"{stage.name}: {stage.propagated.row:.2e} from the prompt"))
        if stage.own is not None:
            kind = "own bad" if stage.verdict == "made here" else "own"
            body.append(_dot(kind, x[at], axis(stage.own.row), f"{stage.name}: {stage.own.row:.2e} own"))
    every = max(1, math.ceil(len(stages) / 45))
    for at, stage in enumerate(stages):
        word = "bad" if stage.verdict == "made here" else ""
        if at % every and not word:
            continue
        body.append(
            f'<text class="name {word}" transform="translate({x[at] + 3:.1f} {bottom + 10}) rotate(60)">{escape(stage.name)}</text>'
        )
    return _svg(height, "Largest relative error of a row by stage, logarithmic", body)


def margin_chart(margins: Sequence[float], noise: float, near_tie: float, flips: Sequence[int]) -> str:
    """The reference's margin between its two first choices at every generated token, and what noise can turn over."""
    height, bottom = 250, 206
    axis = Log([*margins, near_tie if near_tie > 0 else 1.0], TOP, bottom)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(margins))
    body = [axis.grid()]
    y = axis(near_tie)
    body.append(f'<line class="allow own" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for at, margin in enumerate(margins):
        x, kind = LEFT + step * (at + 0.5), "own bad" if at in flips else "whole"
        words = f"token {at}: margin {margin:.3g}" + (", another choice" if at in flips else "")
        body.append(f'<line class="stem" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{axis(margin):.1f}"/>')
        body.append(_dot(kind, x, axis(margin), words))
    for at in range(0, len(margins), max(1, math.ceil(len(margins) / 16))):
        body.append(f'<text class="tick" x="{LEFT + step * (at + 0.5):.1f}" y="{bottom + 18}" text-anchor="middle">{at}</text>')
    body.append(f'<text class="tick" x="{(LEFT + WIDTH) / 2:.0f}" y="{bottom + 38}" text-anchor="middle">generated token</text>')
    return _svg(height, "Margin of the reference's first choice over its second, logarithmic", body)


def heat_map(cells: Sequence[Sequence[float]], rows: int, channels: int) -> str:
    """Largest absolute error of rows (downwards) and channels, stronger where it is larger, on a logarithmic scale."""
    if not cells:
        return ""
    size_x, size_y = (WIDTH - LEFT - RIGHT) / len(cells[0]), max(4.0, min(10.0, 300 / len(cells)))
    height = TOP + size_y * len(cells) + 36
    finite = [v for row in cells for v in row if 0 < v < math.inf]
    high, low = max(finite, default=1.0), min(finite, default=1e-9)
    low = max(low, high * 1e-4)
    # One path for each shade keeps the page small.
    paths: dict[int, list[str]] = {}
    for r, row in enumerate(cells):
        for c, value in enumerate(row):
            shade = round(_shade(value, low, high) * SHADES)
            if shade > 0:
                corner = f"M{LEFT + c * size_x:.1f} {TOP + r * size_y:.1f}"
                paths.setdefault(shade, []).append(f"{corner}h{size_x:.1f}v{size_y:.1f}h-{size_x:.1f}z")
    body = [f'<path class="heat" opacity="{shade / SHADES:.2f}" d="{"".join(found)}"/>' for shade, found in sorted(paths.items())]
    end = TOP + size_y * len(cells)
    body.append(f'<rect class="frame" x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{end - TOP:.1f}"/>')
    body.append(f'<text class="tick" x="{LEFT - 8}" y="{TOP + 10}" text-anchor="end">row 0</text>')
    body.append(f'<text class="tick" x="{LEFT - 8}" y="{end:.1f}" text-anchor="end">{rows - 1}</text>')
    body.append(f'<text class="tick" x="{LEFT}" y="{end + 18:.1f}">channel 0</text>')
    body.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{end + 18:.1f}" text-anchor="end">{channels - 1}</text>')
    body.append(
        f'<text class="tick" x="{(LEFT + WIDTH) / 2:.0f}" y="{end + 18:.1f}" text-anchor="middle">from {low:.0e} (faint) to {high:.0e} (full)</text>'
    )
    return _svg(height, "Largest absolute error by row and channel", body)


def _shade(value: float, low: float, high: float) -> float:
    if value == math.inf:
        return 1.0
    if value <= low or high <= low:
        return 1.0 if value >= high > 0 else 0.0
    return 0.08 + 0.92 * math.log(value / low) / math.log(high / low)


def _svg(height: float, title: str, body: Sequence[str]) -> str:
    return (
        f'<div class="chart"><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg></div>"
    )


def _line(kind: str, x: Sequence[float], y: Sequence[float]) -> str:
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y))
    return f'<polyline class="{kind}" points="{points}"/>'


def _dot(kind: str, x: float, y: float, words: str) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(words)}</title></circle>'
