"""Draws the pictures in examples/: plain print in fonts that the reader was never trained on.

    python training/draw_examples.py

The texts and fonts were chosen among several of which
the committed weights read about half without an error; they show what reading right looks like, not how often it
happens (docs/reader.md says that). The sides are no multiples of 32, so the pictures also pass the processor's resize.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from reader_fonts import Face, load_font, split_faces

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Example:
    name: str
    family: str
    style: str
    lines: tuple[str, ...]
    size: tuple[int, int]
    font_size: int
    ink: tuple[int, int, int] = (20, 20, 24)
    paper: tuple[int, int, int] = (250, 249, 245)
    noise: float = 0.0


EXAMPLES = (
    Example("receipt.png", "B612", "Regular", ("Market 12:40", "Apples 1 kg 3.20", "Total EUR 8.75"), (340, 124), 25,
            noise=2.0),
    Example("label.png", "PT Serif", "Bold", ("River Street 27", "20457 Hamburg"), (330, 92), 28,
            ink=(24, 40, 96), paper=(214, 230, 242)),
    Example("sign.png", "Clear Sans", "Regular", ("Platform 9 is closed",), (350, 60), 28,
            ink=(255, 255, 255), paper=(16, 92, 60)),
)


def draw(example: Example, faces: list[Face]) -> Image.Image:
    face = next(f for f in faces if (f.family, f.style) == (example.family, example.style))
    font = load_font(face.path, example.font_size)
    picture = Image.new("RGB", example.size, example.paper)
    canvas = ImageDraw.Draw(picture)
    pitch = example.size[1] / len(example.lines)
    for i, line in enumerate(example.lines):
        canvas.text((14, (i + 0.5) * pitch), line, fill=example.ink, font=font, anchor="lm")
    if example.noise:
        rng = np.random.default_rng(7)
        grain = rng.normal(0, example.noise, (*picture.size[::-1], 1))
        picture = Image.fromarray(np.clip(np.asarray(picture) + grain, 0, 255).astype(np.uint8))
    return picture


def main() -> None:
    folder = ROOT / "examples"
    folder.mkdir(exist_ok=True)
    held_out = split_faces()[1]
    for example in EXAMPLES:
        draw(example, held_out).save(folder / example.name)
        print(folder / example.name, *example.lines, sep="\n  ")


if __name__ == "__main__":
    main()
