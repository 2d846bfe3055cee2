"""Promise 3: logits and tokens do not depend on chunks, batches, threads, the cache, or the instruction set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from goldens import FIXTURES, Golden, goldens, relative_error
from ouzel import Model, load
from ouzel.engines.base import CancelToken
from ouzel.engines.registry import engine_names
from ouzel.generation.request import Prompt
from ouzel.generation.runner import TextRunner
from ouzel.settings import split_settings

PICTURE_CASE = next(case for case in goldens() if case.name == "two_images")
TEXT_CASE = next(case for case in goldens() if case.name == "long")
CASES = (PICTURE_CASE, TEXT_CASE)

each_engine = pytest.mark.parametrize("engine", engine_names())
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)

REFERENCE_TOLERANCE = 1e-5
"""NumPy's sums depend on the shapes; rounding alone gives about 1e-6 at this depth."""


class Recorder(TextRunner):
    """Keeps the logits of every step beside running it."""

    def __init__(self, model: Model) -> None:
        super().__init__(model.family, model._executable("text"))
        self.logits: list[np.ndarray] = []

    def run(self, work, blocks: int, cancel: CancelToken | None = None):  # noqa: ANN001, ANN201
        found = super().run(work, blocks, cancel)
        self.logits += [row.copy() for rows in found if rows is not None for row in rows]
        return found


def recorded(case: Golden, engine: str, *, chunk: int = 4096, threads: int | None = None) -> tuple[list[int], np.ndarray]:
    """Greedy ids and the logits of every step, [steps, vocab]."""
    model = load(case.checkpoint_path, engine=engine, chunk=chunk, threads=threads)
    recorder = model.generator._text = Recorder(model)
    result = model.chat(case.messages(), **case.run_settings())
    return list(result.ids), np.array(recorder.logits)


def same(engine: str, found: np.ndarray, wanted: np.ndarray) -> bool:
    """Bit-equal on native, within rounding on the reference."""
    if engine == "reference":
        return relative_error(found, wanted) <= REFERENCE_TOLERANCE
    return np.array_equal(found.view(np.uint32), wanted.view(np.uint32))


@each_engine
@each_case
@pytest.mark.parametrize("chunk", (1, 7, 64))
def test_chunks(case: Golden, engine: str, chunk: int) -> None:
    ids, logits = recorded(case, engine)
    found_ids, found = recorded(case, engine, chunk=chunk)
    assert found_ids == ids and same(engine, found, logits)


@each_case
def test_threads(case: Golden) -> None:
    ids, logits = recorded(case, "native", threads=1)
    for threads in (2, 3):
        found_ids, found = recorded(case, "native", threads=threads)
        assert found_ids == ids and same("native", found, logits)


def batch(model: Model) -> list[Prompt]:
    """Five prompts of different lengths, with no, one and two pictures."""
    cases = [case for case in goldens() if case.checkpoint_path == PICTURE_CASE.checkpoint_path]
    chosen = [case for case in cases if case.name in ("text_only", "image_landscape", "two_images", "zh_image", "video_5")]
    assert len(chosen) == 5
    return [model.prepare(c.messages(), split_settings(c.settings(), model.checkpoint.generation)) for c in chosen]


@each_engine
@pytest.mark.parametrize("chunk", (16, 4096))
def test_batch_equals_singles(engine: str, chunk: int) -> None:
    model = load(PICTURE_CASE.checkpoint_path, engine=engine, chunk=chunk)
    params = split_settings(PICTURE_CASE.run_settings() | {"logprobs": 3}, model.checkpoint.generation).generation
    together = model.run(batch(model), params)
    for prompt, found in zip(batch(model), together):
        fresh = load(PICTURE_CASE.checkpoint_path, engine=engine)
        (single,) = fresh.run([prompt], params)
        assert found.ids == single.ids and found.text == single.text
        pairs = np.array([[p.logprob for p in r.logprobs or ()] for r in (found, single)])
        assert np.array_equal(*pairs) if engine == "native" else np.allclose(*pairs, atol=1e-4)


