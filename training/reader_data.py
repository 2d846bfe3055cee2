"""Synthetic pictures of printed lines, as training batches of one picture size.

A picture is drawn on a canvas whose sides are multiples of 32 pixels, so the processor leaves its size alone; blur from
real resizing is imitated. For every 32-pixel cell the batch also holds the characters whose centres lie in it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFilter

import reader_config as rc
from reader_fonts import Face, load_font
from reader_model import AUX_SLOTS, PATCH_SLOTS
from reader_text import LineMaker

QUESTIONS = [
    "Read the text.", "Read the text.", "Read the text in the picture.", "What does it say?", "What is written here?",
    "Transcribe this.", "OCR", "Read this picture.", "What is the text?", "read", "Text?",
]


@dataclass
class Sample:
    """One drawn picture: pixels uint8 [height, width, 3], its lines, and (x, y, character) of every centre."""

    pixels: np.ndarray
    lines: list[str]
    centres: list[tuple[float, float, str]]


@dataclass
class Batch:
    patches: torch.Tensor  # [samples, rows*columns, 3*16*16], processor order, one temporal slot
    grid: tuple[int, int]  # patch rows, patch columns
    ids: torch.Tensor  # [samples, tokens], without the last answer token
    positions: torch.Tensor  # [3, tokens]
    pictures: slice  # the picture tokens inside ids
    targets: torch.Tensor  # [samples, tokens]: next id, -100 where no answer is wanted
    aux: torch.Tensor  # [samples, cells, slots]: ASCII codes, 0 none, -100 not asked
    patch_aux: torch.Tensor  # [samples, patches, slots]: the same for patches
    texts: list[str]


def to_patches(pixels: np.ndarray) -> np.ndarray:
    """uint8 [n, height, width, 3] -> float32 [n, patches, 3*16*16] as the checkpoint's processor orders and scales them."""
    n, height, width, _ = pixels.shape
    x = (pixels.astype(np.float32) / 255.0 - 0.5) / 0.5
    p, m = rc.PATCH, rc.MERGE
    x = x.reshape(n, height // rc.CELL, m, p, width // rc.CELL, m, p, 3)
    return x.transpose(0, 1, 4, 2, 5, 7, 3, 6).reshape(n, -1, 3 * p * p)


def encode_text(text: str) -> list[int]:
    """Byte-level ids of text without control tokens."""
    return list(text.encode("utf-8"))


def prompt_parts(question: str, picture_first: bool = True) -> tuple[list[int], list[int]]:
    """Ids before and after the picture's pad tokens, as the chat template writes them."""
    before, after = [rc.IM_START] + encode_text("user\n"), []
    words = encode_text(question)
    (after if picture_first else before).extend(words)
    before = before + [rc.VISION_START]
    after = [rc.VISION_END] + after + [rc.IM_END] + encode_text("\n")
    return before, after + [rc.IM_START] + encode_text("assistant\n")


def position_ids(before: int, rows: int, columns: int, after: int) -> torch.Tensor:
    """[3, tokens] for one picture of rows x columns tokens between two runs of text."""
    head = torch.arange(before).expand(3, -1)
    r, c = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)
    picture = torch.stack((torch.zeros_like(r), r, c)) + before
    tail = torch.arange(after).expand(3, -1) + before + max(rows, columns)
    return torch.cat((head, picture, tail), dim=1)


PLAIN_FAMILIES = ("DejaVu Sans", "Liberation Sans", "Liberation Serif", "Open Sans", "Noto Serif", "Lato", "DejaVu Sans Mono")


