"""From whatever a caller names as a picture to its bytes: paths, file objects, data URLs, prefixed base64.

Nothing is fetched from the network. Error messages never repeat more than the first few characters of a source.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import stat
from typing import IO
from urllib.parse import unquote, unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from ouzel.errors import ImageError

#: Largest file, stream or data URL that is read, in bytes.
MAX_SOURCE_BYTES = 512 * 1024 * 1024

_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.\-]+):")
_BASE64_PREFIX = "base64:"
_SPACE = re.compile(rb"\s+")


def short(text: str, limit: int = 60) -> str:
    """The text on one line, cut for an error message."""
    text = " ".join(text.split())
    return text if len(text) <= limit else text[:limit] + "..."


def bytes_of_text(source: str, max_bytes: int = MAX_SOURCE_BYTES) -> bytes:
    """Bytes named by a string: a path, a `file://` URL, a `data:` URL, or base64 behind the prefix `base64:`.

    Raises ImageError for remote addresses, unknown schemes, malformed data and unreadable files.
    """
    scheme = _SCHEME.match(source)
    name = scheme.group(1).lower() if scheme else ""
    if name == "data":
        return data_url_bytes(source, max_bytes)
    if name == "base64":
        return _base64_bytes(source.lstrip()[len(_BASE64_PREFIX) :].encode("utf-8", "replace"), max_bytes)
    if name in ("http", "https", "ftp"):
        raise ImageError(
            "load a picture", expected="a local picture", got=f"the remote address {short(source)!r}",
            fix="remote fetching is off; give a path, bytes or a data URL",
        )  # fmt: skip
    if name == "file" and "://" in source:
        return path_bytes(_local_path(source.strip()), max_bytes)
    if scheme and source[scheme.end() :].startswith("//"):
        raise ImageError(
            "load a picture", expected="a path, a data URL or 'base64:...'", got=f"{short(source)!r}",
            fix="addresses of this scheme are not read",
        )  # fmt: skip
    return path_bytes(source, max_bytes)


def _local_path(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ImageError(
            "load a picture", expected="a file URL without a host", got=f"{short(url)!r}",
            fix="remote fetching is off; give a path, bytes or a data URL",
        )  # fmt: skip
    return url2pathname(parts.path)


def path_bytes(path: str | os.PathLike[str], max_bytes: int = MAX_SOURCE_BYTES) -> bytes:
    """All bytes of a regular file. Raises ImageError when there is none, it is too large or may not be read."""
    shown = short(os.fspath(path), 200)
    try:
        status = os.stat(path)  # before opening: opening a pipe would wait for its writer
        if not stat.S_ISREG(status.st_mode):
            raise ImageError("load a picture", expected="a file", got=f"{shown!r}, which is not a regular file")
        if status.st_size > max_bytes:
            raise _too_many_bytes(max_bytes, f"{status.st_size} bytes in {shown!r}")
        with open(path, "rb") as file:
            return stream_bytes(file, max_bytes)
    except FileNotFoundError:
        raise ImageError(
            "load a picture", expected="an existing file", got=f"{shown!r}", fix="no such file; check the path"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageError("load a picture", expected="a readable file", got=f"{shown!r} ({short(reason)})") from None


def stream_bytes(stream: IO[bytes], max_bytes: int = MAX_SOURCE_BYTES) -> bytes:
    """All bytes that a binary stream gives from where it stands; the stream stays open.

    Raises ImageError when it gives text, fails, or gives more than `max_bytes`.
    """
    pieces: list[bytes] = []
    total = 0
    while True:
        try:
            piece = stream.read(min(1 << 20, max_bytes + 1 - total))
        except ImageError:
            raise
        except Exception as error:  # any object with read() may come, hence any exception
            raise ImageError("load a picture", expected="a readable stream", got=short(repr(error), 120)) from error
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise ImageError(
                "load a picture", expected="a stream of bytes", got=f"a stream of {type(piece).__name__}",
                fix="open the file in binary mode ('rb')",
            )  # fmt: skip
        if not piece:
            return b"".join(pieces)
        pieces.append(bytes(piece))
        total += len(piece)
        if total > max_bytes:
            raise _too_many_bytes(max_bytes, "more")


def data_url_bytes(url: str, max_bytes: int = MAX_SOURCE_BYTES) -> bytes:
    """Bytes of a data URL: base64 or percent-encoded, with any parameters and with white space in it.

    The declared media type is not looked at: the format is told by the content. Raises ImageError when it is malformed.
    """
    head, comma, body = url.strip().partition(",")
    if not comma:
        raise ImageError(
            "read a data URL", expected="a comma between its head and its data", got=f"{short(head, 40)!r}"
        )
    parameters = [part.strip().lower() for part in unquote(head[len("data:") :]).split(";")]
    raw = unquote_to_bytes(body) if "%" in body else body.encode("utf-8", "surrogatepass")
    if "base64" in parameters[1:] or parameters == ["base64"]:
        return _base64_bytes(raw, max_bytes)
    if not raw:
        raise ImageError("read a data URL", expected="data after the comma", got="none")
    if len(raw) > max_bytes:
        raise _too_many_bytes(max_bytes, f"{len(raw)} bytes")
    return raw


def _base64_bytes(text: bytes, max_bytes: int) -> bytes:
    """Decodes base64 in the usual or the URL alphabet, with or without padding, ignoring white space."""
    text = _SPACE.sub(b"", text).replace(b"-", b"+").replace(b"_", b"/").rstrip(b"=")
    if not text:
        raise ImageError("read base64 data", expected="the bytes of a picture", got="nothing")
    if len(text) * 3 // 4 > max_bytes:
        raise _too_many_bytes(max_bytes, f"{len(text) * 3 // 4} bytes")
    try:
        return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ImageError(
            "read base64 data", expected="letters, digits, '+', '/' and '='", got=f"{len(text)} characters",
            fix=f"the data is not base64 ({short(str(error))})",
        ) from None  # fmt: skip


def _too_many_bytes(limit: int, got: str) -> ImageError:
    return ImageError("load a picture", expected=f"at most {limit} bytes", got=got)
