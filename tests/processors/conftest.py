"""Pictures that the tests make, and the folder of the family's fixtures."""

from __future__ import annotations

import io
import json
import pathlib
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

FIXTURES = pathlib.Path(__file__).parent.parent / "data" / "fixtures" / "qwen3_vl"


@pytest.fixture(scope="session")
def fixtures() -> pathlib.Path:
    return FIXTURES


@pytest.fixture(scope="session")
def processor_cases() -> dict:
    return json.loads((FIXTURES / "processor_cases.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def smooth() -> np.ndarray:
    """uint8 [40, 60, 3]: soft colours without symmetry, so that turns and swapped channels show and JPEG keeps them."""
    y, x = np.mgrid[0:40, 0:60]
    return np.stack([60 + 3 * x, 220 - 4 * y, 40 + 2 * x + y], axis=2).astype(np.uint8)


@pytest.fixture(scope="session")
def encode():
    """Encodes an array or a Pillow image: encode("PNG", array, **save_options) -> bytes."""

    def run(format_name: str, picture: np.ndarray | Image.Image, **options: object) -> bytes:
        image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
        stream = io.BytesIO()
        image.save(stream, format_name, **options)
        return stream.getvalue()

    return run


@pytest.fixture(scope="session")
def png_chunks():
    """Builds a PNG file by hand: png_chunks(width, height, raw_rows, depth=8, colour=2, interlace=0) -> bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    def run(width: int, height: int, raw: bytes, *, depth: int = 8, colour: int = 2, interlace: int = 0) -> bytes:
        header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
        body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
        return b"\x89PNG\r\n\x1a\n" + body

    return run
