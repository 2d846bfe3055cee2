"""Rotary position settings of a text model: every layout of the configuration, and the frequencies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.config import ConfigReader
from ouzel.errors import ConfigError, UnsupportedError

IMPLEMENTED_ROPE_TYPES = ("default", "linear", "llama3", "yarn")

_KEYS = ("rope_scaling", "rope_parameters", "rope_theta")


@dataclass(frozen=True)
class RopeConfig:
    """Rotary settings.

    `theta` is the base, `type` the scaling ("default", "linear", "yarn", "llama3", or one that `inv_freq` refuses).
    `sections` are the numbers of rotary pairs for each position axis (time, height, width) and `interleaved` says
    whether the axes take turns; None for one-dimensional positions. `partial` is the share of the head that turns.
    The other fields belong to the scaling types, None when not given. `params` is the whole object as it stood in the
    file, for families with settings of their own.
    """

    theta: float
    type: str = "default"
    sections: tuple[int, ...] | None = None
    interleaved: bool = False
    partial: float = 1.0
    factor: float | None = None
    original_context: int | None = None
    max_context: int | None = None
    attention_factor: float | None = None
    beta_fast: float | None = None
    beta_slow: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    params: Mapping[str, Any] = field(default_factory=dict, compare=False)


def read_rope(reader: ConfigReader, *, default_theta: float = 10000.0) -> RopeConfig:
    """The rotary settings in `reader`, whatever release wrote the file.

    Takes `rope_theta` with `rope_scaling` (null, or an object with `type` or `rope_type`) and `rope_parameters` (an
    object with everything), in the text part or on top. "mrope" is "default" with sections. As in transformers,
    `rope_scaling` goes before `rope_parameters` and a `rope_theta` inside the object before the one beside it;
    `default_theta` is the family's own. Raises `ConfigError` for bad values and `UnsupportedError` for settings that
    differ by layer type.
    """
    text = reader.section("text_config", default=reader)
    if not text.has(*_KEYS) and reader.has(*_KEYS):
        text = reader
    given = _settings(text)
    params = given if given is not None else ConfigReader({}, text.file, text.key("rope_parameters."))
    type_name = params.str("rope_type", "type", default="default")
    sections = _sections(params)
    if type_name == "mrope":
        if sections is None:
            params.ints("mrope_section")  # raises: the key must be there
        type_name = "default"
    theta = params.float("rope_theta", default=None, above=0.0)
    if theta is None:
        theta = text.float("rope_theta", default=default_theta, above=0.0)
    partial = params.float("partial_rotary_factor", default=None, above=0.0, max=1.0)
    if partial is None:
        partial = text.float("partial_rotary_factor", default=1.0, above=0.0, max=1.0)
    max_context = text.int("max_position_embeddings", default=None)
    # Phi-style files give the original length beside the object, and it goes first.
    original = text.int("original_max_position_embeddings", default=None) or params.int(
        "original_max_position_embeddings", default=max_context
    )
    return RopeConfig(
        theta=theta,
        type=type_name,
        sections=sections,
        interleaved=params.bool("mrope_interleaved", default=False),
        partial=partial,
        original_context=original,
        max_context=max_context,
        params=dict(params.data),
        **_scaling(params, type_name),
    )


def _settings(text: ConfigReader) -> ConfigReader | None:
    """The object with the rotary settings, None when there is none."""
    for name in ("rope_scaling", "rope_parameters"):
        section = text.section(name, default=None)
        if section is None or not section.data:
            continue
        nested = [key for key, value in section.data.items() if isinstance(value, dict)]
        if nested:
            raise UnsupportedError(
                f"reading {text.file}",
                expected=f"'{text.key(name)}' with one setting for all layers (what is implemented)",
                got=f"settings by layer type ({', '.join(sorted(nested)[:4])})",
            )
        return section
    return None


def _sections(params: ConfigReader) -> tuple[int, ...] | None:
    values = params.ints("mrope_section", "xdrope_section", default=None, min=0, max=4096)
    if values is None:
        return None
    if not 1 <= len(values) <= 4:
        raise params.error("mrope_section", "a list of one to four numbers", values)
    return tuple(values)


def _scaling(params: ConfigReader, type_name: str) -> dict[str, Any]:
    """The numbers of the scaling type; only what that type needs is required."""
    number = {
        name: params.float(name, default=None, above=0.0)
        for name in ("attention_factor", "low_freq_factor", "high_freq_factor")
    }
    # Zero means "not given" for these in transformers.
    for name in ("beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
        number[name] = params.float(name, default=None, min=0.0) or None
    number["factor"] = params.float("factor", default=None, above=0.0)
    required = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor")}
    for name in required.get(type_name, ()):
        if number[name] is None:
            params.float(name)  # raises: the key must be there
    low, high = number["low_freq_factor"], number["high_freq_factor"]
    if type_name == "llama3" and low == high:
        raise params.error("high_freq_factor", "other than low_freq_factor", high)
    return {**number, "truncate": params.bool("truncate", default=True)}


def inv_freq(rope: RopeConfig, head_dim: int) -> tuple[NDArray[np.float32], float]:
    """The angle of each rotary pair at position 1, and the factor on cos and sin.

    Returns float32 `[head_dim * rope.partial / 2]` radians a position, in the order of the pairs, and the factor (1.0
    but for yarn). Follows the float32 steps of transformers' `ROPE_INIT_FUNCTIONS`; powers are taken in double
    precision and rounded once, so that every machine has the same bits. Raises `UnsupportedError` for a type that is
    not implemented, `ConfigError` when the head's width is odd or a number that the type needs is missing.
    """
    dim = int(head_dim * rope.partial)
    if dim < 2 or dim % 2:
        raise ConfigError("computing rotary frequencies", expected="an even number of rotated columns", got=str(dim))
    frequencies = np.float32(1.0) / _powers(rope.theta, dim)
    if rope.type == "default":
        return frequencies, 1.0
    if rope.type == "linear":
        return frequencies / np.float32(_given(rope.factor, "factor", rope)), 1.0
    if rope.type == "llama3":
        return _llama3(rope, frequencies), 1.0
    if rope.type == "yarn":
        return _yarn(rope, dim)
    raise UnsupportedError(
        "computing rotary frequencies",
        expected=f"a rope type among {', '.join(IMPLEMENTED_ROPE_TYPES)} (what is implemented)",
        got=f"'{rope.type}'",
    )


def _powers(theta: float, dim: int) -> NDArray[np.float32]:
    """theta ** (2j / dim) for each pair j, float32."""
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    return np.power(np.float64(np.float32(theta)), exponents.astype(np.float64)).astype(np.float32)


def _given(value: float | None, name: str, rope: RopeConfig) -> float:
    if value is None:
        raise ConfigError(
            "computing rotary frequencies", expected=f"'{name}' for the rope type '{rope.type}'", got="none"
        )
    return value


def _llama3(rope: RopeConfig, frequencies: NDArray[np.float32]) -> NDArray[np.float32]:
    """Low frequencies divided by the factor, high ones kept, a smooth change between."""
    factor = np.float32(_given(rope.factor, "factor", rope))
    low = _given(rope.low_freq_factor, "low_freq_factor", rope)
    high = _given(rope.high_freq_factor, "high_freq_factor", rope)
    context = _given(rope.original_context, "original_max_position_embeddings", rope)
    # A number over a tensor is reciprocal times number in torch: two roundings, and the blend below magnifies them.
    one = np.float32(1.0)
    wavelength = one / frequencies * np.float32(2 * math.pi)
    scaled = np.where(wavelength > np.float32(context / low), frequencies / factor, frequencies)
    smooth = (one / wavelength * np.float32(context) - np.float32(low)) / np.float32(high - low)
    blended = (one - smooth) * scaled / factor + smooth * scaled
    medium = ~(wavelength < np.float32(context / high)) & ~(wavelength > np.float32(context / low))
    return np.where(medium, blended, scaled)


def _yarn(rope: RopeConfig, dim: int) -> tuple[NDArray[np.float32], float]:
    """YaRN (arXiv 2309.00071): interpolated low and original high frequencies, joined by a ramp over the pairs."""
    context = _given(rope.original_context, "original_max_position_embeddings", rope)
    factor = rope.factor
    if factor is None:
        factor = _given(rope.max_context, "max_position_embeddings", rope) / context
    powers = _powers(rope.theta, dim)
    low, high = _yarn_range(rope, dim, context)
    span = high - low if high != low else 0.001
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - np.float32(low)) / np.float32(span), 0, 1)
    keep = np.float32(1.0) - ramp
    interpolated = np.float32(1.0) / (np.float32(factor) * powers)
    frequencies = interpolated * (np.float32(1.0) - keep) + (np.float32(1.0) / powers) * keep
    return frequencies.astype(np.float32), _yarn_attention(rope, factor)


def _yarn_range(rope: RopeConfig, dim: int, context: float) -> tuple[float, float]:
    """The pairs between which the ramp runs: those that turn `beta_fast` and `beta_slow` times in the context."""

    def pair(turns: float) -> float:
        return dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = pair(rope.beta_fast or 32.0), pair(rope.beta_slow or 1.0)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, dim - 1)


def _yarn_attention(rope: RopeConfig, factor: float) -> float:
    if rope.attention_factor is not None:
        return rope.attention_factor

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return scale(rope.mscale) / scale(rope.mscale_all_dim)
    return scale(1.0)
