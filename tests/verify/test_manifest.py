"""SHA-256 sums of a model folder."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from goldens import FIXTURES
from ouzel.errors import CheckpointError
from ouzel.verify import manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "tiny"
    shutil.copytree(FIXTURES / "qwen3" / "tiny", target)
    return target


def test_written_and_checked(folder: Path) -> None:
    path = manifest.write(folder)
    sums = manifest.read(folder)
    assert set(sums) == {p.name for p in folder.iterdir()} - {path.name}
    assert sums["config.json"] == hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    assert manifest.check(folder).ok
    assert manifest.write(folder).read_text("utf-8") == path.read_text("utf-8")


def test_missing_extra_and_changed(folder: Path) -> None:
    manifest.write(folder)
    (folder / "config.json").write_bytes((folder / "config.json").read_bytes() + b" ")
    (folder / "generation_config.json").unlink()
    (folder / "more").mkdir()
    (folder / "more" / "a.txt").write_text("a", encoding="utf-8")
    found = manifest.check(folder)
    assert not found.ok
    assert (found.changed, found.missing, found.extra) == (("config.json",), ("generation_config.json",), ("more/a.txt",))
    assert "model.safetensors" in found.equal


def test_the_layout_of_sha256sum(folder: Path) -> None:
    """Lines of the tool itself are read, with its star before binary files."""
    manifest.write(folder)
    path = folder / manifest.NAME
    path.write_text(path.read_text("utf-8").replace("  config.json", " *config.json") + "\n", encoding="utf-8")
    assert manifest.check(folder).ok


@pytest.mark.parametrize(
    "line",
    ["x", "0" * 64, "0" * 63 + "  a", "0" * 64 + "  ../a", "0" * 64 + "  /etc/passwd", "G" * 64 + "  a", "0" * 64 + "  C:\\a"],
)
def test_lines_that_cannot_be_used(folder: Path, line: str) -> None:
    (folder / manifest.NAME).write_text(line + "\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="SHA256SUMS, line 1"):
        manifest.check(folder)


def test_without_a_manifest(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="write one with `ouzel manifest`"):
        manifest.check(folder)
    with pytest.raises(CheckpointError, match="expected a folder"):
        manifest.write(tmp_path / "none")


def test_hidden_files_do_not_count(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("x", encoding="utf-8")
    (folder / ".DS_Store").write_text("x", encoding="utf-8")
    manifest.write(folder)
    assert not any(name.startswith(".") for name in manifest.read(folder))
