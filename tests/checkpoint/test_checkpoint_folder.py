"""Opening checkpoint folders: the good layouts, and one line for everything that can be wrong with a folder."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from ouzel.checkpoint import Checkpoint
from ouzel.errors import CheckpointError, ConfigError, OuzelError, RequestError, TensorError, UnsupportedError

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
INDEX = "model.safetensors.index.json"


def refused(kind, call, *parts: str) -> str:
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is kind, type(caught.value)
    assert "\n" not in message and len(message) < 1500
    for part in parts:
        assert part in message, message
    return message


def tensors_of(folder: Path) -> dict[str, np.ndarray]:
    """All tensors by the safetensors package."""
    result = {}
    for path in sorted(folder.glob("*.safetensors")):
        result.update(safetensors.numpy.load_file(path))
    return result


# -- good folders ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["qwen3/tiny", "qwen3/tiny_untied", "qwen3_vl/tiny", "qwen3_vl/tiny_tied"])
@pytest.mark.parametrize("kind", [str, Path])
def test_fixtures_open(name, kind):
    checkpoint = Checkpoint.open(kind(FIXTURES / name))
    wanted = tensors_of(FIXTURES / name)
    assert checkpoint.model_type == name.split("/")[0]
    assert checkpoint.path == FIXTURES / name
    assert checkpoint.config == json.loads((FIXTURES / name / "config.json").read_text(encoding="utf-8"))
    assert set(checkpoint.tensors) == set(wanted) and len(checkpoint.tensors) == len(wanted)
    assert all(np.array_equal(checkpoint.tensors[key].data, array) for key, array in wanted.items())
    assert checkpoint.tensors.total_bytes() == sum(array.nbytes for array in wanted.values())
    assert checkpoint.tensors.files == sorted((FIXTURES / name).glob("*.safetensors"))


def test_other_files(tiny):
    folder = tiny("qwen3_vl/tiny")
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.json("preprocessor_config.json")["patch_size"] == 8
    assert checkpoint.json_reader("preprocessor_config.json").int("patch_size") == 8
    assert checkpoint.json("none.json") is None
    assert checkpoint.json_reader("none.json") is None
    assert checkpoint.text("chat_template.jinja") is None
    (folder / "chat_template.jinja").write_bytes(b"\xef\xbb\xbfgr\xc3\xbc\xc3\x9fe")
    assert checkpoint.text("chat_template.jinja") == "grüße"
    assert checkpoint.file("config.json") == folder / "config.json"
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    refused(CheckpointError, lambda: checkpoint.text("chat_template.jinja"), "chat_template.jinja", "UTF-8")


def test_config_with_byte_order_mark(tiny):
    folder = tiny("qwen3/tiny")
    raw = (folder / "config.json").read_bytes()
    (folder / "config.json").write_bytes(b"\xef\xbb\xbf" + raw)
    assert Checkpoint.open(folder).config == json.loads(raw)


def test_folders_with_names_in_any_script(tiny, tmp_path):
    target = tmp_path / "模型 ü 'x'"
    shutil.move(tiny("qwen3/tiny"), target)
    assert len(Checkpoint.open(target).tensors) == 46


def test_home_folder(tiny, tmp_path, monkeypatch):
    folder = tiny("qwen3/tiny")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert Checkpoint.open(f"~/{folder.name}").path == folder


def test_shards_without_an_index(tiny):
    folder = tiny("qwen3/tiny_untied")
    wanted = tensors_of(folder)
    (folder / INDEX).unlink()
    got = Checkpoint.open(folder).tensors
    assert set(got) == set(wanted) and all(np.array_equal(got[key].data, wanted[key]) for key in wanted)


def test_files_of_any_name_without_an_index(tiny):
    folder = tiny("qwen3/tiny")
    tensors = tensors_of(folder)
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    safetensors.numpy.save_file({name: tensors[name] for name in names[::2]}, folder / "even.safetensors")
    safetensors.numpy.save_file({name: tensors[name] for name in names[1::2]}, folder / "odd.safetensors")
    assert sorted(Checkpoint.open(folder).tensors) == names


def test_model_safetensors_goes_before_other_files(tiny):
    folder = tiny("qwen3/tiny")
    safetensors.numpy.save_file({"other": np.zeros(3, "f4")}, folder / "consolidated.safetensors")
    assert "other" not in Checkpoint.open(folder).tensors


def test_shards_as_links_like_the_hub_cache(tiny, tmp_path):
    folder = tiny("qwen3/tiny_untied")
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    for path in list(folder.iterdir()):
        shutil.move(path, blobs / path.name)
        try:
            os.symlink(Path("..") / "blobs" / path.name, path)
        except OSError:
            pytest.skip("this system does not allow this user to make links")
    assert len(Checkpoint.open(folder).tensors) == 36


def test_a_tensor_that_the_index_forgot_is_seen(tiny):
    folder = tiny("qwen3/tiny_untied")
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    index["weight_map"].pop("model.norm.weight")
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    assert "model.norm.weight" in Checkpoint.open(folder).tensors


# -- folders that cannot be opened -----------------------------------------------------------------------------------


def test_no_such_folder(tmp_path):
    refused(CheckpointError, lambda: Checkpoint.open(tmp_path / "none"), "none", "no such folder")
    refused(CheckpointError, lambda: Checkpoint.open("./none/at/all"), "none", "hub id")
    refused(CheckpointError, lambda: Checkpoint.open(""), "loading a model")
    refused(CheckpointError, lambda: Checkpoint.open("a\0b"), "loading a model")


def test_a_name_that_is_too_long():
    with pytest.raises(OuzelError) as caught:
        Checkpoint.open("x" * 10_000)
    assert "\n" not in str(caught.value)


def test_a_file_instead_of_a_folder(tmp_path, tiny):
    path = tmp_path / "model.GGUF"
    path.write_bytes(b"GGUF")
    refused(CheckpointError, lambda: Checkpoint.open(path), "GGUF", "a file of 4 bytes")
    folder = tiny("qwen3/tiny")
    refused(CheckpointError, lambda: Checkpoint.open(folder / "model.safetensors"), "a file", str(folder))


def test_an_empty_folder(tmp_path):
    refused(CheckpointError, lambda: Checkpoint.open(tmp_path), "config.json", "an empty folder", str(tmp_path))


def test_a_folder_without_a_config(tiny):
    folder = tiny("qwen3/tiny")
    (folder / "config.json").unlink()
    refused(CheckpointError, lambda: Checkpoint.open(folder), "config.json", "no such file")


def test_a_folder_with_a_gguf_file(tmp_path):
    (tmp_path / "model-q4.gguf").write_bytes(b"GGUF")
    refused(CheckpointError, lambda: Checkpoint.open(tmp_path), "GGUF (model-q4.gguf)", "give the file")


def test_an_adapter(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    refused(UnsupportedError, lambda: Checkpoint.open(tmp_path), "an adapter (LoRA)", "merge")


def test_a_revision_of_a_folder(tiny):
    folder = tiny("qwen3/tiny")
    refused(RequestError, lambda: Checkpoint.open(folder, revision="main"), "revision", "hub id")


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (b"", "an empty file"),
        (b"  \n", "an empty file"),
        (b"{", "line 1"),
        (b'{"a": 1,}', "line 1"),
        (b"[1, 2]", "a JSON object, got [1, 2]"),
        (b"null", "a JSON object"),
        (b'"text"', "a JSON object"),
        (b'{"a": "\xff"}', "UTF-8"),
        ('{"a": "ü"}'.encode("utf-16"), "UTF-8"),
        (b'{"a":' * 100_000, "nested"),
        (b'{"a": ' + b"9" * 5000 + b"}", "JSON"),
        (b"<html>login</html>", "JSON"),
    ],
    ids=range(12),
)
def test_a_config_that_is_no_object(tiny, raw, part):
    folder = tiny("qwen3/tiny")
    (folder / "config.json").write_bytes(raw)
    refused(CheckpointError, lambda: Checkpoint.open(folder), str(folder / "config.json"), part)


def test_a_config_that_is_too_large(tiny, monkeypatch):
    folder = tiny("qwen3/tiny")
    path = folder / "config.json"
    with open(path, "r+b") as file:
        file.truncate((64 << 20) + 1)
    refused(CheckpointError, lambda: Checkpoint.open(folder), str(path), "a larger file")


def test_a_config_that_is_a_folder(tiny):
    folder = tiny("qwen3/tiny")
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    refused(CheckpointError, lambda: Checkpoint.open(folder), "config.json")


@pytest.mark.parametrize("config", [{}, {"model_type": None}, {"model_type": 5}, {"model_type": ""}])
def test_a_config_without_a_model_type(tiny, config):
    folder = tiny("qwen3/tiny")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    checkpoint = Checkpoint.open(folder)
    refused(ConfigError, lambda: checkpoint.model_type, "config.json", "'model_type'")


def test_a_quantised_checkpoint(tiny):
    folder = tiny("qwen3/tiny")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    refused(UnsupportedError, lambda: Checkpoint.open(folder), "config.json", '"gptq"')


def test_damage_in_other_json_files(tiny):
    folder = tiny("qwen3/tiny")
    (folder / "generation_config.json").write_bytes(b"{")
    checkpoint = Checkpoint.open(folder)
    refused(CheckpointError, lambda: checkpoint.generation, str(folder / "generation_config.json"))


# -- no permission ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "generation_config.json"])
def test_no_permission_for_a_file(tiny, monkeypatch, name):
    folder = tiny("qwen3/tiny")
    real = open

    def guarded(path, *args, **kwargs):
        if Path(path).name == name:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr("builtins.open", guarded)

    def use():
        checkpoint = Checkpoint.open(folder)
        return checkpoint.generation, checkpoint.tensors

    refused(CheckpointError, use, "no permission", str(folder / name))


@pytest.mark.parametrize("method", ["is_dir", "is_file", "iterdir"])
def test_no_permission_for_the_folder(tiny, monkeypatch, method):
    folder = tiny("qwen3/tiny")
    (folder / "config.json").unlink()

    def no(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, method, no)
    refused(CheckpointError, lambda: Checkpoint.open(folder), "no permission", folder.name)


@pytest.fixture
def bound_by_permissions():
    """The real permission check, also when the tests run as root: the effective user is "nobody" meanwhile."""
    if not hasattr(os, "seteuid"):
        pytest.skip("this system has no permission bits")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copytree(FIXTURES / "qwen3" / "tiny", folder / "model")
    # What is imported late must be there before the change of user.
    assert Checkpoint.open(folder / "model").tensors
    changed = os.geteuid() == 0

    def become_nobody():
        if changed:
            os.seteuid(65534)

    yield folder / "model", become_nobody
    if changed:
        os.seteuid(0)
    (folder / "model").chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "."])
def test_real_missing_permission(bound_by_permissions, name):
    folder, become_nobody = bound_by_permissions
    (folder / name).chmod(0)
    become_nobody()
    refused(CheckpointError, lambda: Checkpoint.open(folder).tensors, "no permission", str(folder))


# -- weights that cannot be read -------------------------------------------------------------------------------------


def drop_weights(folder: Path) -> Path:
    for path in folder.glob("*.safetensors*"):
        path.unlink()
    return folder


def test_no_weights(tiny):
    folder = drop_weights(tiny("qwen3/tiny"))
    checkpoint = Checkpoint.open(folder)
    refused(CheckpointError, lambda: checkpoint.tensors, str(folder), "model.safetensors", "none of them")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "consolidated.00.pth"])
def test_pickled_weights(tiny, name):
    folder = drop_weights(tiny("qwen3/tiny"))
    (folder / name).write_bytes(b"\x80\x02")
    checkpoint = Checkpoint.open(folder)
    refused(UnsupportedError, lambda: checkpoint.tensors, name, "safetensors", "save_pretrained")


@pytest.mark.parametrize(
    ("name", "part", "kind"), [("adapter_model.bin", "adapter", UnsupportedError), ("model.gguf", "GGUF", CheckpointError)]
)
def test_weights_of_other_kinds(tiny, name, part, kind):
    folder = drop_weights(tiny("qwen3/tiny"))
    (folder / name).write_bytes(b"x")
    checkpoint = Checkpoint.open(folder)
    refused(kind, lambda: checkpoint.tensors, part)


def test_a_cut_file_is_named(tiny):
    folder = tiny("qwen3/tiny_untied")
    path = folder / "model-00003-of-00004.safetensors"
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 1)
    checkpoint = Checkpoint.open(folder)
    refused(TensorError, lambda: checkpoint.tensors, path.name, "cut short")


@pytest.mark.parametrize("indexed", [True, False])
def test_a_missing_shard_is_named(tiny, indexed):
    folder = tiny("qwen3/tiny_untied")
    (folder / "model-00002-of-00004.safetensors").unlink()
    if not indexed:
        (folder / INDEX).unlink()
    checkpoint = Checkpoint.open(folder)
    refused(CheckpointError, lambda: checkpoint.tensors, "model-00002-of-00004.safetensors", "download")


def test_a_tensor_that_is_not_in_its_shard(tiny):
    folder = tiny("qwen3/tiny_untied")
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    index["weight_map"]["model.extra.weight"] = "model-00001-of-00004.safetensors"
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    checkpoint = Checkpoint.open(folder)
    refused(TensorError, lambda: checkpoint.tensors, "'model.extra.weight'", "model-00001-of-00004.safetensors")


def test_a_tensor_in_two_files(tiny):
    folder = tiny("qwen3/tiny_untied")
    (folder / INDEX).unlink()
    safetensors.numpy.save_file({"model.norm.weight": np.zeros(3, "f4")}, folder / "zzz.safetensors")
    checkpoint = Checkpoint.open(folder)
    refused(TensorError, lambda: checkpoint.tensors, "'model.norm.weight'", "zzz.safetensors", "also in model-0")


@pytest.mark.parametrize(
    "shard",
    [
        "../model-00001-of-00004.safetensors",
        "..\\model.safetensors",
        "/etc/passwd",
        "sub/model.safetensors",
        "C:model.safetensors",
        "C:\\model.safetensors",
        "..",
        ".",
        "",
        ".hidden.safetensors",
        "model.bin",
        "a\0b.safetensors",
        "a\nb.safetensors",
        "x" * 300 + ".safetensors",
    ],
)
def test_shard_names_that_are_no_plain_file_names(tiny, shard):
    folder = tiny("qwen3/tiny_untied")
    index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    index["weight_map"]["lm_head.weight"] = shard
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    checkpoint = Checkpoint.open(folder)
    message = refused(CheckpointError, lambda: checkpoint.tensors, INDEX, "plain *.safetensors file names")
    assert message.isprintable()


@pytest.mark.parametrize(
    "index",
    [
        {},
        {"weight_map": None},
        {"weight_map": []},
        {"weight_map": {}},
        {"weight_map": {"a": 5}},
        {"weight_map": {"a": None}},
        {"weight_map": {"a": ["model.safetensors"]}},
        {"weight_map": "model.safetensors"},
        [],
    ],
)
def test_an_index_of_another_form(tiny, index):
    folder = tiny("qwen3/tiny_untied")
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    checkpoint = Checkpoint.open(folder)
    refused(CheckpointError, lambda: checkpoint.tensors, INDEX)


def test_an_index_with_too_many_shards(tiny):
    folder = tiny("qwen3/tiny_untied")
    index = {"weight_map": {f"t{i}": f"s{i}.safetensors" for i in range(5000)}}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")
    checkpoint = Checkpoint.open(folder)
    refused(TensorError, lambda: checkpoint.tensors, "at most 4096 shards", "5000")
