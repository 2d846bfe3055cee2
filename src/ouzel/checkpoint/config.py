"""Typed reads out of a configuration file: by path, with a default or required, within bounds, refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, TypeAlias, TypeVar, overload

from ouzel.checkpoint.text import shown
from ouzel.errors import ConfigError, UnsupportedError

T = TypeVar("T")

# Methods are named after the types that they read, so the types need names of their own inside the class.
_int: TypeAlias = int
_float: TypeAlias = float
_bool: TypeAlias = bool
_str: TypeAlias = str


class _Required:
    """Marks that a key has no default."""


REQUIRED = _Required()

# Beyond this a JSON number is no longer exact in other readers; no honest size is near it.
_MAX_INT = 2**53


class ConfigReader:
    """Typed access to `data`, the JSON object of `file`.

    Every read takes one or more dotted paths ("text_config.hidden_size"), tried in order; the first whose value is
    there and not null counts. Without `default` a missing key is a `ConfigError` that names the file and the key, and
    so is a value of another type or outside the given bounds.
    """

    def __init__(self, data: dict[_str, Any], file: _str, prefix: _str = "") -> None:
        self.data = data
        self.file = file
        self.prefix = prefix

    # -- finding -----------------------------------------------------------------------------------------------------

    def key(self, path: _str) -> _str:
        """The path from the top of the file, for messages."""
        return f"{self.prefix}{path}"

    def _lookup(self, path: _str) -> Any:
        value: Any = self.data
        parts = path.split(".")
        for depth, part in enumerate(parts):
            if not isinstance(value, dict):
                raise self.error(".".join(parts[:depth]), "an object", value)
            value = value.get(part)
            if value is None:
                return None
        return value

    def find(self, *paths: _str) -> tuple[_str, Any] | None:
        """The first of `paths` that holds a value other than null, with that value; None when none does."""
        for path in paths:
            value = self._lookup(path)
            if value is not None:
                return path, value
        return None

    def has(self, *paths: _str) -> _bool:
        """Whether one of `paths` holds a value other than null."""
        return self.find(*paths) is not None

    def error(self, path: _str, expected: _str, value: Any) -> ConfigError:
        """The error for a value that is there but cannot be used."""
        return ConfigError(
            f"reading {self.file}", expected=f"'{self.key(path)}' to be {expected}", got=_found(value)
        )

    def _read(self, paths: tuple[_str, ...], default: Any, what: _str, check: Callable[[Any], Any]) -> Any:
        found = self.find(*paths)
        if found is None:
            if not isinstance(default, _Required):
                return default
            names = " or ".join(f"'{self.key(path)}'" for path in paths)
            raise ConfigError(f"reading {self.file}", expected=f"the key {names} ({what})", got="no such key")
        path, value = found
        try:
            return check(value)
        except (TypeError, ValueError, OverflowError):
            raise self.error(path, what, value) from None

    # -- one value ---------------------------------------------------------------------------------------------------

    @overload
    def int(self, *paths: _str, min: _int | None = 1, max: _int = ..., multiple_of: _int = 1) -> _int: ...
    @overload
    def int(
        self, *paths: _str, default: T, min: _int | None = 1, max: _int = ..., multiple_of: _int = 1
    ) -> _int | T: ...
    def int(
        self,
        *paths: _str,
        default: Any = REQUIRED,
        min: _int | None = 1,
        max: _int = _MAX_INT,
        multiple_of: _int = 1,
    ) -> Any:
        """A whole number within `min`..`max` (from 1 unless said; `min=None` allows negative ones)."""
        low = -_MAX_INT if min is None else min
        what = _number_words("a whole number", min, None if max == _MAX_INT else max, multiple_of)

        def check(value: Any) -> _int:
            if isinstance(value, _bool) or not isinstance(value, _int):
                raise TypeError
            if not low <= value <= max or value % multiple_of:
                raise ValueError
            return value

        return self._read(paths, default, what, check)

    @overload
    def float(
        self, *paths: _str, min: _float | None = None, max: _float | None = None, above: _float | None = None
    ) -> _float: ...
    @overload
    def float(
        self,
        *paths: _str,
        default: T,
        min: _float | None = None,
        max: _float | None = None,
        above: _float | None = None,
    ) -> _float | T: ...
    def float(
        self,
        *paths: _str,
        default: Any = REQUIRED,
        min: _float | None = None,
        max: _float | None = None,
        above: _float | None = None,
    ) -> Any:
        """A finite number (whole ones count), at least `min`, at most `max`, more than `above`."""
        what = _number_words("a finite number", min, max, 1)
        if above is not None:
            what += f" above {above:g}"

        def check(value: Any) -> _float:
            if isinstance(value, _bool) or not isinstance(value, (_int, _float)):
                raise TypeError
            number = _float(value)
            if not math.isfinite(number) or (above is not None and number <= above):
                raise ValueError
            if (min is not None and number < min) or (max is not None and number > max):
                raise ValueError
            return number

        return self._read(paths, default, what, check)

    @overload
    def bool(self, *paths: _str) -> _bool: ...
    @overload
    def bool(self, *paths: _str, default: T) -> _bool | T: ...
    def bool(self, *paths: _str, default: Any = REQUIRED) -> Any:
        """true or false; 0 and 1 are refused."""

        def check(value: Any) -> _bool:
            if not isinstance(value, _bool):
                raise TypeError
            return value

        return self._read(paths, default, "true or false", check)

    @overload
    def str(self, *paths: _str) -> _str: ...
    @overload
    def str(self, *paths: _str, default: T) -> _str | T: ...
    def str(self, *paths: _str, default: Any = REQUIRED) -> Any:
        """A string that is not empty."""

        def check(value: Any) -> _str:
            if not isinstance(value, _str) or not value:
                raise TypeError
            return value

        return self._read(paths, default, "a string", check)

    # -- lists and sections ------------------------------------------------------------------------------------------

    @overload
    def ints(self, *paths: _str, length: _int | None = None, min: _int | None = 0, max: _int = ...) -> list[_int]: ...
    @overload
    def ints(
        self, *paths: _str, default: T, length: _int | None = None, min: _int | None = 0, max: _int = ...
    ) -> list[_int] | T: ...
    def ints(
        self,
        *paths: _str,
        default: Any = REQUIRED,
        length: _int | None = None,
        min: _int | None = 0,
        max: _int = _MAX_INT,
    ) -> Any:
        """A list of whole numbers, each within `min`..`max`; of `length` entries when that is given."""
        low = -_MAX_INT if min is None else min
        count = "" if length is None else f"{length} "
        what = _number_words(f"a list of {count}whole numbers", min, None if max == _MAX_INT else max, 1)

        def check(value: Any) -> list[_int]:
            if not isinstance(value, list) or any(isinstance(v, _bool) or not isinstance(v, _int) for v in value):
                raise TypeError
            if (length is not None and len(value) != length) or any(not low <= v <= max for v in value):
                raise ValueError
            return list(value)

        return self._read(paths, default, what, check)

    @overload
    def floats(self, *paths: _str, length: _int | None = None) -> list[_float]: ...
    @overload
    def floats(self, *paths: _str, default: T, length: _int | None = None) -> list[_float] | T: ...
    def floats(self, *paths: _str, default: Any = REQUIRED, length: _int | None = None) -> Any:
        """A list of finite numbers, of `length` entries when that is given."""
        count = "" if length is None else f"{length} "

        def check(value: Any) -> list[_float]:
            if not isinstance(value, list) or any(
                isinstance(v, _bool) or not isinstance(v, (_int, _float)) for v in value
            ):
                raise TypeError
            numbers = [_float(v) for v in value]
            if (length is not None and len(numbers) != length) or not all(map(math.isfinite, numbers)):
                raise ValueError
            return numbers

        return self._read(paths, default, f"a list of {count}finite numbers", check)

    @overload
    def strs(self, *paths: _str) -> list[_str]: ...
    @overload
    def strs(self, *paths: _str, default: T) -> list[_str] | T: ...
    def strs(self, *paths: _str, default: Any = REQUIRED) -> Any:
        """A list of strings."""

        def check(value: Any) -> list[_str]:
            if not isinstance(value, list) or not all(isinstance(v, _str) for v in value):
                raise TypeError
            return list(value)

        return self._read(paths, default, "a list of strings", check)

    @overload
    def section(self, *paths: _str) -> ConfigReader: ...
    @overload
    def section(self, *paths: _str, default: T) -> ConfigReader | T: ...
    def section(self, *paths: _str, default: Any = REQUIRED) -> Any:
        """A reader of the object at the first of `paths`; its errors name the whole key.

        `reader.section("text_config", default=reader)` reads nested and flat layouts alike.
        """
        found = self.find(*paths)
        if found is None:
            return self._read(paths, default, "an object", lambda value: value)
        path, value = found
        if not isinstance(value, dict):
            raise self.error(path, "an object", value)
        return ConfigReader(value, self.file, self.key(path) + ".")

    # -- refusing ----------------------------------------------------------------------------------------------------

    def refuse_unless(self, path: _str, allowed: Collection[Any], *, default: Any = REQUIRED) -> Any:
        """The value at `path`, which must be one of `allowed`; `UnsupportedError` names file, key and value.

        For keys that change the mathematics: what is not implemented is refused, not ignored. A missing or null key
        has the value `default` and is not checked; without `default` it is a `ConfigError`.
        """
        found = self.find(path)
        if found is None:
            return self._read((path,), default, " or ".join(map(_found, allowed)), lambda value: value)
        value = found[1]
        # True == 1 in Python, but not in a configuration file.
        if any(value == one and isinstance(value, _bool) == isinstance(one, _bool) for one in allowed):
            return value
        raise self.unsupported(path, value, allowed)

    def unsupported(self, path: _str, value: Any, implemented: Collection[Any]) -> UnsupportedError:
        """The error for a value that is valid but that Ouzel does not implement."""
        names = sorted(_found(one) for one in implemented)
        return UnsupportedError(
            f"reading {self.file}",
            expected=f"'{self.key(path)}' to be {' or '.join(names)} (what is implemented)",
            got=_found(value),
        )


def _found(value: Any) -> str:
    """A value for a message; floats that JSON has no word for are named."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return shown(value)


