"""Gate 5, function: what a user sees. Tokens, text, the end, cache lengths, and a cache whose earlier part stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.engines.base import BLOCK_TOKENS, Executable, SequenceRows, Step
from ouzel.generation.request import Prompt
from ouzel.generation.runner import join_features
from ouzel.generation.stages import text_inputs
from ouzel.model import Model
from ouzel.models.family import Positions
from ouzel.settings import split_settings
from ouzel.verify.golden import Golden
from ouzel.verify.stages import run_text

F32 = NDArray[np.float32]


@dataclass(frozen=True)
class Decoded:
    """Logits after the prompt and after every token of the reference's answer but the last, [steps, vocab].

    steps: token by token over the cache. whole: in one pass. cache_unchanged: whether the first step, made again at the end,
    gives the same bits, so that nothing wrote to the earlier part of the cache.
    """

    steps: F32
    whole: F32
    cache_unchanged: bool


@dataclass(frozen=True)
class Function:
    """Greedy answers side by side. first: index of the first other token, None when there is none. end_*: index of the first
    end token, None without one. cache_*: tokens in the cache when the answer is done."""

    wanted_ids: tuple[int, ...]
    found_ids: tuple[int, ...]
    wanted_text: str | None
    found_text: str
    first: int | None
    end_wanted: int | None
    end_found: int | None
    cache_wanted: int
    cache_found: int
    cache_unchanged: bool

    @property
    def same_text(self) -> bool:
        """Whether the texts are equal, where the reference has one."""
        return self.wanted_text is None or self.wanted_text == self.found_text

    @property
    def ok(self) -> bool:
        """Whether everything is equal."""
        lengths = self.cache_wanted == self.cache_found and self.cache_unchanged
        return self.first is None and self.same_text and self.end_wanted == self.end_found and lengths


def decode(model: Model, prompt: Prompt, generated: Sequence[int]) -> Decoded:
    """Feeds the reference's answer to the model, over its cache and in one pass."""
    known = tuple(generated[:-1])
    after = prompt.positions.after(len(prompt.ids), len(known))
    longer = replace(
        prompt,
        ids=prompt.ids + known,
        positions=replace(prompt.positions, ids=np.concatenate([prompt.positions.ids, after], axis=1)),
        visual=np.concatenate([prompt.visual, np.full(len(known), -1, np.int32)]),
    )
    features = join_features([model.generator.encode(picture) for picture in prompt.pictures])
    executable = model.engine.compile(model.family.text_graph(), model.weights)
    whole = run_text(executable, model, longer, features, ("logits",), {})["logits"][len(prompt.ids) - 1 :]
    first = run_text(executable, model, prompt, features, ("logits",), {})["logits"][-1]
    executable.ensure_blocks(-(-(len(longer.ids) + 1) // BLOCK_TOKENS))
    steps = [first, *[_step(executable, model, longer, at) for at in range(len(prompt.ids), len(longer.ids))]]
    again = _step(executable, model, longer, len(prompt.ids)) if known else first
    return Decoded(np.stack(steps), whole, not known or np.array_equal(again, steps[1]))


def _step(executable: Executable, model: Model, prompt: Prompt, at: int) -> F32:
    """Logits [vocab] after token `at`, all before it taken from the cache."""
    one = Prompt(
        ids=prompt.ids[at : at + 1],
        positions=Positions(np.ascontiguousarray(prompt.positions.ids[:, at : at + 1]), prompt.positions.delta),
        visual=np.full(1, -1, np.int32),
    )
    rows = SequenceRows(0, 1, at, np.arange(-(-(at + 1) // BLOCK_TOKENS), dtype=np.int32))
    step = Step(text_inputs(model.family, one, {}), ("logits",), sequences=(rows,))
    return executable.run(step)["logits"][0]


def answer(model: Model, golden: Golden, prompt: Prompt, cache_unchanged: bool) -> Function:
    """Runs the generator as a user would, greedily, past end tokens, for as many tokens as the reference has."""
    wanted = tuple(golden.generated)
    settings: dict[str, Any] = {"max_tokens": len(wanted), "ignore_eos": True, "skip_special_tokens": False}
    settings["repetition_penalty"] = golden.repetition_penalty
    params = split_settings(settings, model.checkpoint.generation).generation
    running = model.generator.add(prompt, params)
    text = "".join(chunk.text for chunk in model.generator.stream(running))
    found = tuple(running.generated)
    differ = [at for at, pair in enumerate(zip(wanted, found)) if pair[0] != pair[1]]
    return Function(
        wanted, found, golden.data.get("text"), text, differ[0] if differ else None, _end(model, wanted), _end(model, found),
        len(prompt.ids) + len(wanted) - 1, running.computed, cache_unchanged,
    )  # fmt: skip


def _end(model: Model, ids: Sequence[int]) -> int | None:
    return next((at for at, token in enumerate(ids) if token in model.eos_ids), None)
