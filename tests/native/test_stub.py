"""`_native.pyi` says what the built module has: names, arguments, plain types and defaults."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import ouzel
from ouzel import _native

STUB = next(path for folder in ouzel.__path__ if (path := Path(folder, "_native.pyi")).exists())
PLAIN = {"int", "float", "bool", "str", "None"}


def stub_functions() -> dict[str, ast.FunctionDef]:
    found: dict[str, ast.FunctionDef] = {}
    for node in ast.parse(STUB.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{f.name}": f for f in node.body if isinstance(f, ast.FunctionDef)}
    return found


FUNCTIONS = stub_functions()


def built(name: str) -> Any:
    part: Any = _native
    for word in name.split("."):
        part = getattr(part, word)
    return part.fget if isinstance(part, property) else part


def signature(name: str) -> ast.FunctionDef:
    """What nanobind knows of the built function, whose defaults stand as \\0, \\1, ... in the text."""
    ((text, _, defaults),) = built(name).__nb_signature__
    for i, default in enumerate(defaults or ()):
        text = text.replace(f"\\{i}", repr(default))
    # Shapes and orders of arrays are not Python.
    text = re.sub(r"ndarray\[[^]]*\]", "ndarray", text).replace("def (", "def _(")
    node = ast.parse(f"{text}: ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def test_the_stub_names_everything() -> None:
    public = {name for name in vars(_native) if not name.startswith("__")}
    names = {name.split(".")[0] for name in FUNCTIONS}
    assert public == names
    for name in public:
        if isinstance(getattr(_native, name), type):
            members = {m for m in vars(getattr(_native, name)) if not m.startswith("__")} | {"__init__"}
            assert members == {key.split(".")[1] for key in FUNCTIONS if key.startswith(f"{name}.")}


def plain(annotation: ast.expr | None) -> str | None:
    text = "None" if annotation is None else ast.unparse(annotation)
    return text if text in PLAIN else None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments(name: str) -> None:
    said, is_built = FUNCTIONS[name], signature(name)
    for a, b in zip(said.args.args, is_built.args.args, strict=True):
        assert a.arg == b.arg or "self" in (a.arg, b.arg)
        if a.annotation is not None and b.annotation is not None:
            assert plain(a.annotation) == plain(b.annotation), a.arg
    assert [ast.unparse(d) for d in said.args.defaults] == [ast.unparse(d) for d in is_built.args.defaults]
    assert plain(said.returns) == plain(is_built.returns)
