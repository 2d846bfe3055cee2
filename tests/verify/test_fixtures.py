"""Every golden case of every family and the embedded model, through all five gates."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldens import Golden as Case
from goldens import goldens, model_of
from ouzel.model import embedded_path
from ouzel.verify.capture import CaptureOptions
from ouzel.verify.cases import built_in
from ouzel.verify.formats import rounding_of
from ouzel.verify.golden import read_golden
from ouzel.verify.report import Report, as_text
from ouzel.verify.run import Request, verify
from ouzel.verify.verifier import verify_case

CASES = goldens()


def path_of(case: Case) -> Path:
    return case.images.parent / f"{case.name}.safetensors"


@pytest.mark.parametrize("engine", ["native", "reference"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_all_gates_hold(case: Case, engine: str) -> None:
    model = model_of(case.checkpoint_path, engine)
    rounding = rounding_of(model)
    assert rounding.exact
    found = verify_case(model, read_golden(path_of(case)), rounding)
    assert found.ok, as_text(Report("", "", "", True, (found,)), True)
    assert [gate.ok for gate in found.gates] == [True] * 5
    assert not found.findings
    # Every float stage that the golden has was compared twice.
    compared = {stage.name for stage in found.stages}
    assert {"text.inputs_embeds", "text.layers.0", "text.final_norm", "logits", "step_logits"} <= compared
    assert all(stage.own is not None for stage in found.stages)


def test_embedded_model() -> None:
    """Goldens of the embedded reader are captured here and now: it changes with its training."""
    assert (embedded_path() / "config.json").is_file()
    options = CaptureOptions(max_tokens=12)
    report = verify(Request(against="transformers", cases=("english_picture", "odd_size", "two_pictures"), capture=options))
    assert report.ok, as_text(report, True)
    assert len(report.cases) == 3
    assert {"vision.patch_embed", "image_embeds", "deepstack.0"} <= {stage.name for stage in report.cases[0].stages}


def test_built_in_cases_fit_every_model(tmp_path: Path) -> None:
    """The command without `--cases` must run on models whose vocabulary is bytes, too."""
    for path in (embedded_path(), *{case.checkpoint_path for case in CASES}):
        model = model_of(path, "native")
        cases = built_in(model, tmp_path / path.parent.name / path.name)
        assert {"english", "long_text"} <= {case.name for case in cases}
        lengths = {case.name: len(model.tokenizer.encode(str(case.messages))) for case in cases}
        assert lengths["long_text"] < model.family.sizes.max_context * 3 // 4
