"""Typed reads of configuration files: types, bounds, alternatives, and errors that name the file and the key."""

from __future__ import annotations

import json

import pytest

from ouzel.checkpoint import ConfigReader, stored_dtype, tie_word_embeddings
from ouzel.checkpoint.config import refuse_quantized
from ouzel.errors import ConfigError, UnsupportedError


def reader(text: str) -> ConfigReader:
    return ConfigReader(json.loads(text), "some/config.json")


def test_reads_values_by_path():
    r = reader('{"a": {"b": {"n": 4}}, "x": 0.5, "on": true, "s": "silu", "list": [1, 0, 2], "f": [1, 0.5]}')
    assert r.int("a.b.n") == 4
    assert r.float("x") == 0.5
    assert r.float("a.b.n") == 4.0 and isinstance(r.float("a.b.n"), float)
    assert r.bool("on") is True
    assert r.str("s") == "silu"
    assert r.ints("list") == [1, 0, 2]
    assert r.floats("f") == [1.0, 0.5]
    assert reader('{"w": ["a"]}').strs("w") == ["a"]


def test_defaults_stand_for_missing_and_null():
    r = reader('{"n": null, "a": {}}')
    assert r.int("n", default=7) == 7
    assert r.float("a.x", default=None) is None
    assert r.str("b.c.d", default="x") == "x"
    assert r.bool("n", default=False) is False
    assert r.ints("n", default=None) is None
    assert not r.has("n", "a.x") and r.has("a")


def test_the_first_name_that_is_there_counts():
    r = reader('{"torch_dtype": "float16", "dtype": "bfloat16", "old": 3, "new": null}')
    assert r.str("dtype", "torch_dtype") == "bfloat16"
    assert r.str("torch_dtype", "dtype") == "float16"
    assert r.int("new", "old") == 3


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("int", "true"),
        ("int", "1.0"),
        ("int", '"4"'),
        ("int", "0"),
        ("int", "-3"),
        ("int", "[1]"),
        ("int", "1" + "0" * 30),
        ("float", "true"),
        ("float", '"0.5"'),
        ("float", "NaN"),
        ("float", "Infinity"),
        ("float", "-Infinity"),
        ("float", "1e999"),
        ("float", "1" + "0" * 400),
        ("bool", "1"),
        ("bool", "0"),
        ("bool", '"true"'),
        ("str", "5"),
        ("str", '""'),
        ("ints", "5"),
        ("ints", "[1, true]"),
        ("ints", "[1, 1.5]"),
        ("ints", "[-1]"),
        ("ints", "{}"),
        ("floats", "[NaN]"),
        ("floats", "[true]"),
        ("floats", "0.5"),
        ("strs", "[1]"),
        ("strs", '"a"'),
        ("section", "5"),
        ("section", "[]"),
    ],
)
def test_wrong_values_name_file_and_key(method, text):
    r = reader(f'{{"vision": {{"key": {text}}}}}')
    with pytest.raises(ConfigError) as caught:
        getattr(r.section("vision"), method)("key")
    message = str(caught.value)
    assert "some/config.json" in message and "'vision.key'" in message and "got " in message
    assert len(message) < 300 and "\n" not in message


@pytest.mark.parametrize("method", ["int", "float", "bool", "str", "ints", "floats", "strs", "section"])
def test_missing_keys_name_all_their_names(method):
    with pytest.raises(ConfigError, match=r"some/config.json.*'new\.a' or 'old'.*no such key"):
        getattr(reader("{}"), method)("new.a", "old")


def test_a_path_through_something_else_than_an_object():
    with pytest.raises(ConfigError, match=r"'text_config' to be an object, got \[1\]"):
        reader('{"text_config": [1]}').int("text_config.hidden_size")


@pytest.mark.parametrize(
    ("bounds", "value", "good"),
    [
        ({}, 1, True),
        ({"min": 0}, 0, True),
        ({"min": None}, -5, True),
        ({"max": 8}, 8, True),
        ({"max": 8}, 9, False),
        ({"min": 4}, 3, False),
        ({"multiple_of": 32}, 64, True),
        ({"multiple_of": 32}, 48, False),
    ],
)
def test_int_bounds(bounds, value, good):
    r = ConfigReader({"n": value}, "config.json")
    if good:
        assert r.int("n", **bounds) == value
    else:
        with pytest.raises(ConfigError, match=f"got {value}"):
            r.int("n", **bounds)


