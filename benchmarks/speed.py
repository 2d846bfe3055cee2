"""Load, prefill, decode, encode and memory of random checkpoints with real sizes, beside the machine's own limits.

    python -m benchmarks.speed [qwen3-0.6b] [qwen3-vl-2b] [--weights bf16] [--threads N] [--json FILE]

Each model runs in a process of its own, so that peak memory is its own. The limits (read bandwidth, float32 multiply-add
peak) are measured in the same process. Every figure is the median of five after one warm-up; the spread is shown.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.checkpoints import CONFIGS, checkpoint
from benchmarks.limits import cache_bytes, work

PROMPT, DECODE = 512, 64
IMAGE = (544, 800)


def median(action: Callable[[], float], repeats: int) -> dict[str, float]:
    """Median, least and largest seconds of `action`, which returns the seconds it took."""
    action()
    found = sorted(action() for _ in range(repeats))
    return {"seconds": statistics.median(found), "least": found[0], "largest": found[-1]}


def machine(threads: int, isa: str) -> dict[str, Any]:
    """The machine and its limits, measured now."""
    from ouzel import _native

    flops, read = (max(pair) for pair in zip(*(_native.peaks(threads, isa) for _ in range(3))))
    return {"processor": _processor(), "threads": threads, "isa": isa, "peak_gflops": flops / 1e9, "read_gbs": read / 1e9}


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def peak_memory() -> float:
    """Peak resident megabytes of this process, mapped weights that were touched included (Linux)."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def measure(name: str, weights: str, threads: int | None, repeats: int) -> dict[str, Any]:
    """All figures of one checkpoint."""
    from ouzel import load

    folder = checkpoint(name)
    start = time.perf_counter()
    model = load(folder, weights=weights, threads=threads)
    row: dict[str, Any] = {"model": name, "weights": weights, "load_seconds": time.perf_counter() - start}
    engine: Any = model.engine
    row |= machine(engine.threads, engine.isa)
    row["weight_mb"] = model.weights.total_bytes() / 2**20
    row["prefill"] = _prefill(model, row, repeats)
    row["decode"] = _decode(model, row, repeats)
    if model.family.vision_graph() is not None:
        row["encode"] = _encode(model, row, repeats)
    row["peak_memory_mb"] = peak_memory()
    return row


def _ids(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 151643, count).tolist()


def _prefill(model: Any, row: dict[str, Any], repeats: int) -> dict[str, float]:
    seeds = iter(range(1, 100))

    def once() -> float:
        return model.generate(_ids(PROMPT, next(seeds)), max_tokens=1, ignore_eos=True).timings.prefill

    found = median(once, repeats)
    cost = work(
        model.family.text_graph(), model.weights, {"tokens": PROMPT, "logits": 1, "visual": 0}, PROMPT * (PROMPT + 1) / 2
    )
    found["tokens_per_second"] = PROMPT / found["seconds"]
    found["share_of_peak"] = cost.flop / found["seconds"] / row["peak_gflops"] / 1e9
    return found


def _decode(model: Any, row: dict[str, Any], repeats: int) -> dict[str, float]:
    prompt = _ids(PROMPT, 0)

    def once() -> float:
        timings = model.generate(prompt, max_tokens=DECODE + 1, ignore_eos=True).timings
        return timings.generate / DECODE

    found = median(once, repeats)
    graph = model.family.text_graph()
    cost = work(graph, model.weights, {"tokens": 1, "logits": 1, "visual": 0}, 0)
    read = cost.weight_bytes + cache_bytes(graph, PROMPT + DECODE // 2)
    found["tokens_per_second"] = 1 / found["seconds"]
    found["share_of_bandwidth"] = read / found["seconds"] / row["read_gbs"] / 1e9
    return found


def _encode(model: Any, row: dict[str, Any], repeats: int) -> dict[str, float]:
    rng = np.random.default_rng(0)

    def once() -> float:
        picture = model.family.prepare_image(_loaded(rng.integers(0, 256, (*IMAGE, 3), dtype=np.uint8)), _options())
        start = time.perf_counter()
        model.generator.encode(picture)
        return time.perf_counter() - start

    found = median(once, repeats)
    patches = IMAGE[0] * IMAGE[1] // 256
    cost = work(model.family.vision_graph(), model.weights, {"patches": patches, "merged": patches // 4}, float(patches**2))
    found["patches"] = patches
    found["share_of_peak"] = cost.flop / found["seconds"] / row["peak_gflops"] / 1e9
    return found


def _loaded(rgb: np.ndarray) -> Any:
    from ouzel.processors.image_loader import load_image

    return load_image(rgb)


def _options() -> Any:
    from ouzel.models.family import PictureOptions

    return PictureOptions()


def show(row: dict[str, Any]) -> None:
    """One model's figures for people."""
    print(f"\n{row['model']}, weights {row['weights']} ({row['weight_mb']:.0f} MB)")
    print(f"{row['processor']}, {row['isa']}, {row['threads']} threads")
    print(f"limits: {row['peak_gflops']:.0f} GFLOP/s float32, {row['read_gbs']:.1f} GB/s read")
    print(f"load             {row['load_seconds']:8.3f} s")
    p, d = row["prefill"], row["decode"]
    print(f"prefill {PROMPT}      {p['seconds']:8.3f} s  {p['tokens_per_second']:7.1f} tokens/s  {p['share_of_peak']:6.1%} of peak  {_spread(p)}")
    print(f"decode {DECODE}        {1e3 * d['seconds']:8.2f} ms {d['tokens_per_second']:7.1f} tokens/s  {d['share_of_bandwidth']:6.1%} of read bandwidth  {_spread(d)}")
    if "encode" in row:
        e = row["encode"]
        print(f"encode {IMAGE[1]}x{IMAGE[0]}   {e['seconds']:8.3f} s  {e['patches']:7.0f} patches   {e['share_of_peak']:6.1%} of peak  {_spread(e)}")
    print(f"peak memory      {row['peak_memory_mb']:8.0f} MB")


def _spread(found: dict[str, float]) -> str:
    return f"({found['least'] / found['seconds']:.2f} to {found['largest'] / found['seconds']:.2f} of the median)"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(CONFIGS), help=f"among {', '.join(CONFIGS)}")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="append one JSON line for each model")
    given = parser.parse_args()
    unknown = [name for name in given.models if name not in CONFIGS]
    if unknown:
        parser.error(f"unknown model {unknown[0]}: expected one of {', '.join(CONFIGS)}")
    context = multiprocessing.get_context("spawn")
    for name in given.models:
        with context.Pool(1) as pool:
            row = pool.apply(measure, (name, given.weights, given.threads, given.repeats))
        row["time"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        row["python"] = sys.version.split()[0]
        show(row)
        if given.json is not None:
            with given.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
