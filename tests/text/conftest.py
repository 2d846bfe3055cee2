"""Checkpoint folders and tokenizers for the tests of text."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from ouzel.text.prompt import PromptEncoder
from ouzel.text.template_files import load_template
from ouzel.text.tokenizer import Tokenizer

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"


@pytest.fixture(scope="session")
def tiny() -> Tokenizer:
    """The tokenizer of the tiny Qwen3 checkpoint."""
    return Tokenizer.from_folder(FIXTURES / "qwen3" / "tiny")


@pytest.fixture(scope="session")
def encoders() -> dict[str, PromptEncoder]:
    """A prompt encoder for each family's tiny checkpoint."""
    folders = {family: FIXTURES / family / "tiny" for family in ("qwen3", "qwen3_vl")}
    return {family: PromptEncoder(Tokenizer.from_folder(at), load_template(at)) for family, at in folders.items()}


@pytest.fixture(scope="session")
def real() -> Tokenizer:
    """Qwen3's real tokenizer, fetched once with npm into a cache folder and checked by its hash."""
    about = json.loads((FIXTURES / "qwen3/tokenizer_cases.json").read_text(encoding="utf-8"))["tokenizer"]
    cache = Path(os.environ.get("OUZEL_TEST_CACHE") or Path.home() / ".cache" / "ouzel-tests")
    folder = cache / about["sha256"][:16]
    path = folder / "tokenizer.json"
    if not path.is_file() or _sha256(path) != about["sha256"]:
        _fetch(f"{about['npm_package']}@{about['version']}", about["file"], path)
    assert _sha256(path) == about["sha256"], f"{path} is not the tokenizer that the cases were made with"
    return Tokenizer.from_folder(folder)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _fetch(package: str, member: str, target: Path) -> None:
    if os.environ.get("OUZEL_OFFLINE") == "1":
        pytest.skip(f"OUZEL_OFFLINE=1 and {target} is not there")
    npm = shutil.which("npm")
    if npm is None:
        pytest.fail(f"npm is needed to fetch {package} (or OUZEL_OFFLINE=1 to do without these tests)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        command = [npm, "pack", package, "--silent", "--pack-destination", scratch]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False)
        archives = list(Path(scratch).glob("*.tgz"))
        if done.returncode or len(archives) != 1:
            pytest.fail(f"npm pack {package} failed (OUZEL_OFFLINE=1 does without these tests): {done.stderr[-500:]}")
        with tarfile.open(archives[0]) as archive:
            content = archive.extractfile(f"package/{member}")
            assert content is not None
            part = Path(scratch) / "part"
            part.write_bytes(content.read())
        os.replace(part, target)
