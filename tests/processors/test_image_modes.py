"""Pictures come out as people see them: turns, transparency, deep grey, CMYK, palettes, animations."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from ouzel.errors import ImageError, RequestError
from ouzel.processors.image_loader import load_image

TURNS = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: a[::-1, ::-1].transpose(1, 0, 2),
    8: lambda a: np.rot90(a, 1),
}


def with_orientation(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def close(found: np.ndarray, expected: np.ndarray, levels: int) -> None:
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= levels


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("format_name", ["PNG", "TIFF", "WEBP", "JPEG"])
def test_exif_turn(format_name, orientation, smooth, encode, tmp_path):
    options = (
        {"lossless": True}
        if format_name == "WEBP"
        else {"quality": 100, "subsampling": 0}
        if format_name == "JPEG"
        else {}
    )
    data = encode(format_name, smooth, exif=with_orientation(orientation), **options)
    loaded = load_image(data)
    close(loaded.rgb, TURNS[orientation](smooth), 4 if format_name == "JPEG" else 0)
    assert loaded.original_size == (40, 60)
    assert loaded.size == loaded.rgb.shape[:2]
    assert loaded.exif_turned == (orientation != 1)
    assert loaded.rgb.flags.c_contiguous and loaded.rgb.dtype == np.uint8


@pytest.mark.parametrize("orientation", [0, 9, 255])
def test_orientations_out_of_range_turn_nothing(orientation, smooth, encode):
    loaded = load_image(encode("PNG", smooth, exif=with_orientation(orientation)))
    np.testing.assert_array_equal(loaded.rgb, smooth)
    assert not loaded.exif_turned


def test_damaged_exif_keeps_the_picture(smooth, encode):
    loaded = load_image(encode("JPEG", smooth, exif=b"Exif\0\0II*\0\xff\xff\xff\x7f", quality=95))
    close(loaded.rgb, smooth, 12)


def on_white(rgba: np.ndarray) -> np.ndarray:
    share = rgba[..., 3:].astype(np.float64) / 255
    return np.floor(rgba[..., :3] * share + 255 * (1 - share) + 0.5).astype(np.uint8)


@pytest.fixture
def rgba(smooth):
    opacity = np.linspace(0, 255, 40 * 60).reshape(40, 60, 1).astype(np.uint8)
    return np.concatenate([smooth, opacity], axis=2)


@pytest.mark.parametrize("format_name", ["PNG", "TIFF", "WEBP"])
def test_rgba_on_white_or_dropped(format_name, rgba, encode):
    options = {"lossless": True, "exact": True} if format_name == "WEBP" else {}
    data = encode(format_name, rgba, **options)
    np.testing.assert_array_equal(load_image(data).rgb, on_white(rgba))
    np.testing.assert_array_equal(load_image(data, alpha="drop").rgb, rgba[..., :3])


def test_blending_is_exact_for_every_value_and_opacity():
    values, opacities = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    rgba = np.stack([values, values, values, opacities], axis=2)
    np.testing.assert_array_equal(load_image(rgba).rgb, on_white(rgba))


def test_grey_with_alpha(encode):
    grey = np.array([[[10, 0], [10, 255], [200, 128]]], np.uint8)
    data = encode("PNG", Image.fromarray(grey, "LA") if Image.__version__ < "11" else Image.fromarray(grey))
    assert load_image(data).rgb[0, :, 0].tolist() == [255, 10, 227]
    assert load_image(data, alpha="drop").rgb[0, :, 0].tolist() == [10, 10, 200]


@pytest.mark.parametrize("format_name", ["PNG", "GIF"])
def test_palette_with_a_transparent_entry(format_name, encode):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1])
    data = encode(format_name, image, transparency=1)
    assert load_image(data).rgb.tolist() == [[[10, 20, 30], [255, 255, 255]]]
    assert load_image(data, alpha="drop").rgb.tolist() == [[[10, 20, 30], [200, 100, 50]]]


def test_palette_with_several_opacities(encode):
    image = Image.new("P", (3, 1))
    image.putpalette([0, 0, 0, 100, 100, 100, 200, 200, 200])
    image.putdata([0, 1, 2])
    data = encode("PNG", image, transparency=bytes([0, 128, 255]))
    assert load_image(data).rgb[0, :, 0].tolist() == [255, 177, 200]


@pytest.mark.parametrize(
    ("mode", "pixels", "key"), [("L", [7, 90], 7), ("RGB", [(7, 7, 7), (90, 90, 90)], (7, 7, 7)), ("1", [0, 255], 0)]
)
def test_transparent_colour_keys(mode, pixels, key, encode):
    image = Image.new(mode, (2, 1))
    image.putdata(pixels)
    data = encode("PNG", image, transparency=key)
    last = pixels[1] if isinstance(pixels[1], int) else pixels[1][0]
    first = pixels[0] if isinstance(pixels[0], int) else pixels[0][0]
    assert load_image(data).rgb[0, :, 0].tolist() == [255, last]
    assert load_image(data, alpha="drop").rgb[0, :, 0].tolist() == [first, last]


@pytest.mark.parametrize("format_name", ["PNG", "TIFF"])
def test_deep_grey_is_scaled_not_clipped(format_name, encode):
    ramp = np.linspace(0, 65535, 64 * 3).reshape(3, 64).astype(np.uint16)
    loaded = load_image(encode(format_name, ramp))
    expected = np.rint(ramp / 257.0).astype(np.uint8)
    np.testing.assert_array_equal(loaded.rgb, np.repeat(expected[:, :, None], 3, axis=2))
    np.testing.assert_array_equal(load_image(ramp).rgb, loaded.rgb)
    np.testing.assert_array_equal(load_image(Image.fromarray(ramp)).rgb, loaded.rgb)


def test_deep_grey_big_endian_and_wide_integers():
    ramp = np.linspace(0, 65535, 64).reshape(1, 64).astype(np.uint16)
    expected = load_image(ramp).rgb
    big = Image.frombytes("I;16B", (64, 1), ramp.astype(">u2").tobytes())
    np.testing.assert_array_equal(load_image(big).rgb, expected)
    np.testing.assert_array_equal(load_image(Image.fromarray(ramp.astype(np.int32))).rgb, expected)
    beyond = load_image(Image.fromarray(np.array([[-100, 0, 150]], np.int32)))
    assert beyond.rgb[0, :, 0].tolist() == [0, 102, 255] and "stretched" in beyond.notes[0]
    dark = load_image(Image.fromarray(np.array([[0, 10, 255]], np.int32)))
    assert dark.rgb[0, :, 0].tolist() == [0, 10, 255] and "8-bit" in dark.notes[0]


def test_deep_grey_with_a_transparent_value(encode):
    data = encode("PNG", Image.fromarray(np.array([[1000, 65535, 30000]], np.uint16)), transparency=1000)
    assert load_image(data).rgb[0, :, 0].tolist() == [255, 255, 117]
    assert load_image(data, alpha="drop").rgb[0, :, 0].tolist() == [4, 255, 117]


def test_float_tiff(encode):
    for values, expected in (([0.0, 0.5, 1.0], [0, 128, 255]), ([0.0, 65535.0, 32767.5], [0, 255, 128])):
        data = encode("TIFF", np.array([values], np.float32))
        assert load_image(data).rgb[0, :, 0].tolist() == expected
    with pytest.raises(ImageError, match="NaN"):
        load_image(encode("TIFF", np.array([[0.0, np.nan]], np.float32)))


def test_cmyk_jpeg_comes_in_true_colours(smooth, encode):
    image = Image.fromarray(smooth).convert("CMYK")
    loaded = load_image(encode("JPEG", image, quality=100, subsampling=0))
    close(loaded.rgb, smooth, 6)
    close(load_image(encode("TIFF", image)).rgb, smooth, 1)


def test_ycck_jpeg_comes_in_true_colours(smooth, encode):
    """A YCCK file: the CMYK planes of an Adobe file with its marker's transform byte set, over YCC-coded planes."""
    cmyk = np.asarray(Image.fromarray(smooth).convert("CMYK"))
    # Adobe files hold inverted ink, and YCCK codes the complement of its first three planes: the ink itself.
    ycc = np.asarray(Image.fromarray(np.ascontiguousarray(cmyk[..., :3])).convert("YCbCr"))
    planes = np.concatenate([ycc, 255 - cmyk[..., 3:]], axis=2)
    # Pillow writes CMYK inverted, so what it is given is inverted once more.
    image = Image.frombytes("CMYK", (60, 40), np.ascontiguousarray(255 - planes).tobytes())
    data = bytearray(encode("JPEG", image, quality=100, subsampling=0))
    marker = data.index(b"Adobe")
    assert data[marker + 11] == 0
    data[marker + 11] = 2
    close(load_image(bytes(data)).rgb, smooth, 8)


