"""Sizes, grids and token counts of the Qwen-VL processors, against the reference's table."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from ouzel.errors import ImageError
from ouzel.processors.qwen_settings import QwenVLImageSettings
from ouzel.processors.qwen_sizes import group_timestamps, sample_frames, smart_resize, smart_resize_video

_TABLE = json.loads(
    (pathlib.Path(__file__).parent.parent / "data/fixtures/qwen3_vl/processor_cases.json").read_text(encoding="utf-8")
)
IMAGE = QwenVLImageSettings.from_preprocessor(_TABLE["settings"]["image"])
VIDEO = QwenVLImageSettings.from_preprocessor(_TABLE["settings"]["video"], video=True)


def grid_of(size: tuple[int, int], frames: int = 1) -> list[int]:
    return [-(-frames // 2) if frames > 1 else 1, size[0] // 16, size[1] // 16]


@pytest.mark.parametrize("case", _TABLE["cases"], ids=lambda case: f"{case['height']}x{case['width']}")
def test_image_sizes(case):
    arguments = (case["height"], case["width"], IMAGE.factor, IMAGE.min_pixels, IMAGE.max_pixels)
    if "error" in case:
        with pytest.raises(ImageError) as caught:
            smart_resize(*arguments)
        assert case["error"] in str(caught.value)
        return
    size = smart_resize(*arguments)
    assert size == (case["resized_height"], case["resized_width"])
    assert grid_of(size) == case["grid_thw"]
    assert int(np.prod(grid_of(size))) // 4 == case["num_tokens"]


@pytest.mark.parametrize(
    "case", _TABLE["video_cases"], ids=lambda case: f"{case['num_frames']}x{case['height']}x{case['width']}"
)
def test_video_sizes(case):
    arguments = (
        case["num_frames"], case["height"], case["width"], VIDEO.factor, 2, VIDEO.min_pixels, VIDEO.max_pixels,
    )  # fmt: skip
    if "error" in case:
        with pytest.raises(ImageError) as caught:
            smart_resize_video(*arguments)
        assert case["error"] in str(caught.value)
        return
    size = smart_resize_video(*arguments)
    assert size == (case["resized_height"], case["resized_width"])
    grid = grid_of(size, case["num_frames"])
    assert grid == case["grid_thw"]
    assert int(np.prod(grid)) // 4 == case["num_video_tokens"]


def test_exactly_two_hundred_to_one_passes():
    assert smart_resize(200, 1, 32, 65536, 16777216) == (3648, 32)
    with pytest.raises(ImageError, match="got 201.0"):
        smart_resize(201, 1, 32, 65536, 16777216)


def test_sides_are_whole_tokens_for_every_small_size():
    for height in range(1, 70):
        for width in range(1, 70):
            for limits in ((1, 1), (1, 5000), (4096, 4096), (65536, 16777216)):
                size = smart_resize(height, width, 32, *limits)
                assert min(size) >= 32 and size[0] % 32 == 0 and size[1] % 32 == 0


@pytest.mark.parametrize(
    ("total", "source_fps", "options", "expected"),
    [
        (10, 5.0, {}, [0, 3, 6, 9]),
        (3, 30.0, {}, [0, 1, 2]),
        (30, 10.0, {}, [0, 6, 12, 17, 23, 29]),
        (100, 24.0, {"num_frames": 3}, [0, 50, 99]),  # 49.5 rounds to even
        (1000, 1.0, {"max_frames": 5}, [0, 250, 500, 749, 999]),
        (48, None, {}, [0, 16, 31, 47]),
    ],
)
def test_frame_choice(total, source_fps, options, expected):
    assert sample_frames(total, source_fps, **options).tolist() == expected


def test_frame_choice_refuses_nothing():
    with pytest.raises(ImageError, match="at least one frame"):
        sample_frames(0)
    with pytest.raises(ImageError, match="at least one frame"):
        sample_frames(4, num_frames=0)


def test_group_times():
    assert group_timestamps([0.0, 0.5, 1.0, 1.5]) == [0.25, 1.25]
    assert group_timestamps([0.0, 1.0, 5.0]) == [0.5, 5.0]
    assert group_timestamps([]) == []
