"""A whole verification: models loaded, references found or made, every case through the gates."""

from __future__ import annotations

import math
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ouzel
from ouzel.engines.registry import engine_names
from ouzel.errors import CheckpointError, RequestError
from ouzel.model import Model, embedded_path, load
from ouzel.settings import split_settings
from ouzel.verify import manifest
from ouzel.verify.against import golden_of
from ouzel.verify.capture import CaptureOptions, capture
from ouzel.verify.cases import Case, built_in, read_cases
from ouzel.verify.decisions import decide
from ouzel.verify.formats import Rounding, rounding_of
from ouzel.verify.golden import Golden, read_goldens
from ouzel.verify.report import CaseReport, PartReport, Report
from ouzel.verify.tolerance import FORMAT_GROWTH
from ouzel.verify.verifier import verify_case
from ouzel.weights.formats import AUTO, PARTS, FormatPlan

TRANSFORMERS = "transformers"

Told = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What to verify. model: folder or hub id, None for the embedded model. golden: folder of goldens; against: "transformers" or
    "engine[:weights]"; one of the two. weights: as `parse_formats` reads them. cases: names, all when empty. messages: a file of
    cases for `against`, the built-in ones without."""

    model: str | None = None
    golden: Path | None = None
    against: str | None = None
    engine: str = "native"
    weights: str = AUTO
    threads: int | None = None
    cases: tuple[str, ...] = ()
    messages: Path | None = None
    revision: str | None = None
    offline: bool | None = None
    capture: CaptureOptions = field(default_factory=CaptureOptions)


def parse_formats(text: str) -> FormatPlan:
    """The formats in "q4" or "q4,vision=q8,head=q8": a name for all parts, and names for single ones.

    Raises RequestError for a part or a format that does not exist.
    """
    chosen: dict[str, str] = {}
    for piece in text.split(","):
        part, equals, name = piece.strip().partition("=")
        if equals and part.strip() not in PARTS:
            raise RequestError("choosing number formats", expected=f"parts among {', '.join(PARTS)}", got=repr(part)[:40])
        chosen |= {part.strip(): name.strip()} if equals else {p: part for p in PARTS if p not in chosen}
    return FormatPlan(**chosen)


def verify(request: Request, told: Told = lambda text: None) -> Report:
    """Runs everything. Raises the errors of loading, capturing and reading goldens."""
    if (request.golden is None) == (request.against is None):
        raise RequestError(
            "ouzel verify", expected="either --golden DIR or --against WHAT", got="both" if request.golden else "neither"
        )
    plan = parse_formats(request.weights)
    told(f"loading {request.model or 'the embedded model'}")
    model = _load(request, request.engine, plan)
    rounding = rounding_of(model)
    sums: dict[str, str] = {}
    with _references(request, model, told) as (goldens, other, shown):
        joined = _join(rounding, other)
        for golden in goldens:
            _check_hashes(golden, model, sums)
        reports = [_case(model, golden, joined, told) for golden in goldens]
        # Made here and not later: the pictures of --against go with the folder.
        parts = tuple(_parts(request, plan, model, rounding, goldens, told))
        facts = _facts(request, model, rounding, sums, goldens)
    return Report(_title(request), shown, model.describe(), joined.exact, tuple(reports), parts, facts)


def _case(model: Model, golden: Golden, rounding: Rounding, told: Told) -> CaseReport:
    told(f"case {golden.name}")
    return verify_case(model, golden, rounding)


def _load(request: Request, engine: str, plan: FormatPlan) -> Model:
    return load(
        request.model, engine=engine, threads=request.threads, weights=plan, revision=request.revision, offline=request.offline
    )


@contextmanager
def _references(request: Request, model: Model, told: Told) -> Iterator[tuple[list[Golden], Rounding, str]]:
    """Goldens, how much their maker rounded, and its name in words."""
    if request.golden is not None:
        yield read_goldens(request.golden, request.cases), Rounding(), f"goldens in {request.golden}"
        return
    assert request.against is not None
    with tempfile.TemporaryDirectory(prefix="ouzel-verify-") as name:
        folder = Path(name)
        if request.against == TRANSFORMERS:
            cases = cases_of(request, model, folder / "images")
            capture(model.checkpoint, cases, folder, request.capture, told)
            yield read_goldens(folder), Rounding(), "transformers, float32, run now"
            return
        engine, _, weights = request.against.partition(":")
        if engine not in engine_names():
            known = ", ".join([TRANSFORMERS, *engine_names()])
            raise RequestError("--against", expected=f"one of {known}, an engine with :WEIGHTS if you like", got=request.against)
        other = _load(request, engine, parse_formats(weights or AUTO))
        rounding = rounding_of(other)
        cases = cases_of(request, model, folder / "images")
        most = request.capture.max_tokens
        yield [golden_of(other, case, folder / "images", most) for case in cases], rounding, other.describe()


def cases_of(request: Request, model: Model, images: Path) -> list[Case]:
    """The cases that are asked for, their pictures in `images`."""
    if request.messages is None:
        return built_in(model, images, request.cases)
    cases = read_cases(request.messages, images)
    missing = [name for name in request.cases if name not in [case.name for case in cases]]
    if missing:
        raise RequestError("choosing cases", expected=f"names in {request.messages}", got=", ".join(missing))
    return [case for case in cases if not request.cases or case.name in request.cases]


def _join(mine: Rounding, other: Rounding) -> Rounding:
    """Both sides' rounding, as independent errors."""
    both = [
        {name: math.hypot(a.get(name, 0.0), b.get(name, 0.0)) for name in {**a, **b}}
        for a, b in ((mine.by_weight, other.by_weight), (mine.parts, other.parts))
    ]
    return Rounding(both[0], mine.by_part, mine.exact and other.exact, both[1])


