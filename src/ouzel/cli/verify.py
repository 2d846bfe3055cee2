"""`ouzel verify`: whether Ouzel computes what PyTorch computes, on this machine, stage by stage."""

from __future__ import annotations

import json as json_module
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ouzel.cli import console
from ouzel.cli.failure import FAILED, guard
from ouzel.cli.golden import Memory, trust_option
from ouzel.cli.loading import hide_download_bars
from ouzel.cli.options import Offline, Quiet, Revision
from ouzel.errors import RequestError

if TYPE_CHECKING:
    from ouzel.verify.report import Report

EPILOG = """Examples:

ouzel verify ./Qwen3-VL-2B-Instruct --against transformers --html report.html

ouzel golden capture ./Qwen3-VL-2B-Instruct --out goldens

ouzel verify ./Qwen3-VL-2B-Instruct --golden goldens --weights bf16 --json report.json

ouzel verify ./Qwen3-0.6B --against reference:f32

Exit codes: 0 all gates hold, 1 a gate fails, 2 something given cannot be used."""

_REFERENCE, _FOUND, _OUTPUT = "Reference", "Configuration", "Output"


def verify(
    model: Annotated[
        Optional[str],
        typer.Argument(metavar="MODEL", show_default=False, help="A checkpoint folder or a hub id. Default: the embedded model."),
    ] = None,
    golden: Annotated[
        Optional[Path],
        typer.Option(
            "--golden",
            rich_help_panel=_REFERENCE,
            metavar="DIR",
            show_default=False,
            help="Goldens, as `ouzel golden capture` writes them.",
        ),
    ] = None,
    against: Annotated[
        Optional[str],
        typer.Option(
            "--against",
            rich_help_panel=_REFERENCE,
            metavar="WHAT",
            show_default=False,
            help="transformers: capture and verify in one go. Or another configuration of Ouzel: an engine, with :WEIGHTS if you like (native:bf16).",
        ),
    ] = None,
    messages: Annotated[
        Optional[Path],
        typer.Option(
            "--messages",
            rich_help_panel=_REFERENCE,
            metavar="FILE",
            show_default=False,
            help="Cases for --against. Default: the built-in ones.",
        ),
    ] = None,
    case: Annotated[
        Optional[list[str]],
        typer.Option(
            "--case",
            rich_help_panel=_REFERENCE,
            metavar="NAME",
            show_default=False,
            help="Only this case; may be given several times.",
        ),
    ] = None,
    max_tokens: Annotated[
        int,
        typer.Option(
            "--max-tokens",
            rich_help_panel=_REFERENCE,
            metavar="N",
            show_default=False,
            help="Greedy tokens of an answer with --against. Default: 32.",
        ),
    ] = 32,
    memory: Memory = "auto",
    trust_remote_code: Annotated[bool, trust_option(_REFERENCE)] = False,
    engine: Annotated[
        str,
        typer.Option(
            "--engine", rich_help_panel=_FOUND, metavar="NAME", show_default=False, help="The engine to verify. Default: native."
        ),
    ] = "native",
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            rich_help_panel=_FOUND,
            metavar="FORMATS",
            show_default=False,
            help="Number formats: one for all parts (bf16), or by part (bf16,vision=f32). Default: auto, as stored.",
        ),
    ] = "auto",
    threads: Annotated[
        Optional[int],
        typer.Option(
            "--threads", "-t", rich_help_panel=_FOUND, metavar="N", show_default=False, help="Threads of the native engine."
        ),
    ] = None,
    revision: Revision = None,
    offline: Offline = False,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            rich_help_panel=_OUTPUT,
            show_default=False,
            help="Explain every stage that departs, not the first only, with all numbers.",
        ),
    ] = False,
    json: Annotated[
        Optional[Path],
        typer.Option("--json", rich_help_panel=_OUTPUT, metavar="FILE", show_default=False, help="Write the whole report as JSON."),
    ] = None,
    html: Annotated[
        Optional[Path],
        typer.Option(
            "--html", rich_help_panel=_OUTPUT, metavar="FILE", show_default=False, help="Write the report as one page with charts."
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Takes a model through five gates (interface, sanity, numbers, decisions, function) against PyTorch or another configuration."""
    with guard():
        _check_outputs(json, html)
        hide_download_bars(quiet)
        from ouzel.verify.capture import CaptureOptions
        from ouzel.verify.report import as_text
        from ouzel.verify.run import Request
        from ouzel.verify.run import verify as run

        options = CaptureOptions(max_tokens, memory, trust_remote_code, revision)  # type: ignore[arg-type]
        request = Request(
            model, golden, against, engine, weights, threads, tuple(case or ()), messages, revision, offline or None, options
        )
        report = run(request, (lambda text: None) if quiet else console.say)
        _write(report, json, html)
        # Names and texts of goldens come from others; a terminal must not obey them.
        console.write_answer(as_text(report, everything))
        if not report.ok:
            raise typer.Exit(FAILED)


def _check_outputs(*paths: Path | None) -> None:
    """Says before the work, not after it, that a report cannot be written."""
    given = [path.absolute() for path in paths if path is not None]
    if len(set(given)) != len(given):
        raise RequestError("writing the report", expected="two files for --json and --html", got=f"{given[0]} for both")
    for path in paths:
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise RequestError("writing the report", expected="a file name in a folder that exists", got=str(path))


def _write(report: Report, json: Path | None, html: Path | None) -> None:
    if json is not None:
        _save(json, json_module.dumps(report.as_json(), ensure_ascii=False, indent=1) + "\n")
    if html is not None:
        from ouzel.verify.page import as_html

        _save(html, as_html(report))


def _save(path: Path, text: str) -> None:
    half: Any = path.with_name(path.name + ".part")
    try:
        # Halves of surrogate pairs have no UTF-8; "\\ud800" is what JSON writes for them, too.
        half.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
        os.replace(half, path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise RequestError(f"writing {path}", expected="a file that can be written", got=error.strerror or str(error)) from None
