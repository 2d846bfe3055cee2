"""Measures the reader on unseen strings in unseen fonts.

    python training/evaluate_reader.py src/ouzel/embedded/reader --json training/evaluation.json

Fonts come from the held-out families, words from the held-out part of the word list. The
pictures are drawn as in training; the second table repeats them in plain black on white. Character accuracy is
1 - edit distance / length over the whole answer; a line is exact when the answer's line at its place is equal to it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
from pathlib import Path

import numpy as np
import torch

import reader_data as data
import reader_export as export
from reader_decode import read_pictures
from reader_fonts import split_faces
from reader_model import Reader
from reader_text import LineMaker, load_words

LENGTHS = (8, 16, 28)
COUNTS = (1, 2, 3, 4)


def edit_distance(a: str, b: str) -> int:
    """Fewest single-character insertions, deletions and replacements from a to b."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]


class Score:
    """Sums over answers."""

    def __init__(self):
        self.errors = self.characters = self.exact = self.lines = 0

    def add(self, wanted: list[str], answer: str) -> None:
        text = "\n".join(wanted)
        self.errors += min(edit_distance(text, answer), len(text))
        self.characters += len(text)
        got = answer.split("\n")
        self.exact += sum(i < len(got) and got[i] == line for i, line in enumerate(wanted))
        self.lines += len(wanted)

    def merge(self, other: "Score") -> None:
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def row(self) -> dict[str, float | int]:
        return {"characters": self.characters, "character_accuracy": round(1 - self.errors / self.characters, 4),
                "lines": self.lines, "exact_lines": round(self.exact / self.lines, 4)}


def samples_for(painter: data.Painter, count: int, length: int, number: int) -> list[data.Sample]:
    """Pictures of one size with `count` lines of length/2 .. length characters."""
    width, height = data.canvas(painter.rng, count, length)
    return [painter.sample(width, height, count, length, max(1, length // 2)) for _ in range(number)]


def read(model: Reader, samples: list[data.Sample], batch: int = 20) -> list[str]:
    answers = []
    for i in range(0, len(samples), batch):
        pixels = np.stack([s.pixels for s in samples[i:i + batch]])
        patches = torch.from_numpy(data.to_patches(pixels))
        grid = (pixels.shape[1] // 16, pixels.shape[2] // 16)
        answers += read_pictures(model, patches, grid)
    return answers


def evaluate(model: Reader, number: int, seed: int, clean: bool, keep: int = 0) -> tuple[dict, list[dict]]:
    """Scores by number of lines and length, and `keep` wrong answers as examples."""
    rng = random.Random(seed)
    faces = split_faces()[1]
    painter = data.Painter(rng, faces, LineMaker(rng, load_words(evaluation=True)))
    painter.clean = clean
    cells, total, wrong = {}, Score(), []
    for count in COUNTS:
        for length in LENGTHS:
            score = Score()
            for _ in range(4):  # four picture sizes
                samples = samples_for(painter, count, length, max(1, number // 4))
                for sample, answer in zip(samples, read(model, samples)):
                    score.add(sample.lines, answer)
                    if answer != "\n".join(sample.lines) and len(wrong) < keep:
                        wrong.append({"wanted": sample.lines, "read": answer.split("\n")})
            cells[f"{count} x {length}"] = score.row()
            total.merge(score)
    return {"all": total.row(), "by_lines_and_length": cells}, wrong


def table(title: str, result: dict) -> str:
    lines = [title, f"{'lines x longest':>16} {'characters':>11} {'exact lines':>12}"]
    for name, row in [*result["by_lines_and_length"].items(), ("all", result["all"])]:
        lines.append(f"{name:>16} {row['character_accuracy']:>10.1%} {row['exact_lines']:>11.1%}")
    return "\n".join(lines)


def load(path: Path) -> Reader:
    """The network of a checkpoint folder, or the averaged weights of a training state file."""
    model = Reader()
    if path.suffix == ".pt":
        model.load_state_dict(torch.load(path, weights_only=True)["average"])
    else:
        export.read_folder(path, model)
    return model.eval()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model", type=Path, help="checkpoint folder or state.pt")
    p.add_argument("--number", type=int, default=40, help="pictures for each number of lines and length")
    p.add_argument("--seed", type=int, default=20_000)
    p.add_argument("--json", type=Path)
    args = p.parse_args()
    torch.set_num_threads(1)
    model = load(args.model)
    result = {"pictures_each": args.number, "seed": args.seed, "held_out_families": sorted({f.family for f in split_faces()[1]})}
    for name, clean in (("varied", False), ("clean", True)):
        scores, wrong = evaluate(model, args.number, args.seed, clean, keep=12)
        result[name] = scores | {"wrong_examples": wrong}
        print(table(f"{name} pictures", scores), flush=True)
    if args.json:
        if args.model.is_dir():
            result["weights_sha256"] = hashlib.sha256((args.model / "model.safetensors").read_bytes()).hexdigest()
        args.json.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
