"""Token positions, patch tables and video texts, against the reference's."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file

from ouzel.errors import PromptError
from ouzel.processors.qwen_positions import rope_index, vision_grid_tables
from ouzel.processors.qwen_prompt import image_text, video_text
from ouzel.processors.qwen_sizes import group_timestamps

ROOT = pathlib.Path(__file__).parent.parent / "data/fixtures/qwen3_vl"
TABLE = json.loads((ROOT / "golden/rope_index.json").read_text(encoding="utf-8"))
GOLDENS = sorted(ROOT.glob("golden*/*.safetensors"))
IMAGE, VIDEO = TABLE["image_token_id"], TABLE["video_token_id"]


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_rope_index_table(case):
    images, videos = iter(case["image_grid_thw"]), iter(case["video_grid_thw"])
    for row, (ids, mask) in enumerate(zip(case["input_ids"], case["attention_mask"])):
        real = np.array(mask, bool)
        ids = np.array(ids)[real]
        # Grids belong to the rows that hold their tokens; in the table only one row of a batch has pictures.
        own_images = list(images) if IMAGE in ids else []
        own_videos = list(videos) if VIDEO in ids else []
        positions, delta = rope_index(ids, own_images, own_videos, IMAGE, VIDEO, TABLE["spatial_merge_size"])
        expected = np.array(case["position_ids"])[:, row]
        np.testing.assert_array_equal(positions, expected[:, real])
        assert positions.dtype == np.int64
        assert delta == case["rope_deltas"][row]


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_rope_index_of_goldens(path):
    golden = load_file(path)
    positions, delta = rope_index(
        golden["input_ids"][0], golden.get("image_grid_thw", []), golden.get("video_grid_thw", []), IMAGE, VIDEO, 2
    )
    np.testing.assert_array_equal(positions, golden["position_ids"][:, 0])
    assert delta == golden["rope_deltas"].item()


def test_many_pictures_back_to_back_with_nothing_between():
    grids = [(1, 4, 4), (1, 2, 6), (1, 2, 2)]
    positions, delta = rope_index([5, *[IMAGE] * 8, 6], grids, [], IMAGE, VIDEO, 2)
    assert positions[0].tolist() == [0, 1, 1, 1, 1, 3, 3, 3, 6, 7]
    assert positions[1].tolist() == [0, 1, 1, 2, 2, 3, 3, 3, 6, 7]
    assert positions[2].tolist() == [0, 1, 2, 1, 2, 3, 4, 5, 6, 7]
    assert delta == -2


def test_no_tokens():
    positions, delta = rope_index([], [], [], IMAGE, VIDEO, 2)
    assert positions.shape == (3, 0) and delta == 0


@pytest.mark.parametrize(
    ("ids", "images", "videos", "message"),
    [
        ([1, IMAGE, IMAGE], [(1, 4, 4)], [], "4 in all"),
        ([1, *[IMAGE] * 5], [(1, 4, 4)], [], "got 5 placeholder ids"),
        ([1, 2], [(1, 4, 4)], [], "got 0 placeholder ids"),
        ([1, IMAGE], [], [], "0 image grids"),
        ([VIDEO] * 4, [(1, 4, 4)], [], "video tokens"),
        ([*[VIDEO] * 4], [], [(2, 4, 4)], "2 video grids"),
        ([IMAGE], [(1, 3, 2)], [], "multiples of 2"),
        ([IMAGE], [(0, 2, 2)], [], "multiples of 2"),
    ],
)
def test_counts_that_disagree(ids, images, videos, message):
    with pytest.raises(PromptError, match=message):
        rope_index(ids, images, videos, IMAGE, VIDEO, 2)


@pytest.mark.parametrize("path", [path for path in GOLDENS if "text" not in path.stem], ids=lambda path: path.stem)
def test_position_table_reproduces_the_embeddings(path):
    golden = load_file(path)
    tiny = ROOT / ("tiny_tied" if "tied" in path.parent.name else "tiny")
    table = load_file(tiny / "model.safetensors")["model.visual.pos_embed.weight"]
    for prefix, key in (("", "image_grid_thw"), ("video." if "image_grid_thw" in golden else "", "video_grid_thw")):
        if key not in golden:
            continue
        tables = [vision_grid_tables(grid, 2, round(len(table) ** 0.5)) for grid in golden[key]]
        taps = np.concatenate([one.taps for one in tables])
        weights = np.concatenate([one.weights for one in tables])
        assert taps.dtype == np.int32 and weights.dtype == np.float32
        embeddings = golden[f"{prefix}vision.patch_embed"] + (table[taps] * weights[:, :, None]).sum(axis=1)
        np.testing.assert_allclose(embeddings, golden[f"{prefix}vision.embeddings"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("path", [path for path in GOLDENS if "text" not in path.stem], ids=lambda path: path.stem)
def test_rows_and_columns_reproduce_the_rotary_angles(path):
    golden = load_file(path)
    key = "image_grid_thw" if "image_grid_thw" in golden else "video_grid_thw"
    cosines = golden["vision.rope_cos"]
    tables = [vision_grid_tables(grid, 2, 6) for grid in golden[key]]
    quarter = cosines.shape[1] // 4
    inverse = 10000.0 ** (-np.arange(quarter) / quarter)
    rows = np.concatenate([one.rows for one in tables])[:, None] * inverse
    columns = np.concatenate([one.columns for one in tables])[:, None] * inverse
    np.testing.assert_allclose(np.cos(np.hstack([rows, columns] * 2)), cosines, atol=1e-6)


@pytest.mark.parametrize("grid", [(1, 2, 2), (3, 4, 6), (1, 2, 200), (1, 98, 96)], ids=str)
def test_taps_lie_in_the_table_and_weights_sum_to_one(grid):
    tables = vision_grid_tables(grid, 2, 48)
    count = grid[0] * grid[1] * grid[2]
    assert tables.taps.shape == tables.weights.shape == (count, 4)
    assert tables.taps.min() == 0 and tables.taps.max() == 48 * 48 - 1
    np.testing.assert_allclose(tables.weights.sum(axis=1), 1.0, atol=1e-6)
    assert (tables.weights >= 0).all()
    assert len({*zip(tables.rows.tolist(), tables.columns.tolist())}) == grid[1] * grid[2]


VIDEO_CASES = [path for path in GOLDENS if "video" in path.stem]


@pytest.mark.parametrize("path", VIDEO_CASES, ids=lambda path: path.stem)
def test_expanded_prompts(path):
    case = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    golden = load_file(path)
    layout = {"4.57": "release", "5.23": "transformers5"}[case["video"]["layout"]]
    part = next(p for m in case["messages"] for p in m["content"] if p["type"] == "video")
    times = group_timestamps([index / part["fps"] for index in range(len(part["video"]))])
    _, rows, columns = golden["video_grid_thw"][0]
    prompt = case["prompt"]
    replacements = [video_text(times, rows * columns // 4, layout=layout)]
    for grid in golden.get("image_grid_thw", []):
        replacements.append(image_text(int(grid.prod()) // 4))
    for one in replacements:
        assert prompt.count(one.pattern) == 1
        prompt = prompt.replace(one.pattern, one.text)
    assert prompt == case["expanded_prompt"]


def test_times_are_printed_by_binary_value():
    text = video_text([0.25, 0.75, 0.35, 12.0], 1).text
    assert [piece.split(" ")[0] for piece in text.split("<") if "seconds" in piece] == ["0.2", "0.8", "0.3", "12.0"]


def test_unknown_layout():
    with pytest.raises(PromptError, match="release, transformers5"):
        video_text([0.0], 1, layout="old")
