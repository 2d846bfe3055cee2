"""Gate 1, interface: ids, positions, grids, shapes and counts are integers and must be equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ouzel.generation.request import Prompt
from ouzel.model import Model
from ouzel.verify.golden import Golden, rows_of
from ouzel.verify.stages import GRIDS, PIXELS, pictures_of


@dataclass(frozen=True)
class Check:
    """One thing that must be equal. name: of the stage. expected and got are for people, empty when `ok`."""

    name: str
    ok: bool
    expected: str = ""
    got: str = ""


def prompt_checks(model: Model, golden: Golden, prompt: Prompt) -> list[Check]:
    """Ids, grids, positions and pixel shapes, in the order in which they are made."""
    checks = [*_pictures(golden, prompt), _ids(model, golden, prompt)]
    if "position_ids" in golden.arrays and checks[-1].ok:
        checks.append(_positions(golden, prompt))
    if "rope_deltas" in golden.arrays:
        wanted, found = int(golden.integers("rope_deltas", 1)[0, 0]), prompt.positions.delta
        checks.append(Check("rope_deltas", wanted == found, str(wanted), str(found)))
    return checks


def _ids(model: Model, golden: Golden, prompt: Prompt) -> Check:
    wanted, found = golden.array("input_ids").reshape(-1).tolist(), list(prompt.ids)
    if wanted == found:
        return Check("input_ids", True)
    at = next((i for i, pair in enumerate(zip(wanted, found)) if pair[0] != pair[1]), min(len(wanted), len(found)))
    return Check("input_ids", False, _shown_ids(model, wanted, at), _shown_ids(model, found, at))


def _shown_ids(model: Model, ids: Sequence[int], at: int) -> str:
    near = list(ids[at : at + 4])
    text = "" if model.tokenizer is None else f" ({model.tokenizer.decode(near)!r})"
    return f"{len(ids)} ids, from {at} on {near}{text}"


def _positions(golden: Golden, prompt: Prompt) -> Check:
    wanted, found = golden.integers("position_ids", len(prompt.ids)), prompt.positions.ids
    if len(wanted) > 1 and len(wanted) != len(found):
        return Check("position_ids", False, f"shape {list(wanted.shape)}", f"shape {list(found.shape)}")
    differ = np.argwhere(np.broadcast_to(wanted, found.shape) != found)
    if not len(differ):
        return Check("position_ids", True)
    axis, token = (int(i) for i in differ[differ[:, 1].argmin()])
    there = np.broadcast_to(wanted, found.shape)[:, token].tolist()
    return Check(
        "position_ids",
        False,
        f"{there} at token {token}",
        f"{found[:, token].tolist()} (axis {axis}; {len(differ)} numbers differ)",
    )


def _pictures(golden: Golden, prompt: Prompt) -> list[Check]:
    checks = []
    for kind, name in GRIDS.items():
        pictures = pictures_of(golden, prompt, kind)
        if name in golden.arrays:
            wanted, found = golden.integers(name, 3).tolist(), [list(picture.grid) for picture in pictures]
            checks.append(Check(name, wanted == found, str(wanted), str(found)))
        pixels = PIXELS[kind]
        if pixels in golden.arrays and pictures:
            rows, width = sum(len(p.pixels) for p in pictures), pictures[0].pixels.shape[1]
            shape = [len(rows_of(golden, pixels, width)), width]
            checks.append(Check(f"{pixels} shape", shape == [rows, width], str(shape), str([rows, width])))
        elif pixels in golden.arrays:
            checks.append(Check(pixels, False, f"{kind}s", "none in the prompt"))
    return checks
