"""Damaged, truncated, unknown and giant files: one ImageError, quickly, without warnings and without the memory."""

from __future__ import annotations

import io
import struct
import threading
import time
import tracemalloc
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile

from ouzel.errors import ImageError
from ouzel.processors.image_loader import load_image

FORMATS = {
    "PNG": {}, "JPEG": {"quality": 90}, "WEBP": {"quality": 90}, "GIF": {}, "BMP": {}, "TIFF": {"compression":
    "tiff_lzw"},
}  # fmt: skip


@pytest.fixture(scope="module")
def files(smooth, encode):
    noise = np.random.default_rng(3).integers(0, 30, (24, 32, 3), dtype=np.uint8)
    small = np.minimum(smooth[:24, :32], 225) + noise  # noise keeps the files long
    made = {name: encode(name, small, **options) for name, options in FORMATS.items()}
    made["PNG interlaced palette"] = encode("PNG", Image.fromarray(small).convert("P"), transparency=3)
    made["JPEG progressive"] = encode("JPEG", small, progressive=True)
    made["WEBP lossless alpha"] = encode("WEBP", np.dstack([small, small[..., 0]]), lossless=True)
    made["TIFF plain"] = encode("TIFF", small)
    return made


@pytest.mark.parametrize("name", [*FORMATS, "JPEG progressive", "WEBP lossless alpha", "TIFF plain"])
def test_truncated_files(name, files):
    data = files[name]
    load_image(data)
    for share in (0.02, 0.1, 0.3, 0.5, 0.7, 0.9):
        with pytest.raises(ImageError):
            load_image(data[: int(len(data) * share)])


@pytest.mark.parametrize("name", ["PNG", "JPEG", "WEBP"])
def test_a_file_without_its_last_bytes(name, files):
    for count in (1, 2, 4):
        with pytest.raises(ImageError, match=name.replace("WEBP", "WebP")):
            load_image(files[name][:-count])


def test_truncated_pillow_image(files):
    for name, kept in (("PNG", 0.5), ("JPEG", 0.99)):  # Pillow must still open the header
        image = Image.open(io.BytesIO(files[name][: int(len(files[name]) * kept)]))
        with pytest.raises(ImageError):
            load_image(image)


def test_png_with_changed_picture_data(files):
    data = bytearray(files["PNG"])
    data[data.index(b"IDAT") + 20] ^= 1
    with pytest.raises(ImageError, match="check sum in the IDAT chunk"):
        load_image(bytes(data))


@pytest.mark.parametrize("interlace", [0, 1])
def test_png_with_too_few_rows(interlace, png_chunks):
    """Pillow would give black rows in the place of the missing ones."""
    row = b"\0" + b"\xff" * 30
    if interlace:
        passes = [b"\0" + b"\xff" * (3 * columns) for columns, rows in ((2, 2), (1, 2), (3, 1)) for _ in range(rows)]
        short = b"".join(passes)
    else:
        short = row * 5
        assert load_image(png_chunks(10, 10, row * 10)).rgb.min() == 255
    with pytest.raises(ImageError, match="bytes of picture data"):
        load_image(png_chunks(10, 10, short, interlace=interlace))


def test_interlaced_png_with_all_rows(png_chunks):
    raw = b""
    for x, y, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        columns, rows = len(range(x, 10, dx)), len(range(y, 10, dy))
        raw += (b"\0" + b"\xc8" * (3 * columns)) * (rows if columns else 0)
    assert (load_image(png_chunks(10, 10, raw, interlace=1)).rgb == 200).all()


GIANTS = {
    "PNG": lambda: b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 60000, 60000, 8, 2, 0, 0, 0)
    + struct.pack(">I", zlib.crc32(struct.pack(">4sIIBBBBB", b"IHDR", 60000, 60000, 8, 2, 0, 0, 0)))
    + struct.pack(">I4s", 4, b"IDAT") + b"abcd" + struct.pack(">I", zlib.crc32(b"IDATabcd")),
    "BMP": lambda: b"BM" + struct.pack("<IHHIIiiHHIIiiII", 1000, 0, 0, 54, 40, 50000, 50000, 1, 24, 0, 0, 0, 0, 0, 0),
    "GIF": lambda: b"GIF89a" + struct.pack("<HHBBB", 60000, 60000, 0x80, 0, 0) + bytes(6) + b"," + struct.pack(
        "<HHHHB", 0, 0, 60000, 60000, 0) + b"\2\1\0\0;",
    "WebP": lambda: b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4)
    + (16382).to_bytes(3, "little") * 2 + bytes(8),
    "WebP lossy": lambda: b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8 " + struct.pack("<I", 10) + b"\x30\1\0\x9d\1\x2a"
    + struct.pack("<HH", 16383, 16383) + bytes(8),
    "WebP lossless": lambda: b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8L" + struct.pack("<I", 10) + b"\x2f"
    + struct.pack("<I", 16383 | 16383 << 14) + bytes(12),
    "TIFF": lambda: b"II*\0\x08\0\0\0" + struct.pack("<H", 8) + b"".join(
        struct.pack("<HHII", *entry) for entry in (
            (256, 4, 1, 70000), (257, 4, 1, 70000), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8),
            (278, 4, 1, 70000), (279, 4, 1, 10))) + bytes(4),
    "JPEG": lambda: b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB", 17, 8, 60000, 60000, 3) + b"\1\x11\0\2\x11\0\3\x11\0"
    + b"\xff\xda" + bytes(40),
    "PPM": lambda: b"P6 60000 60000 255\n" + bytes(100),
}  # fmt: skip


