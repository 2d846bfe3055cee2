"""The embedded reader: a tiny `qwen3_vl` checkpoint that comes with the package and reads printed text."""

from __future__ import annotations

from pathlib import Path

READER = Path(__file__).resolve().parent / "reader"
"""The checkpoint folder, in Hugging Face layout. docs/reader.md says what it reads and how well."""
