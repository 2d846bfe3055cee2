"""A wrong graph is found in rounding formats too: swapped layers, against goldens of the right checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from goldens import FIXTURES, goldens
from ouzel import load
from ouzel.verify.formats import rounding_of
from ouzel.verify.golden import read_golden
from ouzel.verify.verifier import verify_case

CASE = next(case for case in goldens() if case.name == "two_images")


def swapped(folder: Path, first: str, second: str) -> Path:
    """A copy of the fixture in which the tensors of two layers have changed places."""
    shutil.copytree(FIXTURES / "qwen3_vl" / "tiny", folder)
    tensors = load_file(folder / "model.safetensors")
    moved = {name.replace(first, second) if first in name else name.replace(second, first): t for name, t in tensors.items()}
    assert set(moved) == set(tensors)
    save_file(moved, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("weights", ["bf16", "q8", "q4"])
@pytest.mark.parametrize(
    ("first", "second", "guilty"),
    [
        ("language_model.layers.1.", "language_model.layers.2.", "text.layers.1"),
        ("deepstack_merger_list.0.", "deepstack_merger_list.1.", "deepstack.0"),
        ("visual.blocks.1.", "visual.blocks.3.", "vision.layers.1"),
    ],
)
def test_swapped_layers(weights: str, first: str, second: str, guilty: str, tmp_path: Path) -> None:
    model = load(swapped(tmp_path / "swapped", first, second), weights=weights)
    golden = read_golden(CASE.images.parent / f"{CASE.name}.safetensors")
    found = verify_case(model, golden, rounding_of(model))
    numbers = next(gate for gate in found.gates if gate.name == "numbers")
    assert not found.ok and numbers.ok is False
    assert any(line.startswith(f"{guilty}: made here") for line in numbers.lines), numbers.lines


@pytest.mark.parametrize("weights", ["bf16", "q8", "q4", "q4m"])
def test_right_checkpoints_hold(weights: str) -> None:
    for case in (one for one in goldens() if one.family == "qwen3_vl" and one.folder == "golden"):
        model = load(case.checkpoint_path, weights=weights)
        found = verify_case(model, read_golden(case.images.parent / f"{case.name}.safetensors"), rounding_of(model))
        numbers = next(gate for gate in found.gates if gate.name == "numbers")
        assert numbers.ok, (case.name, numbers.lines)
