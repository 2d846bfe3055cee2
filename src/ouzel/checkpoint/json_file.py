"""Reading a JSON file of a checkpoint: bounded, UTF-8, and with errors that name the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ouzel.checkpoint.text import shown
from ouzel.errors import CheckpointError

# tokenizer.json of a large vocabulary is about 20 MB; nothing that is read here is larger than that.
JSON_LIMIT = 64 << 20


def os_error(operation: str, path: str | os.PathLike[str], error: OSError) -> CheckpointError:
    """The one-line error for a failed file operation on `path`."""
    if isinstance(error, PermissionError):
        return CheckpointError(
            operation, expected="a file or folder that this user may read", got=f"no permission for {path}"
        )
    if isinstance(error, FileNotFoundError):
        return CheckpointError(operation, expected=f"{path}", got="no such file")
    return CheckpointError(operation, got=f"{error.strerror or error} for {path}")


def read_bytes(path: Path, limit: int = JSON_LIMIT) -> bytes:
    """The content of `path`, at most `limit` bytes; `CheckpointError` when it cannot be read or is larger."""
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise os_error(f"reading {path.name}", path, error) from None
    if len(data) > limit:
        raise CheckpointError(f"reading {path}", expected=f"at most {limit} bytes", got="a larger file")
    return data


def read_json(path: Path, limit: int = JSON_LIMIT) -> dict[str, Any]:
    """The JSON object in `path` (UTF-8, with or without a byte order mark).

    Raises `CheckpointError` when the file cannot be read, is larger than `limit` bytes, is not UTF-8, is not JSON, or
    holds something else than an object. A key that stands twice has its last value, as in Python and transformers.
    """
    data = read_bytes(path, limit)
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"reading {path}", expected="UTF-8 text", got=f"an invalid byte at position {error.start}"
        ) from None
    except json.JSONDecodeError as error:
        what = "an empty file" if not data.strip() else f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise CheckpointError(
            f"reading {path}", expected="JSON", got=what, fix="download the file again"
        ) from None
    except RecursionError:
        raise CheckpointError(f"reading {path}", expected="JSON", got="too many nested brackets") from None
    except ValueError as error:  # a number with thousands of digits
        raise CheckpointError(f"reading {path}", expected="JSON", got=str(error)[:80]) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"reading {path}", expected="a JSON object", got=shown(value))
    return value
