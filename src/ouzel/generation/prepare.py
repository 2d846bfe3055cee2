"""From messages, text or ids to a `Prompt`: pictures loaded and cut, placeholders expanded, tokens and positions."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel import env
from ouzel.errors import ContextError, ImageError, PromptError, RequestError
from ouzel.generation.request import Prompt
from ouzel.models.family import Family, Picture, PictureOptions
from ouzel.processors.image_loader import LoadedImage, load_image
from ouzel.text.messages import ImagePart, Message, VideoPart, normalise
from ouzel.text.prompt import ControlText, PromptEncoder, RenderedPrompt

LOW_DETAIL_PIXELS = 512 * 512
"""Largest area of a picture with `detail: low`, as in OpenAI's API."""

FRAME_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")


@dataclass(frozen=True)
class PromptOptions:
    """What a request may say about its prompt.

    tools: OpenAI's tool descriptions. template: variables for the chat template (`enable_thinking`, ...).
    control_text: "shield" keeps control strings in messages ordinary text, "obey" lets them act as in transformers.
    """

    pictures: PictureOptions = field(default_factory=PictureOptions)
    tools: Sequence[Mapping[str, Any]] | None = None
    template: Mapping[str, Any] = field(default_factory=dict)
    control_text: ControlText = "shield"


class Preparer:
    """Prepares prompts of one model. `encoder` is None for checkpoints without a tokenizer: then only ids work."""

    def __init__(self, family: Family, encoder: PromptEncoder | None) -> None:
        self._family = family
        self._encoder = encoder

    def chat(self, messages: Sequence[Mapping[str, Any] | Message], options: PromptOptions) -> Prompt:
        """The prompt of a conversation.

        Raises PromptError for messages that cannot be used, ImageError for pictures that cannot.
        """
        encoder = self._need_encoder()
        typed = normalise(messages)
        loader = _Loader(self._family, options.pictures)
        pictures = loader.load(typed)
        try:
            rendered = encoder.render(
                typed, tools=options.tools, control_text=options.control_text, **options.template
            )
        except RecursionError:
            raise PromptError("messages and tools", expected="JSON of some hundred levels", got="a deeper one") from None
        start = time.perf_counter()
        expanded = self._expand(rendered, pictures, options.pictures)
        prompt = self._finish(encoder.encode(expanded), tuple(pictures), expanded.text)
        seconds = loader.preprocess_seconds + time.perf_counter() - start
        return replace(prompt, decode_seconds=loader.decode_seconds, preprocess_seconds=seconds)

    def text(self, text: str) -> Prompt:
        """The prompt of plain text without a template; control strings in it are control tokens."""
        ids = self._need_encoder().tokenizer.encode(text)
        return self._finish(ids, (), text)

    def ids(self, ids: Sequence[int]) -> Prompt:
        """The prompt of token ids. Raises PromptError for ids outside the vocabulary and for picture placeholders."""
        if not isinstance(ids, (Sequence, np.ndarray)):
            raise PromptError("token ids", expected="a list of whole numbers", got=type(ids).__name__)
        vocab = self._family.sizes.vocab
        checked = [_whole_id(token, vocab) for token in ids]
        return self._finish(checked, (), "")

    def _need_encoder(self) -> PromptEncoder:
        if self._encoder is None:
            raise PromptError("reading text", expected="a checkpoint with a tokenizer", got="none", fix="give token ids")
        return self._encoder

    def _expand(self, rendered: RenderedPrompt, pictures: Sequence[Picture], options: PictureOptions) -> RenderedPrompt:
        wanted: dict[str, list[str]] = {}
        for picture in pictures:
            placeholder = self._family.placeholder(picture, options)
            wanted.setdefault(placeholder.find, []).append(placeholder.put)
        for find, texts in wanted.items():
            rendered = rendered.replace_placeholders(find, texts)
        return rendered

    def _finish(self, ids: Sequence[int], pictures: tuple[Picture, ...], text: str) -> Prompt:
        if not ids:
            raise PromptError("the prompt", expected="at least one token", got="none", fix="write a question or a text")
        visual = visual_rows(ids, self._family.visual_tokens, pictures)
        return Prompt(tuple(ids), self._family.positions(ids, pictures), visual, pictures, text)


def visual_rows(ids: Sequence[int], tokens: frozenset[int], pictures: Sequence[Picture]) -> NDArray[np.int32]:
    """For every token the row of the joined features that it shows, -1 for text.

    Raises PromptError when the placeholders in the ids and the pictures' rows are not equally many.
    """
    places = np.isin(np.array(ids, np.int64), list(tokens))
    count, rows = int(places.sum()), sum(picture.tokens for picture in pictures)
    if count != rows:
        raise PromptError(
            "placeholders and pictures", expected=f"{rows} picture tokens for {len(pictures)} pictures", got=f"{count} in the ids"
        )
    visual = np.full(len(ids), -1, np.int32)
    visual[places] = np.arange(count, dtype=np.int32)
    return visual


