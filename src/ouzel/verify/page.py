"""The report as one HTML page that needs nothing else: no scripts, no fonts, no pictures from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ouzel.verify.charts import error_chart, heat_map, margin_chart
from ouzel.verify.function import Function
from ouzel.verify.report import CaseReport, Finding, PartReport, Report, StageReport, first_flip
from ouzel.verify.tolerance import NEAR_TIE

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b1f24; --soft: #5b6470; --line: #d9dee4; --card: #f5f7f9;
  --good: #11703c; --bad: #b3261e; --whole: #2463c5; --own: #b86200; --heat: #8c1d40; --mark: #ffe2b8; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e6e9ed; --soft: #9aa4b0; --line: #333a43; --card: #1c2127;
  --good: #5dc98a; --bad: #ff8a80; --whole: #7eb0ff; --own: #ffb057; --heat: #ff7aa5; --mark: #5a4112; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.25rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; } h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .25rem 0; } .soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; margin: .75rem 0; }
.verdict { font-size: 1.25rem; font-weight: 600; }
.wide, .chart { overflow-x: auto; } .chart svg { width: 100%; min-width: 36rem; height: auto; display: block; }
table { border-collapse: collapse; font-size: .875rem; } th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; padding-left: .25rem; }
td.name, th, td span { white-space: nowrap; } a { color: var(--whole); } summary { cursor: pointer; font-weight: 600; padding: .35rem 0; }
.facts td { overflow-wrap: anywhere; } .texts { display: grid; grid-template-columns: 1fr 1fr; gap: .75rem; }
@media (max-width: 40rem) { .texts { grid-template-columns: 1fr; } body { padding: .75rem; } }
pre { margin: 0; white-space: pre-wrap; overflow-wrap: anywhere; font: .875rem/1.5 ui-monospace, monospace; } mark { background: var(--mark); color: inherit; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); } svg text.bad { fill: var(--bad); font-weight: 600; }
svg .grid { stroke: var(--line); } svg polyline { fill: none; stroke-width: 1.5; } svg polyline.whole { stroke: var(--whole); }
svg .allow { stroke-dasharray: 5 4; fill: none; opacity: .8; } svg .allow.whole { stroke: var(--whole); } svg .allow.own { stroke: var(--own); }
svg circle.whole { fill: var(--whole); } svg circle.own { fill: var(--own); } svg circle.bad { fill: var(--bad); }
svg .stem { stroke: var(--line); } svg .heat { fill: var(--heat); } svg .frame { fill: none; stroke: var(--line); }
.key span { display: inline-block; margin-right: 1rem; } .key i { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .35rem; }
.key i.dash { height: 0; border-radius: 0; border-top: 2px dashed; width: 1.1rem; vertical-align: middle; }
"""


def as_html(report: Report) -> str:
    """The whole page."""
    parts = [_summary(report), *[_case(case, report) for case in report.cases], _parts(report.parts), _facts(report.facts)]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)}</title><style>{_STYLE}</style></head><body>\n{''.join(parts)}\n</body></html>\n"
    )


def _summary(report: Report) -> str:
    good = sum(case.ok for case in report.cases)
    word, kind = ("All gates hold", "good") if report.ok else ("A gate fails", "bad")
    gates = [gate.name for gate in report.cases[0].gates] if report.cases else []
    head = "".join(f"<th>{name}</th>" for name in gates)
    rows = "".join(_summary_row(case) for case in report.cases)
    exact = "float32 gates" if report.exact else "budgets of a rounding format"
    return (
        f"<h1>{escape(report.title)}</h1><p class=soft>reference: {escape(report.reference)}<br>found: {escape(report.configuration)}<br>{exact}</p>"
        f'<div class="card"><p class="verdict {kind}">{word}</p><p>{good} of {len(report.cases)} cases hold all five gates.</p>'
        f'<div class="wide"><table><tr><th>case</th>{head}<th>first that departs</th></tr>{rows}</table></div></div>'
    )


def _summary_row(case: CaseReport) -> str:
    cells = "".join(f"<td>{_mark(gate.ok)}</td>" for gate in case.gates)
    first = f"{escape(case.findings[0].stage)} ({case.findings[0].verdict})" if case.findings else ""
    return f'<tr><td class=name><a href="#{_id(case)}">{escape(case.name)}</a></td>{cells}<td>{first}</td></tr>'


def _id(case: CaseReport) -> str:
    return "case-" + "".join(c if c.isalnum() else "-" for c in case.name)


def _mark(ok: bool | None) -> str:
    word, kind = {True: ("holds", "good"), False: ("fails", "bad"), None: ("not run", "soft")}[ok]
    return f'<span class="{kind}">{word}</span>'


def _case(case: CaseReport, report: Report) -> str:
    first = next((c for c in report.cases if not c.ok), report.cases[0])
    opened = " open" if case is first else ""
    body = [_gates(case), *(_finding(finding) for finding in case.findings[:1])]
    if case.stages:
        body += [_error(case.stages), _margins(case), _heat(case)]
    body += [_texts(case.function), _stages(case.stages), _more(case.findings[1:]), _notes(case.notes)]
    return f'<h2 id="{_id(case)}">{escape(case.name)}</h2><details{opened}><summary>gates, charts, text</summary>{"".join(body)}</details>'


def _gates(case: CaseReport) -> str:
    rows = "".join(
        f"<tr><td>{g.number}</td><td class=name>{g.name}</td><td>{_mark(g.ok)}</td><td>{'<br>'.join(map(escape, g.lines))}</td></tr>"
        for g in case.gates
    )
    return f'<div class="wide"><table>{rows}</table></div>'


