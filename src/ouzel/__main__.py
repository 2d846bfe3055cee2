"""`python -m ouzel` is the command line."""

from __future__ import annotations

from ouzel.cli.main import main

if __name__ == "__main__":
    main()
