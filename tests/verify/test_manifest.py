"""SHA-256 sums of a model folder."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from goldens import FIXTURES
from ouzel.cli.main import app
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


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such file names")
@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\\b", "a:b"])
def test_names_that_no_manifest_holds(folder: Path, name: str) -> None:
    (folder / name).write_text("x", encoding="utf-8")
    with pytest.raises(CheckpointError, match="rename the file"):
        manifest.write(folder)
    assert not (folder / manifest.NAME).exists() and not (folder / f"{manifest.NAME}.part").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have UTF-8 or UTF-16 names only")
def test_a_name_that_is_not_utf8(folder: Path) -> None:
    (folder / os.fsdecode(b"a\xff")).write_text("x", encoding="utf-8")
    with pytest.raises(CheckpointError, match="rename the file"):
        manifest.write(folder)


def test_unusual_names(folder: Path) -> None:
    (folder / "\u9e1f").mkdir()
    for name in ("a\u2028b", " c", "\u9e1f/\u00fc \x85.txt"):
        (folder / name).write_text(name, encoding="utf-8")
    manifest.write(folder)
    assert manifest.check(folder).ok


@pytest.mark.parametrize("damage", ["", "{"])
def test_a_missing_or_damaged_config(folder: Path, damage: str) -> None:
    """Nothing can be loaded without config.json; what is wrong with the folder can be said all the same."""
    manifest.write(folder)
    (folder / "config.json").unlink()
    if damage:
        (folder / "config.json").write_text(damage, encoding="utf-8")
    found = CliRunner().invoke(app, ["manifest", str(folder), "--check"])
    assert found.exit_code == 1
    assert ("changed: config.json" if damage else "missing: config.json") in found.stdout
