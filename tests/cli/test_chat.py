"""`ouzel chat`: history, pictures, commands, pipes, and Ctrl-C on a terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from goldens import FIXTURES, model_of

from ouzel.cli import slash
from ouzel.cli.conversation import Conversation

TEXT = FIXTURES / "qwen3" / "tiny"
VL = FIXTURES / "qwen3_vl" / "tiny"
IMAGES = FIXTURES / "qwen3_vl" / "golden" / "images"


def talk(ouzel, tmp_path: Path, lines: list[str], *options, model: Path = TEXT):
    """Sends lines to a chat and gives what came of it, with the messages as /save wrote them."""
    path = tmp_path / "saved.json"
    text = "\n".join([*lines, f"/save {path}", ""])
    found = ouzel("chat", "-m", model, "-n", "8", *options, input=text.encode())
    assert found.code == 0, found.err
    messages = json.loads(path.read_text("utf-8"))["messages"]
    return found, messages


def answers(model: Path, questions: list[dict], **settings) -> list[dict]:
    """The same conversation through the Python API."""
    messages: list[dict] = []
    for question in questions:
        messages.append(question)
        if question["role"] == "user":
            said = model_of(model, "native").chat(messages, max_tokens=8, **settings).text
            messages.append({"role": "assistant", "content": said})
    return messages


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def test_history(ouzel, tmp_path):
    found, messages = talk(ouzel, tmp_path, ["Hello there", "And 你好?"])
    wanted = answers(TEXT, [user("Hello there"), user("And 你好?")])
    assert messages == wanted
    said = [message["content"] for message in wanted if message["role"] == "assistant"]
    assert found.out == "".join(text if text.endswith("\n") else text + "\n" for text in said)


def test_a_second_turn_uses_the_cache(ouzel, tmp_path):
    found, _ = talk(ouzel, tmp_path, ["Hello " * 60, "And?"])
    first, second = [line for line in found.err.splitlines() if line.startswith("timings:")]
    assert "cached" not in first
    assert int(re.search(r"(\d+) cached", second)[1]) >= 64


def test_options_hold_for_every_turn(ouzel, tmp_path):
    options = ["--system", "Be kind.", "--temperature", "0.9", "--seed", "5", "--no-think", "--stop", "e"]
    _, messages = talk(ouzel, tmp_path, ["Hello there", "And?"], *options)
    questions = [{"role": "system", "content": "Be kind."}, user("Hello there"), user("And?")]
    assert messages == answers(TEXT, questions, temperature=0.9, seed=5, think=False, stop=["e"])


def test_pictures(ouzel, tmp_path):
    for number in range(4):
        (tmp_path / f"v4_{number}.png").write_bytes((IMAGES / f"v4_{number}.png").read_bytes())
    small = IMAGES / "small.png"
    lines = [f'/image "{small}"', f"/video {tmp_path} 2", "What is here?", "And now?"]
    found, messages = talk(ouzel, tmp_path, lines, "--image", IMAGES / "landscape.png", model=VL)
    parts = [
        {"type": "image", "image": str(IMAGES / "landscape.png")},
        {"type": "image", "image": str(small)},
        {"type": "video", "video": str(tmp_path), "fps": 2.0},
        {"type": "text", "text": "What is here?"},
    ]
    assert messages == answers(VL, [{"role": "user", "content": parts}, user("And now?")])
    assert "4 frames" in found.err and "71x35" in found.err


def test_undo_clear_and_system(ouzel, tmp_path):
    _, messages = talk(ouzel, tmp_path, ["One", "Two", "/undo"])
    assert messages == answers(TEXT, [user("One")])
    _, messages = talk(ouzel, tmp_path, ["One", "/clear", "/system Be brief.", "Two"])
    assert messages == answers(TEXT, [{"role": "system", "content": "Be brief."}, user("Two")])
    found, messages = talk(ouzel, tmp_path, ["/undo", "/system", "One"])
    assert "nothing to undo" in found.err and "no system message" in found.err
    assert messages == answers(TEXT, [user("One")])


def test_save_and_load(ouzel, tmp_path):
    first = tmp_path / "first.json"
    talk(ouzel, tmp_path, ["/system Be kind.", f"/image {IMAGES / 'small.png'}", "One", f"/save {first}"], model=VL)
    _, whole = talk(ouzel, tmp_path, ["/system Be kind.", f"/image {IMAGES / 'small.png'}", "One", "Two"], model=VL)
    _, again = talk(ouzel, tmp_path, ["Something else", f"/load {first}", "Two"], model=VL)
    assert again == whole
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_mistakes_leave_the_conversation_as_it_was(ouzel, tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"messages": [{"role": "nobody", "content": "x"}]}', encoding="utf-8")
    lines = [
        "One", "/nonsense", "/image", "/image /no/such.png", "/image -", "/video /no/such", f"/load {bad}", "/load /no/such.json",
        "/save /no/such/folder/x.json", "/save", "word " * 50000, "Two",
    ]  # fmt: skip
    found, messages = talk(ouzel, tmp_path, lines)
    assert messages == answers(TEXT, [user("One"), user("Two")])
    errors = [line for line in found.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == len(lines) - 2 and "Traceback" not in found.err
    assert "messages[0].role" in found.err and "context" in found.err


def test_a_picture_that_vanishes_is_taken_back(ouzel, tmp_path, monkeypatch):
    path = tmp_path / "gone.png"
    path.write_bytes((IMAGES / "small.png").read_bytes())
    attach = slash.attach_image

    def attach_and_remove(conversation, source):
        told = attach(conversation, source)
        path.unlink()
        return told

    monkeypatch.setattr(slash, "attach_image", attach_and_remove)
    found, messages = talk(ouzel, tmp_path, [f"/image {path}", "What?", "Hello"], model=VL)
    assert "gone.png" in found.err and messages == answers(VL, [user("Hello")])


def test_lines(ouzel, tmp_path):
    _, messages = talk(ouzel, tmp_path, ["", "two\\", "lines", "//slash", "/etc/hosts is a file"])
    assert [message["content"] for message in messages if message["role"] == "user"] == [
        "two\nlines", "/slash", "/etc/hosts is a file",
    ]  # fmt: skip


def test_help_and_quit(ouzel):
    found = ouzel("chat", "-m", TEXT, input=b"/help\n/quit\nnever asked\n")
    assert found.code == 0 and found.out == ""
    assert all(command.usage in found.err for command in slash.COMMANDS.values())


def test_quiet(ouzel):
    found = ouzel("chat", "-m", TEXT, "-n", "4", "--quiet", input=b"Hello")
    assert found.code == 0 and found.err == "" and found.out.endswith("\n")


def test_stdin_is_the_conversation(ouzel):
    found = ouzel("chat", "-m", VL, "--image", "-", input=b"Hello\n")
    assert found.code == 2 and "stdin" in found.err and found.out == ""


def test_through_a_pipe_of_another_process(start):
    process = start("chat", "-m", str(TEXT), "-n", "6", stdin=-1, env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    process.stdin.write("Grüße\n".encode())
    process.stdin.flush()
    # The answer comes while the pipe is still open.
    wanted = answers_text("Grüße", 6).encode()
    found = b""
    while len(found) < len(wanted):
        found += process.stdout.read(len(wanted))
    out, err = process.communicate(timeout=300)
    assert (found + out).rstrip(b"\n") == wanted.rstrip(b"\n")
    assert process.returncode == 0 and b"Traceback" not in err


def answers_text(question: str, count: int) -> str:
    return model_of(TEXT, "native").chat([user(question)], max_tokens=count).text


def test_taking_back_keeps_answers():
    conversation = Conversation("kind")
    conversation.ask("One")
    conversation.answer("1")
    conversation.take_back()
    assert len(conversation.turns) == 2
    conversation.ask("Two")
    conversation.take_back()
    assert [message["content"] for message in conversation.messages()] == ["kind", "One", "1"]


class Terminal:
    """A chat on a terminal of its own."""

    def __init__(self, *options: str) -> None:
        import pty

        self.pid, self.file = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "dumb"
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execv(sys.executable, [sys.executable, "-m", "ouzel", "chat", "-m", str(TEXT), *options])
        self.seen = ""

    def wait_for(self, pattern: str, seconds: float = 200) -> None:
        """Reads until the pattern has come; what came before it is forgotten."""
        import select

        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            left = end - time.monotonic()
            assert left > 0 and select.select([self.file], [], [], left)[0], self.seen
            self.seen += os.read(self.file, 65536).decode("utf-8", "replace")
        self.seen = self.seen[found.end() :]

    def press_until(self, key: str, pattern: str) -> None:
        """Presses again while nothing comes: between showing the prompt and waiting for keys, readline misses a signal."""
        for _ in range(10):
            self.type(key)
            try:
                return self.wait_for(pattern, 5)
            except AssertionError:
                continue
        self.wait_for(pattern, 0)

    def type(self, text: str) -> None:
        os.write(self.file, text.encode("utf-8"))

    def end(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.skipif(os.name != "posix", reason="terminals of this kind are made by POSIX systems only")
def test_ctrl_c_stops_the_answer_and_keeps_the_chat():
    terminal = Terminal("--ignore-eos", "-n", "4000")
    try:
        terminal.wait_for("> ")
        terminal.type("Hello\n")
        terminal.wait_for(r"Hello\r\n[^\r]{20}")
        terminal.type("\x03")
        terminal.wait_for("timings:")
        terminal.wait_for("> ")
        terminal.press_until("\x03", "/quit ends")  # at the prompt it only says how to leave
        terminal.wait_for("> ")
        terminal.type("/undo\n")
        terminal.wait_for("are gone")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert terminal.end() == 0
    except BaseException:
        os.kill(terminal.pid, signal.SIGKILL)
        raise
    finally:
        os.close(terminal.file)
