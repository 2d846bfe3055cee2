"""`ouzel convert`: a packed folder out of a checkpoint, compared with its source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ouzel.cli import console
from ouzel.cli.failure import guard
from ouzel.cli.loading import hide_download_bars
from ouzel.cli.options import (
    FORMAT_NAMES,
    PARTS,
    EmbeddingFormat,
    EngineName,
    HeadFormat,
    Json,
    Offline,
    ProjectorFormat,
    Quiet,
    Revision,
    TextFormat,
    VisionFormat,
    WeightFormat,
)

if TYPE_CHECKING:
    from ouzel.conversion.run import Report
    from ouzel.packed.write import Progress

EPILOG = """Examples:

ouzel convert Qwen/Qwen3-VL-2B-Instruct ./qwen3-vl-2b-q4

ouzel convert ./Qwen3-0.6B ./qwen3-q8 --weights q8

ouzel convert ./Qwen3-VL-2B ./small --vision q4 --calibrate letters.txt --calibrate page.png

The folder is used like any other: ouzel run --model ./qwen3-q8 "Hello"."""

_MODEL, _OUTPUT = "Model", "Output"


def _option(*names: str, panel: str = _MODEL, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, show_default=False, **more)


def convert(
    source: Annotated[str, typer.Argument(metavar="SOURCE", show_default=False, help="A checkpoint folder or a hub id.")],
    destination: Annotated[
        Path, typer.Argument(metavar="FOLDER", show_default=False, help="The packed folder to write; it must not exist.")
    ],
    weights: Annotated[
        WeightFormat,
        _option(
            "--weights", "-w", metavar=FORMAT_NAMES,
            help="Number format. q4 and q4m keep vision, projector, head and embedding at q8. Default: q4.",
        ),
    ] = WeightFormat.q4,
    vision_weights: VisionFormat = None,
    projector_weights: ProjectorFormat = None,
    text_weights: TextFormat = None,
    head_weights: HeadFormat = None,
    embedding_weights: EmbeddingFormat = None,
    calibrate: Annotated[
        Optional[list[Path]],
        _option(
            "--calibrate", metavar="FILE",
            help="Texts or pictures such as the model will see; scales then favour what matters on them. May be given several times.",
        ),
    ] = None,
    self_check: Annotated[
        bool, _option("--self-check/--no-self-check", help="Compare the result with the source, or not. Default: compare.")
    ] = True,
    force: Annotated[bool, _option("--force", help="Replace the destination when it is a packed folder.")] = False,
    engine: Annotated[
        Optional[EngineName],
        _option("--engine", metavar="native|reference", help="Runs the model to compare and to calibrate. Default: native where it is built."),
    ] = None,
    threads: Annotated[
        Optional[int], _option("--threads", "-t", metavar="N", min=1, help="Threads of packing and of the engine. Default: all processors for packing.")
    ] = None,
    revision: Revision = None,
    offline: Offline = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Writes a checkpoint as a packed folder, which loads at once, and compares it with its source."""
    with guard(json):
        parts = [vision_weights, projector_weights, text_weights, head_weights, embedding_weights]
        chosen = {part: None if form is None else form.value for part, form in zip(PARTS, parts)}
        hide_download_bars(quiet)
        with _progress(quiet) as tell:
            from ouzel.checkpoint.folder import Checkpoint
            from ouzel.conversion.run import run
            from ouzel.weights.formats import FormatPlan

            report = run(
                Checkpoint.open(source, revision=revision, offline=offline or None),
                destination,
                FormatPlan.preset(weights.value, **chosen),
                calibration_files=calibrate or (),
                force=force,
                check=self_check,
                engine=None if engine is None else engine.value,
                threads=threads,
                progress=tell,
            )
        if json:
            console.write_line(console.json_text(report.as_json()))
        else:
            _show(report)


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    """A bar on a terminal's stderr; nothing elsewhere."""
    if quiet or not console.moves():
        yield lambda what, done, total: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console.stderr_console(), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def tell(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield tell


def _show(report: Report) -> None:
    share = report.packed_bytes / report.source_bytes if report.source_bytes else 0.0
    console.write(
        f"{report.destination}: {report.packed_bytes / 1e6:,.1f} MB of weights, {share:.0%} of the source\n"
        f"formats: {', '.join(f'{part} {form}' for part, form in report.formats.items())}\n"
    )
    if report.calibration is not None:
        used = report.calibration
        console.write(f"calibrated on {used['tokens']:,} tokens, {used['pictures']} pictures\n")
    if report.tensors:
        _show_tensors(report)
    if report.logits:
        _show_logits(report)


def _show_tensors(report: Report) -> None:
    console.write("\nrelative error of the weights\n")
    columns = [("part", "left"), ("kind", "left"), ("format", "left"), ("tensors", "right"), ("error", "right"), ("worst", "right"), ("tensor", "left")]
    rows = [
        [row.part, row.kind, row.format, str(row.tensors), f"{row.relative_error:.3%}", f"{row.worst_error:.3%}", row.worst]
        for row in report.tensors
    ]
    console.print_table(columns, rows)


def _show_logits(report: Report) -> None:
    console.write(f"\npredictions, compared with the source ({report.engine})\n")
    columns = [("probe", "left"), ("tokens", "right"), ("KL mean", "right"), ("KL max", "right"), ("same top", "right"), ("perplexity", "right"), ("of the source", "right")]
    named = [(row, row.probe) for row in report.logits]
    named += [(row, f"{row.probe}, not calibrated") for row in report.plain_logits]
    rows = [
        [name, str(row.positions), f"{row.kl_mean:.5f}", f"{row.kl_max:.5f}", f"{row.same_top:.1%}", f"{row.perplexity:.4g}", f"{row.perplexity_source:.4g}"]
        for row, name in named
    ]
    console.print_table(columns, rows)
