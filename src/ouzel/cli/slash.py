"""Commands inside a chat: lines that begin with a slash."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ouzel.cli import console, content
from ouzel.cli.conversation import Conversation
from ouzel.errors import RequestError


class Quit(Exception):
    """The user wants to leave."""


@dataclass(frozen=True)
class SlashCommand:
    """One command: how it is written, what it does, and the work."""

    usage: str
    help: str
    run: Callable[[Conversation, str], str]


def attach_image(conversation: Conversation, source: str) -> str:
    """Lets a picture wait for the next question; it is read once now, so that a bad one is named at once."""
    from ouzel.processors.image_loader import load_image

    if source == content.STDIN:
        raise RequestError("a picture in a chat", expected="a file or data URL", got="- (stdin is the conversation)")
    part = content.image_part(source)
    load_image(source)
    conversation.pending.append(part)
    return f"image {content.describe_source(part)} goes with the next question"


def attach_video(conversation: Conversation, folder: str, fps: float | None) -> str:
    """Lets the frames of a folder wait for the next question."""
    from ouzel.generation.prepare import frames_of_folder

    frames = frames_of_folder(Path(folder))
    conversation.pending.append(content.video_part(folder, fps))
    return f"video {folder} ({len(frames)} frames) goes with the next question"


def _image(conversation: Conversation, argument: str) -> str:
    return attach_image(conversation, _needed("/image PATH", argument))


def _video(conversation: Conversation, argument: str) -> str:
    words = _needed("/video FOLDER [FPS]", argument).rsplit(maxsplit=1)
    fps = None
    if len(words) == 2 and re.fullmatch(r"[0-9]+(\.[0-9]+)?", words[1]):
        argument, fps = words[0], float(words[1])
    return attach_video(conversation, argument, fps)


def _clear(conversation: Conversation, argument: str) -> str:
    conversation.clear()
    return "a new conversation"


def _undo(conversation: Conversation, argument: str) -> str:
    return "the last question and its answer are gone" if conversation.undo() else "there is nothing to undo"


def _system(conversation: Conversation, argument: str) -> str:
    if argument:
        conversation.system = argument
    return "no system message" if conversation.system is None else f"system message: {conversation.system}"


def _save(conversation: Conversation, argument: str) -> str:
    path = Path(_needed("/save FILE", argument))
    conversation.save(path)
    return f"saved to {path}"


def _load(conversation: Conversation, argument: str) -> str:
    path = Path(_needed("/load FILE", argument))
    conversation.load(path)
    return f"{len(conversation.turns)} messages from {path}"


def _help(conversation: Conversation, argument: str) -> str:
    width = max(len(command.usage) for command in COMMANDS.values())
    lines = [f"{command.usage.ljust(width)}  {command.help}" for command in COMMANDS.values()]
    return "\n".join([*lines, *NOTES])


def _quit(conversation: Conversation, argument: str) -> str:
    raise Quit


COMMANDS: dict[str, SlashCommand] = {
    "image": SlashCommand("/image PATH", "a picture for the next question", _image),
    "video": SlashCommand("/video FOLDER [FPS]", "a folder of video frames for the next question", _video),
    "undo": SlashCommand("/undo", "remove the last question and its answer", _undo),
    "clear": SlashCommand("/clear", "begin a new conversation; the system message stays", _clear),
    "system": SlashCommand("/system [TEXT]", "show or set the system message", _system),
    "save": SlashCommand("/save FILE", "write the conversation as JSON; pictures as their paths", _save),
    "load": SlashCommand("/load FILE", "go on with a saved conversation", _load),
    "help": SlashCommand("/help", "this list", _help),
    "quit": SlashCommand("/quit", "leave (also Ctrl-D)", _quit),
}

NOTES = (
    "A line that ends with \\ goes on in the next one. // begins a text with a slash.",
    "Ctrl-C stops an answer and keeps what it said.",
)


def is_command(line: str) -> bool:
    """Whether a line is for the chat and not for the model; a path such as /etc/hosts is for the model."""
    return re.match(r"/[A-Za-z]*(\s|$)", line) is not None


def run_command(conversation: Conversation, line: str) -> None:
    """Runs a command and tells on stderr what it did. Raises Quit, and OuzelError for what cannot be done."""
    name, _, argument = line[1:].partition(" ")
    command = COMMANDS.get(name.strip().lower())
    if command is None:
        raise RequestError(f"/{name}", expected=f"one of {', '.join('/' + one for one in COMMANDS)}", got="an unknown command")
    console.say(command.run(conversation, _unquoted(argument.strip())))


def _unquoted(argument: str) -> str:
    """Terminals put quotes around files that are dropped on them."""
    if len(argument) > 1 and argument[0] == argument[-1] and argument[0] in "'\"":
        return argument[1:-1]
    return argument


def _needed(usage: str, argument: str) -> str:
    if not argument:
        raise RequestError(usage.split()[0], expected=usage, got="nothing after it")
    return argument
