"""Cases to capture: the built-in set, and a user's file of messages."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from ouzel.checkpoint.json_file import read_json
from ouzel.errors import CheckpointError, RequestError
from ouzel.model import Model

LARGEST = 1 << 20
"""Pixels of the "largest" case where the checkpoint allows more: eager attention over more would need tens of gigabytes."""


@dataclass(frozen=True)
class Case:
    """name, messages (pictures by file name), and variables for the chat template."""

    name: str
    messages: list[dict[str, Any]]
    template: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def read_cases(path: Path, images: Path) -> list[Case]:
    """The cases of a JSON file: {"cases": [{"name": ..., "messages": [...], "template_kwargs": {...}}]}.

    Pictures are found beside the file and copied to `images`. Raises CheckpointError naming what is wrong.
    """
    found = read_json(path).get("cases")
    if not isinstance(found, list) or not found:
        raise CheckpointError(f"reading {path}", expected='an object {"cases": [...]}', got="no cases")
    cases = [_case(path, at, entry, images) for at, entry in enumerate(found)]
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CheckpointError(f"reading {path}", expected="cases with names of their own", got=f"{twice[0]} twice")
    return cases


def _case(path: Path, at: int, entry: Any, images: Path) -> Case:
    where = f"reading {path}, cases[{at}]"
    if not isinstance(entry, dict) or not isinstance(entry.get("messages"), list):
        raise CheckpointError(where, expected="an object with a list 'messages'", got=repr(entry)[:60])
    name = entry.get("name", f"case_{at}")
    if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
        raise CheckpointError(where, expected="a name of letters, digits, - and _", got=repr(name)[:60])
    template = entry.get("template_kwargs") or {}
    if not isinstance(template, dict):
        raise CheckpointError(where, expected="an object 'template_kwargs'", got=repr(template)[:60])
    return Case(name, [_message(where, message, path.parent, images) for message in entry["messages"]], template)


def _message(where: str, message: Any, folder: Path, images: Path) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("content"), (str, list)):
        raise CheckpointError(where, expected="messages with 'role' and 'content'", got=repr(message)[:60])
    if isinstance(message["content"], str):
        return message
    return message | {"content": [_part(where, part, folder, images) for part in message["content"]]}


def _part(where: str, part: Any, folder: Path, images: Path) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text":
        return part
    if kind != "image" or not isinstance(part.get("image"), str):
        raise CheckpointError(
            where, expected='parts {"type": "text", ...} and {"type": "image", "image": FILE}', got=repr(part)[:60]
        )
    source = folder / part["image"]
    if not source.is_file():
        raise CheckpointError(where, expected=f"the picture {source}", got="no such file")
    return part | {"image": _copy(where, source, images)}


def _copy(where: str, source: Path, images: Path) -> str:
    """Copies a picture under its own name, or, where another picture has that name, under one with a number."""
    try:
        images.mkdir(parents=True, exist_ok=True)
        data, stem = source.read_bytes(), "".join("_" if c in "\\:" else c for c in source.stem)
        numbered = (f"{stem}_{at}" if at else stem for at in itertools.count())
        target = next(p for name in numbered if not (p := images / f"{name}{source.suffix}").exists() or p.read_bytes() == data)
        target.write_bytes(data)
    except OSError as error:
        raise CheckpointError(where, expected=f"to copy {source} to {images}", got=error.strerror or str(error)) from None
    return target.name


def built_in(model: Model, images: Path, names: Sequence[str] = ()) -> list[Case]:
    """The cases that come with Ouzel; those with pictures for models that see. Pictures are drawn into `images`."""
    cases = [_text_case("english", _ENGLISH), _text_case("chinese", _CHINESE), _text_case("long_text", _long(model))]
    if model.family.vision_graph() is not None:
        images.mkdir(parents=True, exist_ok=True)
        cases += _picture_cases(model, images)
    known = [case.name for case in cases]
    bad = [name for name in names if name not in known]
    if bad:
        raise RequestError("choosing cases", expected=f"names among {', '.join(known)}", got=", ".join(bad))
    return [case for case in cases if not names or case.name in names]


_ENGLISH = "Name three rivers, and say in one sentence where each of them ends."
_CHINESE = "请用一句话说明：为什么天空是蓝色的？"
_PARAGRAPH = (
    "The ledger of the mill lists, for every day of the year 1874, the water level at the gate, the sacks that were ground, "
    "the names of the farmers and what they paid. On 3 March the gate froze; on 4 March it was cut free with axes. "
)


def _long(model: Model) -> str:
    """About two thousand tokens, or a third of what a small model can hold: vocabularies differ, so they are counted."""
    room = min(2000, model.family.sizes.max_context // 3)
    each = len(model.tokenizer.encode(_PARAGRAPH)) if model.tokenizer is not None else len(_PARAGRAPH)
    return _PARAGRAPH * max(2, room // each) + "\nOn which day did the gate freeze?"


def _text_case(name: str, text: str) -> Case:
    return Case(name, [{"role": "user", "content": text}])


def _picture_cases(model: Model, images: Path) -> list[Case]:
    _save(images / "sheet.png", 320, 224)
    _save(images / "banner.png", 416, 96)
    # Sides that no patch size divides.
    _save(images / "odd.png", 173, 251)
    side, note = _largest(model)
    _save(images / "largest.png", side, side)
    return [
        _show("english_picture", ["sheet.png"], "What does the picture show?"),
        _show("chinese_picture", ["sheet.png"], "图片里有什么？"),
        _show("two_pictures", ["sheet.png", "banner.png"], "Compare the two pictures."),
        _show("odd_size", ["odd.png"], "Read the text in the picture."),
        _show("largest", ["largest.png"], "Describe the picture.", note),
        _show("boxes", ["sheet.png"], "Give the bounding box of the red rectangle as JSON."),
    ]


def _show(name: str, pictures: list[str], text: str, note: str = "") -> Case:
    parts = [*({"type": "image", "image": picture} for picture in pictures), {"type": "text", "text": text}]
    return Case(name, [{"role": "user", "content": parts}], note=note)


def _largest(model: Model) -> tuple[int, str]:
    """Side of a square as large as the checkpoint takes without shrinking it, within LARGEST."""
    settings = model.checkpoint.json("preprocessor_config.json") or {}
    size = settings.get("size") or {}
    most = settings.get("max_pixels") or size.get("longest_edge") or LARGEST
    if most > LARGEST:
        return math.isqrt(LARGEST), f"{LARGEST} pixels; the checkpoint takes {most}, which eager attention cannot hold"
    return math.isqrt(int(most)), ""


def _save(path: Path, width: int, height: int) -> None:
    """A gradient with a red rectangle, a blue disc and a line of text: colours, edges and letters."""
    x, y = np.arange(width), np.arange(height)[:, None]
    shade = np.stack(np.broadcast_arrays(x * 200 // width + 40, y * 200 // height + 40, (x + y) % 64 + 120), axis=-1)
    picture = Image.fromarray(shade.astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    draw.rectangle([width // 8, height // 6, width // 3, height // 2], fill=(200, 30, 30), outline=(0, 0, 0))
    draw.ellipse([width // 2, height // 3, width // 2 + height // 3, height // 3 * 2], fill=(20, 60, 200))
    draw.text((width // 8, height * 3 // 4), f"Ouzel {width} x {height}", fill=(0, 0, 0))
    picture.save(path)
