"""The size rules of the Qwen-VL processors, for pictures and for videos, and the rule that picks a video's frames.

All arithmetic is in double precision and rounds halves to even, as the reference's does. Limits are pixel counts.
"""

from __future__ import annotations

import math

import numpy as np

from ouzel.errors import ImageError

#: Largest ratio of the sides that is still taken.
MAX_ASPECT = 200


def smart_resize(height: int, width: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """(height, width) that a picture is resized to: multiples of `factor`, within the limits where the shape allows.

    Raises ImageError when one side is more than 200 times the other.
    """
    _check_aspect(height, width)
    return _fit(height, width, 1, 1, factor, min_pixels, max_pixels)


def smart_resize_video(
    frames: int, height: int, width: int, factor: int, temporal_factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """(height, width) that the frames of a video are resized to; the limits are volumes, frames included.

    Raises ImageError for fewer frames than `temporal_factor`, or when one side is more than 200 times the other.
    """
    if frames < temporal_factor:
        raise ImageError(
            f"prepare a video: t:{frames} must be larger than temporal_factor:{temporal_factor}",
            expected=f"at least {temporal_factor} frames", got=str(frames), fix="pass a single frame as an image",
        )  # fmt: skip
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    _check_aspect(height, width)
    rounded = round(frames / temporal_factor) * temporal_factor
    return _fit(height, width, frames, rounded, factor, min_pixels, max_pixels)


def _check_aspect(height: int, width: int) -> None:
    ratio = max(height, width) / min(height, width)
    if ratio > MAX_ASPECT:
        raise ImageError(
            f"prepare a picture of {width}x{height}: "
            f"absolute aspect ratio must be smaller than {MAX_ASPECT}, got {ratio}",
            fix="crop it or split it into parts",
        )


def _fit(
    height: int, width: int, frames: int, rounded_frames: int, factor: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    # Rounded sides may be 0 here; such a product is below every minimum, and the third case makes it whole again.
    new_height = round(height / factor) * factor
    new_width = round(width / factor) * factor
    volume = rounded_frames * new_height * new_width
    if volume > max_pixels:
        shrink = math.sqrt((frames * height * width) / max_pixels)
        new_height = max(factor, math.floor(height / shrink / factor) * factor)
        new_width = max(factor, math.floor(width / shrink / factor) * factor)
    elif volume < min_pixels:
        grow = math.sqrt(min_pixels / (frames * height * width))
        new_height = math.ceil(height * grow / factor) * factor
        new_width = math.ceil(width * grow / factor) * factor
    return new_height, new_width


def sample_frames(
    total: int,
    source_fps: float | None = None,
    *,
    fps: float = 2.0,
    num_frames: int | None = None,
    min_frames: int = 4,
    max_frames: int = 768,
) -> np.ndarray:
    """Indices, int64 [n], of the frames of a video that are shown to the model, evenly spread from first to last.

    total: frames of the source. source_fps: its frames a second (24 when not known, as in the reference). fps: frames
    wanted a second; num_frames: frames wanted instead. Raises ImageError when the source has no frames.
    """
    if total < 1:
        raise ImageError("sample a video's frames", expected="at least one frame", got=str(total))
    if num_frames is None:
        num_frames = int(total / (source_fps or 24.0) * fps)
        num_frames = min(max(num_frames, min_frames), max_frames, total)
    elif num_frames < 1:
        raise ImageError("sample a video's frames", expected="at least one frame wanted", got=str(num_frames))
    return np.linspace(0, total - 1, num_frames).round().astype(np.int64)


def group_timestamps(times: list[float], group: int = 2) -> list[float]:
    """Seconds of every temporal group: the mean of its first and last frame. A short last group repeats its last.

    times: seconds of the frames, in order.
    """
    padded = [*times, *[times[-1]] * (-len(times) % group)] if times else []
    return [(padded[at] + padded[at + group - 1]) / 2 for at in range(0, len(padded), group)]
