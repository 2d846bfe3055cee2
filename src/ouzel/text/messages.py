"""Chat messages as typed data, whatever shape they came in.

`normalise` accepts the shapes of OpenAI's API (`image_url`, `input_text`, ...) and of Hugging Face (`image`, `video`, ...)
alike and gives `Message` objects; `to_template` gives back the plain dictionaries that chat templates are written for.
Anything that would change the meaning if it were dropped is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ouzel.errors import PromptError
from ouzel.text.parts import ImagePart, Part, TextPart, VideoPart, parse_part, shorten

__all__ = ["ImagePart", "Message", "Part", "TextPart", "VideoPart", "normalise", "pictures", "to_template"]

ROLES = ("system", "developer", "user", "assistant", "tool")
# Names under which clients send an assistant's reasoning; templates read the first (some read the second).
REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
EXTRA_KEYS = ("name", "tool_call_id")
# Keys that clients echo back from an answer and that say nothing to a model.
IGNORED_KEYS = ("id", "annotations", "created_at", "cache_control")


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    `parts` are the pieces of the content in their order. `was_text` remembers that the content came as one plain string, for
    templates that treat the two forms differently. `tool_calls` are OpenAI's dictionaries, `extra` holds `name`,
    `tool_call_id` and `reasoning_content` where given.
    """

    role: str
    parts: tuple[Part, ...] = ()
    was_text: bool = False
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All text parts, joined without separator."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))


def normalise(messages: Sequence[Mapping[str, Any] | Message]) -> list[Message]:
    """Typed messages from OpenAI's or Hugging Face's dictionaries (or from `Message` objects, which pass through).

    Raises `PromptError` naming the place (`messages[1].content[0]`) for unknown roles, parts and keys, and for values of the
    wrong type. Nothing is read or decoded here: the sources of pictures stay as they were given.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise PromptError("messages", expected="a list of messages", got=type(messages).__name__)
    if not messages:
        raise PromptError("messages", expected="at least one message", got="an empty list")
    return [
        message if isinstance(message, Message) else _message(message, f"messages[{index}]")
        for index, message in enumerate(messages)
    ]


def pictures(messages: Sequence[Message]) -> list[ImagePart | VideoPart]:
    """Every image and video part, in the order in which a template meets them."""
    return [part for message in messages for part in message.parts if not isinstance(part, TextPart)]


def _message(message: Any, where: str) -> Message:
    if not isinstance(message, Mapping):
        raise PromptError(where, expected="a dictionary with role and content", got=type(message).__name__)
    role = message.get("role")
    if role not in ROLES:
        raise PromptError(f"{where}.role", expected=f"one of {', '.join(ROLES)}", got=shorten(role))
    _refuse_unknown_keys(message, where)
    tool_calls = _tool_calls(message.get("tool_calls"), where)
    if tool_calls and role != "assistant":
        raise PromptError(f"{where}.tool_calls", expected="only in assistant messages", got=f"role {role}")
    extra = _extra(message, where)
    content = message.get("content")
    if content is None and not tool_calls and "reasoning_content" not in extra:
        raise PromptError(f"{where}.content", expected="a string or a list of parts", got="nothing")
    parts = _parts(content, f"{where}.content")
    return Message(role, parts, not isinstance(content, (list, tuple)), tool_calls, extra)


def _refuse_unknown_keys(message: Mapping[str, Any], where: str) -> None:
    known = {"role", "content", "tool_calls", *REASONING_KEYS, *EXTRA_KEYS, *IGNORED_KEYS}
    for key, value in message.items():
        if key not in known and value is not None:
            raise PromptError(
                f"{where}.{shorten(key, quote=False)}", expected="a key that Ouzel knows", got="an unknown one", fix="remove it"
            )


def _parts(content: Any, where: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),)
    if not isinstance(content, (list, tuple)):
        raise PromptError(where, expected="a string or a list of parts", got=type(content).__name__)
    return tuple(parse_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _extra(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    extra = {}
    for key in EXTRA_KEYS:
        if message.get(key) is not None:
            extra[key] = _string(message[key], f"{where}.{key}")
    for key in REASONING_KEYS:
        if message.get(key) is not None:
            extra["reasoning_content"] = _string(message[key], f"{where}.{key}")
            break
    return extra


def _string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise PromptError(where, expected="a string", got=type(value).__name__)
    return value


def _tool_calls(calls: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    if calls is None:
        return ()
    if not isinstance(calls, (list, tuple)):
        raise PromptError(f"{where}.tool_calls", expected="a list", got=type(calls).__name__)
    for index, call in enumerate(calls):
        place = f"{where}.tool_calls[{index}]"
        if not isinstance(call, Mapping):
            raise PromptError(place, expected="a dictionary", got=type(call).__name__)
        function = call.get("function", call)
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise PromptError(place, expected="a function with a name and arguments", got=shorten(function))
    return tuple(dict(call) for call in calls)


def to_template(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The dictionaries a chat template reads, in Hugging Face's shape.

    Content that came as a string stays a string. Pictures are only marked (`{"type": "image", "image": ""}`), since templates
    look at their kind and place and never at their data.
    """
    return [_template_message(message) for message in messages]


def _template_message(message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role}
    out["content"] = message.text if message.was_text else [_template_part(part) for part in message.parts]
    out.update(message.extra)
    if "reasoning_content" in message.extra:
        out["thinking"] = message.extra["reasoning_content"]
    if message.tool_calls:
        out["tool_calls"] = [dict(call) for call in message.tool_calls]
    return out


def _template_part(part: Part) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    kind = "image" if isinstance(part, ImagePart) else "video"
    return {"type": kind, kind: ""}
