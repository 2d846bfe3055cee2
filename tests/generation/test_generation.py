"""Requests on a tiny model: stops, lengths, streaming, sampling, errors, cancellation, several at once."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from goldens import FIXTURES, goldens
from ouzel import Model, OuzelError, load
from ouzel.engines.registry import engine_names
from ouzel.errors import ContextError, ImageError, NumericError, PromptError, RequestError

TEXT = FIXTURES / "qwen3" / "tiny"
VISION = FIXTURES / "qwen3_vl" / "tiny"
IDS = [300, 301, 302]

each_engine = pytest.mark.parametrize("engine", engine_names())


@pytest.fixture(scope="module", params=engine_names())
def model(request: pytest.FixtureRequest) -> Model:
    return load(TEXT, engine=request.param)


def test_max_tokens(model: Model) -> None:
    result = model.generate(IDS, max_tokens=5, ignore_eos=True)
    assert len(result.ids) == 5 and result.finish_reason == "length"
    assert result.usage.total_tokens == 8
    assert model.generate(IDS, max_tokens=1, ignore_eos=True).ids == result.ids[:1]


def test_end_token_stops_and_is_not_shown(model: Model) -> None:
    free = model.generate(IDS, max_tokens=20, ignore_eos=True)
    biased = model.generate(IDS, max_tokens=20, logit_bias={960: 100.0})
    assert biased.ids == (960,) and biased.text == "" and biased.finish_reason == "stop"
    assert 960 in model.eos_ids and 958 in model.eos_ids
    assert free.finish_reason == "length"


def test_stop_string_is_cut_exactly(model: Model) -> None:
    free = model.generate(IDS, max_tokens=20, ignore_eos=True)
    stop = free.text[6:9]
    for given in (stop, [stop, "never there"]):
        result = model.generate(IDS, max_tokens=20, ignore_eos=True, stop=given)
        assert result.text == free.text[: free.text.index(stop)]
        assert result.finish_reason == "stop"
    assert model.generate(IDS, max_tokens=20, ignore_eos=True, stop="never there").text == free.text


def test_stream_pieces_join_to_the_whole(model: Model) -> None:
    whole = model.generate(IDS, max_tokens=20, ignore_eos=True, logprobs=2)
    stream = model.stream_prompt(IDS, max_tokens=20, ignore_eos=True, logprobs=2)
    chunks = list(stream)
    assert "".join(c.text for c in chunks) == whole.text == stream.result().text
    assert tuple(i for c in chunks for i in c.ids) == whole.ids
    assert [c.finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish_reason == "length"
    assert stream.result().logprobs == whole.logprobs and len(whole.logprobs or ()) == 20
    assert all(len(p.top) == 2 and p.logprob <= p.top[0][1] for p in whole.logprobs or ())


def test_leaving_a_stream_frees_its_blocks(model: Model) -> None:
    before = model.generator.pool.held
    for _ in model.stream_prompt(IDS, max_tokens=50, ignore_eos=True):
        break
    stream = model.stream_prompt(IDS, max_tokens=50, ignore_eos=True)
    next(iter(stream))
    stream.close()
    assert stream.result().finish_reason == "cancelled"
    assert model.generator.pool.held == before == 0
    assert not model.generator.scheduler.running and not model.generator.scheduler.waiting


def test_cancel_from_another_thread(model: Model) -> None:
    stream = model.stream_prompt(IDS, max_tokens=100000, ignore_eos=True)
    timer = threading.Timer(0.2, stream.cancel)
    timer.start()
    chunks = list(stream)
    timer.join()
    assert chunks[-1].finish_reason == "cancelled"
    assert 0 < len(stream.result().ids) < 100000
    assert model.generator.pool.held == 0


def test_seeds(model: Model) -> None:
    def draw(**settings: object) -> tuple[int, ...]:
        return model.generate(IDS, max_tokens=12, ignore_eos=True, temperature=1.5, top_k=0, top_p=1.0, **settings).ids

    assert draw(seed=1) == draw(seed=1) != draw(seed=2)
    assert draw() == draw()


def test_sampled_batch_equals_singles(model: Model) -> None:
    settings = {"max_tokens": 8, "ignore_eos": True, "temperature": 1.0, "seed": 7}
    together = model.generate([IDS, [9] * 40, [1]], **settings)
    assert [r.ids for r in together] == [model.generate(p, **settings).ids for p in (IDS, [9] * 40, [1])]


def test_threads_share_one_model(model: Model) -> None:
    prompts = [[n, n + 1, n + 2] for n in range(0, 60, 10)]
    wanted = [model.generate(p, max_tokens=6, ignore_eos=True).ids for p in prompts]
    found: dict[int, tuple[int, ...]] = {}

    def work(n: int) -> None:
        found[n] = model.generate(prompts[n], max_tokens=6, ignore_eos=True).ids

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(len(prompts))] == wanted


@pytest.mark.parametrize(
    ("prompt", "settings", "error", "words"),
    [
        ([], {}, PromptError, "at least one token"),
        ("", {}, PromptError, "at least one token"),
        ([992], {}, PromptError, "0 to 991"),
        ([-1], {}, PromptError, "0 to 991"),
        ([1.5], {}, PromptError, "whole numbers"),
        ([True], {}, PromptError, "whole numbers"),
        (IDS, {"max_tokens": 0}, RequestError, "max_tokens"),
        (IDS, {"temperature": -1}, RequestError, "temperature"),
        (IDS, {"top_p": 0}, RequestError, "top_p"),
        (IDS, {"stop": ""}, RequestError, "stop"),
        (IDS, {"colour": 1}, RequestError, "colour"),
        ([1] * 40960, {}, ContextError, "40960"),
    ],
)
def test_refusals(model: Model, prompt: object, settings: dict, error: type[OuzelError], words: str) -> None:
    with pytest.raises(error, match=words):
        model.generate(prompt, **settings)
    assert model.generator.pool.held == 0


def test_context_end_gives_length() -> None:
    model = load(TEXT)
    model.family.sizes = model.family.sizes.__class__(**{**model.family.sizes.__dict__, "max_context": 10})
    result = model.generate(IDS, max_tokens=50, ignore_eos=True)
    assert result.finish_reason == "length" and len(result.ids) == 7


@each_engine
def test_pictures_on_a_text_model(engine: str) -> None:
    model = load(TEXT, engine=engine)
    picture = np.zeros((8, 8, 3), np.uint8)
    with pytest.raises(OuzelError):
        model.chat([{"role": "user", "content": [{"type": "image", "image": picture}]}])
    with pytest.raises(ImageError, match="text model"):
        model.encode_image(picture)


def test_placeholder_ids_without_pictures() -> None:
    with pytest.raises(PromptError, match="picture"):
        load(VISION).generate([1, 970, 2])


def test_typed_placeholders_stay_text() -> None:
    model = load(VISION)
    asked = [{"role": "user", "content": "What is <|image_pad|> and <|im_end|>?"}]
    result = model.chat(asked, max_tokens=2)
    assert 970 not in result.prompt_ids and result.usage.picture_tokens == 0


def test_one_bad_picture_fails_one_request() -> None:
    model = load(VISION)
    good = next(case for case in goldens() if case.name == "image_landscape")
    with pytest.raises(ImageError, match=r"messages\[0\]\.content\[0\]"):
        model.chat([{"role": "user", "content": [{"type": "image", "image": b"nothing"}]}])
    result = model.chat(good.messages(), **good.run_settings())
    assert list(result.ids) == good.arrays()["generated_ids"].tolist()


@each_engine
def test_overflow_is_an_error_not_a_text(engine: str) -> None:
    model = load(TEXT, engine=engine)
    name = "text.layers.0.input_norm.weight"
    weight = model.weights[name]
    weight.array.setflags(write=True)
    weight.array[:] = np.float32(3e38)
    broken = model.engine.compile(model.family.text_graph(), model.weights)
    model.generator._text._executable = broken
    with pytest.raises(NumericError):
        model.generate(IDS, max_tokens=3)
    assert model.generator.pool.held == 0


@each_engine
def test_cache_grows_with_use(engine: str) -> None:
    model = load(TEXT, engine=engine)
    assert model.cache_bytes == 0
    model.generate(IDS, max_tokens=2, ignore_eos=True)
    small = model.cache_bytes
    model.generate([5] * 200, max_tokens=2, ignore_eos=True)
    assert 0 < small < model.cache_bytes <= 12 * small


def test_encode_image_gives_the_features_of_the_reference() -> None:
    case = next(case for case in goldens() if case.name == "image_landscape")
    model, arrays = load(case.checkpoint_path), case.arrays()
    found = model.encode_image(case.images / "landscape.png")
    assert set(found) == {"image_embeds", "deepstack.0", "deepstack.1", "deepstack.2"}
    for name, rows in found.items():
        assert np.allclose(rows, arrays[name], atol=1e-4)


def test_encode_image_keeps_the_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUZEL_MAX_IMAGE_PIXELS", "100")
    with pytest.raises(ImageError, match="100"):
        load(VISION).encode_image(np.zeros((20, 20, 3), np.uint8))
