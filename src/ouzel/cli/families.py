"""`ouzel families`: what can be loaded."""

from __future__ import annotations

from importlib import import_module

from ouzel.cli import console
from ouzel.cli.failure import guard


def families() -> None:
    """Lists the model families that can be loaded."""
    with guard():
        from ouzel.models.registry import family_names

        rows = [[name, summary(name)] for name in family_names()]
        console.print_table([("model_type", "left"), ("models", "left")], rows)


def summary(name: str) -> str:
    """What the family's own module says about it in its first line."""
    module = import_module(f"ouzel.models.{name}.family")
    return (module.__doc__ or "").strip().split("\n")[0].rstrip(".")
