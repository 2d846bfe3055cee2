"""Files for the checkpoint tests: raw safetensors files, also damaged ones, and copies of the tiny checkpoints."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"


@pytest.fixture
def raw_file(tmp_path):
    """Writes a safetensors file from its parts, without any check: `raw_file(header, data, length=None)`."""

    def write(header, data=b"", length=None, name="model.safetensors") -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode("utf-8")
        size = len(text) if length is None else length
        # A folder of its own: an earlier file may still be mapped.
        path = Path(tempfile.mkdtemp(dir=tmp_path)) / name
        path.write_bytes(size.to_bytes(8, "little") + text + data)
        return path

    return write


@pytest.fixture
def tiny(tmp_path):
    """A writable copy of a fixture checkpoint: `tiny("qwen3/tiny")`."""

    def copy(name: str) -> Path:
        target = tmp_path / name.replace("/", "_")
        shutil.copytree(FIXTURES / name, target)
        return target

    return copy
