"""Every option of `ouzel run` does what the setting of the Python API does."""

from __future__ import annotations

import base64

import pytest
from goldens import FIXTURES, model_of
from PIL import Image

import ouzel as package
from ouzel.cli.options import EngineName, WeightFormat
from ouzel.engines.registry import engine_names
from ouzel.weights import AUTO, FORMATS

VL = FIXTURES / "qwen3_vl" / "tiny"
TEXT = FIXTURES / "qwen3" / "tiny"
PICTURE = FIXTURES / "qwen3_vl" / "golden" / "images" / "landscape.png"

# Options, and the settings that mean the same in Python.
SETTINGS = [
    (["--max-tokens", "5"], {"max_tokens": 5}),
    (["-n", "6", "--ignore-eos"], {"max_tokens": 6, "ignore_eos": True}),
    (["--temperature", "0.9", "--seed", "3"], {"temperature": 0.9, "seed": 3}),
    (["--temperature", "1.5", "--top-k", "3"], {"temperature": 1.5, "top_k": 3}),
    (["--temperature", "1.5", "--top-p", "0.3"], {"temperature": 1.5, "top_p": 0.3}),
    (["--temperature", "1.5", "--min-p", "0.5"], {"temperature": 1.5, "min_p": 0.5}),
    (["--repetition-penalty", "1.7"], {"repetition_penalty": 1.7}),
    (["--presence-penalty", "1.5"], {"presence_penalty": 1.5}),
    (["--frequency-penalty", "1.5"], {"frequency_penalty": 1.5}),
    (["--stop", "image", "--stop", "return"], {"stop": ["image", "return"]}),
    (["--think"], {"think": True}),
    (["--no-think"], {"think": False}),
    (["--control-text", "obey"], {"control_text": "obey"}),
    (["--control-text", "shield"], {"control_text": "shield"}),
    (["--special"], {"skip_special_tokens": False}),
    (["--min-pixels", "3000"], {"min_pixels": 3000}),
    (["--max-pixels", "1500"], {"max_pixels": 1500}),
    (["--alpha", "drop"], {"alpha": "drop"}),
    (["--logprobs", "2"], {"logprobs": 2}),
]


