"""`ouzel convert`, and the options about formats of the other commands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
TINY = FIXTURES / "qwen3" / "tiny"

Ouzel = Callable[..., Any]


@pytest.fixture
def packed(ouzel: Ouzel, tmp_path: Path) -> Path:
    done = ouzel("convert", TINY, tmp_path / "packed", "--no-self-check", "--quiet")
    assert done.code == 0 and done.err == ""
    return tmp_path / "packed"


def test_report_as_text(ouzel: Ouzel, tmp_path: Path) -> None:
    done = ouzel("convert", TINY, tmp_path / "out", "--weights", "q4m", "--head", "q8", "--engine", "reference")
    assert done.code == 0 and done.err == ""
    assert "text q4m, head q8, embedding q8" in done.out
    assert "relative error of the weights" in done.out and "predictions, compared with the source" in done.out
    line = next(line for line in done.out.splitlines() if line.startswith("text       linear"))
    assert line.split()[2] == "q4m" and 6 < float(line.split()[4].rstrip("%")) < 8


def test_report_as_json(ouzel: Ouzel, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("one two three " * 50, encoding="utf-8")
    done = ouzel("convert", TINY, tmp_path / "out", "--json", "--calibrate", words, "--threads", "1").json()
    assert done["formats"]["text"] == "q4" and done["calibration"]["tokens"] > 50
    assert done["logits"][0]["kl_mean"] > 0 and done["logits_without_calibration"][0]["kl_mean"] > 0


def test_mistakes(ouzel: Ouzel, packed: Path, tmp_path: Path) -> None:
    for arguments, words in (
        ([TINY, packed], "one that exists; give --force"),
        ([packed, tmp_path / "again"], "got a packed folder"),
        ([tmp_path / "nothing", tmp_path / "x"], "no such folder"),
        ([TINY, tmp_path / "no" / "x"], "an existing folder"),
        ([TINY, tmp_path / "x", "--calibrate", tmp_path / "none.txt"], "no such file"),
    ):
        done = ouzel("convert", *arguments)
        assert done.code == 2 and words in done.err and done.err.count("\n") == 1 and done.out == ""
    assert ouzel("convert", TINY, packed, "--force", "--no-self-check", "-w", "q8").code == 0
    assert json.loads((packed / "model.json").read_text("utf-8"))["formats"]["text"] == "q8"


def test_running_a_packed_folder(ouzel: Ouzel, packed: Path) -> None:
    ids = ["--ids", "1 2 3", "-n", "4", "--engine", "reference"]
    direct = ouzel("run", "--model", TINY, "--weights", "q4", *ids)
    through = ouzel("run", "--model", packed, "--check", *ids)
    assert direct.code == through.code == 0 and direct.out == through.out
    assert "q4+q8" in direct.err and "q4+q8" in through.err
    other = ouzel("run", "--model", packed, "--head", "f16", *ids)
    assert other.code == 2 and "expected q8 for head, as the packed folder has it, got f16" in other.err


def test_formats_by_part(ouzel: Ouzel) -> None:
    done = ouzel("run", "--model", TINY, "-w", "q4", "--head", "q4m", "--embedding", "f16", "--text", "bf16", "--ids", "1", "-n", "1", "--engine", "reference")
    assert done.code == 0 and "bf16+f16+q4m," in done.err


def test_cache_packed(ouzel: Ouzel, tmp_path: Path) -> None:
    source = shutil.copytree(TINY, tmp_path / "model")
    arguments = ["run", "--model", source, "-w", "q8", "--cache-packed", "--ids", "1 2", "-n", "3", "--engine", "reference"]
    first, second = (ouzel(*arguments, OUZEL_CACHE=str(tmp_path / "cache")) for _ in range(2))
    assert first.code == 0 and first.out == second.out
    assert len(list((tmp_path / "cache" / "packed").iterdir())) == 1


def test_a_damaged_folder_under_check(ouzel: Ouzel, packed: Path) -> None:
    data = bytearray((packed / "weights.safetensors").read_bytes())
    data[-1000] ^= 1
    (packed / "weights.safetensors").write_bytes(data)
    for command in (["inspect", packed, "--check"], ["run", "--model", packed, "--check", "--ids", "1", "--engine", "reference"]):
        done = ouzel(*command)
        assert done.code == 2 and "weights.safetensors: expected the SHA-256" in done.err and done.out == ""


def test_inspect(ouzel: Ouzel, packed: Path) -> None:
    found = ouzel("inspect", packed, "--json", "--check").json()
    assert found["packed"]["formats"]["text"] == "q4" and found["packed"]["checked_files"] >= 5
    assert found["weights"]["matrix_formats"] == {"q8": 2, "q4": 28}
    row = next(row for row in found["tensors"] if row["name"] == "text.layers.0.down.weight")
    assert row["format"] == "q4" and row["mapped"] and len(row["shape"]) == 2
    planned = ouzel("inspect", TINY, "--weights", "q4", "--json").json()
    assert planned["packed"] is None and planned["weights"]["bytes"] == found["weights"]["bytes"]
    assert planned["weights"]["parameters"] == found["weights"]["parameters"]
    assert "packed folder" in ouzel("inspect", packed).out
