"""`ouzel manifest`: SHA-256 sums of a model folder, written and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from ouzel.cli import console
from ouzel.cli.failure import FAILED, guard
from ouzel.cli.options import Json, Offline, Revision

EPILOG = """Examples:

ouzel manifest ./Qwen3-0.6B

ouzel manifest ./Qwen3-0.6B --check

Exit codes: 0 written, or nothing differs; 1 something is missing, extra or changed; 2 something given cannot be used."""


def manifest(
    model: Annotated[
        Optional[str],
        typer.Argument(metavar="MODEL", show_default=False, help="A checkpoint folder or a hub id. Default: the embedded model."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", show_default=False, help="Hold the files against SHA256SUMS instead of writing it.")
    ] = False,
    revision: Revision = None,
    offline: Offline = False,
    json: Json = False,
) -> None:
    """Writes the SHA-256 sums of every file of a model to SHA256SUMS in its folder, or checks them."""
    with guard(json):
        from ouzel.checkpoint.folder import Checkpoint
        from ouzel.verify import manifest as work
        from ouzel.verify.run import model_path

        given = model_path(model)
        if check and (Path(given) / work.NAME).is_file():
            # What is missing or damaged may be config.json itself, without which no checkpoint opens.
            folder = Path(given)
        else:
            folder = Checkpoint.open(given, revision=revision, offline=offline or None).path
        if not check:
            path = work.write(folder)
            count = len(work.read(folder))
            console.write_line(console.json_text({"manifest": str(path), "files": count}) if json else f"{path}: {count} files")
            return
        found = work.check(folder)
        if json:
            console.write_line(
                console.json_text(
                    {"ok": found.ok, **{name: list(getattr(found, name)) for name in ("changed", "missing", "extra", "equal")}}
                )
            )
        else:
            lines = [f"{word}: {name}" for word in ("changed", "missing", "extra") for name in getattr(found, word)]
            lines.append(
                f"{len(found.equal)} files equal, {len(found.changed)} changed, {len(found.missing)} missing, {len(found.extra)} extra"
            )
            console.write("\n".join(lines) + "\n")
        if not found.ok:
            raise typer.Exit(FAILED)
