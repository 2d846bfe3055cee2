"""The resize kernel's meaning, against Pillow's single passes and by properties."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ouzel.errors import ImageError, UnsupportedError
from ouzel.processors import resize as module
from ouzel.processors.resize import axis_taps, resize, resize_numpy

PILLOW = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4}

SIZES = [
    (1, 1, 7, 5), (1, 1, 1, 1), (2, 3, 224, 320), (7, 10, 32, 48), (15, 17, 256, 288), (35, 71, 32, 64), (75, 35, 80,
    32), (64, 64, 64, 31), (64, 64, 31, 64), (100, 3, 1, 1), (150, 200, 48, 80), (255, 257, 256, 256), (300, 400, 31,
    33), (33, 900, 2, 4), (5, 1000, 32, 3648), (128, 128, 129, 127), (65, 64, 130, 640),
]  # fmt: skip


def pictures(height: int, width: int, channels: int = 3) -> list[np.ndarray]:
    generator = np.random.default_rng([height, width])
    noise = generator.integers(0, 256, (height, width, channels), dtype=np.uint8)
    return [noise, np.where(noise > 127, np.uint8(255), np.uint8(0))]


def pillow_two_passes(picture: np.ndarray, height: int, width: int, filter_name: str) -> np.ndarray:
    """Horizontal, then vertical, as two resizes: independent of the order that a Pillow version picks."""
    image = Image.fromarray(picture)
    across = image.resize((width, picture.shape[0]), PILLOW[filter_name])
    return np.asarray(across.resize((width, height), PILLOW[filter_name]))


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("filter_name", PILLOW)
def test_equals_pillow_with_the_horizontal_pass_first(size, filter_name):
    height, width, new_height, new_width = size
    for picture in pictures(height, width):
        expected = pillow_two_passes(picture, new_height, new_width, filter_name)
        np.testing.assert_array_equal(resize_numpy(picture, new_height, new_width, filter_name), expected)
        np.testing.assert_array_equal(resize(picture, new_height, new_width, filter_name), expected)


def test_the_order_of_the_passes_matters():
    """Rounding and clipping after each pass makes the orders differ; a kernel that swapped them would fail above."""
    picture = pictures(75, 35)[1]
    down_first = resize_numpy(resize_numpy(picture, 80, 35), 80, 32)
    assert (down_first != resize_numpy(picture, 80, 32)).any()


@pytest.mark.parametrize("channels", [1, 2, 4, 5])
def test_every_channel_is_resized_alone(channels):
    picture = pictures(20, 30, channels)[0]
    whole = resize(picture, 13, 41)
    for channel in range(channels):
        one = np.ascontiguousarray(picture[:, :, channel : channel + 1])
        np.testing.assert_array_equal(whole[:, :, channel : channel + 1], resize(one, 13, 41))


@pytest.mark.parametrize("filter_name", PILLOW)
def test_a_plain_picture_stays_plain(filter_name):
    for value in (0, 1, 127, 254, 255):
        picture = np.full((23, 37, 3), value, np.uint8)
        assert (resize(picture, 50, 11, filter_name) == value).all()


def test_strided_input_and_same_size():
    picture = pictures(40, 50)[0]
    np.testing.assert_array_equal(resize(picture[::2, ::-1], 31, 33), resize(picture[::2, ::-1].copy(), 31, 33))
    np.testing.assert_array_equal(resize(picture, 40, 50), picture)


@pytest.mark.parametrize("filter_name", ["bilinear", "bicubic", "lanczos", "box"])
def test_weights_of_every_result_sum_to_one(filter_name):
    for source, out in ((10, 3), (3, 10), (1000, 7), (48, 48), (1, 5)):
        taps = axis_taps(source, out, filter_name)
        one = 1 << module.PRECISION_BITS
        # Each weight is rounded by at most one half.
        assert np.abs(taps.weights.sum(axis=1) - one).max() <= taps.weights.shape[1] / 2 + 1
        assert (taps.first >= 0).all() and (taps.first < source).all()


def test_lanczos_polynomial_equals_sine():
    x = np.linspace(0.0, 3.0, 3001)
    np.testing.assert_allclose(module._sinc(x), np.sinc(x), rtol=0, atol=4 * np.finfo(np.float64).eps)


@pytest.mark.parametrize(
    "picture", [np.zeros((3, 4), np.uint8), np.zeros((3, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8)]
)
def test_other_arrays_are_refused(picture):
    with pytest.raises(ImageError, match="uint8 array"):
        resize(picture, 2, 2)


def test_bad_sizes_and_filters_are_refused():
    picture = pictures(4, 4)[0]
    with pytest.raises(ImageError, match="at least 1x1"):
        resize(picture, 0, 2)
    with pytest.raises(UnsupportedError, match="hamming"):
        resize(picture, 2, 2, "hamming")
    with pytest.raises(UnsupportedError, match="hamming"):
        axis_taps(4, 2, "hamming")


def test_without_the_native_kernel_the_result_is_the_same(monkeypatch):
    picture = pictures(50, 70)[0]
    expected = resize(picture, 64, 32)
    monkeypatch.setattr(module, "_native_kernel", lambda: None)
    np.testing.assert_array_equal(resize(picture, 64, 32), expected)
