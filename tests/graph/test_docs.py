"""A stale page fails."""

from __future__ import annotations

from pathlib import Path

from ouzel.graph.docs import page


def test_operations_page_is_current() -> None:
    path = Path(__file__).parents[2] / "docs" / "operations.md"
    assert path.read_text("utf-8") == page(), "run: python -m ouzel.graph.docs > docs/operations.md"
