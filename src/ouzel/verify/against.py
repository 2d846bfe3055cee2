"""A loaded Ouzel model as the reference of another configuration: its stages and answer as a golden in memory."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from ouzel.generation.request import Prompt
from ouzel.model import Model
from ouzel.settings import split_settings
from ouzel.verify.cases import Case
from ouzel.verify.function import decode
from ouzel.verify.golden import Golden

STAGES = re.compile(
    r"vision\.(patch_embed|embeddings|layers\.\d+|final)|image_embeds|deepstack\.\d+"
    r"|text\.(inputs_embeds|layers\.\d+(\.after_deepstack)?|final_norm)|logits"
)
"""The stages of a golden; what lies inside a block is not among them."""


def golden_of(model: Model, case: Case, images: Path, max_tokens: int) -> Golden:
    """Runs a case on `model`."""
    data = {
        "family": model.family.name, "case": case.name, "messages": case.messages, "template_kwargs": case.template,
        "generation": {"repetition_penalty": 1.0},
    }  # fmt: skip
    golden = Golden(case.name, model.describe(), data, {}, images)
    settings = golden.settings() | {
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "skip_special_tokens": False,
        "repetition_penalty": 1.0,
    }
    chosen = split_settings(settings, model.checkpoint.generation)
    prompt = model.prepare(golden.messages(), chosen)
    names = [name for name in model.stage_names() if STAGES.fullmatch(name)]
    seen = prompt.pictures or not model.family.vision_graph()
    names = [n for n in names if seen or not n.startswith(("vision.", "image_embeds", "deepstack."))]
    arrays = model.stages(prompt, [*_of_prompt(prompt), *names])
    (result,) = model.run([prompt], chosen.generation)
    arrays["generated_ids"] = np.array(result.ids, np.int64)
    arrays["rope_deltas"] = np.array([[prompt.positions.delta]], np.int64)
    arrays["step_logits"] = decode(model, prompt, list(result.ids)).steps
    return replace(golden, arrays=arrays, data={**data, "text": result.text, "prompt": prompt.text})


def _of_prompt(prompt: Prompt) -> list[str]:
    pictures = ["pixel_values", "image_grid_thw"] if prompt.pictures else []
    return ["input_ids", "position_ids", *pictures]
