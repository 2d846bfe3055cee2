"""Loading the model that the options name."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ouzel import env
from ouzel.cli import console
from ouzel.cli.options import ModelOptions, part_formats

if TYPE_CHECKING:
    from ouzel.model import Model


def load_model(options: ModelOptions, quiet: bool = False) -> Model:
    """Loads the model; a terminal sees a spinner, and stderr one line that says what was loaded."""
    hide_download_bars(quiet)
    start = time.perf_counter()
    downloads = may_download(options.model)
    # A spinner would fight with the progress bars of a download.
    with console.busy(f"loading {options.model or 'the embedded model'}", quiet or downloads):
        from ouzel import model as api

        model = api.load(
            options.model,
            engine=options.engine.value,
            threads=options.threads,
            weights=options.weights.value,
            **part_formats(options),
            check=options.check,
            cache_packed=options.cache_packed,
            cache=options.cache.value,
            chunk=options.chunk,
            revision=options.revision,
            offline=options.offline or None,
            mmproj=options.mmproj,
        )
    if not quiet:
        console.say(f"model: {model.describe()}; loaded in {time.perf_counter() - start:.2f} s")
        for note in model.weights.notes:
            console.say(f"note: {note}")
    return model


def may_download(name: str | None) -> bool:
    """Whether this name goes to the hub."""
    from ouzel.checkpoint import hub

    return name is not None and hub.is_hub_id(name) and not Path(name).exists()


def hide_download_bars(quiet: bool) -> None:
    """No progress bars of huggingface_hub when nothing may move; must come before its first import."""
    if quiet or env.get("NO_COLOR"):
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
