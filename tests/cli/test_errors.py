"""Mistakes: one line on stderr that names the file and the key, exit code 2, never a traceback."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from goldens import FIXTURES
from safetensors.numpy import load_file, save_file

TEXT = FIXTURES / "qwen3" / "tiny"
VL = FIXTURES / "qwen3_vl" / "tiny"


def refused(found, *parts: str, code: int = 2) -> str:
    """One line of error that holds `parts`, and nothing on stdout."""
    assert found.code == code, (found.code, found.out, found.err)
    errors = [line for line in found.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and "Traceback" not in found.err
    assert found.out == ""
    for part in parts:
        assert part in errors[0], errors[0]
    return errors[0]


# -- checkpoints -----------------------------------------------------------------------------------------------------


def edit_config(folder: Path, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")


def edit_tensors(folder: Path, change) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def set_nan(tensors) -> None:
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = np.nan


def cut_rows(tensors) -> None:
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:-1].copy()


DAMAGE = {
    "empty folder": (empty, ["config.json", "an empty folder"]),
    "unknown model_type": (lambda f: edit_config(f, model_type="qwen9"), ["model_type", "qwen3_vl", "'qwen9'"]),
    "no model_type": (lambda f: edit_config(f, model_type=None), ["config.json", "'model_type'"]),
    "config not JSON": (lambda f: (f / "config.json").write_text("{", encoding="utf-8"), ["config.json"]),
    "bad config key": (lambda f: edit_config(f, hidden_size="64"), ["config.json", "'hidden_size'", '"64"']),
    "truncated weights": (truncate, ["model.safetensors", "cut short"]),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), ["model.safetensors"]),
    "missing tensor": (lambda f: edit_tensors(f, lambda t: t.pop("model.norm.weight")), ["model.safetensors", "'model.norm.weight'"]),
    "wrong shape": (lambda f: edit_tensors(f, cut_rows), ["model.safetensors", "'model.norm.weight'", "[64]", "[63]"]),
    "left-over tensor": (lambda f: edit_tensors(f, lambda t: t.update(extra=np.zeros(3, "f4"))), ["model.safetensors", "'extra'"]),
    "NaN weights": (lambda f: edit_tensors(f, set_nan), ["model.safetensors", "'model.layers.1.mlp.up_proj.weight'"]),
    "tokenizer not JSON": (lambda f: (f / "tokenizer.json").write_text("[", encoding="utf-8"), ["tokenizer.json"]),
}


@pytest.mark.parametrize("command", ["run", "inspect", "chat"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_checkpoints(ouzel, tiny, kind, command):
    folder = tiny("qwen3/tiny")
    damage, parts = DAMAGE[kind]
    damage(folder)
    if command == "inspect":
        found = ouzel("inspect", folder)
        if kind == "NaN weights":  # the weights are mapped and not read
            assert found.code == 0
            return
    else:
        found = ouzel(command, "--model", folder, *(["Hello"] if command == "run" else []))
    refused(found, *parts)


@pytest.mark.parametrize("kind", ["truncated weights", "unknown model_type", "empty folder"])
def test_errors_of_a_process(start, tiny, kind):
    folder = tiny("qwen3/tiny")
    damage, parts = DAMAGE[kind]
    damage(folder)
    process = start("run", "--model", str(folder), "Hello")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2 and out == b""
    assert err.count(b"\n") == 1 and err.startswith(b"error: ")
    assert all(part.encode() in err for part in parts)


def test_missing_picture_settings(ouzel, tiny):
    folder = tiny("qwen3_vl/tiny")
    (folder / "preprocessor_config.json").unlink()
    refused(ouzel("run", "-m", folder, "Hello"), "preprocessor_config.json")


@contextmanager
def somebody_else():
    """For a while not the administrator, who may read everything."""
    if os.name != "posix" or os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_no_permission(ouzel, name):
    assert ouzel("run", "-m", TEXT, "Hello", "-n", "1").code == 0  # what is imported late is imported before the user changes
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        folder = Path(shutil.copytree(TEXT, Path(parent) / "model"))
        folder.chmod(0o755)
        (folder / name).chmod(0)
        with somebody_else():
            found = ouzel("run", "-m", folder, "Hello")
        refused(found, name, "ermission")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("/no/such/folder", ["'/no/such/folder'", "no such folder"]),
        ("", ["a hub id"]),
        ("nobody/nothing-like-this", ["nobody/nothing-like-this", "offline"]),
    ],
)
def test_models_that_are_not_there(ouzel, name, parts):
    refused(ouzel("run", "--offline", "-m", name, "Hello"), *parts)


# -- requests --------------------------------------------------------------------------------------------------------

MISTAKES = {
    "nothing": ([], ["a prompt"]),
    "raw without text": (["--raw"], ["--raw"]),
    "raw with a picture": (["--raw", "text", "-i", "a.png"], ["--raw", "pictures"]),
    "ids with text": (["--ids", "1", "text"], ["--ids", "a prompt"]),
    "ids with system": (["--ids", "1", "--system", "x"], ["--ids", "--system"]),
    "ids and raw": (["--ids", "1", "--raw"], ["--raw", "--ids"]),
    "raw with think": (["--raw", "text", "--no-think"], ["--think"]),
    "words as ids": (["--ids", "1,x2"], ["--ids", "'x2'"]),
    "no ids": (["--ids", ""], ["at least one token"]),
    "ids outside the vocabulary": (["--ids", "1,99999"], ["99999", "991"]),
    "no file of ids": (["--ids", "@/no/such"], ["--ids", "/no/such"]),
    "stdin twice": (["-", "-i", "-"], ["stdin", "2 times"]),
    "logprobs as text": (["text", "--logprobs", "2"], ["--logprobs", "--json"]),
    "no tokens": (["text", "-n", "0"], ["max_tokens", "0"]),
    "temperature": (["text", "--temperature", "-1"], ["temperature", "-1"]),
    "top-p": (["text", "--top-p", "2"], ["top_p"]),
    "empty stop": (["text", "--stop", ""], ["stop"]),
    "threads": (["text", "--threads", "0"], ["threads"]),
    "chunk": (["text", "--chunk", "0"], ["chunk"]),
    "empty prompt for raw": (["--raw", ""], ["at least one token"]),
    "revision of a folder": (["text", "--revision", "main"], ["revision"]),
    "too long": (["word " * 5000], ["4096", "tokens"]),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_requests_that_cannot_be_used(ouzel, kind):
    options, parts = MISTAKES[kind]
    refused(ouzel("run", "-m", VL, *options), *parts)


PICTURES = {
    "missing": (lambda p: None, ["picture.png"]),
    "empty": (lambda p: p.write_bytes(b""), []),
    "text": (lambda p: p.write_text("not a picture", encoding="utf-8"), []),
    "cut": (lambda p: p.write_bytes((FIXTURES / "qwen3_vl/golden/images/large.png").read_bytes()[:200]), []),
    "folder": (lambda p: p.mkdir(), ["picture.png"]),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_pictures_that_cannot_be_used(ouzel, tmp_path, kind):
    make, parts = PICTURES[kind]
    path = tmp_path / "picture.png"
    make(path)
    refused(ouzel("run", "-m", VL, "-i", path, "What?"), *parts)


@pytest.mark.parametrize("source", ["https://example.org/a.png", "data:image/png;base64,AAAA", "-"])
def test_sources_that_cannot_be_used(ouzel, source):
    refused(ouzel("run", "-m", VL, "-i", source, "What?", input=b""))


def test_pictures_for_a_text_model(ouzel):
    refused(ouzel("run", "-m", TEXT, "-i", FIXTURES / "qwen3_vl/golden/images/large.png", "What?"))


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_folders_without_frames(ouzel, tmp_path, folder):
    path = tmp_path / folder
    if folder == "empty":
        path.mkdir()
    refused(ouzel("run", "-m", VL, "--video-frames", path, "What?"), "video")


@pytest.mark.parametrize("command", ["run", "inspect"])
def test_errors_as_json(ouzel, tmp_path, command):
    words = ["run", "-m", tmp_path, "Hello"] if command == "run" else ["inspect", tmp_path]
    found = ouzel(*words, "--json")
    assert found.code == 2
    error = json.loads(found.out)["error"]
    assert error["type"] == "CheckpointError" and error["code"] == 2 and str(tmp_path) in error["message"]


@pytest.mark.parametrize(
    "words",
    [["run", "--no-such-option"], ["nonsense"], ["run", "-m", TEXT, "a", "b"], ["run", "--threads", "many", "x"],
     ["run", "--engine", "steam", "x"], ["run", "--weights", "q9", "x"], ["run", "--fps"]],
    ids=lambda words: " ".join(map(str, words[-2:])),
)  # fmt: skip
def test_usage(ouzel, words):
    found = ouzel(*words)
    assert found.code == 2 and found.out == "" and "Error" in found.err and "Traceback" not in found.err


@pytest.mark.parametrize("value", ["0", "many"])
def test_bad_environment(ouzel, value):
    refused(ouzel("run", "-m", TEXT, "Hello", OUZEL_THREADS=value), "OUZEL_THREADS")


# -- failures that are not mistakes ----------------------------------------------------------------------------------


def test_results_that_are_not_finite(ouzel, tiny):
    folder = tiny("qwen3/tiny")
    edit_tensors(folder, lambda t: t["model.norm.weight"].fill(3e38))
    refused(ouzel("run", "-m", folder, "Hello"), "logits", "finite", code=1)


def test_our_own_faults(ouzel, monkeypatch):
    from ouzel import model

    def broken(*args, **keywords):
        raise KeyError("surprise")

    monkeypatch.setattr(model, "load", broken)
    refused(ouzel("run", "Hello"), "KeyError", "surprise", "bug", code=1)
    found = ouzel("--debug", "run", "Hello")
    assert found.code == 1 and "Traceback" in found.err and "in broken" in found.err


def test_no_memory(ouzel, monkeypatch):
    from ouzel import model

    def greedy(*args, **keywords):
        raise MemoryError

    monkeypatch.setattr(model, "load", greedy)
    refused(ouzel("run", "Hello"), "not enough memory", code=1)
