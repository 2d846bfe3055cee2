"""`ouzel golden capture`: what PyTorch computes, stage by stage, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from ouzel.cli import console
from ouzel.cli.failure import guard
from ouzel.cli.loading import hide_download_bars
from ouzel.cli.options import Offline, Quiet, Revision
from ouzel.errors import RequestError

EPILOG = """Examples:

ouzel golden capture ./Qwen3-VL-2B-Instruct --out goldens

ouzel golden capture ./Qwen3-VL-2B-Instruct --messages cases.json --out goldens --memory streamed"""

golden = typer.Typer(
    name="golden", help="Goldens: what PyTorch computes, for `ouzel verify`.", no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
)  # fmt: skip


def trust_option(panel: str) -> Any:
    """--trust-remote-code, which must always be asked for."""
    return typer.Option(
        "--trust-remote-code",
        rich_help_panel=panel,
        show_default=False,
        help="Let transformers run Python code that comes with the checkpoint.",
    )


def _memory(value: str) -> str:
    if value not in ("auto", "whole", "streamed"):
        raise typer.BadParameter("auto, whole or streamed")
    return value


Memory = Annotated[
    str,
    typer.Option(
        "--memory", callback=_memory, metavar="auto|whole|streamed", show_default=False,
        help="PyTorch's weights in memory: whole, or streamed, one layer at a time. Default: auto, by their size.",
    ),
]  # fmt: skip


@golden.callback()
def group() -> None:
    """Goldens: what PyTorch computes, for `ouzel verify`."""


@golden.command("capture", epilog=EPILOG)
def capture(
    model: Annotated[
        Optional[str],
        typer.Argument(metavar="MODEL", show_default=False, help="A checkpoint folder or a hub id. Default: the embedded model."),
    ] = None,
    out: Annotated[
        Optional[Path], typer.Option("--out", metavar="DIR", show_default=False, help="Where to write the goldens; must be given.")
    ] = None,
    messages: Annotated[
        Optional[Path],
        typer.Option(
            "--messages",
            metavar="FILE",
            show_default=False,
            help='Cases: {"cases": [{"name": ..., "messages": [...]}]}. Default: the built-in ones.',
        ),
    ] = None,
    case: Annotated[
        Optional[list[str]],
        typer.Option("--case", metavar="NAME", show_default=False, help="Only this case; may be given several times."),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", metavar="N", show_default=False, help="Greedy tokens of each answer. Default: 32.")
    ] = 32,
    memory: Memory = "auto",
    trust_remote_code: Annotated[bool, trust_option("Options")] = False,
    revision: Revision = None,
    offline: Offline = False,
    quiet: Quiet = False,
) -> None:
    """Runs cases through the checkpoint in transformers (float32, eager attention) and writes every stage."""
    with guard():
        if out is None:
            raise RequestError("ouzel golden capture", expected="a folder to write to", got="no --out", fix="add --out DIR")
        hide_download_bars(quiet)
        from ouzel.model import load
        from ouzel.verify import capture as work
        from ouzel.verify.run import Request, cases_of
        from ouzel.verify.torch_model import need_torch

        need_torch()
        told = (lambda text: None) if quiet else console.say
        options = work.CaptureOptions(max_tokens, memory, trust_remote_code, revision)  # type: ignore[arg-type]
        request = Request(model, messages=messages, cases=tuple(case or ()), capture=options)
        # The reference engine needs no compiled core; only the checkpoint and its limits are read here.
        loaded = load(model, engine="reference", revision=revision, offline=offline or None)
        paths = work.capture(loaded.checkpoint, cases_of(request, loaded, out / "images"), out, options, told)
        console.write("".join(f"{path}\n" for path in paths))
