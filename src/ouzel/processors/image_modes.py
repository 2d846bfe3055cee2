"""From a decoded Pillow image of any mode to RGB bytes, as people see the picture.

Transparency goes on white or is dropped; deep grey and float pictures are scaled, never clipped; CMYK, palette, grey
and 1-bit pictures give three channels.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from ouzel.errors import ImageError

# Rows blended at a time, so that the 16-bit intermediates stay small beside the picture.
_ROWS_AT_A_TIME = 256

_DEEP_GREY = ("I;16", "I;16L", "I;16B", "I;16N")
_ALPHA = ("RGBA", "LA", "PA", "RGBa", "La")


def pillow_to_rgb(image: Image.Image, alpha: str, notes: list[str]) -> np.ndarray:
    """uint8 [H, W, 3] of a decoded Pillow image, not turned.

    alpha: "white" blends transparency on white, "drop" keeps the colours under it (Pillow's `convert("RGB")`). Notes
    are added for scalings that depend on the values. Raises ImageError for float pictures with values that are not
    finite; Pillow's ValueError for modes that have no conversion to RGB passes through.
    """
    if image.mode in _DEEP_GREY or image.mode in ("I", "F"):
        return _deep_to_rgb(image, alpha, notes)
    if alpha == "white" and _is_transparent(image):
        return _on_white(np.asarray(_to_rgba(image)))
    if image.mode in ("RGBa", "La"):
        image = _to_rgba(image)
    return np.array(image.convert("RGB"), np.uint8)


def _is_transparent(image: Image.Image) -> bool:
    return image.mode in _ALPHA or "transparency" in image.info


def _to_rgba(image: Image.Image) -> Image.Image:
    # La has no direct way to RGBA in Pillow.
    return (image.convert("LA") if image.mode == "La" else image).convert("RGBA")


def _on_white(rgba: np.ndarray) -> np.ndarray:
    """Blends uint8 [H, W, 4] on white, rounded to nearest: uint8 [H, W, 3]."""
    result = np.empty((*rgba.shape[:2], 3), np.uint8)
    for row in range(0, len(rgba), _ROWS_AT_A_TIME):
        block = rgba[row : row + _ROWS_AT_A_TIME]
        opacity = block[..., 3:].astype(np.uint16)
        sums = block[..., :3] * opacity + (255 - opacity) * 255 + 128
        # Exact division by 255 with rounding, for values up to 255 * 255.
        result[row : row + _ROWS_AT_A_TIME] = (sums + (sums >> 8)) >> 8
    return result


def _deep_to_rgb(image: Image.Image, alpha: str, notes: list[str]) -> np.ndarray:
    values = np.asarray(image)
    grey = _scaled_to_bytes(values, image.mode, _deep_bits(image), notes)
    key = image.info.get("transparency")
    if alpha == "white" and isinstance(key, int):
        grey = np.where(values == key, np.uint8(255), grey)
    return grey_to_rgb(grey)


def grey_to_rgb(grey: np.ndarray) -> np.ndarray:
    """uint8 [H, W] to uint8 [H, W, 3]."""
    return np.repeat(grey[:, :, None], 3, axis=2)


def _deep_bits(image: Image.Image) -> int:
    """Bits that a deep grey picture uses: TIFF files of 12 bits come in 16-bit mode without being scaled."""
    tags = getattr(image, "tag_v2", None)
    bits = tags.get(258) if tags is not None else None
    first = bits[0] if isinstance(bits, tuple) and bits else bits
    return first if isinstance(first, int) and 8 < first < 16 else 16


def scale_deep(values: np.ndarray, top: int = 65535) -> np.ndarray:
    """Unsigned integers 0..top to uint8 0..255, rounded to nearest; same shape."""
    wide = values.astype(np.uint32)
    return ((np.minimum(wide, top) * 255 + top // 2) // top).astype(np.uint8)


def _scaled_to_bytes(values: np.ndarray, mode: str, bits: int, notes: list[str]) -> np.ndarray:
    """uint8 [H, W] of grey values of mode I;16 (16-bit), I (32-bit integers) or F (floats)."""
    if mode in _DEEP_GREY:
        return scale_deep(values, (1 << bits) - 1)
    if mode == "F" and not np.isfinite(values).all():
        raise ImageError("decode a picture", expected="finite grey values", got="a float picture with NaN or infinity")
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > 65535:
        notes.append(f"grey values from {low:g} to {high:g} were stretched to 0..255")
        span = max(high - low, np.finfo(np.float64).tiny)
        return np.rint((values.astype(np.float64) - low) * (255.0 / span)).astype(np.uint8)
    if mode == "F" and high <= 1.0:
        return np.rint(values.astype(np.float64) * 255.0).astype(np.uint8)
    if high <= 255:
        # 16-bit grey never stays this dark over a whole picture; 8-bit values in a wide type do.
        notes.append("grey values up to 255 in a wide type were taken as 8-bit")
        return np.rint(values).astype(np.uint8)
    return np.rint(values.astype(np.float64) * (255.0 / 65535.0)).astype(np.uint8)


def array_to_rgb(array: np.ndarray, alpha: str) -> np.ndarray:
    """uint8 [H, W, 3] of an array whose last axis, where it has three, is the channel: grey, RGB or RGBA; a copy.

    array: uint8 or uint16 (scaled) [H, W], [H, W, 1], [H, W, 3] or [H, W, 4]. The order of axes is never guessed.
    Raises ImageError for other types and shapes.
    """
    if array.dtype not in (np.uint8, np.uint16):
        raise ImageError(
            "load a picture from an array", expected="uint8 or uint16 values", got=str(array.dtype),
            fix="scale float pictures to 0..255 and convert them with .astype('uint8')",
        )  # fmt: skip
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)) or 0 in array.shape:
        raise ImageError(
            "load a picture from an array", expected="[height, width] or [height, width, 1, 3 or 4]",
            got=str(list(array.shape)), fix="channels are the last axis; move them with numpy.moveaxis",
        )  # fmt: skip
    if array.dtype == np.uint16:
        array = scale_deep(array)
    if array.ndim == 2:
        return grey_to_rgb(array)
    if array.shape[2] == 1:
        return grey_to_rgb(array[:, :, 0])
    if array.shape[2] == 4 and alpha == "white":
        return _on_white(array)
    return np.array(array[:, :, :3], order="C")
