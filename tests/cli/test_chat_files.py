"""/save and /load with files that others wrote: every shape of messages that the API takes, and names that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ouzel.cli.conversation import Conversation
from ouzel.errors import OuzelError

USER = {"role": "user", "content": "x"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}


def loaded(tmp_path: Path, messages: object) -> Conversation:
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(messages), encoding="utf-8")
    conversation = Conversation()
    conversation.load(path)
    return conversation


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (["a", {"image": "c.png"}], ["c.png"]),
        ([{"type": "image_url", "image_url": {"url": "c.png"}}], ["c.png"]),
        ([{"type": "image", "base64": "aGk="}], ["picture data"]),
        ([{"type": "video", "video": ["a.png", "b.png"]}], ["2 frames"]),
        ([{"type": "video", "video": "folder"}], ["folder"]),
        ([{"type": "image_url", "image_url": "data:image/png;base64,aGk="}], ["data URL"]),
    ],
)
def test_pictures_of_every_shape_have_names(tmp_path: Path, content: list, names: list[str]) -> None:
    conversation = loaded(tmp_path, [{"role": "user", "content": content}, CALL])
    assert conversation.ask("next") == names


def test_a_system_message_in_parts(tmp_path: Path) -> None:
    conversation = loaded(tmp_path, [{"role": "system", "content": ["a", {"type": "text", "text": "b"}]}, USER])
    assert conversation.messages() == [{"role": "system", "content": "ab"}, USER]


@pytest.mark.parametrize(
    "first",
    [
        {"role": "system", "content": None, "reasoning_content": "x"},
        {"role": "system", "content": ["a", {"image": "c.png"}]},
    ],
    ids=["reasoning", "picture"],
)
def test_a_system_message_that_would_lose_something_is_refused(tmp_path: Path, first: dict) -> None:
    with pytest.raises(OuzelError, match="/load"):
        loaded(tmp_path, [first, USER])


def test_deep_json_and_impossible_names(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000, encoding="utf-8")
    conversation = Conversation("kept")
    for work in (conversation.load, conversation.save):
        with pytest.raises(OuzelError):
            work(tmp_path / "a\0b")
    with pytest.raises(OuzelError, match="/load"):
        conversation.load(path)
    assert conversation.system == "kept"