@pytest.mark.parametrize("mode", ["1", "L", "P"])
def test_three_channels_from_fewer(mode, smooth, encode):
    image = Image.fromarray(smooth).convert(mode)
    loaded = load_image(encode("PNG", image))
    np.testing.assert_array_equal(loaded.rgb, np.asarray(image.convert("RGB")))
    assert loaded.notes == []


@pytest.mark.parametrize("format_name", ["GIF", "WEBP", "PNG", "TIFF"])
def test_animations_give_the_first_frame_with_a_note(format_name, encode):
    frames = [Image.new("RGB", (20, 10), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    options = {"lossless": True} if format_name == "WEBP" else {}
    loaded = load_image(encode(format_name, frames[0], save_all=True, append_images=frames[1:], **options))
    assert loaded.rgb.tolist() == [[[255, 0, 0]] * 20] * 10
    assert len(loaded.notes) == 1 and "first" in loaded.notes[0] and format_name in loaded.notes[0]


@pytest.mark.parametrize("format_name", ["PNG", "BMP", "TIFF", "PPM", "GIF", "WEBP", "JPEG", "JPEG2000"])
def test_one_pixel(format_name, encode):
    options = {"lossless": True} if format_name == "WEBP" else {"quality": 100} if format_name == "JPEG" else {}
    loaded = load_image(encode(format_name, np.full((1, 1, 3), 120, np.uint8), **options))
    close(loaded.rgb, np.full((1, 1, 3), 120, np.uint8), 1)


@pytest.mark.parametrize("shape", [(1, 2000), (2000, 1)])
def test_long_thin_pictures(shape, encode):
    picture = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    np.testing.assert_array_equal(load_image(encode("PNG", picture)).rgb, picture)


def test_other_colour_spaces():
    grey = Image.new("LAB", (4, 4), (128, 128, 128))
    close(load_image(grey).rgb, np.full((4, 4, 3), 119, np.uint8), 2)
    close(load_image(Image.new("YCbCr", (4, 4), (90, 128, 128))).rgb, np.full((4, 4, 3), 90, np.uint8), 0)
    close(load_image(Image.new("HSV", (4, 4), (0, 255, 200))).rgb, np.full((4, 4, 3), (200, 0, 0), np.uint8), 0)


def test_other_alpha_words_are_refused(smooth):
    with pytest.raises(RequestError, match="'black'"):
        load_image(smooth, alpha="black")


def test_pillow_images_stay_as_they_were(smooth, encode):
    image = Image.open(io.BytesIO(encode("PNG", smooth, exif=with_orientation(6))))
    load_image(image)
    assert image.size == (60, 40) and image.getexif()[0x0112] == 6
    np.testing.assert_array_equal(np.asarray(image), smooth)
