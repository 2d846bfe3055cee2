"""Tokenising a text in which some places must not become added tokens."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

import tokenizers
from tokenizers.models import WordLevel

from ouzel.errors import PromptError, UnsupportedError
from ouzel.text.tokenizer import Tokenizer, encodable

# Stands for "no added token" in the splitter; a noncharacter, which no vocabulary holds.
_OTHER = "\uffff"
_OTHER_ID = 0


class PieceEncoder:
    """Finds the added tokens of a marked text by the library's own rule and tokenises what lies between them as plain text.

    The result equals the tokenizer's own wherever nothing is marked, since the library also cuts at added tokens first and
    normalises and merges each piece by itself.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, marked: str, text: str) -> list[int]:
        """Ids of `text`. `marked` is the same text, character for character, with marks where no added token may match."""
        if len(marked) != len(text):
            raise ValueError(f"marked text has {len(marked)} characters, the text {len(text)}")
        ids: list[int] = []
        start = 0
        marked, text = encodable(marked), encodable(text)
        for token, (begin, end) in self._added_tokens(marked):
            ids += self._plain(text[start:begin])
            ids.append(token)
            start = end
        return ids + self._plain(text[start:])

    def _added_tokens(self, marked: str) -> list[tuple[int, tuple[int, int]]]:
        """Id and character range of every added token, in order; ranges include the spaces that a token swallows."""
        found = self._splitter.encode(marked, add_special_tokens=False)
        begins = [begin for begin, _ in found.offsets] + [len(marked)]
        out = []
        for index, (token, (begin, end)) in enumerate(zip(found.ids, found.offsets, strict=True)):
            # The token of an encoding holds the swallowed spaces too; its id leads to the bare string.
            if token != _OTHER_ID:
                real = self._real_id(token)
                # Of a letter that was normalised from several characters, the library reports the first one only.
                normalised = self._tokenizer.added_tokens[real].normalized
                out.append((real, (begin, begins[index + 1] if normalised else end)))
        return out

    def _real_id(self, token: int) -> int:
        real = self._tokenizer.id_of(self._splitter.id_to_token(token) or "")
        assert real is not None, token
        return real

    def _plain(self, text: str) -> list[int]:
        if not text:
            return []
        ids = list(self._bare.encode(text, add_special_tokens=False).ids)
        special = self._tokenizer.special_ids
        if not special.isdisjoint(ids):
            bad = next(token for token in ids if token in special)
            # Possible only where a special token is also an ordinary entry of the vocabulary.
            raise PromptError(
                "control text in messages",
                expected="text that the vocabulary can hold as text",
                got=repr(self._tokenizer.token_of(bad)),
                fix='remove it or use control_text="obey"',
            )
        return ids

    @cached_property
    def _splitter(self) -> tokenizers.Tokenizer:
        """A tokenizer with the same added tokens and no other: everything between them is one unknown word."""
        backend = self._tokenizer.backend
        splitter = tokenizers.Tokenizer(WordLevel({_OTHER: _OTHER_ID}, unk_token=_OTHER))
        if backend.normalizer is not None:
            splitter.normalizer = backend.normalizer
        splitter.add_tokens(list(self._tokenizer.added_tokens.values()))
        return splitter

    @cached_property
    def _bare(self) -> tokenizers.Tokenizer:
        """The same vocabulary and rules without added tokens; it shares the model's memory."""
        backend = self._tokenizer.backend
        if _looks_at_start(backend.pre_tokenizer):
            raise UnsupportedError(
                "control text in messages",
                expected="a tokenizer that treats the start of a text like its middle",
                got="one that adds a space in front",
                fix='use control_text="obey"',
            )
        bare = tokenizers.Tokenizer(backend.model)
        if backend.normalizer is not None:
            bare.normalizer = backend.normalizer
        if backend.pre_tokenizer is not None:
            bare.pre_tokenizer = backend.pre_tokenizer
        return bare


def _looks_at_start(pre_tokenizer: Any) -> bool:
    """Whether the first piece of a text is treated in a way of its own, so that pieces cannot be tokenised apart."""
    if pre_tokenizer is None:
        return False
    state = json.loads(pre_tokenizer.__getstate__())
    steps = state.get("pretokenizers", [state])
    return any(step.get("prepend_scheme") == "first" for step in steps)
