"""`ouzel env`: the switches of the environment and their values now."""

from __future__ import annotations

import os

from ouzel import env
from ouzel.cli import console
from ouzel.cli.failure import guard


def environment() -> None:
    """Lists the environment variables that Ouzel reads, with their values now."""
    with guard():
        blocks = []
        for row in env.table():
            now = os.environ.get(row["name"])
            value = "not set" if now is None else f"{now!r}"
            blocks.append(f"{row['name']}  ({value})\n  {row['help']}\n  {row['type']}; default: {row['default']}\n")
        console.write("\n".join(blocks))
