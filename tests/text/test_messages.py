"""Messages in all the shapes that clients send, and refusals that name the place."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ouzel.errors import PromptError
from ouzel.text.messages import ImagePart, Message, TextPart, VideoPart, normalise, pictures, to_template

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
PIL = Image.new("RGB", (3, 2), "red")
ARRAY = np.zeros((2, 3, 3), np.uint8)
BUFFER = io.BytesIO(b"png")
DATA_URL = "data:image/png;base64," + base64.b64encode(b"x" * 100).decode()


def one(part: Any) -> Any:
    """The single part of a user message with this content part."""
    (message,) = normalise([{"role": "user", "content": [part]}])
    (found,) = message.parts
    return found


IMAGES: list[tuple[Any, Any]] = [
    ({"type": "image_url", "image_url": {"url": "http://a/b.png"}}, "http://a/b.png"),
    ({"type": "image_url", "image_url": {"url": DATA_URL}}, DATA_URL),
    ({"type": "image_url", "image_url": "a.png"}, "a.png"),
    ({"type": "input_image", "image_url": DATA_URL, "detail": "auto"}, DATA_URL),
    ({"type": "image", "image": "a.png"}, "a.png"),
    ({"type": "image", "image": Path("a.png")}, Path("a.png")),
    ({"type": "image", "image": b"\x89PNG"}, b"\x89PNG"),
    ({"type": "image", "image": PIL}, PIL),
    ({"type": "image", "image": ARRAY}, ARRAY),
    ({"type": "image", "image": BUFFER}, BUFFER),
    ({"type": "image", "image": {"path": "a.png"}}, "a.png"),
    ({"type": "image", "url": "http://a/b.png"}, "http://a/b.png"),
    ({"type": "image", "path": "a.png"}, "a.png"),
    ({"type": "image", "base64": base64.b64encode(b"raw").decode()}, b"raw"),
    ({"type": "image", "base64": DATA_URL}, DATA_URL),
    ({"image": "a.png"}, "a.png"),
    ({"image_url": {"url": "a.png"}}, "a.png"),
    ({"type": "image", "image": "a.png", "cache_control": {"type": "ephemeral"}, "url": None}, "a.png"),
]


@pytest.mark.parametrize(("part", "source"), IMAGES, ids=range(len(IMAGES)))
def test_image_parts(part: Any, source: Any) -> None:
    found = one(part)
    assert isinstance(found, ImagePart)
    assert found.source is source or found.source == source
    assert (found.detail, found.min_pixels, found.max_pixels) == (None, None, None)


def test_pixel_budget_of_one_image() -> None:
    found = one({"type": "image_url", "image_url": {"url": "a", "detail": "low"}, "min_pixels": 4, "max_pixels": 100})
    assert (found.detail, found.min_pixels, found.max_pixels) == ("low", 4, 100)


@pytest.mark.parametrize("part", [{"type": "text", "text": "a"}, {"type": "input_text", "text": "a"}, {"text": "a"}, "a"])
def test_text_parts(part: Any) -> None:
    assert one(part) == TextPart("a")


def test_video_parts() -> None:
    found = one({"type": "video", "video": ["a.png", b"x", PIL], "fps": 2})
    assert isinstance(found, VideoPart)
    assert found.frames == ("a.png", b"x", PIL) and found.fps == 2.0 and found.timestamps is None
    stamped = one({"type": "video", "video": ["a", "b"], "timestamps": [0, 0.5]})
    assert stamped.timestamps == (0.0, 0.5) and stamped.fps is None
    assert one({"type": "video", "video": "v.mp4"}).frames == "v.mp4"
    assert one({"type": "video_url", "video_url": {"url": "v.mp4"}}).frames == "v.mp4"


def test_strings_lists_and_nothing() -> None:
    messages = normalise(
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Ann"},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "content": "", "tool_call_id": "7"},
            {"role": "assistant", "content": "x", "reasoning": "why", "refusal": None, "audio": None, "id": "msg_1"},
        ]
    )
    assert [message.was_text for message in messages] == [True, False, True, True, True]
    assert messages[1].text == "ab"
    assert to_template(messages) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "Ann"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "content": "", "tool_call_id": "7"},
        {"role": "assistant", "content": "x", "reasoning_content": "why", "thinking": "why"},
    ]


def test_normalising_twice_changes_nothing() -> None:
    once = normalise([{"role": "user", "content": [{"type": "image", "image": "a"}, "b"]}])
    assert normalise(once) == once
    assert normalise([Message("user", (TextPart("x"),), True)])[0].text == "x"


def test_templates_see_the_kind_of_a_picture_and_not_its_data() -> None:
    picture = {"type": "image_url", "image_url": {"url": DATA_URL}}
    parts = [picture, {"type": "video", "video": ["a"]}, {"type": "text", "text": "t"}]
    content = to_template(normalise([{"role": "user", "content": parts}]))[0]["content"]
    assert content == [{"type": "image", "image": ""}, {"type": "video", "video": ""}, {"type": "text", "text": "t"}]


def test_pictures_in_the_order_of_the_conversation() -> None:
    messages = [
        {"role": "user", "content": [{"type": "image", "image": "1"}, "x", {"type": "video", "video": ["2"]}]},
        {"role": "assistant", "content": "y"},
        {"role": "tool", "content": [{"type": "image", "image": "3"}]},
    ]
    found = pictures(normalise(messages))
    assert [part.source if isinstance(part, ImagePart) else part.frames for part in found] == ["1", ("2",), "3"]


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/golden*/*.json")), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_messages_of_the_goldens_are_understood(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    lists = [case["messages"] for case in data.get("cases", [data]) if isinstance(case, dict) and "messages" in case]
    for messages in lists:
        found = normalise(messages)
        assert [message.role for message in found] == [message["role"] for message in messages]
        parts = sum(1 if isinstance(message["content"], str) else len(message["content"]) for message in messages)
        assert sum(len(message.parts) for message in found) == parts


TEXT = {"role": "user", "content": "x"}
IMAGE = {"type": "image", "image": "a"}
VIDEO = {"type": "video", "video": ["a", "b"]}


def content(*parts: Any) -> list[Any]:
    return [TEXT, {"role": "user", "content": list(parts)}]


BAD: dict[str, tuple[Any, str]] = {
    "a string": ("hello", "messages"),
    "a dictionary": (TEXT, "messages"),
    "none": (None, "messages"),
    "empty": ([], "at least one"),
    "a list of lists": ([[TEXT]], r"messages\[0\]"),
    "no role": ([{"content": "x"}], r"messages\[0\].role"),
    "unknown role": ([{"role": "robot", "content": "x"}], "robot"),
    "role a number": ([{"role": 5, "content": "x"}], r"messages\[0\].role"),
    "role a list": ([{"role": ["user"], "content": "x"}], r"messages\[0\].role"),
    "no content": ([TEXT, {"role": "user"}], r"messages\[1\].content"),
    "content null": ([{"role": "user", "content": None}], r"messages\[0\].content"),
    "content a number": ([{"role": "user", "content": 5}], r"messages\[0\].content"),
    "content a dictionary": ([{"role": "user", "content": IMAGE}], r"messages\[0\].content"),
    "unknown key": ([{**TEXT, "weight": 0}], r"messages\[0\].weight"),
    "function call": ([{**TEXT, "function_call": {}}], "function_call"),
    "name a number": ([{**TEXT, "name": 5}], r"messages\[0\].name"),
    "tool calls of a user": ([{**TEXT, "tool_calls": [{"function": {"name": "f"}}]}], "tool_calls"),
    "tool calls a string": ([{"role": "assistant", "tool_calls": "f"}], "tool_calls"),
    "tool call without name": ([{"role": "assistant", "tool_calls": [{"function": {}}]}], r"tool_calls\[0\]"),
    "tool call a string": ([{"role": "assistant", "tool_calls": ["f"]}], r"tool_calls\[0\]"),
    "part a number": (content(5), r"messages\[1\].content\[0\]"),
    "part without type": (content({}), r"messages\[1\].content\[0\]"),
    "part with two kinds": (content({"text": "a", "image": "b"}), r"content\[0\]"),
    "audio": (content(IMAGE, {"type": "input_audio", "input_audio": {}}), r"content\[1\].*input_audio"),
    "file": (content({"type": "file", "file": {}}), "file"),
    "text missing": (content({"type": "text"}), r"content\[0\].text"),
    "text a list": (content({"type": "text", "text": ["a"]}), r"content\[0\].text"),
    "text with another key": (content({"type": "text", "text": "a", "bold": True}), "bold"),
    "image missing": (content({"type": "image"}), r"content\[0\]"),
    "image twice": (content({**IMAGE, "url": "b"}), "image, url"),
    "image a number": (content({"type": "image", "image": 5}), r"content\[0\]"),
    "image empty": (content({"type": "image", "image": " "}), "empty"),
    "image a list": (content({"type": "image", "image": ["a"]}), r"content\[0\]"),
    "image url empty": (content({"type": "image_url", "image_url": {}}), r"content\[0\]"),
    "image url a list": (content({"type": "image_url", "image_url": [1]}), r"content\[0\]"),
    "image url with another key": (content({"type": "image_url", "image_url": {"url": "a", "crop": 1}}), "crop"),
    "image with another key": (content({**IMAGE, "resized_height": 28}), "resized_height"),
    "detail unknown": (content({**IMAGE, "detail": "best"}), "detail"),
    "pixels negative": (content({**IMAGE, "min_pixels": -1}), "min_pixels"),
    "pixels a string": (content({**IMAGE, "max_pixels": "9"}), "max_pixels"),
    "base64 damaged": (content({"type": "image", "base64": "abcde"}), "base64"),
    "base64 of something else": (content({"type": "image", "base64": "a/b.png!"}), "base64"),
    "video empty": (content({"type": "video", "video": []}), "frame"),
    "frame a number": (content({"type": "video", "video": ["a", 5]}), r"video\[1\]"),
    "fps zero": (content({**VIDEO, "fps": 0}), "fps"),
    "fps not a number": (content({**VIDEO, "fps": float("nan")}), "fps"),
    "fps true": (content({**VIDEO, "fps": True}), "fps"),
    "timestamps too few": (content({**VIDEO, "timestamps": [0.0]}), "2 values"),
    "timestamps negative": (content({**VIDEO, "timestamps": [-1, 0]}), "timestamps"),
    "timestamps fall": (content({**VIDEO, "timestamps": [1, 0]}), "order"),
    "timestamps words": (content({**VIDEO, "timestamps": ["0", "1"]}), "timestamps"),
}


@pytest.mark.parametrize("name", BAD)
def test_refusals_name_the_place(name: str) -> None:
    messages, words = BAD[name]
    with pytest.raises(PromptError, match=words) as caught:
        normalise(messages)
    assert "\n" not in str(caught.value)


HUGE = "data:image/png;base64," + "A" * 2_000_000
LONG: dict[str, Any] = {
    "role": [{"role": HUGE, "content": "x"}],
    "key": [{**TEXT, HUGE: 1}],
    "type": content({"type": HUGE}),
    "part key": content({**IMAGE, HUGE: 1}),
    "text": content({"type": "text", "text": {HUGE: 1}}),
    "detail": content({**IMAGE, "detail": HUGE}),
    "base64": content({"type": "image", "base64": "A" * 2_000_001}),
    "fps": content({**VIDEO, "fps": HUGE}),
    "pixels": content({**IMAGE, "min_pixels": HUGE}),
    "tool call": [{"role": "assistant", "tool_calls": [{"function": HUGE}]}],
    "number": [{"role": 10**5000, "content": "x"}],
}


@pytest.mark.parametrize("name", LONG)
def test_no_error_echoes_megabytes(name: str) -> None:
    with pytest.raises(PromptError) as caught:
        normalise(LONG[name])
    assert len(str(caught.value)) < 400
