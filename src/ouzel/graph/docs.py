"""The page docs/operations.md, made from the operation table: `python -m ouzel.graph.docs`."""

from __future__ import annotations

from ouzel.graph.ops import OPS, Op

_HEAD = """# Operations

Made from `src/ouzel/graph/ops.py` by `python -m ouzel.graph.docs`; do not edit.

Every activation is `[rows, width]` float32; indices are int32. A weight matrix is `[out, in]`. Operands that end in "?" may be left out.
The exact meaning is the function of the same name in `src/ouzel/engines/reference/ops.py` (attention: `attention.py` beside it).

| operation | inputs | weights | attributes | meaning |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    return _HEAD + "".join(_row(op) for op in OPS.values())


def _row(op: Op) -> str:
    attributes = [f"{name}: {attr.kind.__name__}" + ("" if attr.default is None else f" = {attr.default}") for name, attr in op.attrs.items()]
    cells = (f"`{op.name}`", ", ".join(op.inputs), ", ".join(op.weights), ", ".join(attributes), op.doc)
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    print(page(), end="")
