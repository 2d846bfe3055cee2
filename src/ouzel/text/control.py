"""Text of users never becomes a control token.

Before a template renders, every place in the messages where a control string stands has one character replaced by a mark, a
private-use character that occurs nowhere in the input. A mark is one character for one character, so templates may trim,
split, slice and dump the text as they like. After rendering, what still matches a control string was written by the template;
then the marks become their characters again and the text is tokenised as one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ouzel.errors import PromptError

PRIVATE_USE = range(0xE000, 0xF900)


class Marks:
    """Marks for the first (or last) characters of control strings, chosen so that none occurs in `inputs`.

    `inputs` is anything made of JSON types; all strings in it, keys too, are looked at.
    """

    def __init__(self, inputs: Any) -> None:
        texts = list(_strings(inputs))
        used = {char for text in texts for char in text if "\ue000" <= char <= "\uf8ff"}
        # An input with the escape text of a mark would be taken for a mark that tojson has escaped.
        escapes = {match.lower() for text in texts for match in re.findall(r"\\u([ef][0-9a-fA-F]{3})", text, re.IGNORECASE)}
        self._free = (chr(code) for code in PRIVATE_USE if chr(code) not in used and f"{code:04x}" not in escapes)
        self._mark_of: dict[str, str] = {}
        self.char_of: dict[str, str] = {}

    def mark(self, char: str) -> str:
        """The mark that stands for `char`."""
        if char not in self._mark_of:
            mark = next(self._free, None)
            if mark is None:
                raise PromptError("messages", expected="some private-use characters unused", got="all 6400 in the text")
            self._mark_of[char] = mark
            self.char_of[mark] = char
        return self._mark_of[char]


class Shield:
    """Marks the given control strings in text of users.

    Three kinds of places are marked: the first character of every control string; the first character of an ending that only
    begins one, and the last character of a beginning that only ends one (two neighbouring texts could make a whole).
    """

    def __init__(self, control_strings: Iterable[str], marks: Marks) -> None:
        strings = sorted({text for text in control_strings if text}, key=lambda text: (-len(text), text))
        self._marks = marks
        # A lookahead finds strings that overlap: hiding the first must not bring out the second.
        self._whole = re.compile("(?=" + "|".join(map(re.escape, strings)) + ")") if strings else None
        self._beginnings = {text[:end] for text in strings for end in range(1, len(text))}
        self._endings = {text[start:] for text in strings for start in range(1, len(text))}
        self._longest = max(map(len, strings), default=0)

    def text(self, text: str) -> str:
        """`text` with its control strings marked."""
        if self._whole is None or not text:
            return text
        places = {match.start() for match in self._whole.finditer(text)}
        places.update(self._edges(text))
        chars = list(text)
        for place in places:
            chars[place] = self._marks.mark(chars[place])
        return "".join(chars)

    def _edges(self, text: str) -> Iterable[int]:
        # Templates trim, so an ending counts with and without the spaces around it.
        for end in {len(text), len(text.rstrip())}:
            for start in range(max(0, end - self._longest + 1), end):
                if text[start:end] in self._beginnings:
                    yield start
        for start in {0, len(text) - len(text.lstrip())}:
            for end in range(start + 1, min(len(text), start + self._longest - 1) + 1):
                if text[start:end] in self._endings:
                    yield end - 1

    def tree(self, value: Any) -> Any:
        """A copy of JSON-like data with every string shielded, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.tree(key): self.tree(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.tree(item) for item in value]
        return value


def restore_escapes(text: str, marks: Mapping[str, str]) -> str:
    """Marks that a template has written as JSON escapes, as marks again."""
    for mark in marks:
        text = re.sub(rf"\\u{ord(mark):04x}", mark, text, flags=re.IGNORECASE)
    return text


def shield_messages(
    messages: Sequence[Mapping[str, Any]], everything: Shield, special_only: Shield
) -> list[dict[str, Any]]:
    """Template messages with their text shielded.

    Answers of the assistant keep control strings that are not special, such as `<think>`: templates work on them.
    """
    return [_shield_message(message, everything, special_only) for message in messages]


def _shield_message(message: Mapping[str, Any], everything: Shield, special_only: Shield) -> dict[str, Any]:
    own_words = special_only if message.get("role") == "assistant" else everything
    out: dict[str, Any] = {}
    for key, value in message.items():
        if key == "role":
            out[key] = value
        elif key == "content":
            out[key] = own_words.text(value) if isinstance(value, str) else [_shield_part(part, own_words) for part in value]
        elif key in ("reasoning_content", "thinking"):
            out[key] = own_words.tree(value)
        else:
            out[key] = everything.tree(value)
    return out


def _shield_part(part: Mapping[str, Any], shield: Shield) -> dict[str, Any]:
    return {key: shield.text(value) if key == "text" else value for key, value in part.items()}


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)
