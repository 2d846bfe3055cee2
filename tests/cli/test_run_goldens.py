"""`ouzel run` reproduces the reference's ids and text."""

from __future__ import annotations

import shutil

import pytest
from goldens import FIXTURES, Golden, goldens, model_of

TEXT_CASES = [golden for golden in goldens() if golden.family == "qwen3"]
IMAGE_CASES = ["image_landscape", "two_images", "zh_image"]

GREEDY = ("--ignore-eos", "--max-tokens", "32")


def case(name: str, family: str = "qwen3_vl", folder: str = "golden", checkpoint: str = "tiny") -> Golden:
    return Golden(family, checkpoint, folder, name)


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("golden", TEXT_CASES, ids=lambda golden: golden.id)
def test_ids_in_ids_out(ouzel, golden, engine):
    arrays = golden.arrays()
    ids = ",".join(map(str, arrays["input_ids"].reshape(-1)))
    found = ouzel("run", "--model", golden.checkpoint_path, "--engine", engine, "--ids", ids, *GREEDY)
    assert found.code == 0, found.err
    assert found.out == ",".join(map(str, arrays["generated_ids"].reshape(-1))) + "\n"


def test_ids_from_a_file(ouzel, tmp_path):
    golden = TEXT_CASES[0]
    arrays = golden.arrays()
    path = tmp_path / "ids.txt"
    path.write_text("[" + ",\n ".join(map(str, arrays["input_ids"].reshape(-1))) + "]\n", encoding="utf-8")
    found = ouzel("run", "--model", golden.checkpoint_path, "--ids", f"@{path}", "--json", *GREEDY).json()
    assert found["ids"] == arrays["generated_ids"].reshape(-1).tolist()
    assert found["prompt_ids"] == arrays["input_ids"].reshape(-1).tolist()


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("name", IMAGE_CASES)
def test_pictures_and_a_question(ouzel, name, engine):
    golden = case(name)
    *pictures, text = golden.messages()[0]["content"]
    images = [word for part in pictures for word in ("--image", part["image"])]
    found = ouzel(
        "run", "--model", golden.checkpoint_path, "--engine", engine, *images, text["text"], "--special", "--json", *GREEDY
    ).json()
    assert_equals(found, golden)
    assert [picture["kind"] for picture in found["pictures"]] == ["image"] * len(pictures)


@pytest.mark.parametrize("engine", ["native", "reference"])
def test_video_frames(ouzel, tmp_path, engine):
    golden = case("video_4_release_layout")
    video, text = golden.messages()[0]["content"]
    for frame in video["video"]:
        shutil.copy(frame, tmp_path)
    found = ouzel(
        "run", "--model", golden.checkpoint_path, "--engine", engine, "--video-frames", tmp_path, "--fps", video["fps"],
        text["text"], "--special", "--json", *GREEDY,
    ).json()  # fmt: skip
    assert_equals(found, golden)


@pytest.mark.parametrize(
    ("name", "options"), [("chat_system", []), ("no_think", ["--no-think"]), ("short", [])], ids=["system", "no-think", "plain"]
)
def test_messages_of_text_models(ouzel, name, options):
    golden = case(name, family="qwen3")
    messages = {message["role"]: message["content"] for message in golden.messages()}
    system = ["--system", messages["system"]] if "system" in messages else []
    found = ouzel(
        "run", "--model", golden.checkpoint_path, *system, *options, messages["user"], "--special", "--json", *GREEDY
    ).json()
    assert_equals(found, golden)


def assert_equals(found, golden: Golden) -> None:
    """Prompt, ids and text are the reference's."""
    arrays = golden.arrays()
    assert found["prompt_ids"] == arrays["input_ids"].reshape(-1).tolist()
    assert found["ids"] == arrays["generated_ids"].reshape(-1).tolist()
    assert found["text"] == golden.data()["text"]
    assert found["finish_reason"] == "length"
    assert found["usage"]["prompt_tokens"] == len(found["prompt_ids"])
    assert found["usage"]["completion_tokens"] == 32


@pytest.mark.parametrize("video_first", [True, False])
def test_order_of_images_and_videos(ouzel, tmp_path, video_first):
    images = FIXTURES / "qwen3_vl" / "golden" / "images"
    for number in range(4):
        shutil.copy(images / f"v4_{number}.png", tmp_path)
    parts = [
        (("--video-frames", tmp_path), {"type": "video", "video": tmp_path, "fps": 2.0}),
        ((f"--image={images / 'small.png'}",), {"type": "image", "image": images / "small.png"}),
    ]
    if not video_first:
        parts.reverse()
    path = FIXTURES / "qwen3_vl" / "tiny"
    words = [word for option, _ in parts for word in option]
    found = ouzel("run", "-m", path, *words, "--fps", "2", "What?", "-n", "1", "--json").json()
    message = {"role": "user", "content": [*(part for _, part in parts), {"type": "text", "text": "What?"}]}
    assert found["prompt_ids"] == list(model_of(path, "native").prepare([message]).ids)
    assert [picture["kind"] for picture in found["pictures"]] == (["video", "image"] if video_first else ["image", "video"])
