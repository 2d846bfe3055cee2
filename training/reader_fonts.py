"""The free fonts that the reader is trained and evaluated on, taken from installed Debian packages.

A font is used when it draws all of printable ASCII, with small letters that are not capitals in disguise.
Families in HELD_OUT (and their near copies) are never shown in training.
"""

from __future__ import annotations

import functools
import json
import string
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageFont

PRINTABLE = string.ascii_letters + string.digits + string.punctuation

FONT_FOLDERS = ("/usr/share/fonts", "/usr/share/texmf/fonts", "/usr/local/share/fonts")

HELD_OUT = (
    "Clear Sans", "Vollkorn", "JetBrains Mono", "Karla", "Karmilla", "PT Sans", "PT Serif", "Oxygen",
    "Oxygen-Sans", "B612", "Cantarell", "Courier Prime", "Quattrocento", "Sora", "Go",
)
"""Beginnings of family names kept for evaluation: sans, serif and monospaced. Karmilla is a copy of Karla."""

UNSUITABLE = (
    "Initials", "Outline", "Ornament", "Symbol", "Dingbat", "Chancery", "Chorus", "Script", "Hand", "Stencil",
    "Blackletter", "Barcode", "Braille", "Math", "Upright Italic", "Cuneiform", "Phonetic", "Swash",
    "FreeMono Bold Oblique", "Noto Sans Symbols", "Webdings", "Wingdings", "Marlett", "Smallcaps", "Caps",
    "D050000L", "Z003", "Penguin Attack", "StayPuft", "Delphine", "Junkyard", "Domestic Manners", "femkeklaver", "Breip",
    "Monoisome", "Klaudia", "Cupola", "Lemonada",
    "OpenDyslexic", "IBM 3270", "Keyfont", "Purisa", "Humor Sans", "OCR", "Yanone", "eurofurence", "monofur", "unifur",
    "okolaks", "Solothurn", "Essays1743", "Beteckna", "Dunhill", "Caliban", "Penguin", "osifont", "Irianis", "Compagnon",
    "Half Italic", "Narrow Half", "Quotation", "Jura", "Mekanus", "Berenika", "Agave",
)
"""Words in a font's name that mark decorative or non-text faces."""


@dataclass(frozen=True)
class Face:
    """One usable font file: `advance` is the mean width of a character in units of the font size."""

    path: str
    family: str
    style: str
    advance: float

    @property
    def held_out(self) -> bool:
        return any(self.family == name or self.family.startswith(name + " ") for name in HELD_OUT)


@functools.lru_cache(maxsize=2048)
def load_font(path: str, size: int) -> ImageFont.FreeTypeFont:
    """The font at a whole pixel size, with simple layout (kerning, no shaping)."""
    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


def find_faces() -> list[Face]:
    """All usable faces on this machine, one per family and style, in a fixed order."""
    found: dict[tuple[str, str], Face] = {}
    for folder in FONT_FOLDERS:
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix.lower() not in (".ttf", ".otf"):
                continue
            face = _examine(str(path))
            if face is not None:
                found.setdefault((face.family, face.style), face)
    return [found[key] for key in sorted(found)]


def _examine(path: str) -> Face | None:
    try:
        font = ImageFont.truetype(path, 32, layout_engine=ImageFont.Layout.BASIC)
        family, style = (part or "" for part in font.getname())
        if any(word.lower() in f"{family} {style}".lower() for word in UNSUITABLE):
            return None
        if not _draws_ascii(font):
            return None
    except (OSError, ValueError):  # unreadable or broken file
        return None
    sample = "the quick brown fox 0123456789 Jumps Over"
    advance = font.getlength(sample) / len(sample) / 32
    return Face(path, family, style, advance) if 0.25 < advance < 0.75 else None


def _draws_ascii(font: ImageFont.FreeTypeFont) -> bool:
    missing = _shape(font, "\uffff")
    shapes = {c: _shape(font, c) for c in PRINTABLE}
    if any(s is None or (missing is not None and np.array_equal(s, missing)) for s in shapes.values()):
        return False
    if font.getlength(" ") <= 0:
        return False
    # Small capitals (or capitals only) cannot be read back as small letters.
    return sum(_alike(shapes[c], shapes[c.upper()]) for c in "abdeghnqrt") < 2


def _shape(font: ImageFont.FreeTypeFont, text: str) -> np.ndarray | None:
    mask = font.getmask(text, mode="L")
    if mask.size[0] == 0 or mask.size[1] == 0:
        return None
    pixels = np.asarray(Image.frombytes("L", mask.size, bytes(mask)))
    rows, columns = np.flatnonzero(pixels.max(1)), np.flatnonzero(pixels.max(0))
    if len(rows) == 0:
        return None
    return pixels[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1]


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    small = [np.asarray(Image.fromarray(x).resize((16, 16), Image.Resampling.BILINEAR), np.float32) for x in (a, b)]
    return float(np.abs(small[0] - small[1]).mean()) < 16.0


def split_faces(cache: Path | None = None) -> tuple[list[Face], list[Face]]:
    """(training faces, held-out faces); `cache` is a file that spares looking through all fonts again."""
    if cache is not None and cache.exists():
        faces = [Face(**row) for row in json.loads(cache.read_text(encoding="utf-8"))]
    else:
        faces = find_faces()
    if cache is not None and not cache.exists():
        cache.write_text(json.dumps([asdict(face) for face in faces]), encoding="utf-8")
    return [f for f in faces if not f.held_out], [f for f in faces if f.held_out]


if __name__ == "__main__":
    for title, faces in zip(("training", "held out"), split_faces()):
        families = sorted({face.family for face in faces})
        print(f"{title}: {len(families)} families, {len(faces)} faces")
        print("  " + ", ".join(families))
