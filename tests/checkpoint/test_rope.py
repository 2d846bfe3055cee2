"""Rotary settings: every layout reads the same, and the frequencies are those of transformers."""

from __future__ import annotations

import numpy as np
import pytest

from ouzel.checkpoint import ConfigReader, inv_freq, read_rope
from ouzel.checkpoint.rope import RopeConfig
from ouzel.errors import ConfigError, UnsupportedError

SECTIONS = {"mrope_interleaved": True, "mrope_section": [6, 5, 5]}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(data, **options):
    return read_rope(ConfigReader(data, "config.json"), **options)


@pytest.mark.parametrize(
    "data",
    [
        {"rope_theta": 1000000},
        {"rope_theta": 1000000.0, "rope_scaling": None},
        {"rope_theta": 1000000.0, "rope_scaling": {}},
        {"rope_theta": 1e6, "rope_scaling": {"rope_type": "default"}},
        {"rope_theta": 1e6, "rope_scaling": {"type": "default"}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        {"rope_parameters": {"rope_theta": 1e6}},
        {"rope_theta": 5.0, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
        {"rope_theta": 1e6, "rope_parameters": {"rope_type": "default"}},
        {"text_config": {"rope_theta": 1000000}},
        {"text_config": {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}},
        {"text_config": {}, "rope_theta": 1e6},
    ],
)
def test_plain_layouts_are_equal(data):
    assert read(data) == RopeConfig(theta=1e6)


@pytest.mark.parametrize(
    "text",
    [
        {"rope_theta": 5e6, "rope_scaling": {**SECTIONS, "rope_type": "default"}},
        {"rope_theta": 5e6, "rope_scaling": {**SECTIONS, "type": "mrope"}},
        {"rope_parameters": {**SECTIONS, "rope_type": "default", "rope_theta": 5000000}},
    ],
)
@pytest.mark.parametrize("nested", [True, False])
def test_sectioned_layouts_are_equal(text, nested):
    rope = read({"text_config": text} if nested else text)
    assert rope == RopeConfig(theta=5e6, sections=(6, 5, 5), interleaved=True)


@pytest.mark.parametrize("settings", [YARN, LLAMA3, {"rope_type": "linear", "factor": 2.0}])
def test_scaled_layouts_are_equal(settings):
    old_style = {("type" if key == "rope_type" else key): value for key, value in settings.items()}
    layouts = [
        {"rope_theta": 1e6, "rope_scaling": settings},
        {"rope_theta": 1e6, "rope_scaling": old_style},
        {"rope_parameters": {**settings, "rope_theta": 1e6}},
        {"text_config": {"rope_parameters": {**settings, "rope_theta": 1e6}}},
    ]
    first = read(layouts[0])
    assert first.type == settings["rope_type"] and first.factor == settings["factor"]
    assert all(read(layout) == first for layout in layouts)


def test_default_theta_is_the_familys():
    assert read({}).theta == 10000.0
    assert read({}, default_theta=500000.0).theta == 500000.0


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"rope_theta": 0}, "rope_theta"),
        ({"rope_theta": "1e6"}, "rope_theta"),
        ({"rope_theta": float("nan")}, "rope_theta"),
        ({"rope_scaling": "yarn"}, "rope_scaling"),
        ({"rope_scaling": {"type": 5}}, "rope_scaling.type"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor"),
        ({"rope_scaling": {"type": "linear", "factor": -1}}, "rope_scaling.factor"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8}}, "rope_parameters.low_freq_factor"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "rope_scaling.high_freq_factor"),
        ({"rope_scaling": {"type": "mrope"}}, "rope_scaling.mrope_section"),
        ({"rope_scaling": {"mrope_section": [1, -1]}}, "rope_scaling.mrope_section"),
        ({"rope_scaling": {"mrope_section": [1] * 9}}, "rope_scaling.mrope_section"),
        ({"text_config": {"rope_parameters": {"rope_theta": -1}}}, "text_config.rope_parameters.rope_theta"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor"),
    ],
)
def test_bad_settings_name_the_key(data, key):
    with pytest.raises(ConfigError) as caught:
        read(data)
    assert f"'{key}'" in str(caught.value) and "config.json" in str(caught.value)


