"""Requests that cannot be used: one clear error, nothing left in the queue, no memory taken."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from goldens import FIXTURES
from PIL import Image

import ouzel
from ouzel.errors import ContextError, OuzelError, RequestError
from ouzel.generation.prepare import frames_of_folder


@pytest.fixture(scope="module")
def model() -> ouzel.Model:
    return ouzel.load(FIXTURES / "qwen3_vl" / "tiny", threads=1)


def picture() -> Image.Image:
    return Image.new("RGB", (64, 64), (9, 99, 199))


def ask(*parts: dict) -> list[dict]:
    return [{"role": "user", "content": list(parts)}]


def assert_idle(model: ouzel.Model) -> None:
    """No request waits, runs, or holds blocks."""
    assert (model.generator.scheduler.waiting, model.generator.scheduler.running) == ([], [])
    assert model.generator.pool.held == 0


def test_a_refused_prompt_takes_the_whole_list_out(model: ouzel.Model) -> None:
    too_long = [1] * model.family.sizes.max_context
    with pytest.raises(ContextError):
        model.generate([[1, 2, 3], too_long], max_tokens=5)
    assert_idle(model)


def test_a_stream_that_nobody_reads_is_dropped(model: ouzel.Model) -> None:
    stream = model.stream_prompt([1, 2, 3], max_tokens=500)
    del stream
    gc.collect()
    assert len(model.generate([5], max_tokens=3).ids) == 3
    assert_idle(model)


@pytest.mark.parametrize("prompt", [None, 5, b"abc", {1: 2}, {1, 2}, iter([1]), np.array(3), ["a", 5], [[1], None]], ids=repr)
def test_generate_refuses_what_is_no_prompt(model: ouzel.Model, prompt: object) -> None:
    with pytest.raises(OuzelError):
        model.generate(prompt, max_tokens=2)
    assert_idle(model)


@pytest.mark.parametrize(
    "settings",
    [{"stop": 5}, {"stop": {"a": 1}}, {"tools": "x"}, {"tools": 1}, {"tools": [1]}, {"template": 1}, {"template": "x"},
     {"template": {5: 1}}, {"template": {"tools": []}}, {"template": {"messages": []}}, {"template": {"control_text": "obey"}}],
    ids=repr,
)
def test_settings_of_a_wrong_type_are_named(model: ouzel.Model, settings: dict) -> None:
    with pytest.raises(RequestError, match=next(iter(settings))):
        model.chat(ask({"type": "text", "text": "hi"}), **settings)


def test_a_seed_may_be_a_numpy_integer(model: ouzel.Model) -> None:
    drawn = [model.generate([5], max_tokens=4, temperature=1.0, seed=seed).ids for seed in (7, np.int64(7))]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("names", ["logits", 5, [None]], ids=repr)
def test_stages_takes_a_list_of_names(model: ouzel.Model, names: object) -> None:
    with pytest.raises(RequestError, match="stages"):
        model.stages(ask({"type": "text", "text": "hi"}), names)


@pytest.mark.parametrize("low", [400_000_000, 10**12, 10**30])
def test_a_careless_pixel_minimum_is_refused_before_memory_is_taken(model: ouzel.Model, low: int) -> None:
    with pytest.raises(RequestError, match="pixel budget"):
        model.chat(ask({"type": "image", "image": picture(), "min_pixels": low}))
    with pytest.raises(RequestError, match="pixel budget"):
        model.chat(ask({"type": "video", "video": [picture()] * 4, "fps": 2, "min_pixels": low}))


def test_pictures_that_fill_the_context_are_refused_as_they_come(model: ouzel.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    prepare = type(model.family).prepare_image
    monkeypatch.setattr(type(model.family), "prepare_image", lambda *given: made.append(1) or prepare(*given))
    large = {"type": "image", "image": picture(), "min_pixels": 1 << 20}
    with pytest.raises(ContextError, match="picture tokens"):
        model.chat(ask(*[large] * 40))
    assert len(made) < 10


@pytest.mark.parametrize("timing", [{"fps": 10**400}, {"timestamps": [0, 10**400]}], ids=["fps", "timestamps"])
def test_times_beyond_every_float_are_refused(model: ouzel.Model, timing: dict) -> None:
    with pytest.raises(OuzelError):
        model.chat(ask({"type": "video", "video": [picture()] * 2, **timing}))


@pytest.mark.parametrize("video", [picture(), np.zeros((64, 64, 3), np.uint8), b"abc"], ids=["pillow", "array", "bytes"])
def test_one_picture_is_no_list_of_frames(model: ouzel.Model, video: object) -> None:
    with pytest.raises(OuzelError, match="reading a video"):
        model.chat(ask({"type": "video", "video": video}))


def test_digits_of_any_kind_in_frame_names(tmp_path) -> None:
    for name in ("1²3.png", "1²2.png", "٣.png"):
        picture().save(tmp_path / name)
    assert [path.name for path in frames_of_folder(tmp_path)] == ["1²2.png", "1²3.png", "٣.png"]


def test_a_fault_of_one_request_stays_with_it(model: ouzel.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = model.generate([7, 8], max_tokens=4).ids
    broken = model.stream_prompt([5, 6], max_tokens=4)
    monkeypatch.setattr(broken._running, "take", lambda *given: 1 / 0)
    # The reader of the good request drives the step in which the other one fails.
    assert model.generate([7, 8], max_tokens=4).ids == wanted
    with pytest.raises(ZeroDivisionError):
        broken.result()
    assert_idle(model)


def test_bottomless_tools_are_refused(model: ouzel.Model) -> None:
    deep: dict = {}
    for _ in range(10_000):
        deep = {"a": deep}
    tool = {"type": "function", "function": {"name": "f", "parameters": deep}}
    with pytest.raises(OuzelError, match="deeper"):
        model.chat(ask({"type": "text", "text": "hi"}), tools=[tool])
