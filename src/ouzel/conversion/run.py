"""The whole conversion: calibrate where asked, write, compare with the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ouzel.checkpoint.folder import Checkpoint
from ouzel.conversion.calibrate import Calibration, calibrate
from ouzel.conversion.compare import (
    LogitErrors,
    TensorErrors,
    as_rows,
    logit_errors,
    probe_logits,
    tensor_errors,
)
from ouzel.conversion.probe import probes
from ouzel.engines.base import Engine
from ouzel.engines.registry import make_engine
from ouzel.errors import EngineError, RequestError
from ouzel.model import Model
from ouzel.packed.write import Progress, convert
from ouzel.weights.formats import PARTS, FormatPlan


@dataclass(frozen=True)
class Report:
    """What was made and how near it is to its source.

    `logits` compares the written folder; `plain_logits` the same formats without calibration, when there was one.
    """

    source: str
    destination: Path
    formats: dict[str, str]
    source_bytes: int
    packed_bytes: int
    engine: str
    tensors: list[TensorErrors] = field(default_factory=list)
    logits: list[LogitErrors] = field(default_factory=list)
    plain_logits: list[LogitErrors] = field(default_factory=list)
    calibration: dict[str, int] | None = None

    def as_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "source": self.source,
            "destination": str(self.destination),
            "formats": self.formats,
            "source_bytes": self.source_bytes,
            "packed_bytes": self.packed_bytes,
            "engine": self.engine,
            "tensors": as_rows(self.tensors),
            "logits": as_rows(self.logits),
            "logits_without_calibration": as_rows(self.plain_logits),
            "calibration": self.calibration,
        }


def run(
    checkpoint: Checkpoint,
    destination: Path,
    plan: FormatPlan,
    *,
    calibration_files: Sequence[Path] = (),
    force: bool = False,
    check: bool = True,
    engine: str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Converts and, with `check`, compares the written folder with the source. Raises as `write.convert`.

    engine: that runs the model for calibration and comparison; None takes the native one where it is built.
    """
    tell = progress or (lambda what, done, total: None)
    runner = _engine(engine, threads)
    found = _calibration(checkpoint, runner, calibration_files, tell)
    notes = None if found is None else {"calibration": _counts(found)}
    importance = None if found is None else found.importance
    convert(checkpoint, destination, plan, importance=importance, notes=notes, force=force, threads=threads, progress=tell)
    packed = Checkpoint.open(destination)
    report = Report(
        checkpoint.name,
        destination,
        {part: plan.of(part) for part in PARTS},
        checkpoint.tensors.total_bytes(),
        packed.tensors.total_bytes(),
        runner.describe(),
        calibration=None if found is None else _counts(found),
    )
    if not check:
        return report
    source = Model(checkpoint, runner)
    tried = probes(source)
    tell("running the source", 0, 1)
    wanted = probe_logits(tried, source)
    written = Model(packed, runner)
    tell("running the packed model", 0, 1)
    report.logits.extend(logit_errors(tried, wanted, written))
    report.tensors.extend(tensor_errors(source.weights, written.weights, lambda done, of: tell("comparing", done, of)))
    del written
    if found is not None and plan.packs:
        plain = Model(checkpoint, runner, plan, threads=threads)
        report.plain_logits.extend(logit_errors(tried, wanted, plain))
    return report


def _calibration(checkpoint: Checkpoint, engine: Engine, files: Sequence[Path], tell: Progress) -> Calibration | None:
    if not files:
        return None
    if checkpoint.packed is not None:
        raise RequestError(f"calibrating {checkpoint.path}", expected="a model folder", got="a packed folder")
    return calibrate(Model(checkpoint, engine), files, lambda done, of: tell("calibrating", done, of))


def _counts(found: Calibration) -> dict[str, int]:
    return {"prompts": found.prompts, "tokens": found.tokens, "pictures": found.pictures}


def _engine(name: str | None, threads: int | None) -> Engine:
    if name is not None:
        return make_engine(name, threads)
    try:
        return make_engine("native", threads)
    except EngineError:
        return make_engine("reference", threads)
