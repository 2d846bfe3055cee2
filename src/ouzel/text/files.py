"""Reading the small text and JSON files of a checkpoint folder, with one-line errors."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from ouzel.errors import CheckpointError

# The largest real tokenizer.json files are about 35 MB.
MAX_BYTES = 256 << 20


def read_bytes(path: Path) -> bytes | None:
    """The content of a file, None when it does not exist; `CheckpointError` when it cannot be read or is huge."""
    try:
        status = path.stat()
        # A folder gives its own error; a pipe would wait for its writer for ever.
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise CheckpointError(f"reading {path}", expected="a regular file", got="a pipe or a device")
        size = status.st_size
        if size > MAX_BYTES:
            raise CheckpointError(f"reading {path}", expected=f"at most {MAX_BYTES} bytes", got=f"{size} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"reading {path}: {error.strerror or error}") from None


def read_text(path: Path) -> str | None:
    """A UTF-8 file as text, None when it does not exist."""
    data = read_bytes(path)
    if data is None:
        return None
    try:
        # A template's line ends are part of the prompt; files checked out on Windows must not change it.
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"reading {path}", expected="UTF-8 text", got=f"byte {error.start} of another kind") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, None when the file does not exist."""
    text = read_text(path)
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"reading {path}: damaged JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"reading {path}", expected="a JSON object", got=type(value).__name__)
    return value