@each_engine
def test_a_batch_of_ids(engine: str) -> None:
    model = load(TEXT_CASE.checkpoint_path, engine=engine)
    prompts = [[5, 6, 7], [300] * 40, [8], [1, 2, 3, 4, 5, 6, 7, 8, 9], [700, 2]]
    together = model.generate(prompts, max_tokens=9, ignore_eos=True)
    singles = [model.generate(prompt, max_tokens=9, ignore_eos=True) for prompt in prompts]
    assert [r.ids for r in together] == [r.ids for r in singles]


@each_engine
@each_case
def test_stepwise_equals_one_pass(case: Golden, engine: str) -> None:
    """The logits of decoding, step by step, are those of one pass over prompt and answer."""
    ids, logits = recorded(case, engine)
    model = load(case.checkpoint_path, engine=engine)
    first = recorded(case, engine, chunk=1)[1][0]
    prompt = model.prepare(case.messages(), split_settings(case.settings(), model.checkpoint.generation))
    whole = model.stages(prompt, ["logits"])["logits"]
    assert same(engine, whole[-1], first) and same(engine, logits[0], first)
    assert int(whole[-1].argmax()) == ids[0]


@each_engine
@each_case
def test_cached_prefix(case: Golden, engine: str) -> None:
    """A second run takes its prefix from the cache, inside a picture too, and gives the same."""
    model = load(case.checkpoint_path, engine=engine)
    recorder = model.generator._text = Recorder(model)
    first = model.chat(case.messages(), **case.run_settings())
    cold, recorder.logits = np.array(recorder.logits), []
    second = model.chat(case.messages(), **case.run_settings())
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == (first.usage.prompt_tokens - 1) // 32 * 32 > 0
    assert second.ids == first.ids and same(engine, np.array(recorder.logits), cold)


def test_two_pictures_never_share() -> None:
    """Equal ids, equal grids, other pixels: nothing of the cache may be used past the first picture token."""
    model = load(PICTURE_CASE.checkpoint_path)
    rng = np.random.default_rng(5)
    pictures = [rng.integers(0, 256, (64, 96, 3), dtype=np.uint8) for _ in range(2)]
    ask = [[{"role": "user", "content": [{"type": "image", "image": p}, {"type": "text", "text": "x " * 40}]}] for p in pictures]
    first, second = (model.chat(messages, max_tokens=8, ignore_eos=True) for messages in ask)
    assert first.prompt_ids == second.prompt_ids
    assert second.usage.cached_tokens == 0
    fresh = load(PICTURE_CASE.checkpoint_path).chat(ask[1], max_tokens=8, ignore_eos=True)
    assert second.ids == fresh.ids


SCRIPT = """
import sys, hashlib
from goldens import goldens
from models.test_invariants import recorded, CASES
for case in CASES:
    ids, logits = recorded(case, "native")
    print(hashlib.sha256(logits.tobytes()).hexdigest())
"""


def digests(isa: str) -> list[str]:
    """Hashes of all logits under OUZEL_ISA, in a process of its own."""
    import os

    tests = Path(__file__).parents[1]
    environment = os.environ | {"OUZEL_ISA": isa, "PYTHONPATH": os.pathsep.join([str(tests), *sys.path])}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True, timeout=300)
    return done.stdout.split()


def test_instruction_sets() -> None:
    from ouzel import _native

    available = list(_native.isas_available())
    assert "plain" in available
    found = {isa: digests(isa) for isa in available}
    assert len({tuple(hashes) for hashes in found.values()}) == 1, found
    assert len(found["plain"]) == len(CASES)


def test_fixtures_are_here() -> None:
    assert (FIXTURES / "qwen3" / "tiny" / "config.json").is_file()
