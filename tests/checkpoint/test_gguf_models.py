"""Whole models as GGUF files: the same tensors, prompts, stages and tokens as the checkpoint folder they were written from."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from goldens import FIXTURES, goldens, model_of
from gguf_files import write_mmproj, write_text

import ouzel
from ouzel.checkpoint.folder import Checkpoint
from ouzel.errors import CheckpointError, ConfigError, ImageError, OuzelError, RequestError, TensorError, UnsupportedError
from ouzel.settings import split_settings

QWEN, UNTIED = FIXTURES / "qwen3" / "tiny", FIXTURES / "qwen3" / "tiny_untied"
VL = FIXTURES / "qwen3_vl" / "tiny"
Q = gguf.GGMLQuantizationType
MATRICES = ("token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def all_matrices(kind: gguf.GGMLQuantizationType) -> dict[str, gguf.GGMLQuantizationType]:
    return dict.fromkeys(MATRICES, kind)


@pytest.fixture(scope="module")
def vl(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("vl")
    sizes = {"{arch}.n_deepstack_layers": 3}
    return write_text(VL, folder / "vl.gguf", "qwen3vl", extra=sizes), write_mmproj(VL, folder / "mmproj.gguf")


@pytest.mark.parametrize("folder", [QWEN, UNTIED], ids=["tied", "untied"])
def test_qwen3(tmp_path: Path, folder: Path) -> None:
    model, wanted = ouzel.load(write_text(folder, tmp_path / "m.gguf", "qwen3")), model_of(folder, "native")
    assert {n: w.array.tobytes() for n, w in model.weights.items()} == {n: w.array.tobytes() for n, w in wanted.weights.items()}
    messages = [{"role": "user", "content": "Résumé:  2024 <think>\n\n what's up? 中文"}]
    settings = {"max_tokens": 24, "ignore_eos": True, "skip_special_tokens": False}
    found, expected = (one.chat(messages, **settings) for one in (model, wanted))
    assert (found.prompt_ids, found.ids, found.text) == (expected.prompt_ids, expected.ids, expected.text)
    assert model.eos_ids == {wanted.tokenizer.eos_id}
    assert model.family.name == "qwen3"


VL_CASES = [case for case in goldens() if case.family == "qwen3_vl" and case.checkpoint == "tiny"]


@pytest.mark.parametrize("case", VL_CASES, ids=lambda case: case.name)
def test_qwen3_vl_with_pictures(vl: tuple[Path, Path], case) -> None:
    model, wanted = _loaded(vl), model_of(VL, "native")
    settings = split_settings(case.settings(), wanted.checkpoint.generation)
    prompts = [one.prepare(case.messages(), settings) for one in (model, wanted)]
    assert prompts[0].ids == prompts[1].ids
    assert np.array_equal(prompts[0].positions.ids, prompts[1].positions.ids)
    if not any(picture.kind == "video" for picture in prompts[1].pictures):
        # The file has no room for the limits of videos: the release's stand there, not the fixture's.
        assert all(np.array_equal(a.pixels, b.pixels) for a, b in zip(prompts[0].pictures, prompts[1].pictures))
    found, expected = (one.stages(prompts[1], ["logits"])["logits"] for one in (model, wanted))
    assert np.array_equal(found, expected)


_models: dict[tuple[Path, Path], ouzel.Model] = {}


def _loaded(files: tuple[Path, Path]) -> ouzel.Model:
    if files not in _models:
        _models[files] = ouzel.load(files[0], mmproj=files[1])
    return _models[files]


def test_qwen3_vl_without_its_picture_file_reads_text(vl: tuple[Path, Path]) -> None:
    model, wanted = ouzel.load(vl[0]), model_of(VL, "native")
    ids = list(range(40, 80))
    assert model.generate(ids, max_tokens=8).ids == wanted.generate(ids, max_tokens=8).ids
    with pytest.raises(ImageError, match="text model"):
        model.encode_image(np.zeros((32, 32, 3), np.uint8))


@pytest.mark.parametrize("kind", [Q.Q8_0, Q.Q4_0, Q.Q4_1], ids=lambda kind: kind.name)
def test_blocks_become_packed_bytes_exactly(tmp_path: Path, kind: gguf.GGMLQuantizationType) -> None:
    path = write_text(UNTIED, tmp_path / "m.gguf", "qwen3", all_matrices(kind))
    forms = {"Q8_0": "q8", "Q4_0": "q4", "Q4_1": "q4m"}
    packed, plain = ouzel.load(path), ouzel.load(path, weights="f32")
    reader = {t.name: t for t in gguf.GGUFReader(path).tensors}
    for name, weight in packed.weights.items():
        if weight.array.ndim == 1 or weight.shape[-1] % 32:
            continue
        assert weight.format.name == forms[kind.name]
        assert plain.weights[name].format.name == "f32"
        assert np.array_equal(weight.f32(), plain.weights[name].array)
    raw = reader["blk.1.ffn_up.weight"]
    wanted = gguf.quants.dequantize(raw.data, raw.tensor_type)
    assert np.abs(packed.weights["text.layers.1.up.weight"].f32() - wanted).max() <= 1e-6 * np.abs(wanted).max()


def test_requantising_takes_the_whole_values(tmp_path: Path) -> None:
    """--weights q8 of a Q4_0 file is q8 of its values, as from a float32 checkpoint that holds them."""
    path = write_text(UNTIED, tmp_path / "m.gguf", "qwen3", all_matrices(Q.Q4_0))
    again, plain = ouzel.load(path, weights="q8"), ouzel.load(path, weights="f32")
    name = "text.layers.0.gate.weight"
    assert again.weights[name].format.name == "q8"
    assert np.array_equal(again.weights[name].array, again.weights[name].format.encode(plain.weights[name].array))


def test_both_engines_agree_on_blocks(tmp_path: Path) -> None:
    path = write_text(UNTIED, tmp_path / "m.gguf", "qwen3", all_matrices(Q.Q8_0) | {"ffn_down": Q.Q4_1, "attn_q": Q.Q4_0})
    found = [ouzel.load(path, engine=engine).generate(range(60, 90), max_tokens=12, ignore_eos=True).ids for engine in ("native", "reference")]
    assert found[0] == found[1]


def test_the_file_is_refused_where_it_is_not_whole(tmp_path: Path) -> None:
    def missing(writer_extra: dict) -> Path:
        return write_text(QWEN, tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf", "qwen3", extra=writer_extra)

    with pytest.raises(UnsupportedError, match="expert_count"):
        ouzel.load(missing({"{arch}.expert_count": 8}))
    with pytest.raises(UnsupportedError, match="one of 3 parts"):
        ouzel.load(missing({"split.count": 3}))
    with pytest.raises(UnsupportedError, match="rope.scaling.type"):
        ouzel.load(missing({"{arch}.rope.scaling.type": "longrope"}))
    with pytest.raises(UnsupportedError, match="dimension_count"):
        ouzel.load(missing({"{arch}.rope.dimension_count": 16}))


def test_other_architectures_and_files(tmp_path: Path, vl: tuple[Path, Path]) -> None:
    with pytest.raises(UnsupportedError, match="'gemma3'"):
        ouzel.load(write_text(QWEN, tmp_path / "g.gguf", "gemma3"))
    with pytest.raises(UnsupportedError, match="--mmproj"):
        ouzel.load(vl[1])
    with pytest.raises(UnsupportedError, match="mmproj"):
        ouzel.load(vl[0], mmproj=vl[0])
    with pytest.raises(UnsupportedError, match="qwen3vl"):
        ouzel.load(write_text(QWEN, tmp_path / "q.gguf", "qwen3"), mmproj=vl[1])
    with pytest.raises(RequestError, match="mmproj"):
        ouzel.load(QWEN, mmproj=vl[1])


def rewritten(source: Path, target: Path, change: dict) -> Path:
    """A copy of a GGUF file with other metadata (None leaves a key out)."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or (key in change and change[key] is None):
            continue
        value = change.get(key, field.contents())
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, field.types[0], sub_type=sub)
    for one in reader.tensors:
        writer.add_tensor(one.name, one.data, raw_dtype=one.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


TOKENS = "tokenizer.ggml."
DAMAGED = {
    "no tokens": ({f"{TOKENS}tokens": None}, ConfigError, "tokenizer.ggml.tokens"),
    "no merges": ({f"{TOKENS}merges": None}, ConfigError, "tokenizer.ggml.merges"),
    "too few types": ({f"{TOKENS}token_type": [1, 1]}, ConfigError, "token_type"),
    "unknown types": ({f"{TOKENS}token_type": [77] * 992}, ConfigError, "token_type"),
    "a merge of strangers": ({f"{TOKENS}merges": ["qqqq zzzz"]}, ConfigError, "qqqq zzzz"),
    "an end outside": ({f"{TOKENS}eos_token_id": 5000}, ConfigError, "eos_token_id"),
    "another tokenizer": ({f"{TOKENS}model": "llama"}, UnsupportedError, "byte-level BPE"),
    "another cut": ({f"{TOKENS}pre": "falcon"}, UnsupportedError, "tokenizer.ggml.pre"),
    "no width": ({"qwen3.embedding_length": None}, ConfigError, "qwen3.embedding_length"),
    "another width": ({"qwen3.embedding_length": 96}, TensorError, "shape"),
    "too many layers": ({"qwen3.block_count": 4000}, TensorError, "no such tensors"),
    "too few layers": ({"qwen3.block_count": 1}, TensorError, "left over"),
    "no layers": ({"qwen3.block_count": 0}, ConfigError, "block_count"),
    "many heads": ({"qwen3.attention.head_count": 2**31 - 1}, ConfigError, "qwen3.attention"),
    "heads that do not divide": ({"qwen3.attention.head_count_kv": 3}, ConfigError, "head_count_kv"),
    "an epsilon of zero": ({"qwen3.attention.layer_norm_rms_epsilon": 0.0}, ConfigError, "epsilon"),
    "an epsilon that is none": ({"qwen3.attention.layer_norm_rms_epsilon": float("nan")}, ConfigError, "epsilon"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_metadata(tmp_path: Path, name: str) -> None:
    change, kind, words = DAMAGED[name]
    path = rewritten(write_text(QWEN, tmp_path / "whole.gguf", "qwen3"), tmp_path / "damaged.gguf", change)
    with pytest.raises(kind) as caught:
        ouzel.load(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_temporary_folder_goes_with_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_text(QWEN, tmp_path / "m.gguf", "qwen3"))
    folder = checkpoint.path
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config == checkpoint.config
    assert [path.name for path in checkpoint.tensors.files] == ["m.gguf"]
    del checkpoint
    assert not folder.exists()


def test_errors_are_ours(tmp_path: Path) -> None:
    """A sound file cut anywhere after its header, or with a scale that is no number, is an error that names it."""
    path = write_text(UNTIED, tmp_path / "m.gguf", "qwen3", all_matrices(Q.Q8_0))
    data = path.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(data[: len(data) // 2])
    with pytest.raises(CheckpointError, match="cut short"):
        ouzel.load(cut)
    entry = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.0.ffn_up.weight")
    bad = tmp_path / "nan.gguf"
    bad.write_bytes(data[: entry.data_offset] + b"\x00\x7e" + data[entry.data_offset + 2 :])
    with pytest.raises(OuzelError, match="finite scales"):
        ouzel.load(bad)
