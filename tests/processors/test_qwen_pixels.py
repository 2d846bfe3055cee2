"""Pixel rows of every golden case, and the processor's rules for budgets, notes, videos and hashes."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file

from ouzel.errors import ImageError, RequestError
from ouzel.processors.image_loader import LoadedImage, load_image
from ouzel.processors.qwen_settings import QwenVLImageSettings, QwenVLProcessorSettings
from ouzel.processors.qwen_vl import ProcessedImage, process_image, process_video

ROOT = pathlib.Path(__file__).parent.parent / "data/fixtures/qwen3_vl"
CASES = sorted(path for path in ROOT.glob("golden*/*.safetensors"))
ONE_LEVEL = 1.0 / 127.5  # one grey level after (x / 255 - 0.5) / 0.5
RELEASE = QwenVLImageSettings(65536, 16777216, 16)


def parts_of(case: pathlib.Path) -> tuple[list[ProcessedImage], list[ProcessedImage]]:
    """The golden's images and videos in order, processed."""
    settings = QwenVLProcessorSettings.from_folder(ROOT / ("tiny_tied" if "tied" in case.parent.name else "tiny"))
    folder = case.parent / "images"
    images, videos = [], []
    for message in json.loads(case.with_suffix(".json").read_text(encoding="utf-8"))["messages"]:
        for part in message["content"] if isinstance(message["content"], list) else []:
            if part["type"] == "image":
                images.append(process_image(load_image(folder / part["image"], alpha="drop"), settings.image))
            elif part["type"] == "video":
                frames = [load_image(folder / name, alpha="drop") for name in part["video"]]
                videos.append(process_video(frames, settings.video, fps=part["fps"]))
    return images, videos


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_golden_pixels(case):
    golden = load_file(case)
    for found, pixels, grid in zip(
        parts_of(case), ("pixel_values", "pixel_values_videos"), ("image_grid_thw", "video_grid_thw")
    ):
        assert bool(found) == (pixels in golden)
        if not found:
            continue
        assert [list(one.grid) for one in found] == golden[grid].tolist()
        rows = np.concatenate([one.pixels for one in found])
        assert rows.dtype == np.float32 and rows.shape == golden[pixels].shape
        difference = np.abs(rows - golden[pixels])
        share = float((difference == 0).mean())
        print(f"{case.stem} {pixels}: {share:.4%} equal, largest difference {difference.max() / ONE_LEVEL:.2f} levels")
        # The reference resizes videos with another library's 8-bit kernel, which may round one level apart.
        assert difference.max() <= 1.001 * ONE_LEVEL
        assert share == 1.0 if pixels == "pixel_values" else share > 0.99


def test_rows_are_cut_in_blocks_channel_frame_row_column():
    settings = QwenVLImageSettings(1, 1 << 40, 2, do_rescale=False, do_normalize=False)
    rgb = np.arange(8 * 12 * 3, dtype=np.uint8).reshape(8, 12, 3)
    rows = process_image(load_image(rgb), settings).pixels
    assert rows.shape == (24, 24)
    number = 0
    for block_row in range(2):
        for block_column in range(3):
            for row in range(2):
                for column in range(2):
                    y, x = 4 * block_row + 2 * row, 4 * block_column + 2 * column
                    patch = rgb[y : y + 2, x : x + 2].transpose(2, 0, 1)[:, None]
                    np.testing.assert_array_equal(rows[number], np.repeat(patch, 2, axis=1).reshape(-1))
                    number += 1


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (1, 200), (200, 1), (31, 33), (700, 4)])
def test_any_size_works(size):
    done = process_image(load_image(np.full((*size, 3), 90, np.uint8)), RELEASE)
    assert done.pixels.shape == (done.grid[1] * done.grid[2], 3 * 2 * 16 * 16)
    assert done.tokens == done.grid[1] * done.grid[2] // 4
    assert done.source_size == size and np.ptp(done.pixels) == 0


def test_aspect_above_two_hundred_is_refused():
    with pytest.raises(ImageError, match="absolute aspect ratio must be smaller than 200, got 201.0"):
        process_image(load_image(np.zeros((201, 1), np.uint8)), RELEASE)


