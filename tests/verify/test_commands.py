"""`ouzel verify`, `ouzel golden capture`, `ouzel manifest` on the command line: exit codes and outputs."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from goldens import FIXTURES
from mutants import MUTATIONS
from ouzel.cli.main import app
from ouzel.engines.registry import engine_names

VL = FIXTURES / "qwen3_vl"
TEXT = FIXTURES / "qwen3"


class Outcome:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def ouzel() -> Callable[..., Outcome]:
    def run(*args: object) -> Outcome:
        result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="ouzel")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


def test_all_gates_hold(ouzel: Callable[..., Outcome], tmp_path: Path) -> None:
    report, page = tmp_path / "report.json", tmp_path / "report.html"
    done = ouzel(
        "verify", TEXT / "tiny", "--golden", TEXT / "golden", "--case", "short", "--json", report, "--html", page, "--threads", 1
    )
    assert done.code == 0, done.err
    assert "1 of 1 cases hold all five gates" in done.out and "->" not in done.out
    data = json.loads(report.read_text("utf-8"))
    assert data["ok"] and data["version"] == 1 and data["exact"]
    (case,) = data["cases"]
    assert [gate["name"] for gate in case["gates"]] == ["interface", "sanity", "numbers", "decisions", "function"]
    stage = next(s for s in case["stages"] if s["name"] == "text.layers.1")
    assert stage["layer"] == 1 and stage["own"]["row"] < stage["own_tolerance"]
    assert set(stage["own"]) >= {"max_abs", "mean_abs", "p99", "p999", "p9999", "cosine", "relative"}
    assert data["facts"]["environment"]["numpy"] == np.__version__ and len(data["facts"]["sha256"]["config.json"]) == 64
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert not list(tmp_path.glob("*.part"))


def test_a_gate_fails(ouzel: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1; the first stage that departs is explained, and with --all the others, too."""
    MUTATIONS[0].apply(monkeypatch)
    command = ("verify", VL / "tiny", "--golden", VL / "golden", "--case", "text_only", "--quiet")
    done, whole = ouzel(*command), ouzel(*command, "--all")
    assert done.code == whole.code == 1
    assert done.out.count("->") == 1 and "-> text.layers.2: made here" in done.out
    assert whole.out.count("->") > 3 and "-> logits: passed on" in whole.out
    assert "P99.99" in whole.out and "P99.99" not in done.out


