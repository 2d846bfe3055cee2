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
        return _picture_names(self.turns)

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
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            raise RequestError("/save", expected=f"a place to write {path}", got=_reason(error)) from None

    def load(self, path: Path) -> None:
        """Takes a saved conversation in place of this one. Raises RequestError or PromptError when it is none."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise RequestError("/load", expected=f"a readable file {path}", got=_reason(error)) from None
        except (ValueError, RecursionError) as error:
            raise RequestError("/load", expected=f"JSON in {path}", got=str(error)) from None
        messages: Any = data.get("messages") if isinstance(data, dict) else data
        system = _system_text(messages, path)
        self.system = system
        self.turns, self.pending = messages[system is not None :], []


def _system_text(messages: Any, path: Path) -> str | None:
    """The text of the leading system message, None without one. Raises PromptError for messages that are none."""
    from ouzel.text.messages import normalise, pictures

    try:
        first = normalise(messages)[0]
    except PromptError as error:
        raise PromptError(f"/load {path}: {error.operation}", expected=error.expected, got=error.got) from None
    if first.role != "system":
        return None
    if pictures([first]) or first.extra:
        raise PromptError(f"/load {path}: messages[0]", expected="a system message of text alone", got="further parts or keys")
    return first.text


def _picture_names(turns: list[Message]) -> list[str]:
    """How the pictures of these messages are called, whatever shape a file gave the messages."""
    from ouzel.text.messages import ImagePart, normalise, pictures

    parts = pictures(normalise(turns))
    return [_name(part.source if isinstance(part, ImagePart) else part.frames) for part in parts]


def _name(source: Any) -> str:
    if isinstance(source, (str, os.PathLike)):
        return content.describe_source({"image": source})
    return f"{len(source)} frames" if isinstance(source, tuple) else "picture data"


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


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)
