"""Preprocessor files in all their layouts, and the values that are refused."""

from __future__ import annotations

import json
import shutil

import pytest

from ouzel.errors import CheckpointError, ConfigError
from ouzel.processors.qwen_settings import QwenVLImageSettings, QwenVLProcessorSettings

IMAGE = {
    "size": {"shortest_edge": 65536, "longest_edge": 16777216}, "patch_size": 16, "temporal_patch_size": 2,
    "merge_size": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    "image_processor_type": "Qwen2VLImageProcessorFast",
}  # fmt: skip
VIDEO = {
    **IMAGE,
    "size": {"shortest_edge": 4096, "longest_edge": 25165824},
    "video_processor_type": "Qwen3VLVideoProcessor",
}


def write(folder, name, value):
    (folder / name).write_text(json.dumps(value), encoding="utf-8")


def test_the_layouts_load_the_same(tmp_path):
    found = []
    for layout in ("files", "nested", "old"):
        folder = tmp_path / layout
        folder.mkdir()
        if layout == "nested":
            write(folder, "processor_config.json", {"image_processor": IMAGE, "video_processor": VIDEO})
            write(folder, "preprocessor_config.json", {**IMAGE, "patch_size": 14})
        else:
            image = dict(IMAGE)
            if layout == "old":
                del image["size"]
                image |= {"min_pixels": 65536, "max_pixels": 16777216, "size": {"min_pixels": 1, "max_pixels": 2}}
            write(folder, "processor_config.json", {"processor_class": "Qwen3VLProcessor"})
            write(folder, "preprocessor_config.json", image)
            write(folder, "video_preprocessor_config.json", VIDEO)
        found.append(QwenVLProcessorSettings.from_folder(folder))
    assert found[0] == found[1] == found[2]
    assert (found[0].image.min_pixels, found[0].image.max_pixels, found[0].image.factor) == (65536, 16777216, 32)
    assert (found[0].video.min_pixels, found[0].video.max_pixels) == (4096, 25165824)


def test_fixture_folders(fixtures):
    tiny = QwenVLProcessorSettings.from_folder(fixtures / "tiny")
    assert (tiny.image.patch_size, tiny.image.max_pixels, tiny.video.min_pixels) == (8, 5120, 2048)


def test_video_without_a_file_takes_the_images(tmp_path):
    write(tmp_path, "preprocessor_config.json", IMAGE)
    assert QwenVLProcessorSettings.from_folder(tmp_path).video.max_pixels == 16777216


def test_left_out_keys_take_the_class_defaults():
    image = QwenVLImageSettings.from_preprocessor({})
    assert (image.min_pixels, image.max_pixels, image.patch_size) == (3136, 1003520, 14)
    assert image.mean == (0.48145466, 0.4578275, 0.40821073)
    video = QwenVLImageSettings.from_preprocessor({}, video=True)
    assert (video.min_pixels, video.max_pixels, video.patch_size, video.mean) == (131072, 786432, 16, (0.5, 0.5, 0.5))
    assert image.resample == "bicubic" and image.rescale_factor == 1 / 255


def test_numbers_and_filters_are_data():
    read = QwenVLImageSettings.from_preprocessor({**IMAGE, "resample": 1, "rescale_factor": 0.5, "image_mean": 0.1})
    assert (read.resample, read.rescale_factor, read.mean) == ("lanczos", 0.5, (0.1, 0.1, 0.1))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("resample", 5), ("resample", "bicubic"), ("patch_size", 0), ("patch_size", "16"), ("merge_size", True),
        ("image_mean", [0.5, 0.5]), ("image_mean", "x"), ("image_std", [0.5, 0.0, 0.5]), ("rescale_factor", 0),
        ("do_resize", "yes"), ("do_center_crop", True), ("do_pad", 1), ("image_processor_type", "SiglipImageProcessor"),
        ("size", 5), ("size", {"height": 3, "width": 4}), ("size", {"shortest_edge": 10, "longest_edge": 5}),
        ("min_pixels", "many"), ("fps", -1),
    ],
)  # fmt: skip
def test_refusals_name_the_key(key, value):
    with pytest.raises(ConfigError) as caught:
        QwenVLImageSettings.from_preprocessor({**IMAGE, key: value}, name="preprocessor_config.json")
    shown = "size" if key == "min_pixels" else key
    assert shown in str(caught.value) and "preprocessor_config.json" in str(caught.value)


def test_missing_and_damaged_files(tmp_path, fixtures):
    with pytest.raises(CheckpointError, match="preprocessor_config.json"):
        QwenVLProcessorSettings.from_folder(tmp_path)
    shutil.copy(fixtures / "tiny/preprocessor_config.json", tmp_path)
    for content in (b"{", b"[1]", b"\xff\xfe"):
        (tmp_path / "video_preprocessor_config.json").write_bytes(content)
        with pytest.raises(CheckpointError, match="video_preprocessor_config.json"):
            QwenVLProcessorSettings.from_folder(tmp_path)
