"""The one picture loader: every entrance gives the same upright RGB array for the same picture.

Paths, bytes, file objects, data URLs, Pillow images and arrays come in; the limit on pixels is checked from the header
before anything is decoded; decoding happens whole inside one guard, which turns every way in which a damaged file can
fail into one ImageError and keeps Pillow's warnings inside.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import threading
import warnings
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any, Union

import numpy as np
from PIL import Image, UnidentifiedImageError

from ouzel.errors import ImageError, OuzelError, RequestError
from ouzel.processors import image_format, image_modes, image_source
from ouzel.processors.image_png import check_png

#: Most pixels that a picture may declare: Pillow's own hard limit, about 0.5 GB as RGB. Above it Pillow refuses too,
#: unless `PIL.Image.MAX_IMAGE_PIXELS` is raised.
MAX_PIXELS = 178_956_970

ImageSource = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, IO[bytes], Image.Image, np.ndarray]

_ORIENTATION_TAG = 0x0112


@dataclass(frozen=True)
class LoadedImage:
    """A decoded picture.

    rgb: uint8 [H, W, 3], upright, C-contiguous. size: (H, W) of `rgb`. original_size: (H, W) as stored, before the EXIF
    turn. notes: what a user should know (first frame of an animation, stretched values). content_hash: SHA-256 in hex
    of the file's bytes; of the pixels and their shape for Pillow images and arrays. exif_turned: a turn or a flip was
    done. alpha: how transparency was treated; a cache key needs it beside the hash.
    """

    rgb: np.ndarray
    size: tuple[int, int]
    original_size: tuple[int, int]
    content_hash: str
    exif_turned: bool = False
    alpha: str = "white"
    notes: list[str] = field(default_factory=list)


def load_image(
    source: ImageSource,
    *,
    alpha: str = "white",
    max_pixels_guard: int = MAX_PIXELS,
    max_bytes: int = image_source.MAX_SOURCE_BYTES,
) -> LoadedImage:
    """Load a picture from anything that names or holds one.

    source: a path (str or PathLike), a `file://` or `data:` URL, base64 behind the prefix `base64:`, the bytes of a
    file, a binary file object (read from where it stands, left open), a Pillow image (its current frame), or a uint8 or
    uint16 array [H, W], [H, W, 1], [H, W, 3] (RGB) or [H, W, 4] (RGBA). alpha: "white" puts transparent pictures on
    white, "drop" keeps the colours under the transparency. max_pixels_guard: most pixels that the header may declare.
    max_bytes: most bytes that are read.

    Raises ImageError when there is no usable picture (missing, damaged, truncated, too large, remote, a format without
    a decoder, a colour mode without a conversion), RequestError for another `alpha`.
    """
    if alpha not in ("white", "drop"):
        raise RequestError("load a picture", expected="alpha 'white' or 'drop'", got=repr(alpha))
    if isinstance(source, np.ndarray):
        return _from_array(source, alpha, max_pixels_guard)
    if isinstance(source, Image.Image):
        return _from_pillow(source, alpha, max_pixels_guard)
    return _from_bytes(_source_bytes(source, max_bytes), alpha, max_pixels_guard)


def _source_bytes(source: Any, max_bytes: int) -> bytes:
    if isinstance(source, str):
        return image_source.bytes_of_text(source, max_bytes)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if isinstance(source, os.PathLike):
        return image_source.path_bytes(source, max_bytes)
    if hasattr(source, "read"):
        return image_source.stream_bytes(source, max_bytes)
    raise ImageError(
        "load a picture", expected="a path, bytes, a file object, a data URL, a Pillow image or a NumPy array",
        got=type(source).__name__,
    )  # fmt: skip


def _check_pixels(width: int, height: int, limit: int) -> None:
    if width * height > limit:
        raise ImageError(
            "load a picture", expected=f"at most {limit} pixels", got=f"{width}x{height} = {width * height} pixels",
            fix="scale it down, or raise the limit",
        )  # fmt: skip
    if width < 1 or height < 1:
        raise ImageError("load a picture", expected="at least 1x1 pixels", got=f"{width}x{height}")


def _from_array(array: np.ndarray, alpha: str, limit: int) -> LoadedImage:
    if array.ndim >= 2:
        _check_pixels(array.shape[1], array.shape[0], limit)
    rgb = image_modes.array_to_rgb(array, alpha)
    digest = hashlib.sha256(f"{array.dtype} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array))
    return LoadedImage(rgb, rgb.shape[:2], rgb.shape[:2], digest.hexdigest(), alpha=alpha)


def _from_pillow(image: Image.Image, alpha: str, limit: int) -> LoadedImage:
    _check_pixels(*image.size, limit)
    notes: list[str] = []
    with _guard(b""):
        rgb, stored, turned = _decode(image, alpha, notes)
    digest = hashlib.sha256(f"pillow {rgb.shape} ".encode())
    digest.update(rgb)
    return LoadedImage(rgb, rgb.shape[:2], stored, digest.hexdigest(), turned, alpha, notes)


def _from_bytes(data: bytes, alpha: str, limit: int) -> LoadedImage:
    declared = image_format.declared_webp_size(data)
    if declared is not None:
        _check_pixels(*declared, limit)
    notes: list[str] = []
    with _guard(data):
        with Image.open(io.BytesIO(data), formats=image_format.usable_formats()) as image:
            _check_pixels(*image.size, limit)
            if image.format == "PNG":
                check_png(data)
            rgb, stored, turned = _decode(image, alpha, notes)
            # Asked last: some formats seek to the next frame to answer.
            if _has_frames(image):
                notes.append(f"{image.format} with several frames: the first is used")
    digest = hashlib.sha256(data).hexdigest()
    return LoadedImage(rgb, rgb.shape[:2], stored, digest, turned, alpha, notes)


def _decode(image: Image.Image, alpha: str, notes: list[str]) -> tuple[np.ndarray, tuple[int, int], bool]:
    """(upright RGB, size (H, W) as stored, whether it was turned); called inside the guard."""
    before = _orientation(image, notes)
    image.load()
    # Some decoders (TIFF) turn while they load and take the tag away, hence the second look.
    after = _orientation(image, notes)
    rgb = turn_upright(image_modes.pillow_to_rgb(image, alpha, notes), after)
    height, width = rgb.shape[:2]
    stored = (width, height) if before >= 5 else (height, width)
    return rgb, stored, before != 1


def _orientation(image: Image.Image, notes: list[str]) -> int:
    """EXIF orientation 1..8; 1 when there is none, it is out of range, or the EXIF block is damaged."""
    try:
        value = image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # the pixels may still be whole, and a damaged block fails in many ways
        note = "the EXIF block is damaged; no turn was applied"
        if note not in notes:
            notes.append(note)
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def turn_upright(rgb: np.ndarray, orientation: int) -> np.ndarray:
    """The picture as the EXIF orientation (1..8) means it to be seen: [H, W, 3] to [H, W, 3] or [W, H, 3]."""
    if orientation >= 5:
        rgb = rgb.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        rgb = rgb[::-1]
    if orientation in (2, 3, 6, 7):
        rgb = rgb[:, ::-1]
    return np.ascontiguousarray(rgb)


def _has_frames(image: Image.Image) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # a damaged later frame; the first was decoded whole
        return True


class _guard:
    """All that Pillow does to a file happens in here: its warnings stay inside, its failures become ImageError."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> None:
        _quiet.enter()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        _quiet.leave()
        if error is None or isinstance(error, OuzelError) or not isinstance(error, Exception):
            return
        # Any exception: on damaged files Pillow raises OSError, SyntaxError, struct.error, IndexError and more.
        if isinstance(error, UnidentifiedImageError):
            raise image_format.unreadable(self._data) from error
        if isinstance(error, Image.DecompressionBombError):
            raise ImageError(
                "load a picture", expected="no more pixels than Pillow's limit", got=image_source.short(str(error), 120),
                fix="scale it down, or raise PIL.Image.MAX_IMAGE_PIXELS",
            ) from error  # fmt: skip
        name = image_format.format_name(self._data) or "picture"
        reason = image_source.short(str(error) or type(error).__name__, 120)
        raise ImageError(
            "decode a picture", expected=f"a whole {name} file", got=f"a truncated or damaged one ({reason})"
        ) from error


class _Quiet:
    """Ignores warnings while at least one thread decodes; filters are process-wide, so threads must not nest them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._saved: warnings.catch_warnings | None = None
        self._own = threading.local()

    def enter(self) -> None:
        if getattr(sys.flags, "context_aware_warnings", 0):  # Python 3.14: filters belong to the context
            self._own.saved = _ignoring()
            return
        with self._lock:
            if self._inside == 0:
                self._saved = _ignoring()
            self._inside += 1

    def leave(self) -> None:
        if getattr(sys.flags, "context_aware_warnings", 0):
            self._own.saved.__exit__(None, None, None)
            return
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._saved is not None:
                self._saved.__exit__(None, None, None)
                self._saved = None


def _ignoring() -> warnings.catch_warnings:
    context = warnings.catch_warnings()
    context.__enter__()
    warnings.simplefilter("ignore")
    return context


_quiet = _Quiet()
