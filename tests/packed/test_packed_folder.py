"""Packed folders: what is in them, that they load as the source quantised at load, and that writing is all or nothing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from ouzel import model as api
from ouzel.checkpoint.folder import Checkpoint
from ouzel.checkpoint.packed import VERSION, check_sums
from ouzel.errors import CheckpointError, RequestError, TensorError
from ouzel.models.registry import make_family
from ouzel.packed import write
from ouzel.packed.write import convert
from ouzel.weights.formats import PARTS, FormatPlan
from ouzel.weights.open import open_weights

Tiny = Callable[[str], Path]
NAMES = ["qwen3", "qwen3_untied", "qwen3_vl", "qwen3_vl_tied"]


def weights_of(path: Path, plan: FormatPlan | None = None) -> dict:
    checkpoint = Checkpoint.open(path)
    family = make_family(checkpoint)
    return dict(open_weights(checkpoint, family.tensor_table(), plan, tied=family.tied))


@pytest.mark.parametrize("form", ["q8", "q4", "q4m", "bf16", "auto"])
@pytest.mark.parametrize("name", NAMES)
def test_a_packed_folder_equals_converting_at_load(tiny: Tiny, tmp_path: Path, name: str, form: str) -> None:
    plan = FormatPlan.preset(form)
    packed = weights_of(convert(Checkpoint.open(tiny(name)), tmp_path / "out", plan))
    loaded = weights_of(tiny(name), plan)
    assert list(packed) == list(loaded)
    for key, weight in packed.items():
        other = loaded[key]
        assert weight.mapped and weight.format is other.format and weight.shape == other.shape
        assert np.array_equal(weight.array, other.array) and np.array_equal(weight.f32(), other.f32())
        assert weight.array.__array_interface__["data"][0] % 64 == 0
        assert not weight.array.flags.writeable


def test_parts_have_their_own_formats(tiny: Tiny, tmp_path: Path) -> None:
    plan = FormatPlan.preset("q4", vision="f16", head="q4m", embedding="bf16", projector="q4")
    found = weights_of(convert(Checkpoint.open(tiny("qwen3_vl")), tmp_path / "out", plan))
    by_part = {
        part: {w.format.name for w in found.values() if w.spec.part == part and w.spec.kind not in ("norm", "bias")} for part in PARTS
    }
    assert by_part == {"vision": {"f16"}, "projector": {"q4"}, "text": {"q4"}, "head": {"q4m"}, "embedding": {"bf16"}}


def test_defaults_keep_small_widths_for_the_decoder(made: Path) -> None:
    found = weights_of(made)
    assert found["text.layers.0.down.weight"].format.name == "q4"
    assert all(found[name].format.name == "q8" for name in ("logits.weight", "text.embed.weight", "image_embeds.weight", "vision.patch_embed.weight"))
    assert found["vision.pos_embed.weight"].format.name == "f32" and found["text.final_norm.weight"].format.name == "f32"


def test_a_tied_head_is_stored_once_unless_its_format_differs(tiny: Tiny, tmp_path: Path) -> None:
    source = Checkpoint.open(tiny("qwen3"))
    once = convert(source, tmp_path / "once", FormatPlan.preset("q8"))
    assert "logits.weight" not in load_file(once / "weights.safetensors")
    found = weights_of(once)
    assert np.shares_memory(found["logits.weight"].array, found["text.embed.weight"].array)
    twice = convert(source, tmp_path / "twice", FormatPlan.preset("q8", head="q4"))
    assert "logits.weight" in load_file(twice / "weights.safetensors")
    assert weights_of(twice)["logits.weight"].format.name == "q4"


@pytest.mark.parametrize("engine", ["reference", "native"])
def test_generation_is_that_of_quantising_at_load(tiny: Tiny, made: Path, engine: str) -> None:
    source = api.load(tiny("qwen3_vl"), engine=engine, weights="q4")
    packed = api.load(made, engine=engine, check=True)
    assert packed.describe() == source.describe() and "q4+q8" in packed.describe()
    for ids in ([5, 6, 7], list(range(40, 90))):
        assert packed.generate(ids, max_tokens=6).ids == source.generate(ids, max_tokens=6).ids
    stage = ["text.final_norm"]
    mine, theirs = (m.stages(m.raw_prompt([9, 8, 7]), stage)[stage[0]] for m in (packed, source))
    assert np.array_equal(mine, theirs)


def test_files_and_header(tiny: Tiny, made: Path) -> None:
    source = tiny("qwen3_vl")
    names = {path.name for path in made.iterdir()}
    assert {"model.json", "weights.safetensors", "SHA256SUMS", "tokenizer.json", "preprocessor_config.json"} <= names
    assert "config.json" not in names and "model.safetensors" not in names
    for name in names - {"model.json", "weights.safetensors", "SHA256SUMS"}:
        assert (made / name).read_bytes() == (source / name).read_bytes()
    header = json.loads((made / "model.json").read_text("utf-8"))
    assert header["format"] == "ouzel-packed" and header["version"] == VERSION and header["family"] == "qwen3_vl"
    assert header["config"] == json.loads((source / "config.json").read_text("utf-8"))
    assert header["formats"] == {"vision": "q8", "projector": "q8", "text": "q4", "head": "q8", "embedding": "q8"}
    digest = hashlib.sha256((source / "model.safetensors").read_bytes()).hexdigest()
    assert header["source"]["files"]["model.safetensors"]["sha256"] == digest
    sums = dict(line.split("  ")[::-1] for line in (made / "SHA256SUMS").read_text("utf-8").splitlines())
    assert set(sums) == names - {"SHA256SUMS"}
    assert all(hashlib.sha256((made / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    assert check_sums(made) == len(sums)


def test_other_readers_can_read_the_weights(made: Path) -> None:
    """The file is plain safetensors; the data of every tensor begins on a multiple of 64."""
    raw = (made / "weights.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert (8 + length) % 64 == 0
    assert all(entry["data_offsets"][0] % 64 == 0 for name, entry in header.items() if name[:8] not in ("__metada", "padding."))
    tensors = load_file(made / "weights.safetensors")
    for name, weight in weights_of(made).items():
        assert np.array_equal(tensors[name], weight.array)


def test_the_same_bytes_every_time(tiny: Tiny, tmp_path: Path) -> None:
    folders = [convert(Checkpoint.open(tiny("qwen3")), tmp_path / str(n), FormatPlan.preset("q4"), threads=n) for n in (1, 2)]
    for name in ("weights.safetensors", "model.json", "SHA256SUMS"):
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_formats_of_a_packed_folder_are_fixed(made: Path, tmp_path: Path) -> None:
    assert weights_of(made, FormatPlan.preset("q4"))
    with pytest.raises(RequestError, match="expected q4 for text, as the packed folder has it, got q8"):
        weights_of(made, FormatPlan.preset("q8"))
    with pytest.raises(RequestError, match="got a packed folder"):
        convert(Checkpoint.open(made), tmp_path / "again", FormatPlan.preset("q8"))


# -- the place -------------------------------------------------------------------------------------------------------


def test_an_existing_destination(tiny: Tiny, tmp_path: Path) -> None:
    source, plan, place = Checkpoint.open(tiny("qwen3")), FormatPlan.preset("q8"), tmp_path / "out"
    convert(source, place, plan)
    with pytest.raises(RequestError, match="one that exists; give --force"):
        convert(source, place, plan)
    before = (place / "weights.safetensors").read_bytes()
    convert(source, place, FormatPlan.preset("q4"), force=True)
    assert (place / "weights.safetensors").read_bytes() != before and os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("what", ["a file", "a folder", "the source", "no parent"])
def test_places_that_are_never_touched(tiny: Tiny, tmp_path: Path, what: str) -> None:
    source = tiny("qwen3")
    place = tmp_path / "precious"
    if what == "a file":
        place.write_text("mine", encoding="utf-8")
    elif what == "a folder":
        place.mkdir()
        (place / "letter.txt").write_text("mine", encoding="utf-8")
    else:
        place = source if what == "the source" else tmp_path / "none" / "out"
    before = sorted(source.iterdir())
    with pytest.raises(RequestError):
        convert(Checkpoint.open(source), place, FormatPlan.preset("q8"), force=True)
    assert sorted(source.iterdir()) == before
    if what == "a folder":
        assert (place / "letter.txt").read_text("utf-8") == "mine"


def test_a_damaged_source_leaves_nothing_behind(tiny: Tiny, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    for path in tiny("qwen3").iterdir():
        (bad / path.name).write_bytes(path.read_bytes())
    file = Checkpoint.open(bad).tensors["model.layers.1.mlp.up_proj.weight"]
    raw = bytearray((bad / "model.safetensors").read_bytes())
    at = raw.find(file.data.tobytes())
    raw[at : at + file.data.itemsize] = {4: b"\0\0\xc0\x7f", 2: b"\xc0\x7f"}[file.data.itemsize]
    del file
    (bad / "model.safetensors").write_bytes(raw)
    out = tmp_path / "new"
    with pytest.raises(TensorError, match=r"up_proj.*NaN or infinity at \[0, 0\]"):
        convert(Checkpoint.open(bad), out, FormatPlan.preset("q4"))
    assert sorted(os.listdir(tmp_path)) == ["bad"]


def test_a_full_disk_is_one_line_and_leaves_nothing(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write, "write_packed", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        convert(Checkpoint.open(tiny("qwen3")), tmp_path / "out", FormatPlan.preset("q4"))
    assert os.listdir(tmp_path) == []


def test_an_interrupted_replacement_keeps_the_old_folder(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = convert(Checkpoint.open(tiny("qwen3")), tmp_path / "out", FormatPlan.preset("q8"))

    def stop(*args: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "write_packed", stop)
    with pytest.raises(KeyboardInterrupt):
        convert(Checkpoint.open(tiny("qwen3")), place, FormatPlan.preset("q4"), force=True)
    assert os.listdir(tmp_path) == ["out"] and check_sums(place)