def _number_words(what: str, low: float | None, high: float | None, multiple_of: int) -> str:
    if low is not None and high is not None:
        what += f" from {low:g} to {high:g}" if isinstance(low, float) else f" from {low} to {high}"
    elif low is not None:
        what += f" from {low}"
    elif high is not None:
        what += f" up to {high}"
    return what if multiple_of == 1 else f"{what}, a multiple of {multiple_of}"


def tie_word_embeddings(reader: ConfigReader, *, default: bool = False) -> bool:
    """Whether the head's weight is the embedding: the flag on top of the file or else in its text part.

    `default` is the family's own, for files without the flag. When both are there the top one counts, as in
    transformers 5. Whether the file also holds a head tensor does not matter (`weights.load_weights`).
    """
    return reader.bool("tie_word_embeddings", "text_config.tie_word_embeddings", default=default)


def stored_dtype(reader: ConfigReader) -> str | None:
    """The number format that the configuration names ("bfloat16"), under either of its keys; None without one."""
    names = ("dtype", "torch_dtype", "text_config.dtype", "text_config.torch_dtype")
    value = reader.str(*names, default=None)
    return None if value is None else value.removeprefix("torch.")


def refuse_quantized(reader: ConfigReader) -> None:
    """`UnsupportedError` for checkpoints whose weights are stored quantised (GPTQ, AWQ, FP8, bitsandbytes...)."""
    found = reader.find("quantization_config", "text_config.quantization_config")
    if found is None:
        return
    path, value = found
    method = value.get("quant_method") if isinstance(value, dict) else value
    raise UnsupportedError(
        f"reading {reader.file}",
        expected="a checkpoint with f32, bf16 or f16 weights",
        got=f"'{reader.key(path)}' with the method {_found(method)}",
        fix="use the original checkpoint that this one was made from",
    )