def _finding(finding: Finding) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in finding.lines)
    return f'<div class="card"><p><b class="bad">{escape(finding.stage)}: {finding.verdict}</b></p>{lines}</div>'


def _error(stages: Sequence[StageReport]) -> str:
    key = (
        '<p class="key soft"><span><i style="background:var(--whole)"></i>from the prompt</span><span><i style="background:var(--own)"></i>own, from the'
        ' reference\'s inputs</span><span><i class="dash" style="color:var(--whole)"></i>allowed from the prompt</span><span><i class="dash"'
        ' style="color:var(--own)"></i>allowed own</span></p>'
    )
    return (
        f"<h3>Error by stage</h3><p class=soft>The largest over rows, relative to the row's length.</p>{key}{error_chart(stages)}"
    )


def _margins(case: CaseReport) -> str:
    d, f = case.decisions, case.function
    if d is None or f is None or d.steps != len(f.wanted_ids):
        return ""
    start = len(d.margins) - len(f.wanted_ids)
    flips = [flip.position - start for flip in d.flips if flip.position >= start]
    near = NEAR_TIE * d.noise
    return (
        "<h3>Margins over the answer</h3><p class=soft>The reference's first choice over its second, in logits. Below the dashed line"
        f" ({near:.2g}) noise can turn a choice over.</p>{margin_chart(d.margins[start:], d.noise, near, flips)}"
    )


def _heat(case: CaseReport) -> str:
    stage = next((s for s in case.stages if s.name == case.heat_stage), None)
    if stage is None:
        return ""
    words = "<p class=soft>Absolute error from the prompt; rows are tokens or patches.</p>"
    return f"<h3>Worst stage: {escape(stage.name)}</h3>{words}{heat_map(case.heat, *stage.shape)}"


def _texts(function: Function | None) -> str:
    if function is None or function.wanted_text is None:
        return ""
    a, b = function.wanted_text, function.found_text
    at = next((i for i, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), min(len(a), len(b)))
    same = a == b
    cells = [
        f'<div class="card"><p class=soft>{name}</p><pre>{escape(text) if same else _marked(text, at)}</pre></div>'
        for name, text in (("reference", a), ("found", b))
    ]
    word = "equal" if same else f"the first difference is at character {at}"
    return f'<h3>Text</h3><p class=soft>{word}</p><div class="texts">{"".join(cells)}</div>'


def _marked(text: str, at: int) -> str:
    return f"{escape(text[:at])}<mark>{escape(text[at:])}</mark>"


def _stages(stages: Sequence[StageReport]) -> str:
    if not stages:
        return ""
    heads = ("own", "allowed", "from prompt", "allowed", "max", "mean", "P99", "P99.9", "P99.99", "cosine")
    rows = "".join(_stage_row(stage) for stage in stages)
    head = "".join(f"<th class=n>{name}</th>" for name in heads)
    table = f'<div class="wide"><table><tr><th>stage</th><th>verdict</th>{head}</tr>{rows}</table></div>'
    return f"<details><summary>every stage in numbers</summary>{table}</details>"


def _stage_row(s: StageReport) -> str:
    p = s.propagated
    own = "" if s.own is None else f"{s.own.row:.1e}"
    cells = [own, f"{s.own_tolerance:.1e}", f"{p.row:.1e}", f"{s.propagated_tolerance:.1e}"]
    cells += [f"{value:.1e}" for value in (p.max_abs, p.mean_abs, p.p99, p.p999, p.p9999)] + [f"{p.cosine:.9f}"]
    kind = "bad" if s.departs else ""
    numbers = "".join(f"<td class=n>{cell}</td>" for cell in cells)
    return f'<tr><td class=name>{escape(s.name)}</td><td class="name {kind}">{s.verdict}</td>{numbers}</tr>'


def _more(findings: Sequence[Finding]) -> str:
    if not findings:
        return ""
    return f"<details><summary>{len(findings)} further departures</summary>{''.join(map(_finding, findings))}</details>"


def _notes(notes: Sequence[str]) -> str:
    return "".join(f"<p class=soft>note: {escape(note)}</p>" for note in notes)


def _parts(parts: Sequence[PartReport]) -> str:
    if not parts:
        return ""
    heads = ("case", "part", "format", "KL mean", "budget", "KL P99", "budget", "top-1", "budget", "first other choice")
    head = "".join(f"<th>{name}</th>" for name in heads)
    table = f'<div class="wide"><table><tr>{head}</tr>{"".join(map(_part_row, parts))}</table></div>'
    return f"<h2>One part at a time</h2><p class=soft>This part in its format, the others as stored.</p>{table}"


def _part_row(p: PartReport) -> str:
    d = p.decisions
    numbers = [f"{value:.1e}" for value in (d.kl_mean, d.kl_mean_budget, d.kl_p99, d.kl_p99_budget)]
    numbers += [f"{value:.1%}" for value in (d.top1, d.top1_budget)]
    cells = "".join(f"<td class=name>{escape(text)}</td>" for text in (p.case, p.part, p.format, *numbers))
    return f"<tr>{cells}<td>{escape(first_flip(d).removeprefix('; first other choice '))}</td></tr>"


def _facts(facts: Mapping[str, Any]) -> str:
    rows = "".join(_fact_rows(name, value) for name, value in facts.items())
    return f'<h2>Environment and hashes</h2><div class="wide"><table class="facts">{rows}</table></div>'


def _fact_rows(name: str, value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"<tr><td class=name>{escape(name)}</td><td>{escape(str(value))}</td></tr>"
    return "".join(_fact_rows(f"{name}: {key}", item) for key, item in value.items())