class Painter:
    """Draws random lines in random faces.

    `ease` runs from 0 (a few plain fonts, black on white, nothing else) to 1 (everything); training starts low, because
    from scratch the full variety gives almost no gradient at first.
    """

    def __init__(self, rng: random.Random, faces: list[Face], lines: LineMaker):
        self.rng, self.faces, self.lines = rng, faces, lines
        self.noise = np.random.default_rng(rng.randrange(2**32))
        families: dict[str, list[Face]] = {}
        for face in faces:
            families.setdefault(face.family, []).append(face)
        names = sorted(families, key=lambda name: (name not in PLAIN_FAMILIES, rng.random()))
        self.families = [families[name] for name in names]
        self.ease = 1.0
        self.clean = False  # black on white whatever the ease

    def sample(self, width: int, height: int, count: int, longest: int, shortest: int = 1, texts=None) -> Sample:
        """A picture of width x height pixels (multiples of 32) with `count` lines of at most `longest` characters."""
        rng = self.rng
        known = max(min(len(PLAIN_FAMILIES), len(self.families)), int(len(self.families) * self.ease))
        face = rng.choice(rng.choice(self.families[:known]))
        texts = texts or [self.lines.line(longest, shortest) for _ in range(count)]
        pitch_most = min(40.0, (height - 2) / count)
        font = self._fit(face, texts, width, pitch_most)
        ascent, descent = font.getmetrics()
        pitch = rng.uniform(min(font.size * 1.12, pitch_most), pitch_most)
        block = pitch * (count - 1) + (ascent + descent)
        room = max(0.0, height - block)
        top = (height - block) / 2 + self.ease * rng.uniform(-room / 2, room / 2)
        aligned = rng.random()
        slack = [max(0.0, width - 4 - font.getlength(t)) for t in texts]
        left = rng.uniform(0, min(slack)) * rng.random()
        mask = Image.new("L", (width, height), 0)
        draw = ImageDraw.Draw(mask)
        centres = []
        for i, (text, room) in enumerate(zip(texts, slack)):
            x = 2 + (left if aligned < 0.7 else room / 2 if aligned < 0.85 else rng.uniform(0, room))
            y = top + i * pitch
            draw.text((x, y), text, fill=255, font=font)
            centres += self._centres(font, text, x, y + ascent * 0.62)
        return Sample(self._colour(mask), list(texts), centres)

    def _fit(self, face: Face, texts: list[str], width: int, pitch: float):
        """A size at which a character is about 12-17 pixels wide and every line fits."""
        wanted = (14.5 + self._spread(-2.3, 2.5)) / face.advance
        size = int(min(wanted, pitch / 1.12))
        size = max(size, 10)
        while size > 8:
            font = load_font(face.path, size)
            if max(font.getlength(t) for t in texts) <= width - 4:
                break
            size -= 1
        return load_font(face.path, size)

    def _spread(self, low: float, high: float) -> float:
        """A random number in low..high, narrowed around zero while the pictures are easy."""
        return self.rng.uniform(low, high) * max(0.15, self.ease)

    @staticmethod
    def _centres(font, text: str, x: float, y: float) -> list[tuple[float, float, str]]:
        edges = [font.getlength(text[:i]) for i in range(len(text) + 1)]
        return [(x + (a + b) / 2, y, c) for a, b, c in zip(edges, edges[1:], text)]

    def _colour(self, mask: Image.Image) -> np.ndarray:
        rng, noise = self.rng, self.noise
        ease = 0.0 if self.clean else self.ease
        if rng.random() < 0.4 * ease:
            mask = mask.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 0.75)))
        if rng.random() < 0.2 * ease:  # seen through a resize
            scale = rng.uniform(0.8, 1.5)
            small = mask.resize((int(mask.width * scale), int(mask.height * scale)), Image.Resampling.BILINEAR)
            mask = small.resize(mask.size, Image.Resampling.BICUBIC)
        ink, paper = self._pair()
        cover = np.asarray(mask, np.float32)[:, :, None] / 255.0
        if rng.random() < 0.2 * ease:  # uneven light
            height, width = cover.shape[:2]
            slope = np.linspace(0, rng.uniform(-20, 20), width)[None, :] + np.linspace(0, rng.uniform(-20, 20), height)[:, None]
            paper = paper + slope[:, :, None].astype(np.float32)
        picture = paper * (1 - cover) + ink * cover
        if rng.random() < 0.45 * ease:
            strength = rng.uniform(1, 6)
            shape = picture.shape[:2] + ((1,) if rng.random() < 0.5 else (3,))
            picture = picture + noise.standard_normal(shape, dtype=np.float32) * strength
        return np.clip(np.rint(picture), 0, 255).astype(np.uint8)

    def _pair(self) -> tuple[np.ndarray, np.ndarray]:
        """(ink, paper) colours, float32 [3]: dark on light, grey or tinted, and the other way round one time in seven."""
        rng = self.rng
        if self.clean or rng.random() > self.ease:
            return np.zeros(3, np.float32), np.full(3, 255, np.float32)
        if rng.random() < 0.5:
            dark, light = [rng.uniform(0, 70)] * 3, [rng.uniform(200, 255)] * 3
        else:
            dark, light = [rng.uniform(0, 110) for _ in range(3)], [rng.uniform(180, 255) for _ in range(3)]
        pair = (dark, light) if rng.random() < 0.86 else (light, dark)
        return np.array(pair[0], np.float32), np.array(pair[1], np.float32)


