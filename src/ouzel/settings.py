"""The settings of a request as users write them, sorted into what prepares the prompt and what generates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ouzel.checkpoint.generation_config import GenerationDefaults
from ouzel.errors import RequestError
from ouzel.generation.prepare import PromptOptions
from ouzel.generation.request import GenerationParams
from ouzel.generation.sampler import SamplingParams
from ouzel.models.family import PictureOptions


@dataclass(frozen=True)
class Settings:
    """Everything that a request may set, in its two halves.

    Generation: max_tokens, stop (a string or several), ignore_eos, skip_special_tokens, speculate ("off", "ngram"), temperature (0: greedy), top_k, top_p, min_p, seed,
    repetition_penalty, presence_penalty, frequency_penalty, logit_bias, logprobs.
    Prompt: think (on, off, or the template's own way), tools, template (variables for it), control_text ("shield", "obey"),
    min_pixels, max_pixels, alpha ("white", "drop"), video_layout ("release", "transformers5").
    """

    prompt: PromptOptions = field(default_factory=PromptOptions)
    generation: GenerationParams = field(default_factory=GenerationParams)


_SAMPLING = tuple(f.name for f in fields(SamplingParams))
_PICTURES = tuple(f.name for f in fields(PictureOptions))
_RUN = ("max_tokens", "ignore_eos", "skip_special_tokens", "speculate")
_OTHER = ("stop", "think", "tools", "template", "control_text")

# Given to the template by other settings.
_NOT_VARIABLES = ("messages", "tools", "control_text")

# Taken from the checkpoint when the user samples and does not say otherwise.
_SAMPLING_DEFAULTS = ("top_k", "top_p", "min_p")


def split_settings(given: Mapping[str, Any], defaults: GenerationDefaults) -> Settings:
    """Settings from keyword arguments; None means "not given".

    Greedy unless `temperature` is above 0; then top_k, top_p and min_p that are not given come from the checkpoint's
    generation_config.json. Its repetition penalty counts in both cases, as in transformers. Without a seed, sampling uses
    seed 0: the same input gives the same tokens. Raises RequestError for an unknown name.
    """
    known = {*_SAMPLING, *_PICTURES, *_RUN, *_OTHER}
    unknown = sorted(set(given) - known)
    if unknown:
        raise RequestError("settings", expected=f"names among {', '.join(sorted(known))}", got=", ".join(unknown))
    chosen = {name: value for name, value in given.items() if value is not None}
    return Settings(_prompt(chosen), _generation(chosen, defaults))


def _prompt(chosen: Mapping[str, Any]) -> PromptOptions:
    template = chosen.get("template", {})
    if not isinstance(template, Mapping):
        raise RequestError("template", expected="a dictionary of the template's variables", got=type(template).__name__)
    bad = [name for name in template if not isinstance(name, str) or name in _NOT_VARIABLES]
    if bad:
        raise RequestError("template", expected="names of the template's own variables", got=repr(bad[0])[:60])
    template = dict(template)
    if "think" in chosen:
        template["enable_thinking"] = bool(chosen["think"])
    pictures = PictureOptions(**{name: chosen[name] for name in _PICTURES if name in chosen})
    return PromptOptions(pictures, _tools(chosen.get("tools")), template, chosen.get("control_text", "shield"))


def _tools(tools: Any) -> Sequence[Mapping[str, Any]] | None:
    good = isinstance(tools, (list, tuple)) and all(isinstance(tool, Mapping) for tool in tools)
    if tools is not None and not good:
        raise RequestError("tools", expected="a list of tool descriptions (dictionaries)", got=repr(tools)[:60])
    return tools


def _generation(chosen: Mapping[str, Any], defaults: GenerationDefaults) -> GenerationParams:
    sampling = {name: chosen[name] for name in _SAMPLING if name in chosen}
    from_checkpoint = ["repetition_penalty"]
    if sampling.get("temperature", 0) != 0:
        from_checkpoint += _SAMPLING_DEFAULTS
        sampling.setdefault("seed", 0)
    for name in from_checkpoint:
        value = getattr(defaults, name)
        if value is not None:
            sampling.setdefault(name, value)
    run = {name: chosen[name] for name in _RUN if name in chosen}
    params = GenerationParams(SamplingParams(**sampling), stop=_stops(chosen.get("stop", ())), **run)
    params.validate()
    return params


def _stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(stop, str):
        return (stop,)
    if not isinstance(stop, (list, tuple)):
        raise RequestError("stop", expected="a string or a list of strings", got=type(stop).__name__)
    return tuple(stop)
