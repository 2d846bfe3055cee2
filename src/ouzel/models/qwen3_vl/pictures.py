"""Pictures and videos of Qwen3-VL: the processor's arrays as `Picture`, and the text around them."""

from __future__ import annotations

from collections.abc import Sequence

from ouzel.checkpoint.folder import Checkpoint
from ouzel.errors import ConfigError
from ouzel.models.family import Picture, PictureOptions, PlaceholderText
from ouzel.models.qwen3_vl.config import VisionConfig
from ouzel.processors.image_loader import LoadedImage
from ouzel.processors.qwen_prompt import image_text, video_text
from ouzel.processors.qwen_settings import QwenVLProcessorSettings
from ouzel.processors.qwen_vl import ProcessedImage, ProcessedVideo, process_image, process_video


def read_settings(checkpoint: Checkpoint, vision: VisionConfig) -> QwenVLProcessorSettings:
    """The preprocessor files, checked against the tower. Raises CheckpointError without any, ConfigError when they differ."""
    settings = QwenVLProcessorSettings.from_folder(checkpoint.path)
    for name, own in (("preprocessor_config.json", settings.image), ("video_preprocessor_config.json", settings.video)):
        pairs = (
            ("patch_size", own.patch_size, vision.patch),
            ("merge_size", own.merge_size, vision.merge),
            ("temporal_patch_size", own.temporal_patch_size, vision.temporal),
        )
        for key, got, wanted in pairs:
            if got != wanted:
                raise ConfigError(f"reading {checkpoint.path / name}", expected=f"'{key}' to be {wanted} as in config.json", got=str(got))
    return settings


def image(loaded: LoadedImage, settings: QwenVLProcessorSettings, options: PictureOptions) -> Picture:
    """One picture, within the request's pixel budget."""
    made = process_image(loaded, settings.image, min_pixels=options.min_pixels, max_pixels=options.max_pixels)
    return _picture("image", made)


def video(
    frames: Sequence[LoadedImage],
    fps: float | None,
    timestamps: Sequence[float] | None,
    settings: QwenVLProcessorSettings,
    options: PictureOptions,
) -> Picture:
    """Frames that are already chosen."""
    budget = {"min_pixels": options.min_pixels, "max_pixels": options.max_pixels}
    return _picture("video", process_video(frames, settings.video, fps=fps, timestamps=timestamps, **budget))


def placeholder(picture: Picture, options: PictureOptions) -> PlaceholderText:
    """An image's pad becomes one pad a token; a video becomes timestamped groups."""
    if picture.kind == "image":
        made = image_text(picture.tokens)
    else:
        made = video_text(picture.timestamps, picture.tokens // picture.grid[0], layout=options.video_layout)
    return PlaceholderText(made.pattern, made.text)


def _picture(kind: str, made: ProcessedImage) -> Picture:
    return Picture(
        kind=kind,
        pixels=made.pixels,
        grid=made.grid,
        tokens=made.tokens,
        key=made.content_hash,
        source_size=made.source_size,
        resized_size=made.resized_size,
        timestamps=tuple(made.timestamps) if isinstance(made, ProcessedVideo) else (),
        notes=tuple(made.notes),
    )
