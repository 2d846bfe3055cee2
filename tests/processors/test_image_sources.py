"""Every entrance gives the same array; what is no local picture is refused in one short line."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import urllib.parse

import numpy as np
import pytest
from PIL import Image

from ouzel.errors import ImageError
from ouzel.processors.image_loader import load_image


@pytest.fixture(scope="module")
def turned(smooth, encode):
    """A JPEG with an EXIF turn: bytes that every entrance must read alike."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode("JPEG", smooth, exif=exif, quality=90)


def data_urls(data: bytes) -> dict[str, str]:
    text = base64.b64encode(data).decode()
    folded = "\n ".join(text[at : at + 60] for at in range(0, len(text), 60))
    return {
        "plain": f"data:image/jpeg;base64,{text}",
        "wrong type": f"data:image/png;base64,{text}",
        "no type": f"data:;base64,{text}",
        "only base64": f"data:base64,{text}",
        "charset": f"data:image/jpeg;charset=utf-8;base64,{text}",
        "name": f'data:image/jpeg;name="a b.jpg";base64,{text}',
        "capitals": f"DATA:Image/JPEG;BASE64,{text}",
        "spaces around": f"  \n data:image/jpeg; base64 , {text} \n",
        "folded": f"data:image/jpeg;base64,{folded}",
        "url alphabet": f"data:image/jpeg;base64,{base64.urlsafe_b64encode(data).decode()}",
        "no padding": f"data:image/jpeg;base64,{text.rstrip('=')}",
        "quoted base64": f"data:image/jpeg;base64,{urllib.parse.quote(text, safe='')}",
        "quoted bytes": f"data:image/jpeg,{urllib.parse.quote_from_bytes(data, safe='')}",
        "prefix": f"base64:{text}",
        "prefix capitals": f" Base64: {folded}",
    }


def test_every_entrance_gives_the_same(turned, smooth, tmp_path):
    path = tmp_path / "ein Bild ü 图.png"  # neither name nor type decide
    path.write_bytes(turned)
    expected = load_image(turned)
    assert expected.size == (60, 40) and expected.exif_turned
    sources = {
        "str": str(path), "path": path, "file url": path.as_uri(), "bytearray": bytearray(turned),
        "memoryview": memoryview(turned), "stream": io.BytesIO(turned), **data_urls(turned),
    }  # fmt: skip
    for name, source in sources.items():
        loaded = load_image(source)
        np.testing.assert_array_equal(loaded.rgb, expected.rgb, err_msg=name)
        assert loaded.content_hash == expected.content_hash == hashlib.sha256(turned).hexdigest(), name
    np.testing.assert_array_equal(load_image(Image.open(path)).rgb, expected.rgb)
    np.testing.assert_array_equal(load_image(expected.rgb).rgb, expected.rgb)


def test_streams_are_read_from_where_they_stand_and_stay_open(turned):
    stream = io.BytesIO(b"junk" + turned)
    stream.seek(4)
    assert load_image(stream).size == (60, 40)
    assert not stream.closed


def test_files_are_closed(turned, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(turned)
    load_image(path)  # a handle left open is a ResourceWarning, hence an error in this suite
    path.rename(tmp_path / "b.jpg")
    (tmp_path / "b.jpg").unlink()


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)])
def test_arrays(shape):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    loaded = load_image(array, alpha="drop")
    expected = np.broadcast_to(array.reshape(5, 7, -1)[:, :, :3], (5, 7, 3))
    np.testing.assert_array_equal(loaded.rgb, expected)
    assert not np.shares_memory(loaded.rgb, array)
    assert load_image(array[::-1].copy()).content_hash != load_image(array).content_hash
    np.testing.assert_array_equal(load_image(np.asfortranarray(array), alpha="drop").rgb, expected)


def test_array_hash_depends_on_shape():
    flat = np.zeros(60, np.uint8)
    assert (
        len({load_image(flat.reshape(shape)).content_hash for shape in ((6, 10), (10, 6), (5, 4, 3), (5, 3, 4))}) == 4
    )


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((4, 4, 3), np.float32), "float32"),
        (np.zeros((4, 4, 3), np.float64), "scale float pictures"),
        (np.zeros((4, 4), bool), "bool"),
        (np.zeros((3, 40, 50), np.uint8), "channels are the last axis"),
        (np.zeros((1, 4, 4, 3), np.uint8), r"\[1, 4, 4, 3\]"),
        (np.zeros((4, 4, 2), np.uint8), r"\[4, 4, 2\]"),
        (np.zeros((0, 4, 3), np.uint8), "1x1|height"),
        (np.zeros(4, np.uint8), r"\[4\]"),
        (np.zeros((), np.uint8), r"\[\]"),
    ],
)
def test_arrays_that_are_no_pictures(array, words):
    with pytest.raises(ImageError, match=words):
        load_image(array)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("http://example.com/a.png", "remote fetching is off"),
        (" HTTPS://example.com/a.png", "remote fetching is off"),
        ("ftp://example.com/a.png", "remote fetching is off"),
        ("s3://bucket/a.png", "not read"),
        ("file://host/a.png", "remote fetching is off"),
        ("/no/such/file.png", "no such file"),
        ("", "no such file|readable"),
        ("a\0b", "readable file"),
        ("x" * 100_000, "readable file|no such file"),
        ("data:image/png;base64", "comma"),
        ("data:image/png;base64,", "nothing"),
        ("data:,", "none"),
        ("data:image/png;base64,@@@@", "not base64"),
        ("data:image/png;base64,A", "not base64"),
        ("data:image/png;base64,é", "not base64"),
        ("base64:", "nothing"),
        ("base64:***", "not base64"),
        (b"", "0 bytes"),
        (b"hello, this is no picture", "unknown format"),
        (io.BytesIO(b""), "0 bytes"),
        (io.StringIO("text"), "stream of str"),
        (None, "NoneType"),
        (17, "int"),
        ([1, 2], "list"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_refusals_are_short(source, words):
    with pytest.raises(ImageError, match=words) as caught:
        load_image(source)
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


def test_errors_never_echo_the_data():
    with pytest.raises(ImageError) as caught:
        load_image("data:image/png;base64," + "QUJD" * 500_000)
    assert len(str(caught.value)) < 400


def test_folders_pipes_and_locked_files(tmp_path):
    with pytest.raises(ImageError):
        load_image(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ImageError, match="not a regular file"):
            load_image(tmp_path / "pipe")


def test_limit_on_bytes(turned, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(turned)
    few = len(turned) - 1
    url = data_urls(turned)
    for source in (path, io.BytesIO(turned), url["plain"], url["quoted bytes"], url["prefix"]):
        with pytest.raises(ImageError, match=f"at most {few} bytes"):
            load_image(source, max_bytes=few)
    assert load_image(path, max_bytes=len(turned)).size == (60, 40)


def test_a_stream_that_fails_is_one_error():
    class Broken:
        def read(self, size: int) -> bytes:
            raise RuntimeError("the line broke")

    with pytest.raises(ImageError, match="the line broke"):
        load_image(Broken())
