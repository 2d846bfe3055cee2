"""Lines of text to draw: words, numbers, codes and mixtures, as on receipts, labels and signs.

Words are split by a hash into training and evaluation words, so that evaluation lines hold words never seen.
Codes leave out characters that many fonts draw alike (I l | O `), since no reader could tell them apart there.
"""

from __future__ import annotations

import random
import string
import zlib
from pathlib import Path

MAX_LINE = 28
WORD_LIST = Path("/usr/share/dict/american-english")  # Debian package wamerican

CODE = "".join(c for c in string.ascii_letters + string.digits if c not in "IlO")
MARKS = "".join(c for c in string.punctuation if c not in "|`")
ENDINGS = [".", ",", "!", "?", ":", ";", "...", ")", '"', "-"]
CURRENCY = ["$", "EUR ", "USD ", "GBP ", "CHF "]
UNITS = [" kg", " g", " ml", " cm", " km", "%", " pcs", " W", " V", " GB", " MHz", "x", " h", " min"]
DAYS = "Mon Tue Wed Thu Fri Sat Sun".split()
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
DOMAINS = ["com", "org", "net", "de", "io", "co.uk", "fr", "eu"]


def load_words(evaluation: bool, path: Path = WORD_LIST) -> list[str]:
    """ASCII words of 1-14 letters; one in sixteen, chosen by hash, belongs to evaluation only."""
    words = []
    for line in path.read_text(encoding="utf-8").split():
        word = line.removesuffix("'s")
        if word.isascii() and word.isalpha() and len(word) <= 14:
            if (zlib.crc32(word.lower().encode()) % 16 == 0) == evaluation:
                words.append(word)
    return sorted(set(words))


class LineMaker:
    """Random lines of a wanted length from one seeded generator."""

    def __init__(self, rng: random.Random, words: list[str]):
        self.rng, self.words = rng, words

    def line(self, longest: int, shortest: int = 1) -> str:
        """A line of shortest..longest characters (at most 28), without outer or double spaces."""
        length = self.rng.randint(shortest, min(longest, MAX_LINE))
        text = ""
        while len(text) < length:
            piece = self._piece()
            text = f"{text} {piece}" if text else piece
        text = text[:length].strip()
        return text or self.rng.choice(CODE)

    def _piece(self) -> str:
        roll = self.rng.random()
        if roll < 0.56:
            return self._word()
        if roll < 0.76:
            return self._number()
        if roll < 0.90:
            return self._code()
        return self._address() if roll < 0.95 else self._marked()

    def _word(self) -> str:
        rng = self.rng
        word = rng.choice(self.words)
        roll = rng.random()
        if roll < 0.25:
            word = word.capitalize()
        elif roll < 0.42:
            word = word.upper()
        if rng.random() < 0.14:
            word += rng.choice(ENDINGS)
        elif rng.random() < 0.05:
            word = rng.choice(["({})", '"{}"', "'{}'", "[{}]", "{}'s", "#{}", "@{}", "*{}*", "-{}", "{}/"]).format(word)
        return word

    def _digits(self, most: int) -> str:
        return "".join(self.rng.choice(string.digits) for _ in range(self.rng.randint(1, most)))

    def _number(self) -> str:
        rng, d = self.rng, self._digits
        return rng.choice([
            lambda: d(6),
            lambda: f"{rng.choice(CURRENCY)}{d(3)}.{rng.randrange(100):02d}",
            lambda: f"{d(3)}.{rng.randrange(100):02d}",
            lambda: f"{d(3)},{rng.randrange(100):02d}",
            lambda: f"{rng.randrange(24):02d}:{rng.randrange(60):02d}",
            lambda: f"{rng.randint(1, 31):02d}.{rng.randint(1, 12):02d}.{rng.randint(1950, 2040)}",
            lambda: f"{rng.randint(1950, 2040)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
            lambda: f"{rng.choice(DAYS)} {rng.randint(1, 31)} {rng.choice(MONTHS)}",
            lambda: f"+{d(2)} {d(3)} {d(7)}",
            lambda: d(4) + rng.choice(UNITS),
            lambda: f"{d(2)}x {d(3)}",
            lambda: f"{d(2)}/{d(2)}",
            lambda: f"{d(2)} {rng.choice('+-=*/<>')} {d(2)}",
            lambda: f"No. {d(5)}",
        ])()

    def _code(self) -> str:
        rng = self.rng
        style = rng.choice([CODE, CODE.upper(), string.ascii_uppercase[:8] + string.digits, CODE.lower()])
        code = "".join(rng.choice(style) for _ in range(rng.randint(2, 9)))
        if rng.random() < 0.35 and len(code) > 3:
            cut = rng.randint(1, len(code) - 1)
            code = code[:cut] + rng.choice("-/_.#:") + code[cut:]
        return code

    def _address(self) -> str:
        rng = self.rng
        name, host, end = (rng.choice(self.words).lower(), rng.choice(self.words).lower(), rng.choice(DOMAINS))
        return rng.choice([f"{name}@{host}.{end}", f"www.{host}.{end}", f"{host}.{end}/{name}", f"https://{host}.{end}"])

    def _marked(self) -> str:
        """A short string with any punctuation."""
        rng = self.rng
        return "".join(rng.choice(MARKS if rng.random() < 0.45 else CODE) for _ in range(rng.randint(2, 7)))
