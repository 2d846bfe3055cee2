"""What a file is, told by its first bytes: which decoders are tried, and a name for what cannot be read.

Pillow also opens formats that hostile data should not reach (PostScript starts a program) or that carry no mark (TGA),
so only those listed here are handed to it.
"""

from __future__ import annotations

import struct

from PIL import Image, features

from ouzel.errors import ImageError

#: Pillow's names of the formats that are read. HEIF and JXL are there when a plug-in registered them.
READ_FORMATS = (
    "PNG", "JPEG", "MPO", "GIF", "WEBP", "BMP", "TIFF", "PPM", "ICO", "JPEG2000", "AVIF", "QOI", "HEIF", "JXL",
)  # fmt: skip

_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


def format_name(data: bytes) -> str | None:
    """The name of the format that the first bytes announce, or None when they are not known."""
    for name, matches in (
        ("PNG", data[:8] == b"\x89PNG\r\n\x1a\n"),
        ("JPEG", data[:3] == b"\xff\xd8\xff"),
        ("GIF", data[:6] in (b"GIF87a", b"GIF89a")),
        ("WebP", data[:4] == b"RIFF" and data[8:12] == b"WEBP"),
        ("BMP", data[:2] == b"BM"),
        ("TIFF", data[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
        ("AVIF", data[4:8] == b"ftyp" and (data[8:12] in (b"avif", b"avis") or b"avif" in data[16:64])),
        ("HEIC", data[4:8] == b"ftyp" and data[8:12] in _HEIC_BRANDS),
        ("JPEG XL", data[:2] == b"\xff\x0a" or data[:12] == b"\0\0\0\x0cJXL \r\n\x87\n"),
        ("JPEG 2000", data[:4] == b"\xff\x4f\xff\x51" or data[:8] == b"\0\0\0\x0cjP  "),
    ):
        if matches:
            return name
    return _other_kind(data)


def _other_kind(data: bytes) -> str | None:
    """Names for things that are no raster picture, or that are refused."""
    text = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in text:
        return "SVG (a drawing; render it to PNG first)"
    if text.startswith((b"<!doctype html", b"<html")):
        return "HTML (a web page)"
    if data[:5] == b"%PDF-":
        return "PDF (a document; render its pages to PNG first)"
    if data[:4] == b"%!PS":
        return "PostScript"
    if data[:4] == b"8BPS":
        return "Photoshop PSD"
    if data[4:8] == b"ftyp":
        return "MP4 (a video)"
    if data[:4] == b"\x1aE\xdf\xa3":
        return "Matroska/WebM (a video)"
    return None


def usable_formats() -> list[str]:
    """Those of `READ_FORMATS` that this Pillow registers."""
    Image.init()
    return [name for name in READ_FORMATS if name in Image.OPEN]


def unreadable(data: bytes) -> ImageError:
    """The error for bytes that no decoder took: it names the format when its mark is known."""
    if not data:
        return ImageError("decode a picture", expected="the bytes of a picture", got="0 bytes")
    name = format_name(data)
    if name is None:
        return ImageError(
            "decode a picture", expected="PNG, JPEG, WebP, GIF, BMP, TIFF or another picture format",
            got=f"{len(data)} bytes of an unknown format", fix="the format is told by content, not by name",
        )  # fmt: skip
    if _has_decoder(name):
        return ImageError("decode a picture", expected=f"a whole {name} file", got="a truncated or damaged one")
    return ImageError(
        "decode a picture", expected="a format with an installed decoder", got=name,
        fix="install a Pillow plug-in for it, or convert the picture to PNG or JPEG",
    )  # fmt: skip


def _has_decoder(name: str) -> bool:
    """Whether this Pillow decodes a format of `format_name`; some formats are registered without their codec."""
    registered = {"WebP": "WEBP", "HEIC": "HEIF", "JPEG XL": "JXL", "JPEG 2000": "JPEG2000"}.get(name, name)
    codec = {"WEBP": "webp", "AVIF": "avif", "JPEG2000": "jpg_2000"}.get(registered)
    return registered in usable_formats() and (codec is None or bool(features.check(codec)))


def declared_webp_size(data: bytes) -> tuple[int, int] | None:
    """(width, height) in a WebP header, or None. Older Pillow makes the canvas before it looks at the size."""
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return width, height
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1
    return None
