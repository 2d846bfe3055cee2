"""Trains the embedded reader on one core, on synthetic pictures, until a time is over.

    python training/train_reader.py --minutes 110 --out reader-run
    python training/train_reader.py --minutes 60 --out reader-run --resume-from src/ouzel/embedded/reader

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
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

import reader_data as data
import reader_export as export
from reader_fonts import split_faces
from reader_model import Linear, Reader
from reader_text import LineMaker, load_words


@dataclass(frozen=True)
class Stage:
    """What is drawn: line counts (repeated for weight) and the longest line; `until` is its latest end in the run.

    `whole` is the least share of whole steps (picture and text). The last stage has many, and full lines: following long
    lines one after another is learnt last.
    """

    until: float
    counts: tuple[int, ...]
    longest: int
    whole: float = 0.0


CURRICULUM = (
    Stage(0.22, (1,), 9),
    Stage(0.36, (1, 1, 1, 2), 16),
    Stage(0.52, (1, 1, 1, 2, 2, 3), 24),
    Stage(0.82, (1, 1, 1, 2, 2, 3, 4), 28),
    Stage(9.99, (1, 1, 2, 2, 3, 3, 4, 4), 28, 0.85),
)


@dataclass
class Pace:
    """Where the run stands: it goes on to harder pictures when the network is ready, and by the clock at the latest.

    `ease` is the variety of fonts, colours and noise (0 plain .. 1 everything); `stage` indexes CURRICULUM; `cells` and
    `text` are running shares of right cell characters and answer tokens. `heads_only` counts the steps that still train
    nothing but the throw-away heads: taken up from a checkpoint folder, they are new, and would upset what is learnt.
    """

    ease: float = 0.0
    stage: int = 0
    cells: float = 0.0
    text: float = 0.0
    heads_only: int = 0

    def language(self, rng: random.Random) -> bool:
        """Whether the next step also trains the text. It costs three times a picture step and needs readable cells."""
        if self.heads_only:
            return False
        share = max(CURRICULUM[self.stage].whole, 0.5 if self.cells < 0.85 else 0.75)
        return self.cells > 0.5 and rng.random() < share

    def update(self, cells: float, text: float | None, progress: float) -> None:
        if self.heads_only:
            self.heads_only -= 1
            return
        self.cells += 0.02 * (cells - self.cells)
        if text is not None:
            self.text += 0.02 * (text - self.text)
        if self.cells > 0.72:
            self.ease += 0.0007
        self.ease = min(1.0, max(self.ease, (progress - 0.15) / 0.4))
        ready = self.text > min(0.85, self.cells - 0.02)  # the text keeps up with what the tower sees
        if self.stage + 1 < len(CURRICULUM) and (ready or progress > CURRICULUM[self.stage].until):
            self.stage, self.text = self.stage + 1, 0.0


def draw_batch(painter: data.Painter, stage: Stage, budget: int) -> data.Batch:
    """A batch whose picture and text tokens together come to about `budget`."""
    rng = painter.rng
    count = rng.choice(stage.counts)
    longest = rng.randint(max(3, stage.longest // 2), stage.longest)
    width, height = data.canvas(rng, count, longest, painter.ease)
    cost = width * height // 256 + width * height // 1024 + count * longest + 30
    samples = [painter.sample(width, height, count, longest, 1 + longest // 2) for _ in range(max(4, budget // cost))]
    question = "" if rng.random() < 0.5 else rng.choice(data.QUESTIONS)
    return data.make_batch(samples, question, rng.random() < 0.85)


def losses(model: Reader, batch: data.Batch, language: bool, heads_only: bool = False):
    """(total, text loss, cell loss, share of right answer tokens, share of right cell characters)."""
    if language:
        logits, tokens, patches = model(batch)
        at = batch.pictures.stop
        flat, want = logits[:, at:].flatten(0, 1), batch.targets[:, at:].flatten()
        text_loss = F.cross_entropy(flat, want, ignore_index=-100)
        kept = want >= 0
        text_right = (flat.argmax(-1) == want)[kept].float().mean().item()
    else:
        tokens, _, patches = model.encode(batch.patches, *batch.grid)
        text_loss, text_right = torch.zeros(()), 0.0
    if heads_only:
        tokens, patches = tokens.detach(), patches.detach()
    cells, parts = model.head_logits(tokens, patches)
    want = batch.aux.flatten()
    cell_loss = F.cross_entropy(cells, want, ignore_index=-100)
    patch_loss = F.cross_entropy(parts, batch.patch_aux.flatten(), ignore_index=-100)
    kept = want > 0
    cell_right = (cells.argmax(-1) == want)[kept].float().mean().item()
    return text_loss + cell_loss + patch_loss, text_loss.item(), cell_loss.item(), text_right, cell_right


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


def save(folder: Path, model: Reader, average: Reader, optimizer, step: int, progress: float, pace: Pace) -> None:
    """Training state and the averaged weights as a checkpoint folder, each under its final name only when complete."""
    state = {"model": model.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict(),
             "step": step, "progress": progress, "pace": asdict(pace)}
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
        columns = {k: [r[k] for r in self.rows if k in r] for row in self.rows for k in row}
        means = {k: round(sum(v) / len(v), 4) for k, v in columns.items()}
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
    model, step, first, pace = Reader(), 0, 0.0, Pace()
    optimizer = optimizer_for(model, args.rate)
    average = copy.deepcopy(model)
    if args.resume_from and args.resume_from.suffix == ".pt":
        state = torch.load(args.resume_from, weights_only=True)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        step, first = state["step"], state["progress"]
        pace = Pace(**state["pace"])
    elif args.resume_from:
        export.read_folder(args.resume_from, model)
        average.load_state_dict(model.state_dict())
        pace = Pace(1.0, len(CURRICULUM) - 1, 0.8, heads_only=400)
    train_faces, _ = split_faces(args.out / "faces.json")
    rng = random.Random(args.seed * 7919 + step)
    painter = data.Painter(rng, train_faces, LineMaker(rng, load_words(evaluation=False)))
    run(args, model, average, optimizer, painter, step, first, pace)


def run(args, model, average, optimizer, painter, step: int, first: float, pace: Pace) -> None:
    """Steps until the time is over; a stopped process loses only the time that it was stopped."""
    log, begin, saved = Log(args.out / "log.jsonl"), time.time(), time.time()
    progress, asked = first, []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(True))  # kill -USR1 saves at once
    while progress < 1.0:
        progress = first + (1 - first) * (time.time() - begin) / (args.minutes * 60)
        language, t0 = pace.language(painter.rng), time.perf_counter()
        painter.ease = pace.ease
        batch = draw_batch(painter, CURRICULUM[pace.stage], args.budget)
        t1 = time.perf_counter()
        rate = learning_rate(args.rate, step, progress)
        for group in optimizer.param_groups:
            group["lr"] = rate
        total, text_loss, cell_loss, text_right, cell_right = losses(model, batch, language, pace.heads_only > 0)
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimizer.step()
        model.level_filters()
        follow(average, model, step)
        pace.update(cell_right, text_right if language else None, progress)
        spoken = {"text_loss": text_loss, "text_right": text_right} if language else {}
        log.add(spoken | {"cell_loss": cell_loss, "cell_right": cell_right, "norm": norm,
                 "samples": len(batch.texts), "draw_s": t1 - t0, "step_s": time.perf_counter() - t0})
        step += 1
        if step % 50 == 0:
            log.flush(step=step, ease=round(pace.ease, 3), stage=pace.stage, progress=round(progress, 4), rate=round(rate, 6))
        if asked or time.time() - saved > args.save_minutes * 60:
            save(args.out, model, average, optimizer, step, progress, pace)
            saved = time.time()
            asked.clear()
    save(args.out, model, average, optimizer, step, progress, pace)


if __name__ == "__main__":
    main()
