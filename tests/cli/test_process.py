"""The command line as a process: streaming, Ctrl-C, closed pipes, encodings, quick starts, completion."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest
from goldens import FIXTURES, Golden

import ouzel as package
from ouzel.cli.docs import markdown

TEXT = str(FIXTURES / "qwen3" / "tiny")
ENDLESS = ("run", "--model", TEXT, "Hello", "--ignore-eos", "--max-tokens", "4000")

# No UTF-8 anywhere, and Python may not mend that by itself.
PLAIN_C = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_text_comes_before_the_end_and_ctrl_c_keeps_it(start):
    process = start(*ENDLESS)
    first = b""
    while len(first) < 40:
        first += process.stdout.read(40)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"Traceback" not in err and b"stopped" in err and b"timings:" in err
    text = (first + rest).decode("utf-8")
    assert text.endswith("\n")
    # A character that was not whole when it stopped shows as a replacement.
    said = text[:-1].rstrip("\ufffd")
    assert said and beginning(len(said)) == said


def beginning(length: int) -> str:
    """The first characters of the endless answer."""
    text = ""
    with package.load(TEXT).stream([{"role": "user", "content": "Hello"}], ignore_eos=True, max_tokens=4000) as stream:
        for chunk in stream:
            text += chunk.text
            if len(text) >= length:
                break
    return text[:length]


def test_ctrl_c_with_json(start):
    process = start(*ENDLESS, "--json", "--engine", "reference")
    while b"model:" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    # The signal may come before the answer begins; then there is no answer to print.
    assert out == b"" or json.loads(out)["finish_reason"] == "cancelled"


def test_a_closed_pipe_is_no_error(start):
    process = start(*ENDLESS)
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.wait(timeout=300) == 141
    err = process.stderr.read()
    assert b"Traceback" not in err and b"rror" not in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a Linux device that is always full")
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize(("where", "code"), [(">&-", 141), ("> /dev/full", 1)], ids=["closed", "full"])
def test_a_stdout_that_takes_nothing(options, where, code):
    words = [sys.executable, "-m", "ouzel", "run", "-m", str(TEXT), "-q", "-n", "2", *options, "hi"]
    found = subprocess.run(["sh", "-c", f"{shlex.join(words)} {where}"], stderr=subprocess.PIPE, check=False, timeout=300)
    assert found.returncode == code, found.stderr
    assert b"Traceback" not in found.stderr and b"bug" not in found.stderr
    assert found.stderr.count(b"\n") == (1 if code == 1 else 0)


def test_stop_strings_are_text_whatever_the_locale(start):
    words = ["run", "-m", str(TEXT), "-q", "-n", "30", "--ignore-eos", "hi"]
    whole = start(*words).communicate(timeout=300)[0].decode("utf-8")
    stop = next(char for char in whole if char.isalpha() and not char.isascii())
    cut, err = start(*words, "--stop", stop.encode(), env=PLAIN_C).communicate(timeout=300)
    assert cut.decode("utf-8") == whole.partition(stop)[0] + "\n", err


@pytest.mark.parametrize("environment", [PLAIN_C, {"PYTHONIOENCODING": "ascii"}, {}], ids=["LANG=C", "ascii", "own"])
def test_utf8_everywhere(start, environment):
    golden = Golden("qwen3_vl", "tiny", "golden", "zh_image")
    image, question = golden.messages()[0]["content"]
    words = ["run", "-m", str(golden.checkpoint_path), "-i", image["image"], question["text"].encode(), "--special"]
    process = start(*words, "--ignore-eos", "-n", "32", env=environment)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert out.decode("utf-8") == golden.data()["text"] + "\n"


def test_utf8_of_json_stdin_and_paths(start, tmp_path):
    folder = tmp_path / "modèle-模型"
    folder.symlink_to(TEXT)
    process = start("run", "-m", os.fsencode(folder), "-", "--json", "-n", "2", env=PLAIN_C, stdin=subprocess.PIPE)
    out, err = process.communicate("Grüße, 世界".encode(), timeout=300)
    assert process.returncode == 0, err
    wanted = package.load(TEXT).prepare([{"role": "user", "content": "Grüße, 世界"}])
    assert json.loads(out)["prompt_ids"] == list(wanted.ids)


def test_start_is_light():
    """--help and --version load neither NumPy nor what is behind it."""
    code = (
        "import sys, ouzel.cli.main\n"
        "heavy = {'numpy', 'tokenizers', 'jinja2', 'PIL', 'safetensors', 'huggingface_hub', 'ouzel.model', 'ouzel._native'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True).stdout
    assert out.strip() == "[]"


def test_version(start):
    out, _ = start("--version").communicate(timeout=300)
    assert out.decode().split() == ["ouzel", package.__version__]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_scripts(start, shell):
    process = start(env={"_OUZEL_COMPLETE": f"source_{shell}"})
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0 and b"_OUZEL_COMPLETE" in out, err


def test_completion_of_commands_and_options(start):
    for words, wanted in (("ouzel ru", "run"), ("ouzel run --think", "--think"), ("ouzel run --engine ref", "reference")):
        env = {"_OUZEL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        out, err = start(env=env).communicate(timeout=300)
        assert wanted in out.decode().split(), (words, out, err)


@pytest.mark.parametrize("words", [[], ["--help"], ["run", "-h"], ["chat", "--help"], ["inspect", "--help"]])
def test_help(ouzel, words):
    found = ouzel(*words)
    # Without a command, newer versions of typer show the help as a usage error.
    assert found.code in ((0,) if words else (0, 2))
    assert "Usage" in found.out + found.err and "Examples" in found.out + found.err


def test_no_colour_and_no_motion(ouzel):
    found = ouzel("run", "--help", NO_COLOR="1", FORCE_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", found.out)


def test_page_of_the_command_line_is_current():
    page = FIXTURES.parents[2] / "docs" / "cli.md"
    assert page.read_text(encoding="utf-8") == markdown(), "run `python -m ouzel.cli.docs > docs/cli.md`"


def test_families(ouzel):
    found = ouzel("families")
    rows = [line.split(maxsplit=1) for line in found.out.splitlines()[2:]]
    from ouzel.models.registry import family_names

    assert [row[0] for row in rows] == list(family_names())
    assert all(len(row) == 2 and len(row[1]) > 10 for row in rows)


def test_environment(ouzel):
    from ouzel import env

    found = ouzel("env", OUZEL_THREADS="3", OUZEL_OFFLINE="")
    for row in env.table():
        assert row["name"] in found.out and row["help"] in found.out and row["default"] in found.out
    assert "OUZEL_THREADS  ('3')" in found.out
