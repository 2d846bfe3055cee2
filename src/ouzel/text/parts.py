"""The pieces of a message: text, image, video. Parsing from the shapes in which clients send them."""

from __future__ import annotations

import base64
import binascii
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ouzel.errors import PromptError


@dataclass(frozen=True)
class TextPart:
    """A piece of text."""

    text: str


@dataclass(frozen=True, eq=False)
class ImagePart:
    """A picture that is not read yet.

    `source` is a path, a URL or data URL, bytes, a PIL image or an array; `detail` ("low" or "high"), `min_pixels` and
    `max_pixels` narrow or widen the pixel budget of this picture, in pixels of area.
    """

    source: Any
    detail: str | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None


@dataclass(frozen=True, eq=False)
class VideoPart:
    """A video as a list of frame sources (of the kinds that `ImagePart` takes) or as one path.

    `fps` is the number of given frames per second; `timestamps` are seconds, one for each frame.
    """

    frames: Any
    fps: float | None = None
    timestamps: tuple[float, ...] | None = None
    min_pixels: int | None = None
    max_pixels: int | None = None


Part = TextPart | ImagePart | VideoPart

TEXT_TYPES = ("text", "input_text", "output_text")
IMAGE_TYPES = ("image", "image_url", "input_image")
VIDEO_TYPES = ("video", "video_url", "input_video")
SOURCE_KEYS = ("url", "path", "base64", "data")
PIXEL_KEYS = ("min_pixels", "max_pixels")
# Keys that clients add for their own book-keeping.
IGNORED_KEYS = ("type", "cache_control", "annotations", "id", "uuid")


def shorten(value: Any, limit: int = 60, *, quote: bool = True) -> str:
    """A value for an error message: one line, at most `limit` characters, so that no data URL is echoed."""
    if isinstance(value, str):
        text = value if len(value) <= limit else f"{value[: limit - 20]}... ({len(value)} characters)"
        return repr(text) if quote else " ".join(text.split())
    if isinstance(value, int) and value.bit_length() > 200:
        # Python refuses to print numbers of thousands of digits.
        return "a huge number"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)[:limit]
    return type(value).__name__


def parse_part(part: Any, where: str) -> Part:
    """One content part; `where` names it in errors, as in `messages[1].content[0]`."""
    if isinstance(part, (TextPart, ImagePart, VideoPart)):
        return part
    if isinstance(part, str):
        return TextPart(part)
    if not isinstance(part, Mapping):
        raise PromptError(where, expected="a dictionary with a type", got=type(part).__name__)
    kind = part.get("type", _guess_type(part))
    if kind in TEXT_TYPES:
        return _text(part, where)
    if kind in IMAGE_TYPES:
        return _image(part, where)
    if kind in VIDEO_TYPES:
        return _video(part, where)
    raise PromptError(where, expected="a part of type text, image or video", got=f"type {shorten(kind)}")


def _guess_type(part: Mapping[str, Any]) -> str | None:
    """Hugging Face's older parts name their kind by the key alone: `{"text": ...}`, `{"image": ...}`."""
    found = [key for key in ("text", *IMAGE_TYPES[:2], *VIDEO_TYPES[:2]) if key in part]
    return found[0] if len(found) == 1 else None


