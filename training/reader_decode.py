"""Greedy decoding with the training network, for evaluation while no engine is at hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import reader_config as rc
import reader_data as data
from reader_model import Reader


@torch.no_grad()
def read_pictures(model: Reader, patches: torch.Tensor, grid: tuple[int, int], question: str = "Read the text.",
                  picture_first: bool = True, most: int = 130) -> list[str]:
    """The answers to one question about pictures of one size; patches as in `reader_data.Batch`."""
    language = model.model.language_model
    rows, columns = grid[0] // rc.MERGE, grid[1] // rc.MERGE
    before, after = data.prompt_parts(question, picture_first)
    tokens, deep, _ = model.encode(patches, *grid)
    count = len(patches)
    embed = language.embed_tokens
    x = torch.cat((embed(torch.tensor(before)).expand(count, -1, -1), tokens,
                   embed(torch.tensor(after)).expand(count, -1, -1)), dim=1)
    at = slice(len(before), len(before) + rows * columns)
    positions = data.position_ids(len(before), rows, columns, len(after) + most)
    caches = [[] for _ in language.layers]
    start = x.shape[1]
    logits = language(x, positions[:, :start], at, deep, caches)
    answers, done = [[] for _ in range(count)], torch.zeros(count, dtype=torch.bool)
    for step in range(most):
        best = logits[:, -1].argmax(-1)
        for i, token in enumerate(best.tolist()):
            if not done[i] and token not in (rc.IM_END, rc.END_OF_TEXT):
                answers[i].append(token)
        done |= (best == rc.IM_END) | (best == rc.END_OF_TEXT)
        if bool(done.all()):
            break
        here = positions[:, start + step:start + step + 1]
        logits = language(embed(best)[:, None], here, caches=caches)
    return [bytes(t for t in a if t < 256).decode("utf-8", "replace") for a in answers]


def input_size(width: int, height: int) -> tuple[int, int]:
    """The processor's (width, height) for a picture: multiples of 32 inside the two pixel limits."""
    side = rc.CELL
    w, h = round(width / side) * side, round(height / side) * side
    if w * h > rc.MAX_PIXELS:
        shrink = math.sqrt(width * height / rc.MAX_PIXELS)
        return tuple(max(side, math.floor(n / shrink / side) * side) for n in (width, height))
    if w * h < rc.MIN_PIXELS:
        grow = math.sqrt(rc.MIN_PIXELS / (width * height))
        return tuple(math.ceil(n * grow / side) * side for n in (width, height))
    return w, h


def read_file(model: Reader, path: Path, question: str = "Read the text.", picture_first: bool = True) -> str:
    """The answer to one question about one picture file (opaque RGB), resized with Pillow's bicubic filter."""
    picture = Image.open(path).convert("RGB")
    picture = picture.resize(input_size(*picture.size), Image.Resampling.BICUBIC)
    pixels = np.asarray(picture)[None]
    grid = (pixels.shape[1] // rc.PATCH, pixels.shape[2] // rc.PATCH)
    return read_pictures(model, torch.from_numpy(data.to_patches(pixels)), grid, question, picture_first)[0]