def _check_hashes(golden: Golden, model: Model, sums: dict[str, str]) -> None:
    """Raises CheckpointError when the golden says that it was made from other weights or another config."""
    wanted = golden.object("checkpoint").get("sha256")
    for name, digits in wanted.items() if isinstance(wanted, dict) else ():
        path = model.checkpoint.path / name
        if name != "config.json" and not name.endswith(".safetensors"):
            continue
        if name not in sums:
            sums[name] = manifest.sha256(path) if path.is_file() else "no such file"
        if sums[name] != digits:
            raise CheckpointError(
                f"reading {golden.origin}", expected=f"goldens of this model ({path}: {sums[name][:16]})",
                got=f"goldens of another one ({str(digits)[:16]})",
                fix="capture them again with `ouzel golden capture`",
            )  # fmt: skip


def _parts(
    request: Request, plan: FormatPlan, model: Model, rounding: Rounding, goldens: Sequence[Golden], told: Told
) -> Iterator[PartReport]:
    """One part at a time in its format, the others as stored: which part costs what."""
    for part, error in rounding.parts.items():
        if not error or rounding.exact:
            continue
        told(f"only {part} in {plan.of(part)}")
        alone = _load(request, request.engine, FormatPlan(**{part: plan.of(part)}))
        for golden in goldens:
            if "logits" not in golden.arrays:
                continue
            prompt = alone.prepare(golden.messages(), split_settings(golden.settings(), alone.checkpoint.generation))
            found = alone.stages(prompt, ["logits"])["logits"]
            wanted = np.ascontiguousarray(golden.array("logits").reshape(-1, found.shape[1]))
            if len(wanted) == len(found):
                yield PartReport(
                    golden.name, part, plan.of(part), error, decide(found, wanted, FORMAT_GROWTH * error, centred=True)
                )


def _title(request: Request) -> str:
    return f"ouzel verify {request.model or 'the embedded model'}"


def _facts(
    request: Request, model: Model, rounding: Rounding, sums: Mapping[str, str], goldens: Sequence[Golden]
) -> dict[str, Any]:
    """What one must know to run it again."""
    return {
        "model": {
            "folder": str(model.checkpoint.path), "family": model.family.name, "engine": model.engine.describe(),
            "weights": request.weights, "formats by part": dict(rounding.by_part),
        },
        "environment": {
            "ouzel": ouzel.__version__, "python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine(),
            "system": platform.platform(),
        },
        "reference": {"made with": goldens[0].object("made_with"), "settings": goldens[0].object("settings")},
        "sha256": dict(sums) or _sums(model, "config.json", "model.json", "tokenizer.json"),
    }  # fmt: skip


def _sums(model: Model, *names: str) -> dict[str, str]:
    return {name: manifest.sha256(path) for name in names if (path := model.checkpoint.file(name)) is not None}


def model_path(name: str | None) -> str:
    """The folder or hub id that a command line's MODEL means."""
    return str(embedded_path()) if name in (None, "embedded") else str(name)
