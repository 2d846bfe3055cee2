"""Imports go one way (docs/architecture.md), torch stays out, kernels know no graph."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ouzel"

LAYERS = {
    "errors": 0,
    "env": 1,
    "_native": 1,
    "checkpoint": 2,
    "graph": 2,
    "weights": 3,
    "text": 3,
    "processors": 3,
    "models": 4,
    "engines": 4,
    "generation": 5,
    "packed": 5,
    "settings": 6,
    "model": 7,
    "verify": 8,
    "conversion": 8,
    "cli": 9,
}
"""A module may import its own folder and lower layers. Models and engines share a layer and never meet."""

TOP = {"__init__", "__main__"}


def imports(path: Path) -> Iterator[str]:
    """Absolute names of the modules that a file imports, at any depth; names of type checking only too."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
                base = ".".join(parts[: len(parts) - node.level])
                yield f"{base}.{node.module}" if node.module else base
            else:
                yield node.module or ""
                if node.module == "ouzel":
                    yield from (f"ouzel.{alias.name}" for alias in node.names)


FILES = sorted(path for path in PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows(path: Path) -> None:
    own = part_of(path)
    if own in TOP:
        return
    assert own in LAYERS, f"{own} has no layer"
    for name in imports(path):
        banned = ("torchvision",) if own == "verify" else ("torch", "torchvision", "transformers")
        assert name.split(".")[0] not in banned, f"{path} imports {name}"
        if not name.startswith("ouzel."):
            continue
        other = name.split(".")[1]
        if other in LAYERS and other != own:
            assert LAYERS[other] < LAYERS[own], f"{own} imports {other}"


@pytest.mark.parametrize("path", [p for p in FILES if part_of(p) == "verify"], ids=lambda path: path.name)
def test_verify_imports_torch_only_when_called(path: Path) -> None:
    top = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [alias.name for node in top if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in top if isinstance(node, ast.ImportFrom)]
    assert not {name.split(".")[0] for name in names} & {"torch", "transformers"}


def test_families_do_not_leak() -> None:
    """Shared code never asks for a family's name."""
    from ouzel.models.registry import family_names

    names = re.compile("|".join(f"[\"']{name}[\"']" for name in family_names()))
    shared = [p for p in FILES if part_of(p) in ("graph", "engines", "generation", "weights", "checkpoint", "text", "cli")]
    # The one table that says which family an architecture's word in a GGUF file means.
    shared.remove(ROOT / "src" / "ouzel" / "checkpoint" / "gguf_config.py")
    assert [str(p) for p in shared if names.search(p.read_text("utf-8"))] == []


def test_kernels_know_no_graph_and_start_no_threads() -> None:
    banned = re.compile(r'#include\s*[<"](?:runtime/|thread|future|nanobind|Python\.h|.*thread_pool)')
    for path in (ROOT / "native" / "kernels").rglob("*"):
        if path.suffix in (".h", ".cc", ".inc"):
            assert not banned.search(path.read_text("utf-8")), path


def test_importing_the_package_is_light() -> None:
    """`import ouzel` brings no heavy package; the whole API brings neither torch nor transformers."""
    code = "import sys, ouzel; print(sorted(set(sys.modules) & {'numpy','PIL','tokenizers','torch'})); "
    code += "ouzel.load; import ouzel.cli.main; print(sorted(set(sys.modules) & {'torch','transformers','torchvision'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["[]", "[]"]
