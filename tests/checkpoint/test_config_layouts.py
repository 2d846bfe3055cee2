"""A configuration that transformers 5 writes again reads as the old file did."""

from __future__ import annotations

from pathlib import Path

import pytest

from ouzel.checkpoint import Checkpoint, ConfigReader, read_rope, stored_dtype, tie_word_embeddings
from ouzel.checkpoint.json_file import read_json

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"


def readings(data: dict) -> dict:
    """What the readers of this package get out of a config.json."""
    reader = ConfigReader(data, "config.json")
    text = reader.section("text_config", default=reader)
    return {
        "rope": read_rope(reader),
        "tied": tie_word_embeddings(reader),
        "dtype": stored_dtype(reader),
        "sizes": [text.int(key) for key in ("hidden_size", "num_hidden_layers", "head_dim", "vocab_size")],
        "eps": text.float("rms_norm_eps"),
    }


@pytest.mark.parametrize("name", ["qwen3/tiny", "qwen3/tiny_untied", "qwen3_vl/tiny", "qwen3_vl/tiny_tied"])
def test_written_by_transformers_5(tmp_path, name):
    import transformers

    transformers.AutoConfig.from_pretrained(FIXTURES / name).save_pretrained(tmp_path)
    old, new = read_json(FIXTURES / name / "config.json"), read_json(tmp_path / "config.json")
    old_text, new_text = old.get("text_config", old), new.get("text_config", new)
    assert "rope_theta" in old_text and "rope_parameters" in new_text and "rope_theta" not in new_text
    assert readings(new) == readings(old)


@pytest.mark.parametrize("name", ["qwen3_vl/tiny", "qwen3_vl/tiny_tied"])
def test_flat_and_nested_text_settings(name):
    nested = Checkpoint.open(FIXTURES / name).config
    flat = {**nested["text_config"], **{key: value for key, value in nested.items() if key != "text_config"}}
    assert readings(flat) == readings(nested)


def test_old_and_new_names_of_the_same_setting():
    nested = Checkpoint.open(FIXTURES / "qwen3_vl" / "tiny").config
    text = dict(nested["text_config"])
    text["torch_dtype"] = text.pop("dtype")
    scaling = dict(text.pop("rope_scaling"))
    scaling["type"] = scaling.pop("rope_type")
    mrope = {**scaling, "type": "mrope"}
    parameters = {**scaling, "rope_theta": text["rope_theta"]}
    without_theta = {key: value for key, value in text.items() if key != "rope_theta"}
    for layout in (
        {**text, "rope_scaling": scaling},
        {**text, "rope_scaling": mrope},
        {**without_theta, "rope_parameters": parameters},
    ):
        assert readings({**nested, "text_config": layout}) == readings(nested)
