"""`ouzel inspect` tells what is in the files."""

from __future__ import annotations

import json

import pytest
from goldens import FIXTURES, model_of

from ouzel.checkpoint import Checkpoint

CHECKPOINTS = ["qwen3/tiny", "qwen3/tiny_untied", "qwen3_vl/tiny", "qwen3_vl/tiny_tied"]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_numbers_are_those_of_the_loaded_model(ouzel, name):
    path = FIXTURES / name
    found = ouzel("inspect", path, "--json").json()
    model = model_of(path, "reference")
    assert found["family"] == model.family.name
    assert found["weights"]["parameters"] == model.weights.parameters()
    assert found["weights"]["bytes"] == model.weights.total_bytes() == sum(found["weights"]["bytes_by_part"].values())
    per_token = model.cache_bytes_per_token
    assert found["memory"]["cache_bytes_per_token"] == per_token
    assert [row["cache_bytes"] for row in found["memory"]["contexts"]] == [4096 * per_token, 32768 * per_token]
    assert found["stages"] == list(model.stage_names())
    assert {row["id"] for row in found["tokenizer"]["end_tokens"]} == model.eos_ids
    assert [(row["name"], row["shape"], row["bytes"]) for row in found["tensors"]] == [
        (weight.name, list(weight.shape), weight.nbytes) for weight in model.weights.values()
    ]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_tensor_of_the_files_is_in_the_table(ouzel, name):
    path = FIXTURES / name
    found = ouzel("inspect", path, "--json").json()
    assert {row["source"] for row in found["tensors"]} == set(Checkpoint.open(path).tensors)
    assert found["weights"]["file_bytes"] == Checkpoint.open(path).tensors.total_bytes()
    assert set(found["weights"]["files"]) == {file.name for file in path.glob("*.safetensors")}


def test_formats(ouzel):
    stored = ouzel("inspect", FIXTURES / "qwen3/tiny", "--json").json()
    half = ouzel("inspect", FIXTURES / "qwen3/tiny", "--weights", "bf16", "--json").json()
    for before, after in zip(stored["tensors"], half["tensors"], strict=True):
        expected = before["bytes"] // 2 if len(before["shape"]) > 1 else before["bytes"]
        assert after["bytes"] == expected and after["format"] == ("bf16" if len(before["shape"]) > 1 else "f32")


def test_text(ouzel):
    found = ouzel("inspect", FIXTURES / "qwen3_vl/tiny")
    assert found.code == 0 and found.err == ""
    for words in (
        "family: qwen3_vl", "text_config.rope_scaling.mrope_section      [6, 5, 5]", "at 4,096 tokens", "at 32,768 tokens",
        "beyond this model's context", "chat_template.json", "960 <|im_end|>, 958 <|endoftext|>", "preprocessor_config.json",
        "size.longest_edge", "text.layers.0-3.q.weight", "model.visual.blocks.0-4.attn.qkv.weight", "f32",
    ):  # fmt: skip
        assert words in found.out, words


def test_merged_rows_hold_all_bytes(ouzel):
    path = FIXTURES / "qwen3_vl/tiny"

    def total(*options: str) -> tuple[int, int]:
        lines = ouzel("inspect", path, *options).out.split("\ntensors\n")[1].split("\n\n")[0].splitlines()[2:]
        return sum(int(line.split()[-1].replace(",", "")) for line in lines), len(lines)

    merged, rows = total()
    every, tensors = total("--all")
    assert merged == every and rows < tensors == len(model_of(path, "reference").weights)


def test_without_tensors(ouzel):
    assert "q.weight" not in ouzel("inspect", FIXTURES / "qwen3/tiny", "--no-tensors").out
    assert "tensors" not in ouzel("inspect", FIXTURES / "qwen3/tiny", "--no-tensors", "--json").json()


def test_stages(ouzel):
    found = ouzel("inspect", FIXTURES / "qwen3_vl/tiny", "--stages")
    assert found.out.splitlines() == list(model_of(FIXTURES / "qwen3_vl/tiny", "reference").stage_names())


def test_a_folder_without_tokenizer_or_template(ouzel, tiny):
    folder = tiny("qwen3/tiny")
    for name in ("tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json"):
        (folder / name).unlink()
    found = ouzel("inspect", folder, "--json").json()
    assert found["tokenizer"] is None and found["chat_template"] is None
    assert "token ids only" in ouzel("inspect", folder).out
    assert ouzel("run", "-m", folder, "--ids", "1,2,3", "-n", "3", "--ignore-eos").out.count(",") == 2


def test_an_unused_head_is_told(ouzel, tiny):
    folder = tiny("qwen3/tiny_untied")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}), encoding="utf-8")
    found = ouzel("inspect", folder)
    assert found.code == 0 and "note" in found.out and "'lm_head.weight' differs" in found.out
