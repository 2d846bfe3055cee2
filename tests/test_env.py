"""Environment switches: typed, read when used, refused by name, and documented by a generated page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ouzel import env
from ouzel.errors import RequestError

PAGE = Path(__file__).parents[1] / "docs" / "env.md"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for row in env.table():
        monkeypatch.delenv(row["name"], raising=False)


def test_defaults():
    assert env.get("OUZEL_ISA") is None
    assert env.get("OUZEL_THREADS") is None
    assert env.get("OUZEL_MAX_IMAGE_PIXELS") == 178_956_970
    assert env.get("OUZEL_OFFLINE") is False
    assert env.get("NO_COLOR") is False
    assert isinstance(env.get("OUZEL_CACHE"), Path)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("OUZEL_ISA", "avx2", "avx2"),
        ("OUZEL_ISA", " AVX512 ", "avx512"),
        ("OUZEL_THREADS", "3", 3),
        ("OUZEL_MAX_IMAGE_PIXELS", "1000000", 1_000_000),
        ("OUZEL_OFFLINE", "1", True),
        ("OUZEL_OFFLINE", "Yes", True),
        ("OUZEL_OFFLINE", "0", False),
        ("OUZEL_OFFLINE", "", False),
        ("NO_COLOR", "0", True),
        ("NO_COLOR", "", False),
        ("OUZEL_CACHE", "/somewhere/else", Path("/somewhere/else")),
    ],
)
def test_values(monkeypatch, name, text, value):
    monkeypatch.setenv(name, text)
    assert env.get(name) == value


def test_values_are_read_when_used(monkeypatch):
    monkeypatch.setenv("OUZEL_THREADS", "2")
    assert env.get("OUZEL_THREADS") == 2
    monkeypatch.setenv("OUZEL_THREADS", "5")
    assert env.get("OUZEL_THREADS") == 5


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("OUZEL_ISA", "avx3"),
        ("OUZEL_ISA", ""),
        ("OUZEL_THREADS", "0"),
        ("OUZEL_THREADS", "-1"),
        ("OUZEL_THREADS", "two"),
        ("OUZEL_THREADS", "1_0"),
        ("OUZEL_THREADS", "2.0"),
        ("OUZEL_THREADS", "\u0662"),
        ("OUZEL_THREADS", "9" * 5000),
        ("OUZEL_MAX_IMAGE_PIXELS", "1e6"),
        ("OUZEL_OFFLINE", "maybe"),
        ("OUZEL_CACHE", "  "),
    ],
)
def test_bad_values_name_the_variable_and_what_was_expected(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(RequestError) as caught:
        env.get(name)
    message = str(caught.value)
    kind = next(row["type"] for row in env.table() if row["name"] == name)
    assert name in message and f"expected {kind}" in message and "got '" in message
    assert len(message) < 400 and "\n" not in message


def test_a_name_without_a_row_is_our_mistake():
    with pytest.raises(KeyError):
        env.get("OUZEL_NO_SUCH_SWITCH")


@pytest.mark.parametrize(
    ("system", "variables", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x/cache"}, "/x/cache/ouzel"),
        # The XDG specification says that a relative path is to be ignored.
        ("linux", {"XDG_CACHE_HOME": "relative"}, "HOME/.cache/ouzel"),
        ("linux", {}, "HOME/.cache/ouzel"),
        ("darwin", {}, "HOME/Library/Caches/ouzel"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/ouzel/Cache"),
        ("win32", {}, "HOME/AppData/Local/ouzel/Cache"),
    ],
)
def test_cache_folder_of_each_system(monkeypatch, system, variables, folder):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(Path, "home", staticmethod(lambda: Path("HOME")))
    assert env.default_cache() == Path(folder)


def test_the_page_is_what_the_module_prints():
    done = subprocess.run([sys.executable, "-m", "ouzel.env"], capture_output=True, check=True)
    printed = done.stdout.decode("utf-8").replace("\r\n", "\n")
    assert PAGE.read_text(encoding="utf-8") == printed, "run: python -m ouzel.env > docs/env.md"


def test_every_row_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    for row in env.table():
        assert f"`{row['name']}`" in page and row["help"] in page
