"""Trains the embedded reader on one core, on synthetic pictures, until a time is over.

    python training/train_reader.py --minutes 110 --out /tmp/reader
    python training/train_reader.py --minutes 60 --out /tmp/reader --resume-from src/ouzel/embedded/reader

While training, a throw-away linear head on every picture token names the characters that stand in its 32 pixels; this
gives the vision tower a direct signal long before the language model can use it. See training/README.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

import reader_data as data
import reader_export as export
from reader_fonts import split_faces
from reader_model import AUX_CLASSES, Linear, Reader
from reader_text import LineMaker, load_words


@dataclass(frozen=True)
class Stage:
    """What is drawn up to a share of the run: line counts with weights, longest line, and whether text is learnt."""

    until: float
    counts: tuple[int, ...]
    longest: int
    language: bool = True


CURRICULUM = (
    Stage(0.03, (1,), 12, language=False),
    Stage(0.11, (1,), 9),
    Stage(0.22, (1, 1, 1, 2), 16),
    Stage(0.40, (1, 1, 1, 2, 2, 3), 24),
    Stage(1.01, (1, 1, 1, 2, 2, 3, 4), 28),
)


def stage_at(progress: float) -> Stage:
    return next(s for s in CURRICULUM if progress < s.until)


class Ease:
    """How varied the pictures are: raised while the cell head is right often enough, and by the clock at the latest."""

    def __init__(self, value: float = 0.0):
        self.value, self.right = value, 0.0

    def update(self, cell_right: float, progress: float) -> None:
        self.right += 0.02 * (cell_right - self.right)
        if self.right > 0.72:
            self.value += 0.0007
        self.value = min(1.0, max(self.value, (progress - 0.12) / 0.25))


def draw_batch(painter: data.Painter, stage: Stage, budget: int) -> data.Batch:
    """A batch whose picture and text tokens together come to about `budget`."""
    rng = painter.rng
    count = rng.choice(stage.counts)
    longest = rng.randint(max(3, stage.longest // 2), stage.longest)
    width, height = data.canvas(rng, count, longest, painter.ease)
    cost = width * height // 256 + width * height // 1024 + count * longest + 30
    samples = [painter.sample(width, height, count, longest, 1 + longest // 4) for _ in range(max(4, budget // cost))]
    question = "" if rng.random() < 0.5 else rng.choice(data.QUESTIONS)
    return data.make_batch(samples, question, rng.random() < 0.85)


def losses(model: Reader, batch: data.Batch, language: bool):
    """(total, text loss, cell loss, share of right answer tokens, share of right cell characters)."""
    if language:
        logits, tokens = model(batch)
        at = batch.pictures.stop
        flat, want = logits[:, at:].flatten(0, 1), batch.targets[:, at:].flatten()
        text_loss = F.cross_entropy(flat, want, ignore_index=-100)
        kept = want >= 0
        text_right = (flat.argmax(-1) == want)[kept].float().mean().item()
    else:
        tokens, _ = model.encode(batch.patches, *batch.grid)
        text_loss, text_right = torch.zeros(()), 0.0
    cells = model.aux_logits(tokens).reshape(-1, AUX_CLASSES)
    want = batch.aux.flatten()
    cell_loss = F.cross_entropy(cells, want, ignore_index=-100)
    kept = want > 0
    cell_right = (cells.argmax(-1) == want)[kept].float().mean().item()
    return text_loss + cell_loss, text_loss.item(), cell_loss.item(), text_right, cell_right


def optimizer_for(model: Reader, rate: float) -> torch.optim.AdamW:
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), eps=1e-8)


def learning_rate(peak: float, step: int, progress: float) -> float:
    """Warm-up over 200 steps, then a half cosine down to 2 % at the end of the run."""
    return peak * min(1.0, (step + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))))


@torch.no_grad()
def follow(average: Reader, model: Reader, step: int) -> None:
    """Moves the running average of the weights."""
    keep = min(0.999, (step + 1) / (step + 20))
    for a, b in zip(average.parameters(), model.parameters()):
        a.lerp_(b, 1 - keep)


def save(folder: Path, model: Reader, average: Reader, optimizer, step: int, progress: float) -> None:
    """Training state and the averaged weights as a checkpoint folder, each under its final name only when complete."""
    state = {"model": model.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict(),
             "step": step, "progress": progress}
    torch.save(state, folder / "state.pt.new")
    os.replace(folder / "state.pt.new", folder / "state.pt")
    export.write_folder(folder / "export", average)


class Log:
    """Mean of the last steps, one JSON line at a time."""

    def __init__(self, path: Path):
        self.path, self.rows, self.start = path, [], time.time()

    def add(self, row: dict[str, float]) -> None:
        self.rows.append(row)

    def flush(self, **more) -> None:
        means = {k: round(sum(r[k] for r in self.rows) / len(self.rows), 4) for k in self.rows[0]}
        line = {**more, "seconds": round(time.time() - self.start), **means}
        self.rows = []
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--minutes", type=float, required=True, help="wall-clock length of the whole run")
    p.add_argument("--out", type=Path, required=True, help="folder for state, log and exported checkpoint")
    p.add_argument("--resume-from", type=Path, help="checkpoint folder (fresh optimizer) or state.pt (everything)")
    p.add_argument("--from-progress", type=float, default=None, help="start the curriculum and cosine at this share")
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--budget", type=int, default=2600, help="picture and text tokens a batch")
    p.add_argument("--bf16", action="store_true", help="round the operands of matrix products to bfloat16")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--save-minutes", type=float, default=8)
    return p.parse_args()


def main() -> None:
    args = parse()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    Linear.half = args.bf16
    args.out.mkdir(parents=True, exist_ok=True)
    model, step, first = Reader(), 0, 0.0
    optimizer = optimizer_for(model, args.rate)
    average = copy.deepcopy(model)
    if args.resume_from and args.resume_from.suffix == ".pt":
        state = torch.load(args.resume_from, weights_only=True)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        step, first = state["step"], state["progress"]
    elif args.resume_from:
        export.read_folder(args.resume_from, model)
        average.load_state_dict(model.state_dict())
        first = CURRICULUM[-2].until
    if args.from_progress is not None:
        first = args.from_progress
    train_faces, _ = split_faces()
    rng = random.Random(args.seed * 7919 + step)
    painter = data.Painter(rng, train_faces, LineMaker(rng, load_words(evaluation=False)))
    run(args, model, average, optimizer, painter, step, first)


def run(args, model, average, optimizer, painter, step: int, first: float) -> None:
    """Steps until the time is over; a stopped process loses only the time that it was stopped."""
    log, begin, saved = Log(args.out / "log.jsonl"), time.time(), time.time()
    progress, ease = first, Ease(1.0 if first > 0.3 else 0.0)
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))  # kill -USR1 saves at once
    while progress < 1.0:
        progress = first + (1 - first) * (time.time() - begin) / (args.minutes * 60)
        stage, t0 = stage_at(min(progress, 1.0)), time.perf_counter()
        painter.ease = ease.value
        batch = draw_batch(painter, stage, args.budget)
        t1 = time.perf_counter()
        rate = learning_rate(args.rate, step, progress)
        for group in optimizer.param_groups:
            group["lr"] = rate
        total, text_loss, cell_loss, text_right, cell_right = losses(model, batch, stage.language)
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        follow(average, model, step)
        ease.update(cell_right, progress)
        log.add({"text_loss": text_loss, "cell_loss": cell_loss, "text_right": text_right, "cell_right": cell_right,
                 "norm": norm, "samples": len(batch.texts), "draw_s": t1 - t0, "step_s": time.perf_counter() - t0})
        step += 1
        if step % 50 == 0:
            log.flush(step=step, ease=round(ease.value, 3), progress=round(progress, 4), rate=round(rate, 6))
        if asked or time.time() - saved > args.save_minutes * 60:
            save(args.out, model, average, optimizer, step, progress)
            saved = time.time()
            asked.clear()
    save(args.out, model, average, optimizer, step, progress)


if __name__ == "__main__":
    main()
