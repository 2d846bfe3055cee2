"""SHA-256 sums of a model folder's files: written, and held against the folder later."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ouzel.errors import CheckpointError

NAME = "SHA256SUMS"
"""The file's name; `sha256sum --check SHA256SUMS` reads it, too."""

_READ = 1 << 22
_HIDDEN = (".git", ".cache", "__pycache__")


@dataclass(frozen=True)
class Outcome:
    """Names of files (with "/" between folders): equal, changed, missing from the folder, and extra in it."""

    equal: tuple[str, ...]
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the folder holds exactly what the manifest says."""
        return not (self.changed or self.missing or self.extra)


def assets(folder: Path) -> list[str]:
    """Every file of a model folder but the manifest itself, hidden files and version control left out."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        hidden = any(part.startswith(".") or part in _HIDDEN for part in name.split("/"))
        if name != NAME and not hidden and path.is_file():
            found.append(name)
    return found


def sha256(path: Path) -> str:
    """The sum of one file in hexadecimal digits. Raises CheckpointError when it cannot be read."""
    total = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_READ):
                total.update(block)
    except OSError as error:
        raise CheckpointError(f"reading {path}", expected="a readable file", got=error.strerror or str(error)) from None
    return total.hexdigest()


def write(folder: Path, told: Callable[[str], None] = lambda name: None) -> Path:
    """Writes the manifest of a folder, whole or not at all. `told` hears of every file."""
    _need_folder(folder)
    lines = []
    for name in assets(folder):
        _need_plain(folder, name)
        told(name)
        lines.append(f"{sha256(folder / name)}  {name}\n")
    path, half = folder / NAME, folder / f"{NAME}.part"
    try:
        half.write_text("".join(lines), encoding="utf-8", newline="\n")
        os.replace(half, path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise CheckpointError(
            f"writing {path}", expected="a folder that can be written", got=error.strerror or str(error)
        ) from None
    return path


def read(folder: Path) -> dict[str, str]:
    """The sums of a manifest by file name. Raises CheckpointError without one and for a line of another form."""
    path = folder / NAME
    try:
        # Not splitlines(): names may hold separators of paragraphs.
        lines = path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise CheckpointError(
            f"checking {folder}", expected=f"a file {NAME} in it", got="none", fix="write one with `ouzel manifest`"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"reading {path}", expected="UTF-8 text", got=str(error)) from None
    return dict(_line(path, at, line) for at, line in enumerate(lines, 1) if line.strip())


def check(folder: Path, told: Callable[[str], None] = lambda name: None) -> Outcome:
    """Holds the folder against its manifest."""
    _need_folder(folder)
    sums, there = read(folder), assets(folder)
    equal, changed = [], []
    for name in there:
        if name in sums:
            told(name)
            (equal if sha256(folder / name) == sums[name] else changed).append(name)
    missing = [name for name in sums if name not in set(there)]
    extra = [name for name in there if name not in sums]
    return Outcome(tuple(equal), tuple(changed), tuple(missing), tuple(extra))


def _line(path: Path, number: int, line: str) -> tuple[str, str]:
    digits, _, name = line.partition(" ")
    # sha256sum puts a star before the name of a file that it read as binary.
    name = name[1:] if name[:1] in (" ", "*") else name
    parts = name.split("/")
    # A name that leaves the folder would have us read anything.
    bad_name = not name or name.startswith("/") or ".." in parts
    if bad_name or not _plain(name) or len(digits) != 64 or any(c not in "0123456789abcdef" for c in digits):
        raise CheckpointError(
            f"reading {path}, line {number}", expected="a SHA-256 sum, two spaces and a file name", got=repr(line)[:80]
        )
    return name, digits


def _plain(name: str) -> bool:
    """Whether a manifest can hold the name: one line of UTF-8, and no way to another drive or folder on Windows."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return not any(c in name for c in "\n\r\\") and ":" not in name.split("/")[0]


def _need_plain(folder: Path, name: str) -> None:
    if not _plain(name):
        raise CheckpointError(
            f"the manifest of {folder}", expected="file names in UTF-8 without line ends, backslashes and drives",
            got=ascii(name)[:80], fix="rename the file",
        )  # fmt: skip


def _need_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise CheckpointError("the manifest of a model", expected="a folder", got=str(folder))