def test_not_finite(ouzel: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that are not finite fail the sanity gate and are no crash."""
    from ouzel.engines.reference import engine as reference_engine

    monkeypatch.setitem(reference_engine.FUNCTIONS, "silu_mul", lambda x, up: x * np.float32(np.inf))
    report = tmp_path / "r.json"
    done = ouzel(
        "verify", VL / "tiny", "--golden", VL / "golden", "--case", "text_only", "--engine", "reference", "--json", report,
        "--html", tmp_path / "r.html")  # fmt: skip
    assert done.code == 1
    charts = re.findall(r"<svg.*?</svg>", (tmp_path / "r.html").read_text("utf-8"), re.DOTALL)
    assert charts and not any("nan" in chart for chart in charts)
    assert "sanity     FAIL" in done.out and "-> text.layers.0: made here" in done.out
    json.loads(report.read_text("utf-8"), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "either --golden DIR or --against WHAT"),
        (("--golden", "x", "--against", "transformers"), "got both"),
        (("--golden", "nowhere"), "expected a folder, got nowhere"),
        (("--against", "tensorflow"), "one of transformers, native, reference"),
        (("--against", "native:q99"), "number format"),
        (("--golden", VL / "golden", "--weights", "q99"), "number format"),
        (("--golden", VL / "golden", "--engine", "abacus"), "choosing an engine"),
        (("--golden", VL / "golden", "--case", "nothing"), "cases among"),
        (("--golden", TEXT / "golden"), "goldens of a qwen3 model"),
        (("--golden", VL / "golden", "--json", "no/such/folder/r.json"), "a file name in a folder that exists"),
        (("--against", "transformers", "--case", "nothing"), "names among english"),
        (("--against", "transformers", "--max-tokens", 0), "max_tokens"),
    ],
)
def test_misuse(ouzel: Callable[..., Outcome], args: tuple[object, ...], words: str) -> None:
    done = ouzel("verify", VL / "tiny", *args, "--quiet")
    assert done.code == 2 and words in done.err and done.err.count("\n") == 1


def test_two_engines(ouzel: Callable[..., Outcome]) -> None:
    assert {"native", "reference"} <= set(engine_names())
    done = ouzel("verify", VL / "tiny", "--against", "reference", "--case", "two_pictures", "--max-tokens", 6)
    assert done.code == 0, done.out
    assert "5 function   ok   6 tokens and the text equal" in done.out


def test_a_rounding_format_is_held_to_budgets(ouzel: Callable[..., Outcome], tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    done = ouzel("verify", VL / "tiny", "--weights", "bf16", "--golden", VL / "golden", "--case", "two_images", "--json", report)
    data = json.loads(report.read_text("utf-8"))
    assert done.code == 0, done.out
    assert not data["exact"] and "rounding format: KL mean" in done.out and "budget" in done.out
    assert {part["part"] for part in data["parts"]} == {"vision", "projector", "text", "head", "embedding"}
    assert all(part["decisions"]["kl_mean"] <= part["decisions"]["kl_mean_budget"] for part in data["parts"])
    # The whole costs more than nothing, and each part alone is a share of it.
    whole = data["cases"][0]["decisions"]["kl_mean"]
    assert 0 < max(part["decisions"]["kl_mean"] for part in data["parts"]) <= 2 * whole


def test_a_broken_graph_is_found_in_a_rounding_format(ouzel: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[0].apply(monkeypatch)
    done = ouzel("verify", VL / "tiny", "--weights", "bf16", "--golden", VL / "golden", "--case", "two_images")
    assert done.code == 1 and "-> text.layers.2: made here" in done.out


def test_other_weights_are_another_model(ouzel: Callable[..., Outcome], tmp_path: Path) -> None:
    """Without hashes in the goldens, changed weights show where they are used."""
    folder = tmp_path / "model"
    shutil.copytree(TEXT / "tiny", folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.mlp.up_proj.weight"] = weights["model.layers.1.mlp.up_proj.weight"] * np.float32(1.001)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    done = ouzel("verify", folder, "--golden", TEXT / "golden", "--case", "short")
    assert done.code == 1 and "-> text.layers.1: made here" in done.out


def test_capture(ouzel: Callable[..., Outcome], tmp_path: Path) -> None:
    done = ouzel("golden", "capture", TEXT / "tiny", "--out", tmp_path / "out", "--case", "chinese", "--max-tokens", 3)
    assert done.code == 0, done.err
    assert done.out == f"{tmp_path / 'out' / 'chinese.safetensors'}\n"
    assert ouzel("verify", TEXT / "tiny", "--golden", tmp_path / "out").code == 0
    assert ouzel("verify", TEXT / "tiny_untied", "--golden", tmp_path / "out").code == 2


def test_capture_needs_its_packages(ouzel: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = ouzel("golden", "capture", TEXT / "tiny", "--out", tmp_path / "out")
    assert done.code == 2 and "pip install 'ouzel[verify]'" in done.err
    assert ouzel("golden", "capture", TEXT / "tiny").code == 2
    assert ouzel("golden", "capture", TEXT / "tiny", "--out", tmp_path / "out", "--memory", "little").code == 2


def test_manifest(ouzel: Callable[..., Outcome], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(TEXT / "tiny", folder)
    assert ouzel("manifest", folder, "--check").code == 2
    assert ouzel("manifest", folder).code == 0
    assert ouzel("manifest", folder, "--check").code == 0
    (folder / "extra.txt").write_text("x", encoding="utf-8")
    (folder / "generation_config.json").unlink()
    done = ouzel("manifest", folder, "--check")
    assert done.code == 1 and "missing: generation_config.json" in done.out and "extra: extra.txt" in done.out
    assert json.loads(ouzel("manifest", folder, "--check", "--json").out)["missing"] == ["generation_config.json"]


def test_a_text_with_half_a_surrogate_pair(ouzel: Callable[..., Outcome], tmp_path: Path) -> None:
    """JSON can hold what UTF-8 cannot; both reports are written all the same, and nothing half-written stays."""
    golden = tmp_path / "golden"
    golden.mkdir()
    shutil.copy(FIXTURES / "qwen3" / "golden" / "short.safetensors", golden)
    data = json.loads((FIXTURES / "qwen3" / "golden" / "short.json").read_text("utf-8")) | {"text": "\ud800 <script>"}
    (golden / "short.json").write_text(json.dumps(data), encoding="utf-8")
    reports = tmp_path / "r.json", tmp_path / "r.html"
    found = ouzel("verify", FIXTURES / "qwen3" / "tiny", "--golden", golden, "--json", reports[0], "--html", reports[1])
    assert found.code == 1
    assert json.loads(reports[0].read_text("utf-8"))["cases"][0]["function"]["wanted_text"] == "\ud800 <script>"
    assert "\\ud800 &lt;script&gt;" in reports[1].read_text("utf-8")
    assert sorted(tmp_path.iterdir()) == sorted([golden, *reports])


def test_two_reports_are_two_files(ouzel: Callable[..., Outcome], tmp_path: Path) -> None:
    one = tmp_path / "report"
    found = ouzel("verify", TEXT / "tiny", "--golden", TEXT / "golden", "--json", one, "--html", one)
    assert found.code == 2 and "two files for --json and --html" in found.err and not one.exists()


def test_parts_of_a_rounding_format_against_another_engine(ouzel: Callable[..., Outcome]) -> None:
    """The pictures are in a folder of the run; each part alone needs them, too."""
    done = ouzel(
        "verify", VL / "tiny", "--against", "reference", "--weights", "bf16", "--case", "english_picture", "--max-tokens", 3
    )
    assert done.code == 0, done.err
    assert "english_picture, vision in bf16: KL mean" in done.out
