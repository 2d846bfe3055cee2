"""The page: one file, and a real browser shows it in light and dark, on a desk and on a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goldens import FIXTURES
from mutants import MUTATIONS
from ouzel.verify.page import as_html
from ouzel.verify.report import Report
from ouzel.verify.run import Request, verify

VL = FIXTURES / "qwen3_vl"
VOID = {"meta", "br", "line", "circle", "rect", "path", "polyline"}


@pytest.fixture(scope="module")
def report() -> Report:
    """A case that holds beside one that does not, with text to mark."""
    with pytest.MonkeyPatch.context() as patch:
        MUTATIONS[0].apply(patch)
        return verify(Request(str(VL / "tiny"), golden=VL / "golden", cases=("two_images",)))


class Nesting(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_one_file_without_anything_from_outside(report: Report) -> None:
    page = as_html(report)
    assert not re.search(r"https?:|src=|@import|url\(|<script|<link|<img", page)
    parser = Nesting()
    parser.feed(page)
    assert parser.open == [] and {"svg", "table", "polyline", "path", "mark", "details"} <= parser.seen
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page
    for words in (
        "A gate fails",
        "Error by stage",
        "Margins over the answer",
        "Worst stage: text.layers.2",
        "Environment and hashes",
        "first difference",
    ):
        assert words in page
    assert len(page) < 400_000


def test_text_of_a_model_is_no_markup(report: Report) -> None:
    from dataclasses import replace

    case = report.cases[0]
    assert case.function is not None
    hostile = replace(case.function, found_text="<script>alert(1)</script>", wanted_text="<b>")
    page = as_html(replace(report, title="<i>x", cases=(replace(case, function=hostile),)))
    assert "<script" not in page and "<i>x" not in page and "&lt;" in page


def chromium() -> str:
    found = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
    assert found is not None, "the test needs a chromium (Debian: apt-get install chromium); scripts/test installs it"
    return found


def shot(page: Path, target: Path, width: int, height: int, dark: bool) -> np.ndarray:
    """The page as a picture, [height, width, 3]."""
    command = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={target.parent / 'profile'}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"--window-size={width},{height}", f"--screenshot={target}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    with Image.open(target) as picture:
        return np.array(picture.convert("RGB"))


@pytest.mark.parametrize(
    ("width", "dark"),
    [(1200, False), (1200, True), (390, False), (390, True)],
    ids=["desk_light", "desk_dark", "phone_light", "phone_dark"],
)
def test_in_a_browser(report: Report, tmp_path: Path, width: int, dark: bool) -> None:
    page = tmp_path / "page.html"
    page.write_text(as_html(report), encoding="utf-8")
    # A second copy wider by one unbreakable line would scroll sideways; the page itself must not: the strip at the right is paper.
    pixels = shot(page, tmp_path / "shot.png", width, 2200, dark)
    paper = np.array([20, 23, 27] if dark else [255, 255, 255])
    assert np.array_equal(pixels[5, 5], paper)
    ink = np.abs(pixels.astype(int) - paper).max(axis=2) > 60
    assert 0.005 < ink.mean() < 0.5
    assert not ink[:, -6:].any(), "something reaches over the right edge"
    # Charts are there in the page's own colours.
    blue = np.array([126, 176, 255] if dark else [36, 99, 197])
    assert (np.abs(pixels.astype(int) - blue).max(axis=2) < 12).sum() > 100
