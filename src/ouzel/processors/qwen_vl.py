"""Pictures and videos to the patch rows of the Qwen-VL vision towers.

A row is one patch of `patch_size` pixels a side and two frames, channel-major; rows come in 2x2 blocks, so that
`merge_size` squared neighbours in memory make one token. Resizing is done on bytes with `resize`; the float values come
from a table of 256 per channel, so every value has one fixed rounding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ouzel.errors import ImageError, RequestError
from ouzel.processors.image_loader import MAX_PIXELS, LoadedImage
from ouzel.processors.qwen_settings import QwenVLImageSettings
from ouzel.processors.qwen_sizes import group_timestamps, smart_resize, smart_resize_video
from ouzel.processors.resize import resize

# Frames a second of a video that comes without a rate or time stamps; the reference's value.
_DEFAULT_FPS = 24.0

_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class ProcessedImage:
    """A picture ready for the vision tower.

    pixels: float32 [t*h*w, 3 * temporal_patch_size * patch_size**2] in block order, columns channel, frame, y, x. grid:
    (t, h, w) in patches. tokens: merged tokens in all. content_hash: of the picture and everything that shaped the
    pixels. source_size, resized_size: (H, W) in pixels. min_pixels, max_pixels: the budget that was applied. notes:
    what a user should know.
    """

    pixels: np.ndarray
    grid: tuple[int, int, int]
    tokens: int
    content_hash: str
    source_size: tuple[int, int]
    resized_size: tuple[int, int]
    min_pixels: int
    max_pixels: int
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ProcessedVideo(ProcessedImage):
    """A video ready for the vision tower: as `ProcessedImage`, with every temporal group's time.

    timestamps: seconds, one per temporal group (t of them); printed with one decimal in the prompt.
    """

    timestamps: list[float] = field(default_factory=list)

    @property
    def tokens_per_group(self) -> int:
        """Merged tokens of one temporal group."""
        return self.tokens // self.grid[0]


def process_image(
    image: LoadedImage, settings: QwenVLImageSettings, *, min_pixels: int | None = None, max_pixels: int | None = None
) -> ProcessedImage:
    """Resize, normalise and cut a picture into patch rows.

    min_pixels, max_pixels: replace the checkpoint's budget, wider or narrower. Raises ImageError when the sides' ratio
    is above 200, RequestError for a budget that is not positive or whose minimum is above its maximum.
    """
    low, high = _budget(settings, min_pixels, max_pixels)
    notes = list(image.notes)
    if settings.do_resize:
        height, width = smart_resize(*image.size, settings.factor, low, high)
        free = smart_resize(*image.size, settings.factor, 1, _NO_LIMIT)
        notes += _size_notes(image.size, (height, width), free, (low, high))
    else:
        height, width = _unresized(image.size, settings.factor)
    _check_resized(height, width)
    pixels, grid = _patch_rows([image.rgb], height, width, settings, fused=False)
    return ProcessedImage(
        pixels, grid, _tokens(grid, settings.merge_size), _content_hash([image], settings, (height, width)),
        image.size, (height, width), low, high, notes,
    )  # fmt: skip


def process_video(
    frames: Sequence[LoadedImage],
    settings: QwenVLImageSettings,
    *,
    fps: float | None = None,
    timestamps: Sequence[float] | None = None,
    min_pixels: int | None = None,
    max_pixels: int | None = None,
) -> ProcessedVideo:
    """Resize, normalise and cut the frames of a video, which are taken as they are, into patch rows.

    frames: at least two, all of one size; the last is repeated to fill a temporal group. fps: frames a second, or
    timestamps: seconds of every frame. min_pixels, max_pixels: replace the checkpoint's budget; they are volumes
    (frames included), as in the checkpoint's file. Raises ImageError for frames of different sizes, too few frames or a
    ratio of the sides above 200; RequestError for a bad budget, rate, or number of time stamps.
    """
    _check_frames(frames)
    times, notes = _frame_times(len(frames), fps, timestamps)
    low, high = _budget(settings, min_pixels, max_pixels)
    size = frames[0].size
    if settings.do_resize:
        cap = _frame_cap(settings, len(frames), low, high)
        rule = (len(frames), *size, settings.factor, settings.temporal_patch_size)
        height, width = smart_resize_video(*rule, low, cap)
        free = smart_resize_video(*rule, 1, _NO_LIMIT)
        notes += _size_notes(size, (height, width), free, (low, cap), len(frames))
    else:
        height, width = _unresized(size, settings.factor)
    _check_resized(height, width, len(frames))
    notes += dict.fromkeys(note for frame in frames for note in frame.notes)
    pixels, grid = _patch_rows([frame.rgb for frame in frames], height, width, settings, fused=True)
    return ProcessedVideo(
        pixels, grid, _tokens(grid, settings.merge_size), _content_hash(frames, settings, (height, width)),
        size, (height, width), low, high, notes, group_timestamps(times, settings.temporal_patch_size),
    )  # fmt: skip


def _budget(settings: QwenVLImageSettings, low: int | None, high: int | None) -> tuple[int, int]:
    """The limits in force: the request's where given; a lone one moves the checkpoint's other limit along."""
    for name, value in (("min_pixels", low), ("max_pixels", high)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise RequestError("set the pixel budget", expected=f"{name} as a positive whole number", got=repr(value))
    if low is not None and high is not None and low > high:
        raise RequestError("set the pixel budget", expected="min_pixels <= max_pixels", got=f"{low} and {high}")
    if low is None:
        low = settings.min_pixels if high is None else min(settings.min_pixels, high)
    if high is None:
        high = max(settings.max_pixels, low)
    return low, high


def _check_resized(height: int, width: int, frames: int = 1) -> None:
    """Refuses what a careless pixel budget would blow up, before any memory is taken: 24 bytes and more a pixel."""
    if height * width * frames > MAX_PIXELS:
        over = "" if frames == 1 else f" over {frames} frames"
        raise RequestError(
            "set the pixel budget", expected=f"at most {MAX_PIXELS} pixels after resizing",
            got=f"{height * width * frames}{over}", fix="lower min_pixels or max_pixels",
        )  # fmt: skip


def _frame_cap(settings: QwenVLImageSettings, frames: int, low: int, high: int) -> int:
    """The largest volume, with the optional limit per frame."""
    if not settings.cap_pixels_per_frame:
        return high
    share = min(settings.max_video_tokens * settings.factor**2, high // frames)
    return max(share, int(low * 1.05)) * frames


def _unresized(size: tuple[int, int], factor: int) -> tuple[int, int]:
    if size[0] % factor or size[1] % factor:
        raise ImageError(
            "prepare a picture without resizing", expected=f"sides that are multiples of {factor}",
            got=f"{size[1]}x{size[0]}", fix="the checkpoint's preprocessor file says do_resize false",
        )  # fmt: skip
    return size


def _size_notes(
    source: tuple[int, int], size: tuple[int, int], free: tuple[int, int], budget: tuple[int, int], frames: int = 1
) -> list[str]:
    """A line when the budget changed the size; `free` is the size that rounding to whole tokens alone gives."""
    if size == free:
        return []
    shown = f"from {source[1]}x{source[0]} to {size[1]}x{size[0]}"
    over = "" if frames == 1 else f" over {frames} frames"
    if size[0] * size[1] < free[0] * free[1]:
        return [f"scaled {shown} by the pixel budget {budget[1]}{over}"]
    return [f"enlarged {shown} by the pixel minimum {budget[0]}{over}"]


def _check_frames(frames: Sequence[LoadedImage]) -> None:
    if not frames:
        raise ImageError("prepare a video", expected="at least two frames", got="none")
    for number, frame in enumerate(frames):
        if frame.size != frames[0].size:
            shown = [f"{f.size[1]}x{f.size[0]}" for f in (frames[0], frame)]
            raise ImageError(
                "prepare a video",
                expected=f"every frame of the first's size {shown[0]}",
                got=f"frame {number} of {shown[1]}",
            )


def _frame_times(count: int, fps: float | None, timestamps: Sequence[float] | None) -> tuple[list[float], list[str]]:
    """Seconds of every frame, and notes."""
    if timestamps is not None:
        if fps is not None:
            raise RequestError("time a video", expected="fps or timestamps", got="both")
        if len(timestamps) != count:
            raise RequestError("time a video", expected=f"{count} time stamps, one a frame", got=str(len(timestamps)))
        times = [float(time) for time in timestamps]
        if not all(np.isfinite(times)) or any(late < early for early, late in zip(times, times[1:])):
            raise RequestError("time a video", expected="finite time stamps that do not go back", got="others")
        return times, []
    notes = []
    if fps is None:
        fps, notes = _DEFAULT_FPS, [f"the video came without fps or timestamps; {_DEFAULT_FPS:g} fps were assumed"]
    if not (isinstance(fps, (int, float)) and 0 < fps < float("inf")):
        raise RequestError("time a video", expected="fps above 0", got=repr(fps))
    return [index / fps for index in range(count)], notes


def _tokens(grid: tuple[int, int, int], merge: int) -> int:
    return grid[0] * grid[1] * grid[2] // merge**2


def _value_table(settings: QwenVLImageSettings, fused: bool) -> np.ndarray:
    """float32 [3, 256]: what every byte becomes.

    The reference scales pictures to 0..1 and then takes mean and deviation; for videos it folds the scale into both
    (`fused`). The results differ in the last bit of a float32.
    """
    values = np.arange(256, dtype=np.float32)[None, :]
    mean = np.array(settings.mean, np.float32)[:, None]
    std = np.array(settings.std, np.float32)[:, None]
    if settings.do_rescale and fused and settings.do_normalize:
        scale = np.float32(1.0 / settings.rescale_factor)
        return (values - mean * scale) / (std * scale)
    if settings.do_rescale:
        values = (values.astype(np.float64) * settings.rescale_factor).astype(np.float32)
    if settings.do_normalize:
        values = (values - mean) / std
    return np.broadcast_to(values, (3, 256))


def _patch_rows(
    frames: Sequence[np.ndarray], height: int, width: int, settings: QwenVLImageSettings, fused: bool
) -> tuple[np.ndarray, tuple[int, int, int]]:
    """float32 rows of all temporal groups, and the grid (t, h, w). One frame (a picture) fills its group alone."""
    depth, patch = settings.temporal_patch_size, settings.patch_size
    groups = -(-len(frames) // depth)
    grid = (groups, height // patch, width // patch)
    per_group = grid[1] * grid[2]
    rows = np.empty((groups, per_group, 3, depth, patch * patch), np.float32)
    table = _value_table(settings, fused)
    for place in range(groups * depth):
        group, slot = divmod(place, depth)
        if place >= len(frames):
            rows[group, :, :, slot] = rows[group, :, :, slot - 1]
            continue
        patches = _cut(resize(frames[place], height, width, settings.resample), patch, settings.merge_size)
        for channel in range(3):
            rows[group, :, channel, slot] = table[channel][patches[:, channel]]
    return rows.reshape(groups * per_group, 3 * depth * patch * patch), grid


def _cut(rgb: np.ndarray, patch: int, merge: int) -> np.ndarray:
    """uint8 [H, W, 3] to uint8 [patches, 3, patch * patch], patches in blocks of merge x merge."""
    height, width, _ = rgb.shape
    blocks = rgb.reshape(height // patch // merge, merge, patch, width // patch // merge, merge, patch, 3)
    return blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(-1, 3, patch * patch)


def _content_hash(frames: Sequence[LoadedImage], settings: QwenVLImageSettings, size: tuple[int, int]) -> str:
    """SHA-256 in hex of the pictures and of everything that shapes the pixel rows."""
    digest = hashlib.sha256(
        repr(
            (
                size, settings.patch_size, settings.merge_size, settings.temporal_patch_size, settings.mean,
                settings.std, settings.rescale_factor, settings.resample, settings.do_rescale, settings.do_normalize,
                len(frames),
            )
        ).encode()
    )  # fmt: skip
    for frame in frames:
        digest.update(f"{frame.content_hash} {frame.alpha} ".encode())
    return digest.hexdigest()
