"""Sampling defaults and end tokens of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ouzel.checkpoint import Checkpoint, ConfigReader, GenerationDefaults, eos_token_ids
from ouzel.errors import ConfigError

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"


def reader(data, file="generation_config.json"):
    return None if data is None else ConfigReader(data, file)


def test_fixture_values():
    assert Checkpoint.open(FIXTURES / "qwen3" / "tiny").generation == GenerationDefaults(
        do_sample=True, temperature=0.6, top_k=20, top_p=0.95
    )
    assert Checkpoint.open(FIXTURES / "qwen3_vl" / "tiny").generation == GenerationDefaults(
        do_sample=True, temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.0
    )


def test_a_missing_file_means_greedy(tiny):
    folder = tiny("qwen3/tiny")
    (folder / "generation_config.json").unlink()
    assert Checkpoint.open(folder).generation == GenerationDefaults(do_sample=False)


def test_nulls_and_unknown_keys_are_passed_over():
    data = {"temperature": None, "top_k": None, "transformers_version": "9", "cache_implementation": "x", "min_p": 0}
    assert GenerationDefaults.read(reader(data)) == GenerationDefaults(min_p=0.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("do_sample", 1),
        ("temperature", -0.1),
        ("temperature", "0.6"),
        ("temperature", float("nan")),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_p", 0),
        ("top_p", 1.1),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("max_new_tokens", 0),
    ],
)
def test_values_out_of_range_name_file_and_key(key, value):
    with pytest.raises(ConfigError) as caught:
        GenerationDefaults.read(reader({key: value}))
    assert f"'{key}'" in str(caught.value) and "generation_config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "wanted"),
    [
        ({}, None, None, ()),
        ({"eos_token_id": 5}, None, None, (5,)),
        ({"eos_token_id": [5, 6]}, None, None, (5, 6)),
        ({"eos_token_id": None, "text_config": {"eos_token_id": 7}}, None, None, (7,)),
        ({"eos_token_id": 5, "text_config": {"eos_token_id": [5, 8]}}, {"eos_token_id": 9}, None, (5, 8, 9)),
        ({}, {"eos_token_id": [960, 958]}, {"eos_token": "<|im_end|>"}, (960, 958)),
        ({"eos_token_id": 1}, {"eos_token_id": 0}, {"eos_token": "<|im_end|>"}, (1, 0, 960)),
        ({}, None, {"eos_token": {"content": "<|im_end|>", "special": True}}, (960,)),
        ({}, None, {"eos_token": "<not in the vocabulary>"}, ()),
        ({}, None, {"eos_token": None}, ()),
        ({}, {"eos_token_id": []}, {}, ()),
    ],
)
def test_end_tokens_are_the_union(config, generation, tokenizer, wanted):
    got = eos_token_ids(
        reader(config, "config.json"), reader(generation), reader(tokenizer, "tokenizer_config.json"),
        {"<|im_end|>": 960}.get,
    )
    assert got == wanted


@pytest.mark.parametrize("value", [-1, "5", True, 1.0, [1, "2"], [-1], {"id": 1}, 2**40])
def test_bad_end_tokens_name_file_and_key(value):
    with pytest.raises(ConfigError, match=r"generation_config\.json.*'eos_token_id'"):
        eos_token_ids(reader({}, "config.json"), reader({"eos_token_id": value}), None, {}.get)


def test_end_tokens_of_a_folder(tiny):
    folder = tiny("qwen3/tiny")
    lookup = {"<|im_end|>": 960, "<|endoftext|>": 958}.get
    assert Checkpoint.open(folder).eos_token_ids(lookup) == (960, 958)
    for name in ("generation_config.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert Checkpoint.open(folder).eos_token_ids(lookup) == (960,)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del config["eos_token_id"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert Checkpoint.open(folder).eos_token_ids(lookup) == ()
