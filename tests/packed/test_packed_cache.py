"""`cache_packed`: made once, found again, and never taken for another checkpoint's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ouzel import model as api
from ouzel.checkpoint.folder import Checkpoint
from ouzel.packed import cache
from ouzel.packed.cache import cached_folder, packed_in_cache
from ouzel.weights.formats import FormatPlan

Q4 = FormatPlan.preset("q4")


@pytest.fixture
def source(tiny: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUZEL_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(tiny("qwen3"), tmp_path / "a model"))


def entries(tmp_path: Path) -> list[str]:
    return sorted(os.listdir(tmp_path / "cache" / "packed"))


def test_made_once_and_mapped_the_next_time(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = api.load(source, engine="reference", weights="q4").generate([1, 2, 3], max_tokens=5).ids
    first = api.load(source, engine="reference", weights="q4", cache_packed=True)
    assert first.checkpoint.packed is not None and first.generate([1, 2, 3], max_tokens=5).ids == wanted
    (entry,) = entries(tmp_path)
    assert entry.startswith("a-model-")
    monkeypatch.setattr(cache, "convert", None)
    second = api.load(source, engine="reference", weights="q4", cache_packed=True)
    assert all(weight.mapped for weight in second.weights.values())
    assert second.generate([1, 2, 3], max_tokens=5).ids == wanted


def test_formats_that_pack_nothing_are_not_kept(source: Path, tmp_path: Path) -> None:
    for form in ("auto", "bf16"):
        assert api.load(source, engine="reference", weights=form, cache_packed=True).checkpoint.packed is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("what", ["weights", "their time", "config", "tokenizer", "formats"])
def test_a_change_makes_a_new_entry(source: Path, what: str) -> None:
    before = cached_folder(Checkpoint.open(source), Q4)
    plan = Q4
    if what == "weights":
        with open(source / "model.safetensors", "ab") as file:
            file.write(b"")
        os.utime(source / "model.safetensors", ns=(1, 1))
    elif what == "their time":
        os.utime(source / "model.safetensors", ns=(5, 5))
    elif what == "formats":
        plan = FormatPlan.preset("q4", head="q4")
    else:
        name = {"config": "config.json", "tokenizer": "tokenizer.json"}[what]
        (source / name).write_bytes((source / name).read_bytes() + b"\n")
    assert cached_folder(Checkpoint.open(source), plan) != before


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
def test_a_damaged_entry_is_made_again(source: Path, tmp_path: Path, name: str) -> None:
    kept = packed_in_cache(Checkpoint.open(source), Q4).path
    whole = (kept / name).read_bytes()
    (kept / name).unlink()
    (kept / name).write_bytes(whole[: len(whole) // 2])
    again = packed_in_cache(Checkpoint.open(source), Q4)
    assert again.path == kept and (kept / name).read_bytes() == whole and len(entries(tmp_path)) == 1