@pytest.mark.parametrize("name", GIANTS)
def test_declared_giants_are_refused_before_decoding(name, monkeypatch):
    data = GIANTS[name]()
    decoded = []
    monkeypatch.setattr(ImageFile.ImageFile, "load", decoded.append)
    start = time.perf_counter()
    tracemalloc.start()
    with pytest.raises(ImageError, match="pixels"):
        load_image(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert time.perf_counter() - start < 2.0
    assert peak < 20e6 and decoded == []


def test_the_limit_is_a_parameter(smooth, encode):
    for source in (encode("PNG", smooth), encode("WEBP", smooth), smooth, Image.fromarray(smooth)):
        assert load_image(source, max_pixels_guard=40 * 60).size == (40, 60)
        with pytest.raises(ImageError, match="at most 2399 pixels, got 60x40"):
            load_image(source, max_pixels_guard=40 * 60 - 1)


def test_pillows_own_limits_stay_inside(smooth, encode, monkeypatch):
    data = encode("BMP", smooth)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1500)  # warns
    assert load_image(data).size == (40, 60)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # refuses
    with pytest.raises(ImageError, match="MAX_IMAGE_PIXELS"):
        load_image(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64), "HEIC"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic" + bytes(64), "HEIC"),
        (b"\0\0\0\x0cJXL \r\n\x87\n" + bytes(64), "JPEG XL"),
        (b"\xff\x0a" + bytes(64), "JPEG XL"),
        (b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"%PDF-1.7 ...", "PDF"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "PostScript"),
        (b"\n<!DOCTYPE html><html>not found</html>", "web page"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isomiso2" + bytes(64), "video"),
    ],
)
def test_formats_without_a_decoder_are_named(data, words):
    with pytest.raises(ImageError, match=words):
        load_image(data)


def test_a_registered_format_without_its_codec_is_named(monkeypatch):
    from PIL import features

    data = b"\0\0\0\x1cftypavif\0\0\0\0avifmif1" + bytes(64)
    with pytest.raises(ImageError, match="AVIF"):
        load_image(data)
    monkeypatch.setattr(features, "check", lambda name: False)
    with pytest.raises(ImageError, match="installed decoder, got AVIF; install"):
        load_image(data)


@pytest.mark.parametrize(
    "name", [*FORMATS, "PNG interlaced palette", "JPEG progressive", "WEBP lossless alpha", "TIFF plain"]
)
def test_flipped_bytes_give_a_picture_or_one_error(name, files):
    seed = zlib.crc32(name.encode())
    generator = np.random.default_rng(seed)
    print("seed", seed)
    refused = 0
    for _ in range(150):
        data = bytearray(files[name])
        for at in generator.integers(0, len(data), int(generator.integers(1, 6))):
            data[at] = int(generator.integers(0, 256))
        if generator.integers(0, 4) == 0:
            del data[int(generator.integers(1, len(data))) :]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                loaded = load_image(bytes(data), max_pixels_guard=1_000_000)
            except ImageError as error:
                refused += 1
                assert "\n" not in str(error) and len(str(error)) < 500
            else:
                assert loaded.rgb.dtype == np.uint8 and loaded.rgb.shape == (*loaded.size, 3)
    assert refused > 0


def test_random_bytes_after_every_signature():
    generator = np.random.default_rng(5)
    signatures = [
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff",
        b"GIF89a",
        b"BM",
        b"II*\0",
        b"MM\0*",
        b"P6",
        b"qoif",
        b"RIFF\0\0\0\0WEBP",
    ]
    for signature in [*signatures, b"\0\0\1\0", b"\xff\x4f\xff\x51"]:
        for _ in range(20):
            with pytest.raises(ImageError):
                load_image(signature + generator.bytes(200), max_pixels_guard=1_000_000)


def test_decoding_in_threads_keeps_the_filters(files):
    """Warning filters are process-wide: many decoders at once must leave them as they were."""
    before = list(warnings.filters)
    failed = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                load_image(files["PNG" if number % 2 else "GIF"])
        except Exception as error:  # reported below; a thread's exception would be lost
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and warnings.filters == before


def test_memory_is_bounded_by_the_picture(encode):
    picture = np.zeros((2000, 1500, 3), np.uint8)
    data = encode("PNG", np.dstack([picture, np.full(picture.shape[:2], 128, np.uint8)]))
    tracemalloc.start()
    load_image(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The RGB result, one RGBA copy, and small blocks beside them.
    assert peak < picture.nbytes * 4
