"""Text out of a running generation: decoding token by token, and stop strings."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from ouzel.errors import RequestError
from ouzel.text.tokenizer import Tokenizer


class StreamDecoder:
    """Decodes one token at a time; the joined pieces equal `Tokenizer.decode` of all ids.

    Bytes of an unfinished character are held back. Work per token does not grow with the text.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that has become certain with this token, often one word, sometimes nothing."""
        if token in self._skip:
            return ""
        return self._utf8.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """What was held back: the start of a character that never came whole, as U+FFFD."""
        return self._utf8.decode(b"", final=True)


class StopStrings:
    """Cuts a text exactly before the first stop string, whatever the sizes of the pieces it comes in.

    The first is the one that is complete first, and of several that end together the longest. What may be the beginning of
    a stop string is held back until it is certain.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        for index, stop in enumerate(stops):
            if not isinstance(stop, str) or not stop:
                raise RequestError(f"stop[{index}]", expected="a string that is not empty", got=repr(stop)[:40])
        self._stops = tuple(dict.fromkeys(stops))
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> tuple[str, bool]:
        """Text that is safe to send, and whether a stop string was met. After that nothing more comes out."""
        if self.matched is not None:
            return "", True
        text = self._held + text
        found = self._first(text)
        if found is not None:
            start, self.matched = found
            self._held = ""
            return text[:start], True
        cut = len(text) - self._open_length(text)
        self._held = text[cut:]
        return text[:cut], False

    def finish(self) -> str:
        """The text still held back, when the generation has ended without completing a stop string."""
        held, self._held = self._held, ""
        return held

    def _first(self, text: str) -> tuple[int, str] | None:
        """Start and text of the stop string that is complete first."""
        best: tuple[int, int, str] | None = None
        for stop in self._stops:
            start = text.find(stop)
            if start >= 0 and (best is None or (start + len(stop), start) < best[:2]):
                best = (start + len(stop), start, stop)
        return None if best is None else (best[1], best[2])

    def _open_length(self, text: str) -> int:
        """Length of the longest ending of `text` that begins a stop string."""
        return max((_overlap(text, stop) for stop in self._stops), default=0)


def _overlap(text: str, stop: str) -> int:
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
