"""Packed folders of the tiny checkpoints."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ouzel.checkpoint.folder import Checkpoint
from ouzel.packed.write import convert
from ouzel.weights.formats import FormatPlan

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
TINY = {"qwen3": "qwen3/tiny", "qwen3_untied": "qwen3/tiny_untied", "qwen3_vl": "qwen3_vl/tiny", "qwen3_vl_tied": "qwen3_vl/tiny_tied"}


@pytest.fixture
def tiny() -> Callable[[str], Path]:
    """The folder of a tiny checkpoint by name."""
    return lambda name: FIXTURES / TINY[name]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """qwen3_vl/tiny in q4, made once; not to be changed."""
    folder = tmp_path_factory.mktemp("packed") / "vl-q4"
    return convert(Checkpoint.open(FIXTURES / TINY["qwen3_vl"]), folder, FormatPlan.preset("q4"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of `made` to damage."""
    return Path(shutil.copytree(made, tmp_path / "copy"))