def character_labels(sample: Sample, side: int, slots: int) -> np.ndarray:
    """int64 [rows, columns, slots]: characters whose centre lies in each square of `side` pixels, left to right.

    0 fills free slots; crowded squares are -100 throughout.
    """
    rows, columns = sample.pixels.shape[0] // side, sample.pixels.shape[1] // side
    labels, filled = np.zeros((rows, columns, slots), np.int64), np.zeros((rows, columns), np.int64)
    for x, y, c in sample.centres:
        row, column = int(y // side), int(x // side)
        if not (0 <= row < rows and 0 <= column < columns):
            continue
        if filled[row, column] < slots:
            labels[row, column, filled[row, column]] = ord(c)
        filled[row, column] += 1
    labels[filled > slots] = -100
    return labels


def aux_labels(sample: Sample) -> np.ndarray:
    """Labels of the picture tokens, [cells, slots]."""
    return character_labels(sample, rc.CELL, AUX_SLOTS).reshape(-1, AUX_SLOTS)


def patch_labels(sample: Sample) -> np.ndarray:
    """Labels of the patches in the processor's order, [patches, slots]."""
    labels = character_labels(sample, rc.PATCH, PATCH_SLOTS)
    rows, columns = labels.shape[:2]
    blocks = labels.reshape(rows // 2, 2, columns // 2, 2, PATCH_SLOTS).transpose(0, 2, 1, 3, 4)
    return blocks.reshape(-1, PATCH_SLOTS)


def make_batch(samples: list[Sample], question: str, picture_first: bool) -> Batch:
    """Joins pictures of one size under one question."""
    pixels = np.stack([s.pixels for s in samples])
    rows, columns = pixels.shape[1] // rc.CELL, pixels.shape[2] // rc.CELL
    before, after = prompt_parts(question, picture_first)
    texts = ["\n".join(s.lines) for s in samples]
    answers = [encode_text(t) + [rc.IM_END] for t in texts]
    longest = max(map(len, answers))
    start = len(before) + rows * columns + len(after)
    ids = torch.full((len(samples), start + longest - 1), rc.END_OF_TEXT)
    targets = torch.full_like(ids, -100)
    ids[:, :start] = torch.tensor(before + [rc.IMAGE_PAD] * (rows * columns) + after)
    for i, answer in enumerate(answers):
        ids[i, start:start + len(answer) - 1] = torch.tensor(answer[:-1])
        targets[i, start - 1:start - 1 + len(answer)] = torch.tensor(answer)
    positions = position_ids(len(before), rows, columns, len(after) + longest - 1)
    return Batch(
        patches=torch.from_numpy(to_patches(pixels)), grid=(rows * rc.MERGE, columns * rc.MERGE), ids=ids,
        positions=positions, pictures=slice(len(before), len(before) + rows * columns), targets=targets,
        aux=torch.from_numpy(np.stack([aux_labels(s) for s in samples])),
        patch_aux=torch.from_numpy(np.stack([patch_labels(s) for s in samples])), texts=texts)


def canvas(rng: random.Random, count: int, longest: int, ease: float = 1.0) -> tuple[int, int]:
    """(width, height) for `count` lines of up to `longest` characters, within the processor's limits."""
    columns = max(2, -(-int(longest * rng.uniform(13.0, 16.5) + 12) // rc.CELL))
    rows = count + (rng.random() < 0.65 * ease)
    columns = min(columns + (rng.random() < 0.2), 15, rc.MAX_PIXELS // rc.CELL**2 // rows)
    while rows * columns < rc.MIN_PIXELS // rc.CELL**2:
        columns += 1
    return columns * rc.CELL, rows * rc.CELL
