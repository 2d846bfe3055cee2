"""What a checkpoint says about generating: sampling defaults and end tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ouzel.checkpoint.config import ConfigReader


@dataclass(frozen=True)
class GenerationDefaults:
    """The settings of generation_config.json; None where the file does not say, greedy when there is no file."""

    do_sample: bool = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    max_new_tokens: int | None = None

    @staticmethod
    def read(reader: ConfigReader | None) -> GenerationDefaults:
        """The defaults in `reader` (the file generation_config.json, None when there is none).

        Raises `ConfigError` for a value of the wrong type or outside its range.
        """
        if reader is None:
            return GenerationDefaults()
        return GenerationDefaults(
            do_sample=reader.bool("do_sample", default=False),
            temperature=reader.float("temperature", default=None, min=0.0),
            top_k=reader.int("top_k", default=None, min=0),
            top_p=reader.float("top_p", default=None, above=0.0, max=1.0),
            min_p=reader.float("min_p", default=None, min=0.0, max=1.0),
            repetition_penalty=reader.float("repetition_penalty", default=None, above=0.0),
            presence_penalty=reader.float("presence_penalty", default=None),
            frequency_penalty=reader.float("frequency_penalty", default=None),
            max_new_tokens=reader.int("max_new_tokens", default=None),
        )


def eos_token_ids(
    config: ConfigReader,
    generation: ConfigReader | None,
    tokenizer: ConfigReader | None,
    token_id: Callable[[str], int | None],
) -> tuple[int, ...]:
    """The ids that end a text: the union of all that the checkpoint names, in the order found.

    `config` is config.json (top and text part), `generation` generation_config.json, `tokenizer`
    tokenizer_config.json (None where the file is missing), and `token_id` gives the id of a token's text, None when
    there is no such token. Raises `ConfigError` for a value that is no id or list of ids.
    """
    found: list[int] = []
    for reader, path in ((config, "eos_token_id"), (config, "text_config.eos_token_id"), (generation, "eos_token_id")):
        if reader is not None:
            found += _ids(reader, path)
    text = None if tokenizer is None else _token_text(tokenizer)
    if text is not None:
        last = token_id(text)
        found += [] if last is None else [last]
    return tuple(dict.fromkeys(found))


def _ids(reader: ConfigReader, path: str) -> list[int]:
    value = reader.find(path)
    if value is None:
        return []
    if isinstance(value[1], list):
        return reader.ints(path, min=0, max=2**31 - 1)
    return [reader.int(path, min=0, max=2**31 - 1)]


def _token_text(tokenizer: ConfigReader) -> str | None:
    """`eos_token` of tokenizer_config.json: a string, or an object with `content` in older files."""
    found = tokenizer.find("eos_token")
    if found is not None and isinstance(found[1], dict):
        return tokenizer.str("eos_token.content")
    return tokenizer.str("eos_token", default=None)
