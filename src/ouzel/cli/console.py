"""The terminal: UTF-8 whatever the locale, answers on stdout, everything else on stderr."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ouzel import env

if TYPE_CHECKING:
    from rich.console import Console


# Terminals act on control characters (colours, cursor, clipboard); a picture's text must not reach them. The
# characters from U+2400 on are their pictures; line ends and tabs stay.
_SHOWN = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_SHOWN |= {code: 0xFFFD for code in range(0x7F, 0xA0)}


class ReaderGone(Exception):
    """Whoever read our stdout has gone (`ouzel run ... | head`)."""


class OutputError(Exception):
    """stdout takes no more, for example because the disk is full."""


def use_utf8() -> None:
    """Makes the three standard streams UTF-8, also when piped, with LANG=C, and on Windows.

    What cannot be written (halves of surrogate pairs, undecodable file names) becomes a question mark instead of an error.
    """
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # Streams can be missing (pythonw) or replaced by objects that cannot be changed.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def given_text(text: str) -> str:
    """A text from the command line as UTF-8, also where the locale did not let Python decode it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # Surrogates stand for bytes that the locale's encoding did not know; they are the user's UTF-8.
        if os.name == "posix":
            return os.fsencode(text).decode("utf-8", "replace")
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def write(text: str) -> None:
    """Writes to stdout at once. Raises ReaderGone when nobody reads any more, OutputError when it cannot be written."""
    if sys.stdout is None:  # closed before we began
        raise ReaderGone
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        # Windows says "invalid argument" for a pipe whose other end is closed.
        if error.errno in (errno.EPIPE, errno.EINVAL):
            raise ReaderGone from None
        raise OutputError(f"writing to stdout: {error.strerror or error}") from None


def write_answer(text: str) -> None:
    """Writes a model's words to stdout at once. On a terminal, control characters in them are shown, not obeyed."""
    write(text.translate(_SHOWN) if sys.stdout is not None and sys.stdout.isatty() else text)


def write_line(text: str) -> None:
    """Writes a line to stdout at once."""
    write(text + "\n")


def drop_stdout() -> None:
    """Sends what is still buffered for a closed stdout nowhere, so that the interpreter does not complain at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError, io.UnsupportedOperation):
        pass


def say(text: str) -> None:
    """Writes a line to stderr; nothing happens when stderr is closed."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def stderr_console() -> Console:
    """A rich console on stderr, made now: tests and callers replace the stream."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def moves() -> bool:
    """Whether moving lines (a spinner) are welcome on stderr."""
    return sys.stderr is not None and sys.stderr.isatty() and not env.get("NO_COLOR")


@contextmanager
def busy(text: str, quiet: bool = False) -> Iterator[None]:
    """Shows that something takes its time, on a terminal only."""
    if quiet or not moves():
        yield
        return
    with stderr_console().status(text):
        yield


def read_stdin_text() -> str:
    """All of stdin as UTF-8 text, without the last line end."""
    return read_stdin_bytes().decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")


def read_stdin_bytes() -> bytes:
    """All bytes of stdin; none when it is closed."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


def print_table(columns: list[tuple[str, str]], rows: list[list[str]], total: list[str] | None = None) -> None:
    """A table on stdout. columns: (title, "left" or "right"). Plain text with aligned columns when it is not a terminal."""
    texts = [[title for title, _ in columns], *rows, *([total] if total else [])]
    widths = [max(len(row[i]) for row in texts) for i in range(len(columns))]
    lines = [_line(row, widths, columns) for row in texts]
    lines.insert(1, "  ".join("-" * width for width in widths))
    if total:
        lines.insert(len(lines) - 1, lines[1])
    write("\n".join(lines) + "\n")


def _line(row: list[str], widths: list[int], columns: list[tuple[str, str]]) -> str:
    cells = [
        text.rjust(width) if side == "right" else text.ljust(width)
        for text, width, (_, side) in zip(row, widths, columns)
    ]
    return "  ".join(cells).rstrip()


def json_text(value: Any) -> str:
    """One JSON object on one line, in readable UTF-8. Numbers that JSON has no word for become null."""
    import json

    return json.dumps(_finite(value), ensure_ascii=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
