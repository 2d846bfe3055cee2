"""Settings of the Qwen-VL picture and video processors, from a checkpoint's preprocessor files.

Three layouts exist: `preprocessor_config.json` alone, with `video_preprocessor_config.json` beside it, or one
`processor_config.json` with `image_processor` and `video_processor` inside. Keys that a file leaves out take the values
of the reference's processor classes. Values that would change the mathematics in a way that is not implemented are
refused by name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ouzel.errors import CheckpointError, ConfigError

_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

#: The reference's class defaults, used for keys that a file leaves out.
_IMAGE_DEFAULTS: dict[str, Any] = {
    "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280},
    "patch_size": 14,
    "image_mean": _CLIP_MEAN,
    "image_std": _CLIP_STD,
}
_VIDEO_DEFAULTS: dict[str, Any] = {
    "size": {"shortest_edge": 128 * 32 * 32, "longest_edge": 32 * 32 * 768},
    "patch_size": 16,
    "image_mean": (0.5, 0.5, 0.5),
    "image_std": (0.5, 0.5, 0.5),
}

#: Numbers that files use for filters (Pillow's).
_RESAMPLE = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}

# Switches that are read or change nothing here. Any other `do_...` that is on is refused: it names work that is not
# done.
_KNOWN_SWITCHES = ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb", "do_sample_frames")


@dataclass(frozen=True)
class QwenVLImageSettings:
    """How pictures, or videos, become patch rows.

    min_pixels, max_pixels: limits of the resized area in pixels (of the volume, frames included, for videos).
    patch_size, merge_size: pixels a patch side, patches a merged side. temporal_patch_size: frames a temporal group.
    mean, std: per channel, on the 0..1 scale. rescale_factor: what bytes are multiplied with. resample: a filter of
    `resize`. fps, min_frames, max_frames: the rule that picks frames of a video. cap_pixels_per_frame,
    max_video_tokens: an optional limit per frame, off in the released files.
    """

    min_pixels: int
    max_pixels: int
    patch_size: int
    merge_size: int = 2
    temporal_patch_size: int = 2
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    rescale_factor: float = 1.0 / 255.0
    resample: str = "bicubic"
    do_resize: bool = True
    do_rescale: bool = True
    do_normalize: bool = True
    fps: float = 2.0
    min_frames: int = 4
    max_frames: int = 768
    cap_pixels_per_frame: bool = False
    max_video_tokens: int = 768

    @property
    def factor(self) -> int:
        """Pixels a side of a merged token."""
        return self.patch_size * self.merge_size

    @classmethod
    def from_preprocessor(
        cls, config: Mapping[str, Any], *, video: bool = False, name: str = ""
    ) -> QwenVLImageSettings:
        """Settings from the dictionary of a preprocessor file (or of its nested part).

        `name` is the file's name for messages. Raises ConfigError naming the key for values of the wrong type or that
        are not implemented.
        """
        return _Reader(
            config, _VIDEO_DEFAULTS if video else _IMAGE_DEFAULTS, name or "preprocessor settings"
        ).settings()


@dataclass(frozen=True)
class QwenVLProcessorSettings:
    """The settings of both processors of a checkpoint."""

    image: QwenVLImageSettings
    video: QwenVLImageSettings

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> QwenVLProcessorSettings:
        """Reads the files of a checkpoint folder, in the reference's order of precedence.

        A video processor without settings of its own takes those of the image file, as the reference does. Raises
        CheckpointError when the folder holds no preprocessor file or a damaged one, ConfigError for refused values.
        """
        nested = _read_json(folder, "processor_config.json") or {}
        single = _read_json(folder, "preprocessor_config.json")
        image = _part(nested, "image_processor") or single
        own_video = _part(nested, "video_processor") or _read_json(folder, "video_preprocessor_config.json")
        if image is None:
            raise CheckpointError(
                "read the picture settings", expected="preprocessor_config.json or processor_config.json",
                got=f"neither in {os.fspath(folder)!r}", fix="copy the file from the model's release into the folder",
            )  # fmt: skip
        settings = QwenVLImageSettings.from_preprocessor
        return cls(
            settings(image, name="preprocessor_config.json"),
            settings(own_video or image, video=True, name="video_preprocessor_config.json"),
        )


def _part(config: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    part = config.get(key)
    return part if isinstance(part, Mapping) else None


def _read_json(folder: str | os.PathLike[str], name: str) -> dict[str, Any] | None:
    path = os.path.join(folder, name)
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe would wait for its writer for ever
            raise OSError("not a regular file")
        with open(path, encoding="utf-8-sig") as file:
            value = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"read {path}", expected="a JSON file", got=str(error)[:200]) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"read {path}", expected="a JSON object", got=type(value).__name__)
    return value


class _Reader:
    """Reads typed keys with defaults; every refusal names the file and the key."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any], name: str) -> None:
        self._config = config
        self._defaults = defaults
        self._name = name

    def settings(self) -> QwenVLImageSettings:
        self._refuse_unknown_work()
        low, high = self._limits()
        return QwenVLImageSettings(
            min_pixels=low,
            max_pixels=high,
            patch_size=self._whole("patch_size", self._defaults["patch_size"]),
            merge_size=self._whole("merge_size", 2),
            temporal_patch_size=self._whole("temporal_patch_size", 2),
            mean=self._channels("image_mean"),
            std=self._channels("image_std"),
            rescale_factor=self._number("rescale_factor", 1.0 / 255.0),
            resample=self._filter(),
            do_resize=self._flag("do_resize", True),
            do_rescale=self._flag("do_rescale", True),
            do_normalize=self._flag("do_normalize", True),
            fps=self._number("fps", 2.0),
            min_frames=self._whole("min_frames", 4),
            max_frames=self._whole("max_frames", 768),
            cap_pixels_per_frame=self._flag("cap_pixels_per_frame", False),
            max_video_tokens=self._whole("max_video_tokens", 768),
        )

    def _refuse(self, key: str, expected: str, got: object) -> ConfigError:
        return ConfigError(f"read {self._name}, key {key!r}", expected=expected, got=repr(got))

    def _refuse_unknown_work(self) -> None:
        for key in ("image_processor_type", "video_processor_type"):
            kind = self._config.get(key)
            if kind is not None and not str(kind).startswith(("Qwen2VL", "Qwen3VL", "Qwen2_5_VL", "Qwen2_5VL")):
                raise self._refuse(key, "a Qwen2-VL or Qwen3-VL processor", kind)
        for key, value in self._config.items():
            if key.startswith("do_") and key not in _KNOWN_SWITCHES and value:
                raise self._refuse(key, "false; this step is not implemented", value)

    def _limits(self) -> tuple[int, int]:
        """Old files give min_pixels and max_pixels at the top; newer ones give areas under names that say edges."""
        size = self._config.get("size") or self._defaults["size"]
        if not isinstance(size, Mapping):
            raise self._refuse("size", "an object with shortest_edge and longest_edge", size)
        found = []
        for old, new in (("min_pixels", "shortest_edge"), ("max_pixels", "longest_edge")):
            value = self._config.get(old)
            if value is None:
                value = size.get(new, size.get(old))
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise self._refuse(f"size.{new}", "a positive number of pixels", value)
            found.append(value)
        if found[0] > found[1]:
            raise self._refuse("size", "a minimum that is not above the maximum", size)
        return found[0], found[1]

    def _whole(self, key: str, default: int) -> int:
        value = self._config.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._refuse(key, "a positive whole number", value)
        return value

    def _number(self, key: str, default: float) -> float:
        value = self._config.get(key)
        if value is None:
            return default
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < float("inf"):
            raise self._refuse(key, "a positive number", value)
        return float(value)

    def _flag(self, key: str, default: bool) -> bool:
        value = self._config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._refuse(key, "true or false", value)
        return value

    def _channels(self, key: str) -> tuple[float, float, float]:
        value = self._config.get(key)
        value = self._defaults[key] if value is None else value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = [value] * 3
        ok = isinstance(value, (list, tuple)) and len(value) == 3
        if not ok or not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in value):
            raise self._refuse(key, "three numbers", value)
        if key == "image_std" and 0 in value:
            raise self._refuse(key, "three numbers other than 0", value)
        return float(value[0]), float(value[1]), float(value[2])

    def _filter(self) -> str:
        value = self._config.get("resample")
        value = 3 if value is None else value
        if not isinstance(value, int) or value not in _RESAMPLE:
            raise self._refuse("resample", f"one of {_RESAMPLE}", value)
        return _RESAMPLE[value]
