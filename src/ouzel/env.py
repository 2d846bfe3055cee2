"""Every switch that the environment gives, one row each, read when it is used.

`get(name)` returns the typed value or the default; a value that cannot be read is a `RequestError` that names the
variable. `python -m ouzel.env` prints the page docs/env.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

from ouzel.errors import RequestError

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"0", "false", "no", "off", ""}


def _bool(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def _flag(text: str) -> bool:
    # The NO_COLOR convention (no-color.org): any value that is not empty counts, "0" too.
    return text != ""


def _positive(text: str) -> int:
    text = text.strip()
    # int() also takes "1_000", "+4" and other scripts' digits; a switch does not.
    if not (text.isascii() and text.isdigit()) or len(text) > 15 or int(text) < 1:
        raise ValueError(text)
    return int(text)


def _folder(text: str) -> Path:
    if not text.strip() or "\0" in text:
        raise ValueError(text)
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # "~name" of a user that does not exist
        raise ValueError(text) from error


def _choice(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        word = text.strip().lower()
        if word not in names:
            raise ValueError(text)
        return word

    return read


def default_cache() -> Path:
    """The folder for packed and exported models on this system; it is not created here."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "ouzel" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ouzel"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "ouzel"


@dataclass(frozen=True)
class Switch:
    """One environment variable.

    `kind` says in words what a value may be, `read` turns the text into the value (ValueError when it cannot),
    `default` is the value when the variable is not set (a function is called then), `default_text` is what the
    documentation prints for it.
    """

    name: str
    kind: str
    read: Callable[[str], Any]
    default: Any
    default_text: str
    help: str


ISA_NAMES = ("plain", "avx2", "avxvnni", "avx512", "avx512vnni", "neon", "neondot")

SWITCHES: tuple[Switch, ...] = (
    Switch(
        "OUZEL_ISA",
        "one of " + ", ".join(ISA_NAMES),
        _choice(*ISA_NAMES),
        None,
        "the widest that the machine has",
        "Caps the instruction set of the native engine. Results do not change, only speed.",
    ),
    Switch(
        "OUZEL_THREADS",
        "a whole number from 1",
        _positive,
        None,
        "the number of fast physical cores, within the container's quota",
        "Threads of the native engine. Results do not depend on it.",
    ),
    Switch(
        "OUZEL_CACHE",
        "a folder",
        _folder,
        default_cache,
        "~/.cache/ouzel (Linux), ~/Library/Caches/ouzel (macOS), %LOCALAPPDATA%\\ouzel\\Cache (Windows)",
        "Where packed and exported models are kept between runs. Downloads stay in Hugging Face's own cache (HF_HOME).",
    ),
    Switch(
        "OUZEL_MAX_IMAGE_PIXELS",
        "a whole number from 1",
        _positive,
        178_956_970,
        "178956970",
        "Pictures whose header declares more pixels (width x height) are refused before they are decoded. Pillow refuses "
        "more than the default by itself, so only lower values change anything.",
    ),
    Switch(
        "OUZEL_OFFLINE",
        "1 or 0 (true, false, yes, no, on, off)",
        _bool,
        False,
        "0",
        "Never use the network: a hub id must already be in the Hugging Face cache.",
    ),
    Switch(
        "NO_COLOR",
        "anything that is not empty",
        _flag,
        False,
        "not set",
        "No colours and no moving progress lines in the terminal.",
    ),
)

_BY_NAME = {switch.name: switch for switch in SWITCHES}


@overload
def get(name: Literal["OUZEL_ISA"]) -> str | None: ...
@overload
def get(name: Literal["OUZEL_THREADS"]) -> int | None: ...
@overload
def get(name: Literal["OUZEL_CACHE"]) -> Path: ...
@overload
def get(name: Literal["OUZEL_MAX_IMAGE_PIXELS"]) -> int: ...
@overload
def get(name: Literal["OUZEL_OFFLINE", "NO_COLOR"]) -> bool: ...
def get(name: str) -> Any:
    """The value of the switch `name`, read from the environment now.

    Raises `RequestError` when the variable holds something else than its row says, `KeyError` for a name without a row
    (our own mistake).
    """
    switch = _BY_NAME[name]
    text = os.environ.get(name)
    if text is None:
        return switch.default() if callable(switch.default) else switch.default
    try:
        return switch.read(text)
    except ValueError:
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise RequestError(
            f"reading the environment variable {name}",
            expected=switch.kind,
            got=repr(shown),
            fix=f"unset it to have the default ({switch.default_text})",
        ) from None


def table() -> list[dict[str, str]]:
    """The rows as text (`name`, `type`, `default`, `help`), for the documentation and for `ouzel --help`."""
    return [{"name": s.name, "type": s.kind, "default": s.default_text, "help": s.help} for s in SWITCHES]


def markdown() -> str:
    """The page docs/env.md."""
    lines = [
        "# Environment variables",
        "",
        "Generated by `python -m ouzel.env > docs/env.md`; a test compares the two. Every variable is read when it is",
        "used. A value of another form is an error that names the variable. Command line options and arguments in",
        "Python come before the environment.",
        "",
        "| Variable | Value | Default | Meaning |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| `{r['name']}` | {r['type']} | {r['default']} | {r['help']} |" for r in table()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