def _check_keys(part: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key, value in part.items():
        if key not in allowed and key not in IGNORED_KEYS and value is not None:
            raise PromptError(where, expected=f"only {', '.join(allowed)}", got=f"key {shorten(key)}", fix="remove it")


def _text(part: Mapping[str, Any], where: str) -> TextPart:
    _check_keys(part, ("text",), where)
    text = part.get("text")
    if not isinstance(text, str):
        raise PromptError(f"{where}.text", expected="a string", got=shorten(text))
    return TextPart(text)


def _image(part: Mapping[str, Any], where: str) -> ImagePart:
    _check_keys(part, ("image", "image_url", *SOURCE_KEYS, "detail", *PIXEL_KEYS), where)
    value, inner = _value(part, ("image", "image_url"), where)
    detail = inner.get("detail", part.get("detail"))
    if detail not in (None, "auto", "low", "high"):
        raise PromptError(f"{where}.detail", expected="low, high or auto", got=shorten(detail))
    limits = {key: _pixels(part.get(key), f"{where}.{key}") for key in PIXEL_KEYS}
    return ImagePart(_source(value, where), None if detail == "auto" else detail, **limits)


def _value(part: Mapping[str, Any], keys: tuple[str, ...], where: str) -> tuple[Any, Mapping[str, Any]]:
    """The one value that says where a picture is, and the dictionary around it (`{"url": ..., "detail": ...}`)."""
    names = [key for key in (*keys, *SOURCE_KEYS) if part.get(key) is not None]
    if len(names) != 1:
        raise PromptError(where, expected=f"one of {', '.join((*keys, *SOURCE_KEYS))}", got=", ".join(names) or "none")
    value = part[names[0]]
    if names[0] in ("base64", "data"):
        return _decode_base64(value, where), {}
    if isinstance(value, Mapping):
        _check_keys(value, (*SOURCE_KEYS, "detail"), where)
        inner = [key for key in SOURCE_KEYS if value.get(key) is not None]
        if len(inner) != 1:
            raise PromptError(where, expected=f"one of {', '.join(SOURCE_KEYS)}", got=", ".join(inner) or "none")
        found = value[inner[0]]
        return (_decode_base64(found, where) if inner[0] in ("base64", "data") else found), value
    return value, {}


def _decode_base64(value: Any, where: str) -> Any:
    if isinstance(value, str) and value.startswith("data:"):
        return value
    if not isinstance(value, (str, bytes)):
        return value
    data = value.encode("utf-8", errors="replace") if isinstance(value, str) else value
    try:
        # Line breaks are common in base64, other characters mean that it is something else.
        return base64.b64decode(b"".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise PromptError(where, expected="base64 data", got=shorten(value, 40)) from None


def _source(value: Any, where: str) -> Any:
    """The value itself when it can be the source of a picture. PIL images and arrays both have an array interface."""
    if isinstance(value, str) and not value.strip():
        raise PromptError(where, expected="a picture", got="an empty string")
    if isinstance(value, (str, os.PathLike, bytes, bytearray, memoryview)):
        return value
    if hasattr(value, "__array_interface__") or callable(getattr(value, "read", None)):
        return value
    raise PromptError(where, expected="a path, URL, bytes, PIL image or array", got=shorten(value))


def _pixels(value: Any, where: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise PromptError(where, expected="a number of pixels, at least 1", got=shorten(value))
    return value


def _video(part: Mapping[str, Any], where: str) -> VideoPart:
    _check_keys(part, ("video", "video_url", *SOURCE_KEYS, "fps", "timestamps", *PIXEL_KEYS), where)
    value, _ = _value(part, ("video", "video_url"), where)
    limits = {key: _pixels(part.get(key), f"{where}.{key}") for key in PIXEL_KEYS}
    fps = part.get("fps")
    if fps is not None and not (_is_number(fps) and fps > 0):
        raise PromptError(f"{where}.fps", expected="frames per second above 0", got=shorten(fps))
    if not isinstance(value, (list, tuple)):
        frames: Any = _source(value, where)
        stamps = _timestamps(part.get("timestamps"), None, where)
    else:
        frames = tuple(_source(frame, f"{where}.video[{index}]") for index, frame in enumerate(value))
        if not frames:
            raise PromptError(where, expected="at least one frame", got="an empty list")
        stamps = _timestamps(part.get("timestamps"), len(frames), where)
    return VideoPart(frames, None if fps is None else float(fps), stamps, **limits)


def _timestamps(values: Any, count: int | None, where: str) -> tuple[float, ...] | None:
    if values is None:
        return None
    place = f"{where}.timestamps"
    if not isinstance(values, (list, tuple)) or not all(_is_number(value) and value >= 0 for value in values):
        raise PromptError(place, expected="a list of seconds, none negative", got=shorten(values))
    if count is not None and len(values) != count:
        raise PromptError(place, expected=f"{count} values, one for each frame", got=str(len(values)))
    if any(later < earlier for earlier, later in pairwise(values)):
        raise PromptError(place, expected="seconds that do not fall", got="values out of order")
    return tuple(float(value) for value in values)


def _is_number(value: Any) -> bool:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False
