"""Every golden case of every family on every engine: prompts, positions, pixels, stages, tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from goldens import Golden, goldens, model_of, relative_error
from ouzel.engines.registry import engine_names
from ouzel.generation.request import Prompt
from ouzel.settings import split_settings

STAGE_TOLERANCE = 1e-4
"""Of float32 stages, norm of the difference over norm of the reference; rounding alone gives about 1e-6 at this depth."""

GREY_LEVEL = 1 / 127.5 + 1e-6
"""One grey level after normalisation with mean and deviation 0.5."""

CASES = goldens()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
each_engine = pytest.mark.parametrize("engine", engine_names())

PIXELS = {"image": "pixel_values", "video": "pixel_values_videos"}


def prepared(case: Golden, engine: str = "reference") -> Prompt:
    model = model_of(case.checkpoint_path, engine)
    return model.prepare(case.messages(), split_settings(case.settings(), model.checkpoint.generation))


def with_golden_pixels(prompt: Prompt, case: Golden) -> Prompt:
    """The prompt with the reference's own pixels where its resizing differs from ours by a grey level."""
    arrays, start = case.arrays(), {"image": 0, "video": 0}
    pictures = []
    for picture in prompt.pictures:
        at = start[picture.kind]
        start[picture.kind] = at + len(picture.pixels)
        rows = arrays[PIXELS[picture.kind]][at : at + len(picture.pixels)]
        pictures.append(replace(picture, pixels=np.ascontiguousarray(rows), key=f"golden {case.id} {at}"))
    return replace(prompt, pictures=tuple(pictures))


def test_all_cases_are_here() -> None:
    assert len(CASES) == 18


@each_case
def test_prompt(case: Golden) -> None:
    data, arrays, prompt = case.data(), case.arrays(), prepared(case)
    assert prompt.text == data.get("expanded_prompt", data["prompt"])
    assert list(prompt.ids) == arrays["input_ids"][0].tolist()
    wanted = arrays["position_ids"].reshape(-1, arrays["position_ids"].shape[-1])
    assert np.array_equal(prompt.positions.ids, wanted)
    if "rope_deltas" in arrays:
        assert prompt.positions.delta == arrays["rope_deltas"].item()


@each_case
def test_pixels(case: Golden) -> None:
    arrays, prompt = case.arrays(), prepared(case)
    for kind, name in PIXELS.items():
        pictures = [picture for picture in prompt.pictures if picture.kind == kind]
        assert bool(pictures) == (name in arrays)
        if pictures:
            pixels = np.concatenate([picture.pixels for picture in pictures])
            assert np.abs(pixels - arrays[name]).max() <= GREY_LEVEL
            assert np.mean(pixels != arrays[name]) < 0.01
            assert np.array_equal([p.grid for p in pictures], arrays[f"{kind}_grid_thw"])


@each_engine
@each_case
def test_stages(case: Golden, engine: str) -> None:
    model, arrays = model_of(case.checkpoint_path, engine), case.arrays()
    known = set(model.stage_names())
    names = [name for name in arrays if name.removeprefix("video.") in known and arrays[name].dtype == np.float32]
    assert len(names) >= 5
    found = model.stages(with_golden_pixels(prepared(case, engine), case), names)
    errors = {name: relative_error(found[name], arrays[name].reshape(found[name].shape)) for name in names}
    assert max(errors.values()) <= STAGE_TOLERANCE, sorted(errors.items(), key=lambda item: -item[1])[:3]


@each_engine
@each_case
def test_greedy_tokens(case: Golden, engine: str) -> None:
    model, data, arrays = model_of(case.checkpoint_path, engine), case.data(), case.arrays()
    result = model.chat(case.messages(), **case.run_settings())
    assert list(result.ids) == arrays["generated_ids"].tolist()
    assert result.text == data["text"]
    assert result.finish_reason == "length"
    assert result.usage.completion_tokens == 32
    assert result.usage.picture_tokens == sum(p.tokens for p in prepared(case, engine).pictures)


@each_engine
@each_case
def test_step_logits(case: Golden, engine: str) -> None:
    """Logits of every greedy step, taken as one pass over the prompt and the reference's tokens."""
    arrays = case.arrays()
    model = model_of(case.checkpoint_path, engine)
    prompt = with_golden_pixels(prepared(case, engine), case)
    generated = arrays["generated_ids"][:-1].tolist()
    after = prompt.positions.after(len(prompt.ids), len(generated))
    longer = replace(
        prompt,
        ids=prompt.ids + tuple(generated),
        positions=replace(prompt.positions, ids=np.concatenate([prompt.positions.ids, after], axis=1)),
        visual=np.concatenate([prompt.visual, np.full(len(generated), -1, np.int32)]),
    )
    logits = model.stages(longer, ["logits"])["logits"][len(prompt.ids) - 1 :]
    assert relative_error(logits, arrays["step_logits"]) <= STAGE_TOLERANCE