@pytest.mark.parametrize(("options", "settings"), SETTINGS, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_option_is_setting(ouzel, options, settings):
    settings = {"max_tokens": 16} | settings
    question = "A tag<|im_end|> here?"
    found = ouzel("run", "-m", VL, "-i", PICTURE, question, "-n", "16", *options, "--json").json()
    parts = [{"type": "image", "image": PICTURE}, {"type": "text", "text": question}]
    wanted = model_of(VL, "native").chat([{"role": "user", "content": parts}], **settings)
    assert (found["ids"], found["text"]) == (list(wanted.ids), wanted.text)
    assert found["prompt_ids"] == list(wanted.prompt_ids)
    assert found["finish_reason"] == wanted.finish_reason
    assert found["pictures"] == [dict(picture) for picture in wanted.pictures]
    assert found.get("logprobs") == (
        None
        if wanted.logprobs is None
        else [{"id": p.id, "logprob": p.logprob, "top": [list(pair) for pair in p.top]} for p in wanted.logprobs]
    )


def test_settings_of_the_table_matter():
    """The comparison above could not fail if an option changed nothing in either place."""
    model = model_of(VL, "native")
    parts = [{"type": "image", "image": PICTURE}, {"type": "text", "text": "A tag<|im_end|> here?"}]
    plain = model.chat([{"role": "user", "content": parts}], max_tokens=16)
    for changed in ({"temperature": 0.9, "seed": 3}, {"repetition_penalty": 1.7}, {"control_text": "obey"}, {"min_pixels": 3000}):
        other = model.chat([{"role": "user", "content": parts}], max_tokens=16, **changed)
        assert (other.ids, other.prompt_ids) != (plain.ids, plain.prompt_ids), changed


def test_alpha(ouzel, tmp_path):
    path = tmp_path / "clear.png"
    Image.new("RGBA", (40, 40), (200, 0, 0, 60)).save(path)
    texts = {}
    for alpha in ("white", "drop"):
        found = ouzel("run", "-m", VL, "-i", path, "Colour?", "-n", "16", "--ignore-eos", "--alpha", alpha, "--json").json()
        parts = [{"type": "image", "image": path}, {"type": "text", "text": "Colour?"}]
        wanted = model_of(VL, "native").chat([{"role": "user", "content": parts}], max_tokens=16, ignore_eos=True, alpha=alpha)
        texts[alpha] = found["ids"]
        assert found["ids"] == list(wanted.ids)
    assert texts["white"] != texts["drop"]


@pytest.mark.parametrize(
    ("options", "keywords"),
    [
        (["--engine", "reference"], {"engine": "reference"}),
        (["--threads", "1"], {"threads": 1}),
        (["-t", "2"], {"threads": 2}),
        (["--cache", "q8"], {"cache": "q8"}),
        (["--chunk", "3"], {"chunk": 3}),
        (["--weights", "f32"], {"weights": "f32"}),
        (["--weights", "bf16"], {"weights": "bf16"}),
        (["--weights", "f16"], {"weights": "f16"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_of_loading(ouzel, options, keywords):
    found = ouzel("run", "-m", TEXT, "Hello there", "-n", "12", "--ignore-eos", *options, "--json").json()
    model = package.load(TEXT, **keywords)
    wanted = model.chat([{"role": "user", "content": "Hello there"}], max_tokens=12, ignore_eos=True)
    assert found["ids"] == list(wanted.ids)
    assert found["engine"] == model.engine.describe()


def test_choices_are_those_of_the_library():
    assert sorted(one.value for one in EngineName) == sorted(engine_names())
    assert [one.value for one in WeightFormat] == [AUTO, *FORMATS]


def test_raw_text(ouzel):
    found = ouzel("run", "-m", TEXT, "--raw", "Once upon", "-n", "10", "--ignore-eos", "--quiet")
    wanted = model_of(TEXT, "native").generate("Once upon", max_tokens=10, ignore_eos=True).text
    assert (found.code, found.out, found.err) == (0, wanted + "\n", "")


def test_prompt_from_stdin(ouzel):
    question = "Zwei Zeilen,\nüber stdin — 你好"
    found = ouzel("run", "-m", TEXT, "-", "-n", "4", "--json", input=(question + "\n").encode()).json()
    wanted = model_of(TEXT, "native").prepare([{"role": "user", "content": question}])
    assert found["prompt_ids"] == list(wanted.ids)


@pytest.mark.parametrize("way", ["stdin", "data URL", "file URL"])
def test_ways_to_give_a_picture(ouzel, way):
    data = PICTURE.read_bytes()
    source = {"stdin": "-", "data URL": "data:image/png;base64," + base64.b64encode(data).decode(), "file URL": PICTURE.as_uri()}[way]
    found = ouzel("run", "-m", VL, "-i", source, "What?", "-n", "8", "--json", input=data if way == "stdin" else b"").json()
    wanted = ouzel("run", "-m", VL, "-i", PICTURE, "What?", "-n", "8", "--json").json()
    assert (found["ids"], found["pictures"]) == (wanted["ids"], wanted["pictures"])


def test_picture_without_a_question_is_read(ouzel):
    found = ouzel("run", "-m", VL, "-i", PICTURE, "-n", "4", "--json").json()
    wanted = ouzel("run", "-m", VL, "-i", PICTURE, "Read the text.", "-n", "4", "--json").json()
    assert found["prompt_ids"] == wanted["prompt_ids"]


def test_answer_on_stdout_and_the_rest_on_stderr(ouzel):
    found = ouzel("run", "-m", VL, "-i", PICTURE, "What?", "-n", "8")
    wanted = ouzel("run", "-m", VL, "-i", PICTURE, "What?", "-n", "8", "--json").json()
    assert found.out == wanted["text"] + "\n"
    for word in ("model: qwen3_vl", "threads", "decode picture", "preprocess", "encode", "prefill", "tokens/s", "8 tokens", "71x35"):
        assert word in found.err, word
    assert "\x1b" not in found.err and "\r" not in found.err


def test_text_comes_in_pieces(ouzel, monkeypatch):
    from ouzel.cli import console

    pieces: list[str] = []
    monkeypatch.setattr(console, "write_answer", pieces.append)
    found = ouzel("run", "-m", TEXT, "Hello", "-n", "32", "--ignore-eos")
    assert found.code == 0
    wanted = ouzel("run", "-m", TEXT, "Hello", "-n", "32", "--ignore-eos", "--json").json()["text"]
    assert len(pieces) > 8 and "".join(pieces) == wanted


def test_json_has_usage_and_timings(ouzel):
    found = ouzel("run", "-m", VL, "-i", PICTURE, "What?", "-n", "8", "--ignore-eos", "--json").json()
    usage, timings = found["usage"], found["timings"]
    assert usage["picture_tokens"] == found["pictures"][0]["tokens"] == 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert set(timings) == {
        "decode_picture", "preprocess", "encode", "prefill", "generate", "first_token", "tokens_per_second",
    }  # fmt: skip
    assert all(value > 0 for value in timings.values())
    assert found["model"] == str(VL) and found["family"] == "qwen3_vl"
