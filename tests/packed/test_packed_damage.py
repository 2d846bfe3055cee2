"""Damaged and hostile packed folders: one line that names the file, exit code 2, never a traceback or a wrong answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ouzel import model as api
from ouzel.checkpoint.folder import Checkpoint
from ouzel.checkpoint.packed import check_sums
from ouzel.errors import CheckpointError, OuzelError, UnsupportedError
from ouzel.models.registry import make_family
from ouzel.weights.open import open_weights


def load(folder: Path, check: bool = False) -> api.Model:
    return api.load(folder, engine="reference", check=check)


def refused(folder: Path, check: bool = False) -> str:
    with pytest.raises(OuzelError) as caught:
        load(folder, check)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 1500
    return text


FILES = ["model.json", "weights.safetensors", "SHA256SUMS", "tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "chat_template.json"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("keep", [0.0, 0.5, 0.99])
def test_every_file_cut_short(folder: Path, name: str, keep: float) -> None:
    path = folder / name
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    assert name in refused(folder, check=True) or name == "SHA256SUMS"
    if name in ("model.json", "weights.safetensors"):
        assert name in refused(folder)


@pytest.mark.parametrize("name", FILES)
def test_every_file_missing(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CheckpointError) as caught:
        load(folder, check=True)
    assert name in str(caught.value) or name == "model.json"


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found_by_the_checksums(folder: Path, name: str) -> None:
    check_sums(folder)
    path = folder / name
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 4
    path.write_bytes(data)
    with pytest.raises(CheckpointError):
        check_sums(folder)


def test_a_file_that_is_not_listed(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ 1 }}", encoding="utf-8")
    with pytest.raises(CheckpointError, match="only files that SHA256SUMS lists, got 'chat_template.jinja'"):
        check_sums(folder)


@pytest.mark.parametrize("line", ["../../etc/passwd", "a/b", "..", "x\0y"])
def test_checksums_name_plain_files_only(folder: Path, line: str) -> None:
    with open(folder / "SHA256SUMS", "a", encoding="utf-8") as file:
        file.write(f"{'0' * 64}  {line}\n")
    with pytest.raises(CheckpointError, match="lines of a SHA-256 and a file name"):
        check_sums(folder)


def changed(folder: Path, **keys: Any) -> None:
    path = folder / "model.json"
    header = json.loads(path.read_text("utf-8"))
    header.update(keys)
    path.write_text(json.dumps({k: v for k, v in header.items() if v is not ...}), encoding="utf-8")


def test_a_newer_version_is_refused_by_its_number(folder: Path) -> None:
    changed(folder, version=2, config=5, formats=None)
    with pytest.raises(UnsupportedError, match="expected a packed folder of version 1 or older, got version 2; update Ouzel"):
        load(folder)


HOSTILE: dict[str, dict[str, Any]] = {
    "no format": {"format": ...},
    "another format": {"format": "gguf"},
    "no version": {"version": ...},
    "version of text": {"version": "1"},
    "version of truth": {"version": True},
    "version zero": {"version": 0},
    "family of numbers": {"family": 7},
    "another family": {"family": "llama"},
    "unknown family": {"family": "qwen9", "config": {"model_type": "qwen9"}},
    "no config": {"config": ...},
    "config of text": {"config": "{}"},
    "empty config": {"config": {}, "family": "x"},
    "formats of text": {"formats": "q4"},
    "formats of numbers": {"formats": {"text": 4}},
    "a part missing": {"formats": {"text": "q4"}},
    "unknown format": {"formats": {"vision": "q8", "projector": "q8", "text": "q3", "head": "q8", "embedding": "q8"}},
    "formats swapped": {"formats": {"vision": "q4", "projector": "q8", "text": "q8", "head": "q8", "embedding": "q8"}},
    "formats of floats": {"formats": dict.fromkeys(("vision", "projector", "text", "head", "embedding"), "auto")},
    "long": {"format": "x" * 100_000},
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers(folder: Path, case: str) -> None:
    changed(folder, **HOSTILE[case])
    assert str(folder) in refused(folder)


def test_a_config_with_other_sizes(folder: Path) -> None:
    header = json.loads((folder / "model.json").read_text("utf-8"))
    header["config"]["text_config"]["intermediate_size"] = 10**9
    changed(folder, config=header["config"])
    assert "expected the shape" in refused(folder)


def test_nested_headers(folder: Path) -> None:
    (folder / "model.json").write_text("[" * 100_000, encoding="utf-8")
    assert "model.json" in refused(folder)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the header of weights.safetensors."""
    path = folder / "weights.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def test_tensors_missing_and_left_over(folder: Path) -> None:
    def rename(header: dict[str, Any]) -> None:
        header["text.layers.9.q.weight"] = header.pop("text.layers.0.q.weight")

    rewritten(folder, rename)
    text = refused(folder)
    assert "text.layers.0.q.weight" in text and "text.layers.9.q.weight" in text


@pytest.mark.parametrize(("name", "dtype"), [("text.final_norm.weight", "U8"), ("text.layers.0.q.weight", "I8"), ("text.embed.weight", "BOOL")])
def test_other_types(folder: Path, name: str, dtype: str) -> None:
    def change(header: dict[str, Any]) -> None:
        entry = header[name]
        size = entry["data_offsets"][1] - entry["data_offsets"][0]
        entry.update(dtype=dtype, shape=[size])

    rewritten(folder, change)
    assert name in refused(folder)


def test_moved_data_is_copied_to_its_boundary(folder: Path) -> None:
    """A header of another length puts every tensor off its boundary: slower to load, but right."""
    wanted = load(folder).generate([3, 4, 5], max_tokens=4).ids
    rewritten(folder, lambda header: header["__metadata__"].update(note="x"))
    model = load(folder)
    assert not any(weight.mapped for weight in model.weights.values())
    assert all(weight.array.__array_interface__["data"][0] % 64 == 0 for weight in model.weights.values())
    assert model.generate([3, 4, 5], max_tokens=4).ids == wanted


def test_the_command_line_says_it_in_one_line(folder: Path) -> None:
    changed(folder, version=99)
    command = [sys.executable, "-m", "ouzel", "run", "--model", str(folder), "--engine", "reference", "hello"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: reading ") and done.stderr.count("\n") == 1 and "version 99" in done.stderr


def test_random_bytes_in_the_headers_never_crash(folder: Path) -> None:
    """Each change is refused in one line, or (in a name of the source, say) changes nothing that matters."""
    rng = np.random.default_rng(2026)
    refusals = 0
    for name, length in (("model.json", None), ("weights.safetensors", 4000)):
        path = folder / name
        whole = path.read_bytes()
        for _ in range(60):
            data = bytearray(whole)
            for at in rng.integers(0, length or len(whole), rng.integers(1, 4)):
                data[at] = rng.integers(0, 256)
            path.unlink()  # the file may still be mapped
            path.write_bytes(data)
            try:
                checkpoint = Checkpoint.open(folder)
                family = make_family(checkpoint)
                open_weights(checkpoint, family.tensor_table(), tied=family.tied)
            except OuzelError as error:
                assert "\n" not in str(error)
                refusals += 1
        path.unlink()
        path.write_bytes(whole)
    assert refusals > 60
