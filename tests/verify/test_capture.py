"""Capturing goldens with transformers: what is written, one layer at a time, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from goldens import FIXTURES, model_of
from ouzel.checkpoint.folder import Checkpoint
from ouzel.errors import CheckpointError, OuzelError, UnsupportedError
from ouzel.verify.capture import CaptureOptions, capture
from ouzel.verify.cases import built_in, read_cases
from ouzel.verify.run import Request, verify

TINY = FIXTURES / "qwen3_vl" / "tiny"
UNTIED = FIXTURES / "qwen3" / "tiny_untied"


def captured(path: Path, out: Path, *names: str, **options: object) -> Path:
    cases = built_in(model_of(path, "reference"), out / "images", names)
    (found,) = capture(Checkpoint.open(path), cases, out, CaptureOptions(**{"max_tokens": 6, **options}))  # type: ignore[arg-type]
    return found


def test_a_capture_equals_the_fixture(tmp_path: Path) -> None:
    """The same messages give the tensors that the fixture holds, made with another installation of transformers."""
    fixture = FIXTURES / "qwen3_vl" / "golden" / "two_images.safetensors"
    data = json.loads(fixture.with_suffix(".json").read_text("utf-8"))
    listed = tmp_path / "cases.json"
    for name in ("small.png", "large.png"):
        (tmp_path / name).write_bytes((fixture.parent / "images" / name).read_bytes())
    listed.write_text(json.dumps({"cases": [{"name": "again", "messages": data["messages"]}]}), encoding="utf-8")
    out = tmp_path / "out"
    capture(Checkpoint.open(TINY), read_cases(listed, out / "images"), out, CaptureOptions())
    found, wanted = load_file(out / "again.safetensors"), load_file(fixture)
    made = json.loads((out / "again.json").read_text("utf-8"))
    assert (made["prompt"], made["text"]) == (data["prompt"], data["text"])
    extra = {"text.rope_cos", "text.rope_sin", "vision.rope_cos", "vision.rope_sin", "attention_mask"}
    assert set(wanted) - set(found) <= extra
    for name in set(wanted) & set(found) - extra:
        a, b = found[name].reshape(-1), wanted[name].reshape(-1)
        assert np.array_equal(a, b) if a.dtype.kind == "i" else np.allclose(a, b, atol=1e-4), name


def test_what_is_written_beside_the_tensors(tmp_path: Path) -> None:
    path = captured(UNTIED, tmp_path, "english", revision="abc")
    data = json.loads(path.with_suffix(".json").read_text("utf-8"))
    assert (data["schema"], data["family"], data["checkpoint"]["revision"]) == (1, "qwen3", "abc")
    assert {"torch", "transformers", "numpy"} <= set(data["made_with"])
    assert (
        set(data["checkpoint"]["sha256"]) >= {"config.json", "tokenizer.json"}
        and len(data["checkpoint"]["sha256"]["config.json"]) == 64
    )
    assert data["settings"]["attention"] == "eager" and data["settings"]["dtype"] == "float32"
    arrays = load_file(path)
    assert arrays["generated_ids"].shape == (6,) and arrays["step_logits"].shape[0] == 6
    assert arrays["position_ids"].reshape(-1).tolist() == list(range(arrays["input_ids"].shape[-1]))
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(("path", "case"), [(TINY, "two_pictures"), (UNTIED, "english")], ids=["qwen3_vl", "qwen3"])
def test_one_layer_at_a_time_is_the_same(path: Path, case: str, tmp_path: Path) -> None:
    whole, streamed = (load_file(captured(path, tmp_path / memory, case, memory=memory)) for memory in ("whole", "streamed"))
    assert set(whole) == set(streamed)
    for name, wanted in whole.items():
        # The order of a sum of one row may depend on where torch put the weights.
        within = 1e-5 * float(np.abs(wanted).max()) if wanted.dtype.kind == "f" else 0
        assert np.allclose(streamed[name], wanted, rtol=0, atol=within), name


def test_only_one_layer_has_memory_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ouzel.verify import streamed

    held: list[int] = []
    models: list[object] = []
    build = streamed.build_streamed
    load = streamed._Load.__call__

    def remember(*args: object) -> object:
        models.append(build(*args))
        return models[-1]

    def count(self: object, module: object, args: object) -> None:
        load(self, module, args)
        held.append(sum(p.device.type != "meta" for p in models[-1].parameters()))  # type: ignore[attr-defined]

    monkeypatch.setattr(streamed, "build_streamed", remember)
    monkeypatch.setattr(streamed._Load, "__call__", count)
    captured(UNTIED, tmp_path, "english", memory="streamed", max_tokens=1)
    layer = sum(1 for name, _ in models[0].named_parameters() if name.startswith("model.layers.0."))  # type: ignore[attr-defined]
    assert max(held) == layer
    assert all(p.device.type == "meta" for p in models[0].parameters())  # type: ignore[attr-defined]


def test_verify_against_transformers(tmp_path: Path) -> None:
    options = CaptureOptions(max_tokens=4)
    report = verify(Request(str(TINY), against="transformers", cases=("odd_size",), capture=options))
    assert report.ok and report.exact and report.reference == "transformers, float32, run now"


def test_the_built_in_cases(tmp_path: Path) -> None:
    names = [case.name for case in built_in(model_of(TINY, "reference"), tmp_path)]
    wanted = {
        "english",
        "chinese",
        "long_text",
        "english_picture",
        "chinese_picture",
        "two_pictures",
        "odd_size",
        "largest",
        "boxes",
    }
    assert set(names) == wanted
    assert [case.name for case in built_in(model_of(UNTIED, "reference"), tmp_path)] == ["english", "chinese", "long_text"]
    with pytest.raises(OuzelError, match="names among english"):
        built_in(model_of(UNTIED, "reference"), tmp_path, ["boxes"])


def test_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'ouzel\[verify\]'"):
        capture(Checkpoint.open(UNTIED), [], tmp_path, CaptureOptions())


def test_remote_code_must_be_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for path in UNTIED.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config |= {"model_type": "brand_new", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "own.py").write_text("raise SystemExit('this must not run')\n", encoding="utf-8")
    with pytest.raises(UnsupportedError, match="its own Python code; .*--trust-remote-code"):
        capture(Checkpoint.open(folder), [], tmp_path / "out", CaptureOptions())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "JSON object|object"),
        ('{"cases": []}', "no cases"),
        ('{"cases": [{"name": "a/b", "messages": []}]}', "a name of letters"),
        ('{"cases": [{"name": "a", "messages": [{"role": "user"}]}]}', "messages with 'role' and 'content'"),
        (
            '{"cases": [{"name": "a", "messages": [{"role": "user", "content": [{"type": "image", "image": "no.png"}]}]}]}',
            "no such file",
        ),
        ('{"cases": [{"name": "a", "messages": [{"role": "user", "content": [{"type": "audio"}]}]}]}', "parts"),
        ('{"cases": [{"name": "a", "messages": [], "template_kwargs": "x"}]}', "an object 'template_kwargs'"),
        ('{"cases": [{"name": "a", "messages": []}, {"name": "a", "messages": []}]}', "a twice"),
    ],
)
def test_files_of_cases_that_cannot_be_used(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"cases.json.*({words})"):
        read_cases(path, tmp_path / "images")


def test_pictures_of_one_name_stay_apart(tmp_path: Path) -> None:
    """The second must not take the place of the first; a picture that is in the folder already is taken as it is."""
    images = tmp_path / "images"
    for folder, colour in (("a", "red"), ("b", "blue"), ("images", "red")):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (8, 8), colour).save(tmp_path / folder / "x.png")
    parts = [{"type": "image", "image": f"{folder}/x.png"} for folder in ("a", "b", "images", "b")]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps({"cases": [{"name": "one", "messages": [{"role": "user", "content": parts}]}]}), encoding="utf-8")
    (case,) = read_cases(path, images)
    assert [part["image"] for part in case.messages[0]["content"]] == ["x.png", "x_1.png", "x.png", "x_1.png"]
    for folder, name in (("a", "x.png"), ("b", "x_1.png")):
        assert (images / name).read_bytes() == (tmp_path / folder / "x.png").read_bytes()
