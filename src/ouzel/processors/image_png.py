"""Check of a PNG file's frame before it is decoded.

Pillow does not look at the check sums of picture data, takes a file without its end for whole, and leaves rows black
when the compressed data ends early; a reading of such a picture would be wrong without a word.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from ouzel.errors import ImageError

_CHECKED = (b"IHDR", b"PLTE", b"IDAT", b"tRNS", b"IEND")
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Seven interlaced passes: first column, first row, step of columns, step of rows.
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_PIECE = 1 << 20


def check_png(data: bytes) -> None:
    """Walks a PNG file: every picture chunk whole, its check sum right, the data long enough, the end there.

    Raises ImageError at the first fault. At most the picture's own size is inflated, in pieces that are not kept.
    """
    wanted = 0
    inflated = 0
    inflater = zlib.decompressobj()
    for kind, body in _chunks(data):
        if kind == b"IHDR":
            wanted = _raw_bytes(body)
        elif kind == b"IDAT" and inflated < wanted:
            inflated += _inflated_bytes(inflater, body, wanted - inflated)
    inflated += len(inflater.flush())
    if inflated < wanted:
        raise _damaged(f"{inflated} of {wanted} bytes of picture data")


def _chunks(data: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """(kind, body) of the picture's own chunks up to IEND."""
    view = memoryview(data)
    at = 8
    kind = b""
    while kind != b"IEND":
        if at + 12 > len(data):
            raise _damaged("a file that ends before its IEND chunk")
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        if end + 4 > len(data):
            raise _damaged("a chunk that goes past the end of the file")
        if kind in _CHECKED:
            if zlib.crc32(view[at + 4 : end]) != int.from_bytes(view[end : end + 4], "big"):
                raise _damaged(f"a wrong check sum in the {kind.decode('ascii')} chunk")
            yield kind, view[at + 8 : end]
        at = end + 4


def _inflated_bytes(inflater: zlib._Decompress, body: memoryview, most: int) -> int:
    total = 0
    piece: bytes | memoryview = body
    try:
        while piece and total < most and not inflater.eof:
            total += len(inflater.decompress(piece, _PIECE))
            piece = inflater.unconsumed_tail
    except zlib.error as error:
        raise _damaged(str(error)) from None
    return total


def _raw_bytes(header: memoryview) -> int:
    """Bytes of the inflated picture: every row of every pass with its filter byte."""
    if len(header) < 13:
        raise _damaged("a short IHDR chunk")
    width, height, depth, colour, _, _, interlace = struct.unpack_from(">IIBBBBB", header)
    bits = depth * _CHANNELS.get(colour, 1)
    passes = _ADAM7 if interlace else ((0, 0, 1, 1),)
    total = 0
    for x, y, dx, dy in passes:
        columns, rows = (width - x + dx - 1) // dx, (height - y + dy - 1) // dy
        if columns > 0 and rows > 0:
            total += rows * (1 + (columns * bits + 7) // 8)
    return total


def _damaged(got: str) -> ImageError:
    return ImageError("decode a picture", expected="a whole PNG file", got=got)
