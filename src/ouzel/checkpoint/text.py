"""How values from outside are shown in messages: short, printable, on one line."""

from __future__ import annotations

import json
from typing import Any

_LIMIT = 80


def shown(value: Any, limit: int = _LIMIT) -> str:
    """`value` as it would stand in JSON (strings in quotes), cut to `limit` characters, without control characters."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**40:
        return "a number of more than 40 digits"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = f"a value of type {type(value).__name__}"
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shown_name(name: str) -> str:
    """A tensor's or file's name in single quotes, printable and cut to 160 characters."""
    return "'" + shown(name, 160)[1:].removesuffix('"') + "'"


def listed(names: list[str], limit: int = 5) -> str:
    """The first `limit` names in quotes, and how many there are in all when some are left off."""
    text = ", ".join(shown_name(name) for name in names[:limit])
    return text if len(names) <= limit else f"{text} and {len(names) - limit} more ({len(names)} in all)"
