"""`ouzel chat`: a conversation with history and pictures."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from ouzel.cli import answer, console, content, slash
from ouzel.cli.conversation import Conversation
from ouzel.cli.failure import guard, report
from ouzel.cli.loading import load_model
from ouzel.cli.options import ModelOptions, PictureOptions, PromptOptions, Quiet, SamplingOptions, settings_of, takes
from ouzel.errors import OuzelError

if TYPE_CHECKING:
    from ouzel.model import Model

EPILOG = """Examples:

ouzel chat --model Qwen/Qwen3-VL-2B-Instruct

ouzel chat --model ./Qwen3-0.6B --system "Answer in one sentence." --no-think

printf 'Hello\\nAnd again\\n' | ouzel chat --model ./Qwen3-0.6B --quiet

In the chat, /help lists the commands: /image, /video, /undo, /clear, /system, /save, /load, /quit."""


@takes
def chat(
    ctx: typer.Context,
    model: ModelOptions,
    pictures: PictureOptions,
    prompt: PromptOptions,
    sampling: SamplingOptions,
    quiet: Quiet = False,
) -> None:
    """A conversation with history and pictures. Works in a terminal and through a pipe, one line a question."""
    with guard():
        conversation = Conversation(None if prompt.system is None else console.given_text(prompt.system))
        _attach(conversation, pictures, ctx)
        loaded = load_model(model, quiet)
        Chat(loaded, conversation, settings_of(pictures, prompt, sampling), quiet).loop()


def _attach(conversation: Conversation, pictures: PictureOptions, ctx: typer.Context) -> None:
    """Pictures on the command line go with the first question."""
    if content.STDIN in (pictures.image or ()):
        slash.attach_image(conversation, content.STDIN)
    for part in content.picture_parts(pictures, ctx):
        if part["type"] == "image":
            slash.attach_image(conversation, part["image"])
        else:
            slash.attach_video(conversation, part["video"], part["fps"])


class Chat:
    """The loop of a conversation: read a line, run a command or answer."""

    def __init__(self, model: Model, conversation: Conversation, settings: dict[str, Any], quiet: bool) -> None:
        self._model = model
        self._conversation = conversation
        self._settings = settings
        self._quiet = quiet
        self._lines = LineReader()

    def loop(self) -> None:
        """Until /quit or the end of stdin."""
        if self._lines.interactive and not self._quiet:
            console.say("/help lists commands, Ctrl-D ends")
        while True:
            try:
                line = self._lines.read()
                if line is None:
                    return
                self._handle(line)
            except slash.Quit:
                return
            except KeyboardInterrupt:
                # At the prompt a terminal expects a new line, as in a shell; a pipe has nobody to go on with.
                if not self._lines.interactive:
                    raise
                console.say("\nCtrl-D or /quit ends")
            except OuzelError as error:
                report(error)

    def _handle(self, line: str) -> None:
        if not line.strip():
            return
        if slash.is_command(line):
            slash.run_command(self._conversation, line)
            return
        self._answer(line[1:] if line.startswith("//") else line)

    def _answer(self, text: str) -> None:
        """One turn. A question that fails or is stopped before its first word is taken back."""
        names = self._conversation.ask(text)
        try:
            stream = self._model.stream(self._conversation.messages(), **self._settings)
            result, stopped = answer.follow(stream, console.write_answer)
        except BaseException:
            self._conversation.take_back()
            raise
        if not result.text.endswith("\n"):
            console.write("\n")
        if stopped and not result.text:
            self._conversation.take_back()
        else:
            self._conversation.answer(result.text)
        if not self._quiet:
            answer.tell(result, names)
        if stopped and not self._lines.interactive:
            raise KeyboardInterrupt


class LineReader:
    """Questions out of stdin: with editing and history on a terminal, plain lines of UTF-8 otherwise."""

    def __init__(self) -> None:
        self.interactive = sys.stdin is not None and sys.stdin.isatty()
        # input() edits lines only when both ends are a terminal, and its prompt would end up in a piped answer.
        self._edits = self.interactive and sys.stdout is not None and sys.stdout.isatty()
        if self._edits:
            _enable_history()

    def read(self) -> str | None:
        """The next question without its line end, None at the end of stdin."""
        lines: list[str] = []
        while True:
            line = self._line("> " if not lines else "... ")
            if line is None:
                return "\n".join(lines) if lines else None
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    def _line(self, prompt: str) -> str | None:
        if self._edits:
            try:
                return input(prompt)
            except EOFError:
                return None
        if self.interactive:
            sys.stderr.write(prompt)
            sys.stderr.flush()
        line = "" if sys.stdin is None else sys.stdin.readline()
        return line.rstrip("\r\n") if line else None


def _enable_history() -> None:
    """Importing readline is what gives input() its editing and history; Windows terminals have their own."""
    try:
        import readline  # noqa: F401
    except ImportError:
        pass
