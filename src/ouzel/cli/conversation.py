"""The state of a chat: messages in OpenAI's shape, and pictures that wait for the next question."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from ouzel.cli import content
from ouzel.errors import PromptError, RequestError

Message = dict[str, Any]


class Conversation:
    """Turns so far. `pending` are pictures that go with the next question, `system` is the system message."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.turns: list[Message] = []
        self.pending: list[content.Part] = []

    def messages(self) -> list[Message]:
        """The whole conversation as `Model.stream` takes it."""
        first = [] if self.system is None else [content.message("system", (), self.system)]
        return [*first, *self.turns]

    def ask(self, text: str) -> list[str]:
        """Adds a question with the pictures that wait; gives the names of all pictures shown so far."""
        self.turns.append(content.message("user", self.pending, text))
        self.pending = []
        return [content.describe_source(part) for turn in self.turns for part in _pictures(turn)]

    def answer(self, text: str) -> None:
        """Adds the answer."""
        self.turns.append(content.message("assistant", (), text))

    def take_back(self) -> None:
        """Removes a question that got no answer."""
        if self.turns and self.turns[-1]["role"] == "user":
            self.turns.pop()

    def undo(self) -> bool:
        """Removes the last question with its answer; False when there is none."""
        users = [i for i, turn in enumerate(self.turns) if turn["role"] == "user"]
        if not users:
            return False
        del self.turns[users[-1] :]
        return True

    def clear(self) -> None:
        """Removes all turns and waiting pictures; the system message stays."""
        self.turns, self.pending = [], []

    def save(self, path: Path) -> None:
        """Writes the conversation as JSON (`{"messages": [...]}`); pictures as the paths that they came from.

        Raises RequestError when it cannot be written; then nothing stands under the name.
        """
        text = json.dumps({"messages": self.messages()}, ensure_ascii=False, indent=1, default=os.fspath) + "\n"
        try:
            _write_whole(path, text)
        except OSError as error:
            raise RequestError("/save", expected=f"a place to write {path}", got=_reason(error)) from None

    def load(self, path: Path) -> None:
        """Takes a saved conversation in place of this one. Raises RequestError or PromptError when it is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RequestError("/load", expected=f"a readable file {path}", got=_reason(error)) from None
        except ValueError as error:
            raise RequestError("/load", expected=f"JSON in {path}", got=str(error)) from None
        messages: Any = data.get("messages") if isinstance(data, dict) else data
        _check(messages, path)
        self.system = None
        if messages[0]["role"] == "system":
            self.system = _plain_text(messages[0])
            messages = messages[1:]
        self.turns, self.pending = messages, []


def _check(messages: Any, path: Path) -> None:
    from ouzel.text.messages import normalise

    try:
        normalise(messages)
    except PromptError as error:
        raise PromptError(f"/load {path}: {error.operation}", expected=error.expected, got=error.got) from None


def _plain_text(message: Message) -> str:
    found = message["content"]
    return found if isinstance(found, str) else "".join(part.get("text", "") for part in found)


def _pictures(message: Message) -> list[content.Part]:
    found = message["content"]
    return [] if isinstance(found, str) else [part for part in found if part.get("type") in ("image", "video")]


def _write_whole(path: Path, text: str) -> None:
    """Writes to a temporary file first, so that a half-written one never has the final name."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
