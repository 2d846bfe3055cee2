"""Typed reads out of the metadata of a GGUF file; every error names the file and the key."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ouzel.checkpoint.text import shown
from ouzel.errors import ConfigError, UnsupportedError

_REQUIRED = object()


class GgufMetadata:
    """The metadata of one file. `arch` is the architecture's prefix; a key that begins with a dot stands below it."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self.path = path
        self.values = values
        self.arch = self.text("general.architecture")

    def key(self, key: str) -> str:
        """The whole key."""
        return self.arch + key if key.startswith(".") else key

    def has(self, key: str) -> bool:
        """Whether the file holds the key."""
        return self.key(key) in self.values

    def error(self, key: str, expected: str, got: Any) -> ConfigError:
        """The error for a value that cannot be used."""
        return ConfigError(f"reading {self.path}", expected=f"'{self.key(key)}' to be {expected}", got=shown(got))

    def unsupported(self, key: str, got: Any, implemented: Collection[str]) -> UnsupportedError:
        """The error for a value that is valid but not implemented."""
        words = " or ".join(implemented)
        return UnsupportedError(
            f"reading {self.path}", expected=f"'{self.key(key)}' to be {words} (what is implemented)", got=shown(got)
        )

    def int(self, key: str, default: Any = _REQUIRED, low: int = 1, high: int = 2**31 - 1) -> Any:
        """A whole number within `low`..`high`."""
        value = self._get(key, default, "a whole number")
        if key_absent(value, default):
            return value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.error(key, f"a whole number from {low} to {high}", _plain(value))
        return value

    def float(self, key: str, default: Any = _REQUIRED) -> Any:
        """A finite number above zero."""
        value = self._get(key, default, "a number")
        if key_absent(value, default):
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
            raise self.error(key, "a finite number above 0", _plain(value))
        return float(value)

    def bool(self, key: str, default: Any = _REQUIRED) -> Any:
        """true or false."""
        value = self._get(key, default, "true or false")
        if not key_absent(value, default) and not isinstance(value, bool):
            raise self.error(key, "true or false", _plain(value))
        return value

    def text(self, key: str, default: Any = _REQUIRED) -> Any:
        """A text that is not empty."""
        value = self._get(key, default, "a text")
        if not key_absent(value, default) and (not isinstance(value, str) or not value):
            raise self.error(key, "a text", _plain(value))
        return value

    def texts(self, key: str, default: Any = _REQUIRED) -> Any:
        """A list of texts."""
        value = self._get(key, default, "a list of texts")
        if not key_absent(value, default) and not isinstance(value, list):
            raise self.error(key, "a list of texts", _plain(value))
        return value

    def array(self, key: str, default: Any = _REQUIRED, length: int | None = None) -> Any:
        """An array of numbers, of `length` entries when that is given."""
        value = self._get(key, default, "an array of numbers")
        if key_absent(value, default):
            return value
        if not isinstance(value, np.ndarray) or (length is not None and len(value) != length):
            raise self.error(key, f"an array of {'' if length is None else f'{length} '}numbers", _plain(value))
        return value

    def _get(self, key: str, default: Any, what: str) -> Any:
        name = self.key(key) if key.startswith(".") else key
        if name in self.values:
            return self.values[name]
        if default is _REQUIRED:
            raise ConfigError(f"reading {self.path}", expected=f"the metadata '{name}' ({what})", got="no such key")
        return default


def key_absent(value: Any, default: Any) -> bool:
    """Whether a read gave the default, which needs no check."""
    return value is default


def _plain(value: Any) -> Any:
    """A value for a message."""
    return f"an array of {len(value)}" if isinstance(value, (np.ndarray, list)) else value