def frames_of_folder(folder: Path) -> list[Path]:
    """The picture files of a folder of video frames, in the order of the numbers in their names.

    Raises ImageError when there is no such folder or no picture in it.
    """
    try:
        found = [path for path in folder.iterdir() if path.suffix.lower() in FRAME_SUFFIXES and path.is_file()]
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise ImageError("reading video frames", expected="a folder of picture files", got=f"{folder} ({reason})") from None
    if not found:
        raise ImageError("reading video frames", expected=f"files {', '.join(FRAME_SUFFIXES)} in {folder}", got="none")
    return sorted(found, key=lambda path: _natural(path.name))


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Sorts frame_2 before frame_10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name)]


def _whole_id(token: Any, vocab: int) -> int:
    if isinstance(token, bool) or not isinstance(token, (int, np.integer)) or not 0 <= token < vocab:
        raise PromptError("token ids", expected=f"whole numbers from 0 to {vocab - 1}", got=repr(token)[:40])
    return int(token)


class _Loader:
    """Loads the pictures of messages in their order, and keeps the time of decoding and of cutting apart."""

    def __init__(self, family: Family, options: PictureOptions) -> None:
        self._family = family
        self._options = options
        self._guard = env.get("OUZEL_MAX_IMAGE_PIXELS")
        self.decode_seconds = self.preprocess_seconds = 0.0

    def load(self, messages: Sequence[Message]) -> list[Picture]:
        """Raises ImageError and RequestError naming the message and part, ContextError as soon as the pictures alone are
        too many for the model: a request must not fill the memory before it is refused."""
        pictures: list[Picture] = []
        limit = self._family.sizes.max_context
        for m, message in enumerate(messages):
            for p, part in enumerate(message.parts):
                if isinstance(part, (ImagePart, VideoPart)):
                    where = f"messages[{m}].content[{p}]"
                    pictures.append(self._timed(part, where))
                    tokens = sum(picture.tokens for picture in pictures)
                    if tokens >= limit:
                        raise ContextError(
                            f"{where}: the pictures", expected=f"fewer than {limit} tokens (the model's context)",
                            got=f"{tokens} picture tokens up to here", fix="send fewer pictures, or lower max_pixels",
                        )  # fmt: skip
        return pictures

    def _timed(self, part: ImagePart | VideoPart, where: str) -> Picture:
        start = time.perf_counter()
        options = _narrowed(self._options, part)
        prepare = _located(where, lambda: self._decode(part))
        decoded = time.perf_counter()
        picture = _located(where, lambda: prepare(options))
        self.decode_seconds += decoded - start
        self.preprocess_seconds += time.perf_counter() - decoded
        return picture

    def _decode(self, part: ImagePart | VideoPart) -> Callable[[PictureOptions], Picture]:
        if isinstance(part, ImagePart):
            image = self._image(part.source)
            return lambda options: self._family.prepare_image(image, options)
        frames = [self._image(frame) for frame in _frame_sources(part.frames)]
        return lambda options: self._family.prepare_video(frames, part.fps, part.timestamps, options)

    def _image(self, source: Any) -> LoadedImage:
        limits = {} if self._guard is None else {"max_pixels_guard": self._guard}
        return load_image(source, alpha=self._options.alpha, **limits)


def _frame_sources(frames: Any) -> Sequence[Any]:
    if isinstance(frames, (list, tuple)) or (isinstance(frames, np.ndarray) and frames.ndim == 4):
        return frames
    if not isinstance(frames, (str, os.PathLike)):
        # One picture or its rows would be taken for frames.
        raise ImageError(
            "reading a video", expected="a list of frames, an array [frames, height, width, channels] or a folder",
            got=type(frames).__name__,
        )  # fmt: skip
    folder = Path(os.fspath(frames).removeprefix("file://"))
    if folder.is_file():
        raise ImageError(
            "reading a video", expected="a list of frames or a folder of picture files", got=f"the file {folder.name}",
            fix="extract its frames first, for example with ffmpeg, and give their rate as fps",
        )  # fmt: skip
    return frames_of_folder(folder)


def _narrowed(options: PictureOptions, part: ImagePart | VideoPart) -> PictureOptions:
    """The options of one picture: its own pixel budget goes before the request's."""
    low = part.min_pixels if part.min_pixels is not None else options.min_pixels
    high = part.max_pixels if part.max_pixels is not None else options.max_pixels
    if isinstance(part, ImagePart) and part.detail == "low":
        high = min(high, LOW_DETAIL_PIXELS) if high is not None else LOW_DETAIL_PIXELS
    return replace(options, min_pixels=low, max_pixels=high)


def _located(where: str, work: Callable[[], Any]) -> Any:
    """Runs `work`; its errors say which part of which message they are about."""
    try:
        return work()
    except (ImageError, RequestError) as error:
        raise type(error)(
            f"{where}: {error.operation}", expected=error.expected, got=error.got, fix=error.fix
        ) from error
