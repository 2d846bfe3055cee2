"""Comparing, calibrating, and `ouzel convert` as a whole."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ouzel import model as api
from ouzel.checkpoint.folder import Checkpoint
from ouzel.conversion.calibrate import calibrate
from ouzel.conversion.compare import logit_errors, probe_logits, tensor_errors
from ouzel.conversion.probe import TEXT, page, probes
from ouzel.conversion.run import run
from ouzel.errors import RequestError
from ouzel.weights.formats import FormatPlan

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
VL, TEXT_ONLY = FIXTURES / "qwen3_vl" / "tiny", FIXTURES / "qwen3" / "tiny"


@pytest.fixture(scope="module")
def vl() -> api.Model:
    return api.load(VL, engine="native")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    text, picture = tmp_path / "words.txt", tmp_path / "page.png"
    text.write_text("Wind over water, and the bird goes under.\n" * 20, encoding="utf-8")
    Image.fromarray(page()).save(picture)
    return [text, picture]


def test_nothing_changes_when_nothing_is_quantised(vl: api.Model) -> None:
    tried = probes(vl)
    assert [probe.name for probe in tried] == ["text", "picture"]
    same = logit_errors(tried, probe_logits(tried, vl), api.load(VL, engine="native"))
    for row in same:
        assert row.kl_mean == pytest.approx(0, abs=1e-9) and row.same_top == 1 and row.perplexity == row.perplexity_source
    assert tensor_errors(vl.weights, vl.weights) == []


def test_divergence_is_that_of_the_definition(vl: api.Model) -> None:
    packed = api.load(VL, engine="native", weights="q4")
    probe = probes(vl)[0]
    (row,) = logit_errors([probe], probe_logits([probe], vl), packed)
    logits = [m.stages(probe.prompt, ["logits"])["logits"][:-1].astype(np.float64) for m in (vl, packed)]
    p, q = (np.exp(a - a.max(1, keepdims=True)) / np.exp(a - a.max(1, keepdims=True)).sum(1, keepdims=True) for a in logits)
    kl = (p * np.log(p / q)).sum(1)
    assert row.kl_mean == pytest.approx(kl.mean(), rel=1e-3) and row.kl_max == pytest.approx(kl.max(), rel=1e-3)
    following = np.array(probe.prompt.ids[1:])
    assert row.perplexity == pytest.approx(np.exp(-np.log(q[np.arange(len(q)), following]).mean()), rel=1e-4)
    assert row.positions == len(probe.prompt.ids) - 1 and 0 < row.same_top < 1


def test_the_picture_probe_scores_the_answer_only(vl: api.Model) -> None:
    probe = probes(vl)[1]
    assert probe.prompt.picture_tokens > 0 and np.flatnonzero(probe.prompt.visual >= 0).max() < probe.start
    scored = vl.tokenizer.decode(list(probe.prompt.ids[probe.start + 1 :]))
    assert "Invoice 2048" in scored and "Read the text" not in scored


def test_errors_of_tensors(vl: api.Model) -> None:
    packed = api.load(VL, engine="native", weights="q4")
    rows = {(row.part, row.kind): row for row in tensor_errors(vl.weights, packed.weights)}
    assert rows["text", "linear"].format == "q4" and 0.05 < rows["text", "linear"].relative_error < 0.1
    assert rows["vision", "conv"].format == "q8" and rows["vision", "conv"].relative_error < 0.006
    down = [w for name, w in packed.weights.items() if w.spec.part == "text" and w.spec.kind == "linear"]
    pairs = [(w.f32().astype(np.float64), vl.weights[w.name].f32().astype(np.float64)) for w in down]
    exact = (sum(((a - b) ** 2).sum() for a, b in pairs) / sum((b**2).sum() for _, b in pairs)) ** 0.5
    assert rows["text", "linear"].relative_error == pytest.approx(exact, rel=1e-9)
    assert rows["text", "linear"].tensors == len(down) and rows["text", "linear"].worst in {w.name for w in down}


def test_calibration_counts_what_the_matrices_meet(vl: api.Model, files: list[Path]) -> None:
    found = calibrate(vl, files)
    assert found.pictures == 1 and found.prompts >= 2
    linears = {name for name, w in vl.weights.items() if w.spec.kind in ("linear", "conv")}
    assert set(found.importance) == linears
    for name, squares in found.importance.items():
        assert squares.shape == (vl.weights[name].shape[1],) and np.isfinite(squares).all() and (squares >= 0).all()
    alone = calibrate(vl, files[:1])
    prompt = vl.raw_prompt(files[0].read_text("utf-8"))
    pieces = [vl.raw_prompt(prompt.ids[at : at + 256]) for at in range(0, len(prompt.ids), 256)]
    rows = np.concatenate([vl.stages(piece, ["text.layers.1.gated"])["text.layers.1.gated"] for piece in pieces])
    wanted = (rows.astype(np.float64) ** 2).mean(0)
    assert np.allclose(alone.importance["text.layers.1.down.weight"], wanted, rtol=1e-6)
    assert not any(name.startswith("vision") for name in alone.importance)


def test_calibration_lowers_the_error_that_counts(vl: api.Model, files: list[Path]) -> None:
    """The weighted squares, and with them the first linear's error on these very inputs."""
    from ouzel.weights.open import open_weights

    found = calibrate(vl, files)
    loaded = [
        open_weights(vl.checkpoint, vl.family.tensor_table(), FormatPlan.uniform("q4"), importance=imp) for imp in (found.importance, None)
    ]
    better = 0
    for name, squares in found.importance.items():
        source = vl.weights[name].f32()
        mine, plain = (((w[name].f32() - source) ** 2 @ squares).sum() for w in loaded)
        assert mine <= 1.02 * plain
        better += mine < plain
    assert better > 0.8 * len(found.importance)


