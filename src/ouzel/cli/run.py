"""`ouzel run`: one question, one answer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from ouzel.cli import answer, console, content
from ouzel.cli.failure import guard
from ouzel.cli.loading import load_model
from ouzel.cli.options import (
    Json,
    ModelOptions,
    PictureOptions,
    PromptOptions,
    Quiet,
    SamplingOptions,
    settings_of,
    takes,
)
from ouzel.errors import OuzelError, RequestError

if TYPE_CHECKING:
    from ouzel.model import Model, Stream

READ = "Read the text."
"""The question to a picture that comes without one."""

EPILOG = """Examples:

ouzel run --image receipt.png

ouzel run --model Qwen/Qwen3-VL-2B-Instruct --image a.png --image b.jpg "What is different?"

ouzel run --model ./Qwen3-0.6B --no-think --temperature 0.7 "Write a haiku about rain."

ouzel run --model ./Qwen3-0.6B --raw "Once upon a time" --max-tokens 50

cat photo.jpg | ouzel run --image - --json | jq .usage

ouzel run --model ./Qwen3-0.6B --ids "1,2,3" --max-tokens 8

The answer goes to stdout, everything else to stderr."""


@takes
def run(
    ctx: typer.Context,
    model: ModelOptions,
    pictures: PictureOptions,
    prompt: PromptOptions,
    sampling: SamplingOptions,
    text: Annotated[
        Optional[str],
        typer.Argument(
            metavar="PROMPT", show_default=False,
            help="The question or text; - reads stdin. A picture without a question is asked for its text.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option("--raw", rich_help_panel="Prompt", show_default=False, help="Continue the text as it is, without a chat template."),
    ] = False,
    ids: Annotated[
        Optional[str],
        typer.Option(
            "--ids", rich_help_panel="Prompt", metavar="IDS|@FILE", show_default=False,
            help="Token ids instead of text, with commas or spaces between them; prints the ids of the continuation.",
        ),
    ] = None,
    logprobs: Annotated[
        Optional[int],
        typer.Option(
            "--logprobs", rich_help_panel="Generation", metavar="N", show_default=False,
            help="With --json: the log-probability of every token and of the N likeliest ones.",
        ),
    ] = None,
    special: Annotated[
        bool,
        typer.Option("--special", rich_help_panel="Output", show_default=False, help="Print special tokens such as <|im_end|> too."),
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Answers a question, with or without pictures, or continues a text."""
    with guard(json):
        ask = _Ask(ctx, text, raw, ids, pictures, prompt)
        ask.check()
        if logprobs is not None and not json:
            raise RequestError("--logprobs", expected="--json beside it", got="text output")
        loaded = load_model(model, quiet)
        settings = settings_of(pictures, prompt, sampling)
        stream = ask.start(loaded, settings | {"logprobs": logprobs, "skip_special_tokens": not special})
        printed = _Printer(as_text=not json and ids is None)
        try:
            result, stopped = answer.follow(stream, printed)
        except OuzelError:
            printed.end(begun_only=True)
            raise
        if json:
            console.write_line(console.json_text(answer.as_json(loaded, result)))
        elif ids is not None:
            console.write_line(",".join(map(str, result.ids)))
        else:
            printed.end()
        if not quiet:
            answer.tell(result, ask.names)
        if stopped:
            raise KeyboardInterrupt


class _Printer:
    """Writes pieces of text to stdout and ends the last line."""

    def __init__(self, as_text: bool) -> None:
        self._as_text = as_text
        self._last = ""

    def __call__(self, text: str) -> None:
        if self._as_text:
            console.write_answer(text)
            self._last = text

    def end(self, begun_only: bool = False) -> None:
        """A line end, unless the text has one; with `begun_only` only after some text."""
        if not self._last.endswith("\n") and (self._last or not begun_only):
            console.write("\n")


class _Ask:
    """What is asked, in one of three ways: a message, raw text, or token ids."""

    def __init__(
        self, ctx: typer.Context, text: str | None, raw: bool, ids: str | None, pictures: PictureOptions, prompt: PromptOptions
    ) -> None:
        self._ctx = ctx
        self._text = text
        self._raw = raw
        self._ids = ids
        self._pictures = pictures
        self._prompt = prompt
        self.names: list[str] = []

    def check(self) -> None:
        """Raises RequestError for options that do not go together, before a model is loaded."""
        shown = bool(self._pictures.image or self._pictures.video_frames)
        given = {"--system": self._prompt.system is not None, "--think": self._prompt.think is not None, "pictures": shown}
        if self._raw or self._ids is not None:
            mode = "--raw" if self._raw else "--ids"
            bad = [name for name, there in given.items() if there]
            bad += ["--ids"] if self._raw and self._ids is not None else []
            bad += ["a prompt"] if self._ids is not None and self._text is not None else []
            if bad:
                raise RequestError(mode, expected="no options of a chat beside it", got=", ".join(bad))
        elif self._text is None and not shown:
            raise RequestError("ouzel run", expected="a prompt, a picture or --ids", got="nothing", fix="see `ouzel run --help`")
        if self._raw and self._text is None:
            raise RequestError("--raw", expected="a text to continue", got="nothing")
        content.check_one_stdin(self._text, self._pictures.image)

    def start(self, model: Model, settings: dict[str, Any]) -> Stream:
        """Begins the answer."""
        if self._ids is not None:
            return model.stream_prompt(_ids(self._ids), **settings)
        text = self._read_text()
        if self._raw:
            return model.stream_prompt(text or "", **settings)
        parts = content.picture_parts(self._pictures, self._ctx)
        self.names = [content.describe_source(part) for part in parts]
        messages = [content.message("user", parts, READ if text is None else text)]
        if self._prompt.system is not None:
            messages.insert(0, content.message("system", (), console.given_text(self._prompt.system)))
        return model.stream(messages, **settings)

    def _read_text(self) -> str | None:
        if self._text == content.STDIN:
            return console.read_stdin_text()
        return None if self._text is None else console.given_text(self._text)


def _ids(text: str) -> list[int]:
    """Token ids out of "1,2 3" or of the file behind "@"."""
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RequestError("--ids", expected=f"a readable text file {path}", got=str(error)) from None
    words = [word for word in re.split(r"[\s,\[\]]+", text) if word]
    bad = [word for word in words if not re.fullmatch(r"[0-9]{1,12}", word)]
    if bad:
        raise RequestError("--ids", expected="whole numbers with commas or spaces between them", got=repr(bad[0][:40]))
    return [int(word) for word in words]