def picture(height: int, width: int) -> LoadedImage:
    return load_image(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_a_request_narrows_and_widens_the_budget_and_it_is_reported():
    source = picture(600, 800)
    plain = process_image(source, RELEASE)
    assert plain.notes == [] and plain.resized_size == (608, 800)
    narrow = process_image(source, RELEASE, max_pixels=100_000)
    assert narrow.resized_size[0] * narrow.resized_size[1] <= 100_000
    assert narrow.notes == [
        f"scaled from 800x600 to {narrow.resized_size[1]}x{narrow.resized_size[0]} by the pixel budget 100000"
    ]
    assert (narrow.min_pixels, narrow.max_pixels) == (65536, 100_000)
    tiny = process_image(source, RELEASE, max_pixels=2000)
    assert (tiny.min_pixels, tiny.resized_size) == (2000, (32, 32))
    wide = process_image(source, RELEASE, min_pixels=1_000_000)
    assert "enlarged" in wide.notes[0] and "minimum 1000000" in wide.notes[0]
    beyond = process_image(source, dataclasses.replace(RELEASE, max_pixels=100_000), max_pixels=1_000_000)
    assert beyond.resized_size == plain.resized_size and beyond.notes == []
    raised = process_image(source, dataclasses.replace(RELEASE, max_pixels=100_000), min_pixels=200_000)
    assert raised.min_pixels == raised.max_pixels == 200_000


@pytest.mark.parametrize("budget", [{"min_pixels": 0}, {"max_pixels": -1}, {"max_pixels": 1.5}, {"min_pixels": True}])
def test_bad_budgets_are_refused(budget):
    with pytest.raises(RequestError, match="pixel budget"):
        process_image(picture(40, 40), RELEASE, **budget)


def test_minimum_above_maximum_is_refused():
    with pytest.raises(RequestError, match="min_pixels <= max_pixels"):
        process_image(picture(40, 40), RELEASE, min_pixels=5000, max_pixels=4000)


def test_hash_follows_content_settings_and_alpha():
    rgba = np.full((32, 32, 4), 100, np.uint8)
    base = process_image(load_image(rgba), RELEASE).content_hash
    assert base == process_image(load_image(rgba.copy()), RELEASE).content_hash
    other = [
        process_image(load_image(rgba, alpha="drop"), RELEASE),
        process_image(load_image(rgba), RELEASE, max_pixels=4096),
        process_image(load_image(rgba), dataclasses.replace(RELEASE, mean=(0.4, 0.5, 0.5))),
        process_image(load_image(rgba + 1), RELEASE),
    ]
    assert len({base, *(one.content_hash for one in other)}) == 5


def test_settings_that_change_the_numbers_are_followed():
    source = picture(64, 64)
    exact = dataclasses.replace(RELEASE, min_pixels=1)
    plain = process_image(source, exact).pixels
    unscaled = process_image(source, dataclasses.replace(exact, do_rescale=False, do_normalize=False)).pixels
    np.testing.assert_allclose((unscaled / 255 - 0.5) / 0.5, plain, atol=1e-6)
    clip = dataclasses.replace(exact, mean=(0.48, 0.45, 0.40), std=(0.26, 0.27, 0.28))
    rows = process_image(source, clip).pixels.reshape(-1, 3, 512)
    back = rows * np.array(clip.std, np.float32)[:, None] + np.array(clip.mean, np.float32)[:, None]
    np.testing.assert_allclose(back * 255, unscaled.reshape(-1, 3, 512), atol=1e-3)
    kept = process_image(source, dataclasses.replace(exact, do_resize=False))
    np.testing.assert_array_equal(kept.pixels, plain)
    with pytest.raises(ImageError, match="multiples of 32"):
        process_image(picture(64, 65), dataclasses.replace(exact, do_resize=False))


def test_video_odd_count_repeats_the_last_frame():
    frames = [
        picture(64, 64),
        load_image(np.full((64, 64, 3), 9, np.uint8)),
        load_image(np.full((64, 64, 3), 77, np.uint8)),
    ]
    settings = dataclasses.replace(RELEASE, min_pixels=4096, max_pixels=25165824)
    odd = process_video(frames, settings, fps=2)
    even = process_video([*frames, frames[-1]], settings, timestamps=[0, 0.5, 1.0, 1.0])
    assert odd.grid == (2, 4, 4) and odd.tokens_per_group == 4
    assert odd.timestamps == even.timestamps == [0.25, 1.0]
    np.testing.assert_array_equal(odd.pixels, even.pixels)
    first = odd.pixels[:16].reshape(16, 3, 2, 256)
    alone = process_image(frames[0], dataclasses.replace(settings, min_pixels=1)).pixels.reshape(16, 3, 2, 256)
    # Pictures and videos differ in the last bit of the scaling only.
    np.testing.assert_allclose(first[:, :, 0], alone[:, :, 0], atol=1e-6)


def test_video_faults():
    settings = dataclasses.replace(RELEASE, min_pixels=4096)
    pair = [picture(64, 64), picture(64, 64)]
    with pytest.raises(ImageError, match="frame 1 of 32x64"):
        process_video([pair[0], picture(64, 32)], settings, fps=2)
    with pytest.raises(ImageError, match="t:1 must be larger"):
        process_video(pair[:1], settings, fps=2)
    with pytest.raises(ImageError, match="got none"):
        process_video([], settings)
    with pytest.raises(RequestError, match="fps or timestamps"):
        process_video(pair, settings, fps=2, timestamps=[0, 1])
    with pytest.raises(RequestError, match="2 time stamps"):
        process_video(pair, settings, timestamps=[0.0])
    with pytest.raises(RequestError, match="do not go back"):
        process_video(pair, settings, timestamps=[1.0, 0.5])
    with pytest.raises(RequestError, match="fps above 0"):
        process_video(pair, settings, fps=0)


def test_video_without_times_says_what_was_assumed():
    done = process_video([picture(64, 64)] * 2, dataclasses.replace(RELEASE, min_pixels=4096))
    assert done.timestamps == [1 / 48] and "24 fps were assumed" in done.notes[0]


def test_video_budget_is_a_volume_and_is_reported():
    frames = [picture(128, 128)] * 8
    done = process_video(frames, dataclasses.replace(RELEASE, min_pixels=4096), fps=2, max_pixels=8 * 64 * 64)
    assert done.resized_size == (64, 64)
    assert done.notes == ["scaled from 128x128 to 64x64 by the pixel budget 32768 over 8 frames"]
    capped = dataclasses.replace(RELEASE, min_pixels=4096, cap_pixels_per_frame=True, max_video_tokens=9)
    assert process_video(frames, capped, fps=2).resized_size == (96, 96)