def test_calibration_files_that_cannot_be_used(vl: api.Model, tmp_path: Path) -> None:
    broken, empty = tmp_path / "broken.bin", tmp_path / "empty.txt"
    broken.write_bytes(bytes(range(256)) * 4)
    empty.write_text(" \n", encoding="utf-8")
    for path in (broken, empty):
        with pytest.raises(RequestError, match=f"calibrating with .*{path.name}"):
            calibrate(vl, [path])
    buffer = io.BytesIO()
    Image.fromarray(page()).save(buffer, "PNG")
    picture = tmp_path / "page.png"
    picture.write_bytes(buffer.getvalue())
    with pytest.raises(RequestError, match="expected text for qwen3, got a picture"):
        calibrate(api.load(TEXT_ONLY, engine="reference"), [picture])


def test_the_whole_conversion(files: list[Path], tmp_path: Path) -> None:
    told: list[str] = []
    report = run(
        Checkpoint.open(VL), tmp_path / "out", FormatPlan.preset("q4"), calibration_files=files, progress=lambda what, done, of: told.append(what)
    )
    assert {"calibrating", "packing", "hashing the source", "comparing"} <= set(told)
    assert report.packed_bytes < report.source_bytes / 3
    assert [row.probe for row in report.logits] == [row.probe for row in report.plain_logits] == ["text", "picture"]
    assert report.logits != report.plain_logits
    header = json.loads((tmp_path / "out" / "model.json").read_text("utf-8"))
    assert header["source"]["calibration"] == report.calibration and report.calibration["pictures"] == 1
    assert json.loads(json.dumps(report.as_json()))["logits"][0]["probe"] == "text"


def test_without_a_tokenizer_fixed_ids_are_tried(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((TEXT_ONLY / name).read_bytes())
    report = run(Checkpoint.open(bare), tmp_path / "out", FormatPlan.preset("q8"))
    assert report.logits[0].positions > 50 and report.logits[0].kl_mean < 0.01


def test_the_text_has_something_of_everything() -> None:
    assert "\n" not in TEXT[-10:] and any(ord(c) > 0x4E00 for c in TEXT) and any(c.isdigit() for c in TEXT)


