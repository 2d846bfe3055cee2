"""Whole folders in which one file is no ordinary file, or is nested beyond reason: an error at once, never a wait."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from goldens import FIXTURES

import ouzel
from ouzel.errors import OuzelError

FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "chat_template.json", "model.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "qwen3_vl" / "tiny", tmp_path / "model"))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes in folders")
@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_place_of_a_file(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(OuzelError):
        ouzel.load(folder, threads=1)


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"a":' * 100_000, b""], ids=["lists", "objects", "empty"])
@pytest.mark.parametrize("name", FILES)
def test_json_that_is_nested_too_deeply_or_empty(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(OuzelError):
        ouzel.load(folder, threads=1)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".json")])
def test_a_byte_order_mark_changes_nothing(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert len(ouzel.load(folder, threads=1).generate("hi", max_tokens=2).ids) == 2
