"""The pictures of a command line as content parts, in the order in which they were given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer.core

from ouzel.cli import console
from ouzel.cli.options import PictureOptions
from ouzel.errors import RequestError

STDIN = "-"
_ORDER = "ouzel.picture_order"

Part = dict[str, Any]


class OrderedCommand(typer.core.TyperCommand):
    """A command that remembers how --image and --video-frames alternate; options alone keep only their own order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses as usual, and once more for the order of the occurrences."""
        _, _, order = self.make_parser(ctx).parse_args(list(args))
        ctx.meta[_ORDER] = [option.name for option in order if option.name in ("image", "video_frames")]
        return super().parse_args(ctx, args)


def picture_parts(options: PictureOptions, ctx: typer.Context | None) -> list[Part]:
    """Image and video parts of a message. Reads stdin when a picture is `-`."""
    made = {
        "image": [image_part(source) for source in options.image or ()],
        "video_frames": [video_part(folder, options.fps) for folder in options.video_frames or ()],
    }
    order = [] if ctx is None else list(ctx.meta.get(_ORDER, ()))
    if sorted(order) != sorted(name for name, parts in made.items() for _ in parts):
        order = [name for name, parts in made.items() for _ in parts]
    queues = {name: iter(parts) for name, parts in made.items()}
    return [next(queues[name]) for name in order]


def image_part(source: str) -> Part:
    """The part of one picture: a path, a data URL, or the bytes of stdin."""
    if source == STDIN:
        data = console.read_stdin_bytes()
        if not data:
            raise RequestError("--image -", expected="the bytes of a picture on stdin", got="nothing")
        return {"type": "image", "image": data}
    return {"type": "image", "image": source}


def video_part(folder: str, fps: float | None) -> Part:
    """The part of a folder with frames."""
    return {"type": "video", "video": Path(folder), "fps": fps}


def check_one_stdin(prompt: str | None, images: Sequence[str] | None) -> None:
    """Raises RequestError when stdin is wanted twice."""
    wanted = [*(images or ()), prompt].count(STDIN)
    if wanted > 1:
        raise RequestError("reading stdin", expected="- once", got=f"{wanted} times")


def message(role: str, parts: Sequence[Part], text: str | None) -> dict[str, Any]:
    """A message of pictures followed by a text; a plain string when there are no pictures."""
    if not parts:
        return {"role": role, "content": text or ""}
    return {"role": role, "content": [*parts, *([{"type": "text", "text": text}] if text else [])]}


def describe_source(part: Part) -> str:
    """How a part is called in notes."""
    source = part["image"] if "image" in part else part["video"]
    if isinstance(source, bytes):
        return "stdin"
    text = os.fspath(source)
    return "data URL" if text.lstrip()[:5].lower() == "data:" else text
