"""Rendering of chat templates: Jinja2 in a sandbox, with the settings for which checkpoints write their templates."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ouzel.errors import CheckpointError, PromptError, UnsupportedError

MAX_TEMPLATE_CHARS = 1 << 20
MAX_REPEAT = 1 << 20


class _GenerationBlock(Extension):
    """Accepts `{% generation %} ... {% endgeneration %}`, which training code uses to mark answers; it renders its body."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with a bound on multiplication: a template comes with the checkpoint and is not trusted."""

    intercepted_binops = frozenset(["*", "**"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        for value in (left, right):
            if isinstance(value, int) and abs(value) > MAX_REPEAT:
                raise jinja2.TemplateRuntimeError(f"multiplication by {value} is refused")
        if operator == "**" and isinstance(right, (int, float)) and abs(right) > 64:
            raise jinja2.TemplateRuntimeError(f"power {right} is refused")
        return super().call_binop(context, operator, left, right)


def _raise_exception(message: Any) -> None:
    raise jinja2.TemplateRuntimeError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """JSON as models were trained on it: no HTML escapes, non-ASCII kept, keys in the given order."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _environment() -> _Environment:
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, loopcontrols])
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """A checkpoint's chat template.

    `source` is the Jinja text; `special_tokens` are the variables such as `bos_token` that the tokenizer files name;
    `tool_source` is the template that some checkpoints have for requests with tools; `origin` names the file in errors.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        *,
        tool_source: str | None = None,
        origin: str = "chat template",
    ) -> None:
        self.source = source
        self.origin = origin
        self.special_tokens = dict(special_tokens or {})
        self._template = _compile(source, origin)
        self._tool_source = tool_source
        self._tool_template = None if tool_source is None else _compile(tool_source, origin)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **kwargs: Any,
    ) -> str:
        """The prompt text of `messages` (dictionaries in Hugging Face's shape).

        `kwargs` are variables of the template (`enable_thinking`, `add_vision_id`, ...). Raises `PromptError` when the template
        refuses the messages or fails.
        """
        template = self._tool_template if tools and self._tool_template is not None else self._template
        variables = {**self.special_tokens, **plain(kwargs)}
        variables.setdefault("documents", None)
        try:
            return template.render(
                messages=plain(messages),
                tools=plain(tools) if tools else None,
                add_generation_prompt=add_generation_prompt,
                **variables,
            )
        # The template is a program of the checkpoint's author: whatever it raises, the messages did not become a prompt.
        except Exception as error:
            raise PromptError(f"chat template ({self.origin}): {_one_line(error)}", fix="change the messages") from None

    @cached_property
    def variables(self) -> frozenset[str]:
        """The variables that the template reads (`messages`, `tools`, `enable_thinking`, ...); others have no effect."""
        sources = [self.source] if self._tool_source is None else [self.source, self._tool_source]
        environment = _environment()
        return frozenset().union(*(meta.find_undeclared_variables(environment.parse(source)) for source in sources))

    @cached_property
    def takes_parts(self) -> bool:
        """Whether content may be a list of parts. Templates of text models print the list itself, or fail on it."""
        rendered = self._probe([{"type": "text", "text": _PROBE}])
        return rendered is not None and _PROBE in rendered and not re.search("['\"]type['\"]", rendered)

    @cached_property
    def takes_strings(self) -> bool:
        """Whether content may be a string. A few templates walk over parts only and lose a string without a word."""
        rendered = self._probe(_PROBE)
        return rendered is not None and _PROBE in rendered

    def _probe(self, content: Any) -> str | None:
        try:
            return self.render([{"role": "user", "content": content}])
        except PromptError:
            return None


_PROBE = "ouzel probe"


def _compile(source: str, origin: str) -> jinja2.Template:
    if len(source) > MAX_TEMPLATE_CHARS:
        raise CheckpointError(
            f"chat template ({origin})", expected=f"at most {MAX_TEMPLATE_CHARS} characters", got=str(len(source))
        )
    try:
        return _environment().from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise CheckpointError(f"chat template ({origin}) line {error.lineno}: {_one_line(error)}") from None
    except RecursionError:
        raise CheckpointError(f"chat template ({origin}): nested too deeply") from None


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}..."


def plain(value: Any) -> Any:
    """A copy made of JSON types only, so that a template can reach no method of a caller's object."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise UnsupportedError("chat template variables", expected="JSON values", got=type(value).__name__)


def opens_thinking(text: str, *, start: str = "<think>", end: str = "</think>", stops: Sequence[str] = ()) -> bool:
    """Whether a prompt ends inside an open thinking block, so that the answer begins with thoughts.

    `stops` are strings that end a turn: a block left open in an earlier turn is closed by them.
    """
    begin = text.rfind(start)
    if begin < 0:
        return False
    tail = text[begin + len(start) :]
    return end not in tail and not any(stop in tail for stop in stops)