@pytest.mark.parametrize("name", ["dynamic", "longrope", "xdrope", "proportional", "su"])
def test_other_types_are_read_and_then_refused_by_name(name):
    rope = read({"rope_scaling": {"type": name, "factor": 2.0}})
    assert rope.type == name
    with pytest.raises(UnsupportedError, match=f"'{name}'"):
        inv_freq(rope, 64)


def test_settings_by_layer_type_are_refused():
    with pytest.raises(UnsupportedError, match="by layer type"):
        read({"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}})


@pytest.mark.parametrize("head_dim", [0, 1, 7])
def test_odd_heads_are_refused(head_dim):
    with pytest.raises(ConfigError, match="even"):
        inv_freq(RopeConfig(theta=1e4), head_dim)


def test_yarn_without_a_context_names_what_is_missing():
    with pytest.raises(ConfigError, match="original_max_position_embeddings"):
        inv_freq(RopeConfig(theta=1e4, type="yarn", factor=4.0), 64)


def ulps(a: np.ndarray, b: np.ndarray) -> int:
    """The largest distance in units of the last place; float32 bits of one sign are ordered like integers."""
    return int(np.abs(a.view(np.int32).astype(np.int64) - b.view(np.int32).astype(np.int64)).max())


CASES = [
    ("default", {"rope_type": "default"}),
    ("linear", {"rope_type": "linear", "factor": 2.5}),
    ("llama3", LLAMA3),
    ("llama3", {**LLAMA3, "factor": 32.0}),
    ("yarn", YARN),
    ("yarn", {**YARN, "attention_factor": 1.25}),
    ("yarn", {**YARN, "beta_fast": 64.0, "beta_slow": 2.0}),
    ("yarn", {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8}),
    ("yarn", {**YARN, "truncate": False}),
    ("yarn", {"rope_type": "yarn", "factor": 4.0}),
    ("yarn", {**YARN, "factor": None}),
]


def reference(case: int, head_dim: int, theta: float):
    """The settings of a case, and transformers' frequencies and factor for them."""
    from transformers import Qwen3Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

    kind, settings = CASES[case]
    parameters = {**settings, "rope_theta": theta}
    sizes = {"head_dim": head_dim, "max_position_embeddings": 131072}
    config = Qwen3Config(rope_parameters=dict(parameters), **sizes)
    wanted, factor = ROPE_INIT_FUNCTIONS.get(kind, Qwen3RotaryEmbedding.compute_default_rope_parameters)(config)
    return read({"rope_parameters": parameters, **sizes}), wanted.numpy(), float(factor)


THETAS = pytest.mark.parametrize("theta", [1e4, 1e6, 5e6])
HEADS = pytest.mark.parametrize("head_dim", [24, 64, 128])
TYPES = pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{i}-{CASES[i][0]}")


@THETAS
@HEADS
@TYPES
def test_frequencies_are_those_of_transformers(case, head_dim, theta):
    rope, wanted, factor = reference(case, head_dim, theta)
    got, scale = inv_freq(rope, head_dim)
    assert got.dtype == np.float32 and got.shape == (head_dim // 2,)
    # The power and the quotient are each rounded once. Llama 3 blends f/factor with f: where f/factor is nearly all, a
    # rounding of the blend, relative to f, counts up to (factor - 1) / (high - low) times.
    limit = 2
    if rope.type == "llama3":
        limit += int(np.ceil((rope.factor - 1) / (rope.high_freq_factor - rope.low_freq_factor)))
    assert ulps(got, wanted) <= limit
    assert scale == pytest.approx(factor, rel=1e-12)


@THETAS
@HEADS
@TYPES
def test_from_the_same_powers_all_bits_are_equal(monkeypatch, case, head_dim, theta):
    import torch

    rope, wanted, _ = reference(case, head_dim, theta)
    powers = theta ** (torch.arange(0, head_dim, 2, dtype=torch.float) / head_dim)
    monkeypatch.setattr("ouzel.checkpoint.rope._powers", lambda theta, dim: powers.numpy())
    assert ulps(inv_freq(rope, head_dim)[0], wanted) == 0
