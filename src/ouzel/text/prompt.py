"""From messages to token ids: render the template, put in the pictures' places, tokenise."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ouzel.errors import PromptError, RequestError
from ouzel.text.control import Marks, Shield, restore_escapes, shield_messages
from ouzel.text.messages import Message, TextPart, to_template
from ouzel.text.split import PieceEncoder
from ouzel.text.template import ChatTemplate, opens_thinking, plain
from ouzel.text.tokenizer import Tokenizer

ControlText = Literal["shield", "obey"]


@dataclass(frozen=True)
class RenderedPrompt:
    """A rendered prompt that knows which of its control strings the template wrote.

    `marked` is the text with a private-use mark in place of one character of every control string that came with the
    messages; `char_of` gives the marks' characters.
    """

    marked: str
    char_of: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The prompt as it reads, with the messages' own characters."""
        return self.marked.translate({ord(mark): char for mark, char in self.char_of.items()})

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Ranges [start, end) of `text` that no control token may cover."""
        if not self.char_of:
            return ()
        return tuple((place, place + 1) for place, char in enumerate(self.marked) if char in self.char_of)

    def count(self, placeholder: str | re.Pattern[str]) -> int:
        """How often the template wrote `placeholder`; text of the messages that looks like it does not count."""
        return sum(1 for _ in _pattern(placeholder).finditer(self.marked))

    def replace_placeholders(self, placeholder: str | re.Pattern[str], replacements: Sequence[str]) -> RenderedPrompt:
        """The prompt with the k-th placeholder that the template wrote replaced by `replacements[k]`.

        Control strings in a replacement are control tokens. Raises `PromptError` when the counts differ.
        """
        pattern = _pattern(placeholder)
        pieces: list[str] = []
        end = found = 0
        for found, match in enumerate(pattern.finditer(self.marked), 1):
            if found <= len(replacements):
                pieces += (self.marked[end : match.start()], replacements[found - 1])
            end = match.end()
        if found != len(replacements):
            shown = placeholder if isinstance(placeholder, str) else pattern.pattern
            raise PromptError(
                "placeholders and pictures",
                expected=f"{len(replacements)} times '{shown}'",
                got=f"{found} in the rendered prompt",
                fix="check that the chat template shows every picture",
            )
        if any(mark in text for mark in self.char_of for text in replacements):
            raise ValueError("a replacement holds a private-use character that serves as a mark")
        return RenderedPrompt("".join((*pieces, self.marked[end:])), self.char_of)


def _pattern(placeholder: str | re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(re.escape(placeholder)) if isinstance(placeholder, str) else placeholder


class PromptEncoder:
    """Renders messages with a checkpoint's template and tokenises the result.

    `placeholders` are strings that stand for pictures but are no tokens of the vocabulary. `data_tokens` are added tokens that
    people may write (coordinates such as `<x_12>`); every other added token is a control token.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        *,
        placeholders: Iterable[str] = (),
        data_tokens: Collection[str] = (),
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template
        added = [token for token in tokenizer.added_tokens.values() if token.content not in data_tokens]
        always = [token.content for token in added if token.special] + list(placeholders)
        # Some vocabularies hold runs of spaces or line ends as added tokens; they control nothing.
        self.special_strings = tuple(dict.fromkeys(always))
        words = [token.content for token in added if not token.content.isspace()]
        self.control_strings = tuple(dict.fromkeys([*self.special_strings, *words]))
        self._pieces = PieceEncoder(tokenizer)

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        control_text: ControlText = "shield",
        **template_kwargs: Any,
    ) -> RenderedPrompt:
        """The prompt of `messages`.

        With `control_text="shield"` control strings in the messages, tools and `template_kwargs` stay ordinary text; "obey"
        lets them act, as transformers does. Raises `PromptError` when the checkpoint has no template or the template refuses.
        """
        if control_text not in ("shield", "obey"):
            raise RequestError("control_text", expected="shield or obey", got=str(control_text)[:40])
        if self.template is None:
            raise PromptError(
                "chat", expected="a checkpoint with a chat template", got="none", fix="use raw text or token ids"
            )
        if tools and "tools" not in self.template.variables:
            raise PromptError("tools", expected="a chat template that shows tools", got="one without", fix="send no tools")
        plain_messages = plain(to_template([self._fit(message) for message in messages]))
        plain_tools, variables = plain(list(tools)) if tools else None, plain(template_kwargs)
        char_of: dict[str, str] = {}
        if control_text == "shield":
            # The template's own text counts as input: no mark may occur in it.
            marks = Marks([plain_messages, plain_tools, variables, self.template.source])
            everything = Shield(self.control_strings, marks)
            plain_messages = shield_messages(plain_messages, everything, Shield(self.special_strings, marks))
            plain_tools, variables = everything.tree(plain_tools), everything.tree(variables)
            char_of = marks.char_of
        marked = self.template.render(
            plain_messages, add_generation_prompt=add_generation_prompt, tools=plain_tools, **variables
        )
        return RenderedPrompt(restore_escapes(marked, char_of), char_of)

    def encode(
        self, rendered: RenderedPrompt, expand: Callable[[RenderedPrompt], RenderedPrompt] | None = None
    ) -> list[int]:
        """Token ids of a rendered prompt, after `expand` has put the pictures' placeholders in."""
        if expand is not None:
            rendered = expand(rendered)
        if not rendered.spans:
            return self.tokenizer.encode(rendered.text, add_special_tokens=False)
        return self._pieces.encode(rendered.marked, rendered.text)

    def opens_thinking(self, rendered: RenderedPrompt, start: str = "<think>", end: str = "</think>") -> bool:
        """Whether the answer begins inside a thinking block that the prompt has opened."""
        stops = [text for text in self.special_strings if text not in (start, end)]
        return opens_thinking(rendered.marked, start=start, end=end, stops=stops)

    def _fit(self, message: Message) -> Message:
        """The message with its content in the form that the template can read: one string, or parts."""
        template = self.template
        assert template is not None
        only_text = all(isinstance(part, TextPart) for part in message.parts)
        if message.was_text:
            return message if template.takes_strings or not template.takes_parts else _as_parts(message)
        if template.takes_parts or not template.takes_strings:
            return message
        if not only_text:
            raise PromptError(
                "pictures in messages", expected="a chat template that shows pictures", got="one for text only", fix="send text"
            )
        return _as_text(message)


def _as_parts(message: Message) -> Message:
    return Message(message.role, message.parts, False, message.tool_calls, message.extra)


def _as_text(message: Message) -> Message:
    return Message(message.role, (TextPart(message.text),), True, message.tool_calls, message.extra)