@pytest.mark.parametrize(
    ("bounds", "value", "good"),
    [
        ({"min": 0.0}, 0.0, True),
        ({"above": 0.0}, 0.0, False),
        ({"above": 0.0}, 1e-9, True),
        ({"max": 1.0}, 1.0, True),
        ({"max": 1.0}, 1.5, False),
        ({"min": 0.0}, -0.1, False),
    ],
)
def test_float_bounds(bounds, value, good):
    r = ConfigReader({"x": value}, "config.json")
    if good:
        assert r.float("x", **bounds) == value
    else:
        with pytest.raises(ConfigError, match="'x'"):
            r.float("x", **bounds)


def test_list_lengths():
    r = reader('{"a": [1, 2, 3]}')
    assert r.ints("a", length=3) == [1, 2, 3]
    with pytest.raises(ConfigError, match="a list of 2 whole numbers"):
        r.ints("a", length=2)
    with pytest.raises(ConfigError, match="a list of 2 finite numbers"):
        r.floats("a", length=2)


def test_sections_keep_the_whole_key_and_read_flat_files_alike():
    nested = reader('{"text_config": {"hidden_size": 8, "bad": "x"}}')
    flat = reader('{"hidden_size": 8}')
    for r in (nested, flat):
        assert r.section("text_config", default=r).int("hidden_size") == 8
    with pytest.raises(ConfigError, match=r"'text_config.bad'"):
        nested.section("text_config").int("bad")


def test_refuse_unless():
    r = reader('{"hidden_act": "gelu", "bias": 0, "flag": false, "n": 2, "eps": 1}')
    with pytest.raises(UnsupportedError) as caught:
        r.refuse_unless("hidden_act", {"silu", "gelu_pytorch_tanh"})
    message = str(caught.value)
    assert all(part in message for part in ("some/config.json", "'hidden_act'", '"gelu"', '"silu"', "implemented"))
    assert r.refuse_unless("hidden_act", {"gelu"}) == "gelu"
    assert r.refuse_unless("flag", {False}) is False
    assert r.refuse_unless("n", [2]) == 2
    assert r.refuse_unless("eps", [1.0]) == 1
    assert r.refuse_unless("missing", {False}, default=False) is False
    with pytest.raises(UnsupportedError):
        r.refuse_unless("bias", {False})  # 0 is not false
    with pytest.raises(ConfigError, match="'missing'"):
        r.refuse_unless("missing", {"silu"})


def test_long_and_strange_values_are_shown_short_and_printable():
    r = ConfigReader({"a": "x" * 5000, "b": "\x1b[31mred\n"}, "config.json")
    for key in ("a", "b"):
        with pytest.raises(ConfigError) as caught:
            r.int(key)
        assert len(str(caught.value)) < 250 and str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("text", "tied"),
    [
        ("{}", None),
        ('{"tie_word_embeddings": true}', True),
        ('{"tie_word_embeddings": false}', False),
        ('{"text_config": {"tie_word_embeddings": true}}', True),
        ('{"text_config": {"tie_word_embeddings": false}}', False),
        ('{"tie_word_embeddings": true, "text_config": {"tie_word_embeddings": true}}', True),
        ('{"tie_word_embeddings": true, "text_config": {"tie_word_embeddings": false}}', True),
        ('{"tie_word_embeddings": false, "text_config": {"tie_word_embeddings": true}}', False),
        ('{"tie_word_embeddings": null, "text_config": {"tie_word_embeddings": true}}', True),
    ],
)
def test_tied_flag_in_either_place(text, tied):
    for default in (False, True):
        assert tie_word_embeddings(reader(text), default=default) is (default if tied is None else tied)


@pytest.mark.parametrize(
    "text",
    [
        '{"torch_dtype": "bfloat16"}',
        '{"dtype": "bfloat16"}',
        '{"text_config": {"dtype": "bfloat16"}}',
        '{"text_config": {"torch_dtype": "torch.bfloat16"}}',
    ],
)
def test_stored_dtype_under_each_key(text):
    assert stored_dtype(reader(text)) == "bfloat16"
    assert stored_dtype(reader("{}")) is None


def test_quantised_checkpoints_are_refused_by_method():
    refuse_quantized(reader('{"quantization_config": null}'))
    with pytest.raises(UnsupportedError, match=r'quantization_config.*"awq"'):
        refuse_quantized(reader('{"quantization_config": {"quant_method": "awq"}}'))
    with pytest.raises(UnsupportedError, match=r"text_config\.quantization_config"):
        refuse_quantized(reader('{"text_config": {"quantization_config": {"quant_method": "fp8"}}}'))
