"""Goldens that cannot be used: the error names file and tensor."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from goldens import FIXTURES, model_of
from ouzel.errors import CheckpointError, OuzelError, TensorError
from ouzel.verify.formats import Rounding
from ouzel.verify.golden import read_golden, read_goldens
from ouzel.verify.run import Request, parse_formats, verify
from ouzel.verify.verifier import verify_case

FAMILY = FIXTURES / "qwen3_vl"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    """A copy of one case, to be damaged; its .safetensors file."""
    for suffix in (".json", ".safetensors"):
        shutil.copy(FAMILY / "golden" / f"two_images{suffix}", tmp_path)
    shutil.copytree(FAMILY / "golden" / "images", tmp_path / "images")
    return tmp_path / "two_images.safetensors"


def change(path: Path, **arrays: np.ndarray | None) -> None:
    found = load_file(path) | {name.replace("__", "."): array for name, array in arrays.items()}
    save_file({name: array for name, array in found.items() if array is not None}, path)


def verified(path: Path) -> None:
    verify_case(model_of(FAMILY / "tiny", "native"), read_golden(path), Rounding())


def test_another_family(case: Path) -> None:
    with pytest.raises(
        CheckpointError, match=r"short\.safetensors: expected goldens of a qwen3_vl model, got goldens of a qwen3 model"
    ):
        verified(FIXTURES / "qwen3" / "golden" / "short.safetensors")


def test_another_model_of_the_family() -> None:
    with pytest.raises(TensorError, match=r"image_tied\.safetensors, tensor pixel_values: expected \[rows, 384\]"):
        verified(FAMILY / "golden_tied" / "image_tied.safetensors")


def test_other_hashes(case: Path) -> None:
    data = json.loads(case.with_suffix(".json").read_text("utf-8"))
    data["checkpoint"] = {"sha256": {"config.json": "0" * 64}}
    case.with_suffix(".json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"two_images\.safetensors: expected goldens of this model .*config\.json"):
        verify(Request(str(FAMILY / "tiny"), golden=case.parent))


@pytest.mark.parametrize("version", [2, "1", None, 0, True])
def test_another_schema(case: Path, version: object) -> None:
    data = json.loads(case.with_suffix(".json").read_text("utf-8")) | {"schema": version}
    case.with_suffix(".json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"two_images\.json: expected goldens of schema version 1, got version"):
        read_golden(case)


def test_missing_tensor(case: Path) -> None:
    change(case, input_ids=None)
    with pytest.raises(TensorError, match=r"two_images\.safetensors: expected the tensor input_ids"):
        read_golden(case)


def test_missing_step_logits_are_not_needed(case: Path) -> None:
    change(case, step_logits=None)
    found = verify_case(model_of(FAMILY / "tiny", "native"), read_golden(case), Rounding())
    assert found.ok and "step_logits" not in [stage.name for stage in found.stages]


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("text__layers__2", (1, 48, 65), r"tensor text\.layers\.2: expected \[rows, 64\]"),
        ("text__layers__2", (1, 47, 64), r"tensor text\.layers\.2: expected 48 rows for this prompt, got 47"),
        ("text__layers__2", (48, 4, 16, 2), r"tensor text\.layers\.2: expected \[rows, 64\]"),
        ("vision__layers__0", (83, 64), r"tensor vision\.layers\.0: expected 84 rows"),
        ("image_embeds", (21, 2), r"tensor image_embeds: expected \[rows, 64\]"),
        ("logits", (48, 1, 991), r"tensor logits: expected \[rows, 992\]"),
        ("step_logits", (31, 992), r"tensor step_logits: expected \[32, 992\]"),
        ("pixel_values", (84, 383), r"tensor pixel_values: expected \[rows, 384\]"),
    ],
)
def test_shapes_that_disagree(case: Path, name: str, shape: tuple[int, ...], words: str) -> None:
    change(case, **{name: np.zeros(shape, np.float32)})
    with pytest.raises(TensorError, match=r"two_images\.safetensors, " + words):
        verified(case)


def test_ids_that_are_no_whole_numbers(case: Path) -> None:
    change(case, input_ids=np.zeros((1, 48), np.float32))
    with pytest.raises(TensorError, match="tensor input_ids: expected whole numbers, got float32"):
        read_golden(case)


def test_damaged_files(case: Path) -> None:
    whole = case.read_bytes()
    for cut in (0, 4, 100, len(whole) - 10):
        case.write_bytes(whole[:cut])
        with pytest.raises(OuzelError, match=r"two_images\.safetensors"):
            read_golden(case)
    case.write_bytes(whole)
    case.with_suffix(".json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"two_images\.json"):
        read_golden(case)
    case.with_suffix(".json").unlink()
    with pytest.raises(CheckpointError, match=r"expected two_images\.json beside it"):
        read_golden(case)


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="expected a folder"):
        read_goldens(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"expected cases .*golden capture"):
        read_goldens(tmp_path)
    with pytest.raises(CheckpointError, match="expected cases among .*two_images.*, got nothing"):
        read_goldens(FAMILY / "golden", ["nothing"])


def test_other_ids_end_the_comparison(case: Path) -> None:
    """A wrong id is a failed gate with both sides shown, not an error."""
    ids = load_file(case)["input_ids"].copy()
    ids[0, 40] = 5
    change(case, input_ids=ids)
    found = verify_case(model_of(FAMILY / "tiny", "native"), read_golden(case), Rounding())
    assert [gate.ok for gate in found.gates] == [False, None, None, None, None]
    assert found.findings[0].stage == "input_ids" and "from 40 on" in found.findings[0].lines[0]


def test_formats_by_part() -> None:
    plan = parse_formats("bf16,vision=f32, head = f16")
    assert (plan.text, plan.vision, plan.head, plan.projector) == ("bf16", "f32", "f16", "bf16")
    assert parse_formats("vision=f16").text == "auto"
    for bad in ("f33", "eyes=f32", "vision=", ""):
        with pytest.raises(OuzelError):
            parse_formats(bad)


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("position_ids", np.zeros((3, 1, 47), np.int64), r"tensor position_ids: expected whole numbers, 48 in a row"),
        ("position_ids", np.zeros((3, 1, 48), np.float32), r"tensor position_ids: expected whole numbers"),
        ("image_grid_thw", np.zeros((2, 2), np.int64), r"tensor image_grid_thw: expected whole numbers, 3 in a row"),
        ("rope_deltas", np.zeros((0, 1), np.int64), r"tensor rope_deltas: expected whole numbers"),
        ("generated_ids", np.full(32, 992), r"tensor generated_ids: expected ids below 992"),
        ("generated_ids", np.full(32, -1), r"tensor generated_ids: expected ids below 992, got -1"),
    ],
)
def test_whole_numbers_that_do_not_fit(case: Path, name: str, array: np.ndarray, words: str) -> None:
    change(case, **{name: array})
    with pytest.raises(TensorError, match=r"two_images\.safetensors, " + words):
        verified(case)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("generation", [1], "an object 'generation'"),
        ("template_kwargs", "x", "an object 'template_kwargs'"),
        ("video", 3, "an object 'video'"),
        ("messages", None, "a list 'messages'"),
        ("generation", {"repetition_penalty": "much"}, "a number 'repetition_penalty'"),
        ("generation", {"repetition_penalty": [1]}, "a number 'repetition_penalty'"),
        ("family", 7, "goldens of a qwen3_vl model"),
        ("messages", ["hello"], "messages as objects"),
        ("messages", [{"role": "user", "content": [{"type": "image", "image": "../two_images.json"}]}], r"file names in images/"),
        ("messages", [{"role": "user", "content": [{"type": "image", "image": "/etc/passwd"}]}], r"file names in images/"),
    ],
)
def test_json_that_cannot_be_used(case: Path, key: str, value: object, words: str) -> None:
    data = json.loads(case.with_suffix(".json").read_text("utf-8")) | {key: value}
    case.with_suffix(".json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(CheckpointError, match=rf"two_images\.safetensors: expected .*{words}"):
        verified(case)


@pytest.mark.parametrize("name", ["text.layers.2", "vision.layers.0", "deepstack.1"])
def test_a_block_missing_between_others(case: Path, name: str) -> None:
    change(case, **{name: None})
    with pytest.raises(TensorError, match=rf"two_images\.safetensors: expected the tensor {name} beside others"):
        verified(case)


def test_a_block_of_another_name(case: Path) -> None:
    change(case, **{"text.layers.99": load_file(case)["text.layers.2"], "text.layers.2": None})
    with pytest.raises(TensorError, match=r"expected the tensor text\.layers\.2 beside others"):
        verified(case)


def test_no_stack_at_all_is_no_damage(case: Path) -> None:
    change(case, **{name: None for name in load_file(case) if name.startswith(("vision.", "deepstack."))})
    verified(case)


def test_answer_and_logits_are_needed(case: Path) -> None:
    change(case, generated_ids=None)
    with pytest.raises(TensorError, match="expected the tensor generated_ids"):
        read_golden(case)
    change(case, generated_ids=np.zeros(0, np.int64))
    with pytest.raises(TensorError, match="tensor generated_ids: expected at least one id"):
        read_golden(case)
    change(case, generated_ids=np.zeros(32, np.int64), logits=None, step_logits=None)
    with pytest.raises(TensorError, match="expected the tensor logits or the tensor step_logits"):
        read_golden(case)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["logits", "step_logits", "text.layers.1", "vision.layers.0", "image_embeds", "pixel_values"])
def test_numbers_that_are_not_finite(case: Path, name: str, bad: float) -> None:
    """A reference that failed is no reference; without a word of its own the blame would be ours."""
    array = load_file(case)[name].copy()
    array.reshape(-1)[7] = bad
    change(case, **{name: array})
    with pytest.raises(TensorError, match=rf"two_images\.safetensors, tensor {name}: expected finite numbers, got NaN or infinity at"):
        verified(case)


def test_ids_below_zero(case: Path) -> None:
    change(case, input_ids=-load_file(case)["input_ids"])
    with pytest.raises(TensorError, match=r"two_images\.safetensors, tensor input_ids: expected ids of 0 and more, got -"):
        read_golden(case)


def test_a_text_that_is_none(case: Path) -> None:
    data = json.loads(case.with_suffix(".json").read_text("utf-8")) | {"text": 5}
    case.with_suffix(".json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"two_images\.json: expected a string 'text', got 5"):
        read_golden(case)


def test_without_step_logits_no_step_is_a_near_tie(case: Path) -> None:
    """Positions of the prompt must not be taken for steps of the answer."""
    change(case, step_logits=None)
    found = verify_case(model_of(FAMILY / "tiny", "native"), read_golden(case), Rounding())
    assert found.decisions is not None and found.decisions.steps == 0
    whole = verify_case(model_of(FAMILY / "tiny", "native"), read_golden(FAMILY / "golden" / case.name), Rounding())
    assert whole.decisions is not None and whole.decisions.steps == 32
