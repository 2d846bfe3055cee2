"""The reader's training code: pixel order, labels, tokenizer, template, strings, network against transformers."""

from __future__ import annotations

import hashlib
import json
import random
import string
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import ImageFont

ROOT = Path(__file__).resolve().parent.parent
READER = ROOT / "src" / "ouzel" / "embedded" / "reader"
sys.path.insert(0, str(ROOT / "training"))

import draw_examples  # noqa: E402
import evaluate_reader  # noqa: E402
import reader_config as rc  # noqa: E402
import reader_data as data  # noqa: E402
import reader_export as export  # noqa: E402
from reader_decode import input_size, read_file, read_pictures  # noqa: E402
from reader_fonts import Face  # noqa: E402
from reader_model import AUX_SLOTS, PATCH_SLOTS, Linear, Reader  # noqa: E402
from reader_text import MAX_LINE, LineMaker, load_words  # noqa: E402

WORDS = ["ouzel", "river", "stone", "water", "Dipper", "bridge", "under", "a"]


@pytest.fixture(scope="module")
def face(tmp_path_factory) -> Face:
    """Pillow's built-in font as a file, so that no system font is needed."""
    path = tmp_path_factory.mktemp("font") / "builtin.ttf"
    path.write_bytes(ImageFont.load_default(20).font_bytes)
    return Face(str(path), "Builtin", "Regular", 0.5)


@pytest.fixture
def painter(face) -> data.Painter:
    rng = random.Random(5)
    return data.Painter(rng, [face], LineMaker(rng, WORDS))


@pytest.fixture
def model() -> Reader:
    torch.manual_seed(3)
    return Reader().eval()


def test_patches_are_in_block_order_with_channel_first_columns():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 64, 96, 3), dtype=np.uint8)
    patches = data.to_patches(pixels)
    assert patches.shape == (2, 24, 768) and patches.dtype == np.float32
    row = 0
    for block_row in range(2):
        for block_column in range(3):
            for inner_row in range(2):
                for inner_column in range(2):
                    y, x = (block_row * 2 + inner_row) * 16, (block_column * 2 + inner_column) * 16
                    want = pixels[1, y:y + 16, x:x + 16].astype(np.float32).transpose(2, 0, 1) / 127.5 - 1
                    np.testing.assert_allclose(patches[1, row].reshape(3, 16, 16), want, atol=1e-6)
                    row += 1


def test_cell_labels_hold_the_characters_by_cell_and_mark_crowded_cells():
    pixels = np.zeros((64, 64, 3), np.uint8)
    centres = [(5.0, 8.0, "a"), (31.9, 8.0, "b"), (32.0, 8.0, " "), (40.0, 40.0, "c"), (70.0, 8.0, "x")]
    centres += [(2.0 + i, 50.0, "m") for i in range(AUX_SLOTS + 1)]
    labels = data.aux_labels(data.Sample(pixels, [], centres))
    assert labels[0].tolist() == [ord("a"), ord("b"), 0, 0]
    assert labels[1].tolist() == [ord(" "), 0, 0, 0]
    assert labels[2].tolist() == [-100] * AUX_SLOTS
    assert labels[3].tolist() == [ord("c"), 0, 0, 0]


def test_patch_labels_follow_the_order_of_the_patches():
    sample = data.Sample(np.zeros((64, 64, 3), np.uint8), [], [(20.0, 4.0, "a"), (4.0, 20.0, "b"), (60.0, 60.0, "c")])
    found = {row: chr(labels[0]) for row, labels in enumerate(data.patch_labels(sample).tolist()) if labels[0]}
    assert found == {1: "a", 2: "b", 15: "c"}


def test_painted_centres_lie_on_ink(painter):
    painter.ease = 0.0  # black on white
    sample = painter.sample(384, 64, 2, 20, texts=["HHHH MMMM", "WWWW"])
    assert sample.pixels.shape == (64, 384, 3)
    assert [c for _, _, c in sample.centres] == list("HHHH MMMMWWWW")
    for x, y, character in sample.centres:
        column = sample.pixels[max(0, int(y) - 9):int(y) + 9, int(x) - 3:int(x) + 4]
        assert (column.min() < 128) == (character != " ")


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_canvas_stays_inside_the_processor_limits(count):
    rng = random.Random(count)
    for _ in range(200):
        width, height = data.canvas(rng, count, rng.randint(1, MAX_LINE))
        assert width % 32 == 0 and height % 32 == 0
        assert rc.MIN_PIXELS <= width * height <= rc.MAX_PIXELS


def test_lines_are_printable_and_bounded():
    lines = [LineMaker(random.Random(seed), WORDS).line(MAX_LINE) for seed in range(500)]
    assert all(1 <= len(line) <= MAX_LINE for line in lines)
    assert all(set(line) <= set(string.printable[:95]) for line in lines)
    assert all(line == line.strip() and "  " not in line for line in lines)
    assert len(set("".join(lines))) > 80


def test_words_of_evaluation_are_never_training_words(tmp_path):
    path = tmp_path / "words"
    path.write_text("\n".join(a + b + c for a in "abcdef" for b in "aeiou" for c in "lmnrst") + "\nnaïve\n", encoding="utf-8")
    training, evaluation = load_words(False, path), load_words(True, path)
    assert training and evaluation and not set(training) & set(evaluation)
    assert len(training) + len(evaluation) == 180


def test_batch_targets_are_the_answer_shifted_by_one(painter):
    samples = [painter.sample(128, 64, 2, 8, texts=texts) for texts in (["ab", "c"], ["abcd", "efg"])]
    batch = data.make_batch(samples, "Read the text.", picture_first=True)
    for i, text in enumerate(["ab\nc", "abcd\nefg"]):
        wanted = batch.targets[i][batch.targets[i] >= 0].tolist()
        assert wanted == data.encode_text(text) + [rc.IM_END]
        first = int((batch.targets[i] >= 0).nonzero()[0])
        assert batch.ids[i, first + 1:first + len(wanted)].tolist() == wanted[:-1]
    assert batch.ids[:, batch.pictures].unique().tolist() == [rc.IMAGE_PAD]
    assert batch.patches.shape == (2, 32, 768) and batch.aux.shape == (2, 8, AUX_SLOTS)
    assert batch.patch_aux.shape == (2, 32, PATCH_SLOTS)


def test_every_byte_is_its_own_token_and_added_tokens_follow():
    tokenizer = export.tokenizer()
    text = string.printable[:95] + "\nzażółć 東京\t"
    assert tokenizer.encode(text).ids == list(text.encode("utf-8"))
    assert tokenizer.decode(list(text.encode("utf-8"))) == text
    assert tokenizer.encode("a<|im_end|><think>").ids == [ord("a"), 258, 280]
    assert tokenizer.get_vocab_size() == 282 <= rc.VOCAB


@pytest.mark.parametrize("picture_first", [True, False])
@pytest.mark.parametrize("question", ["", "Read the text."])
def test_training_prompt_equals_the_rendered_template(tmp_path, model, question, picture_first):
    export.write_folder(tmp_path, model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    parts = [{"type": "image"}, {"type": "text", "text": question}]
    messages = [{"role": "user", "content": parts if picture_first else parts[::-1]}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    before, after = data.prompt_parts(question, picture_first)
    assert tokenizer.encode(text) == before + [rc.IMAGE_PAD] + after


def test_training_network_equals_transformers(tmp_path, model, painter):
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16())  # as stored
    export.write_folder(tmp_path, model)
    theirs = transformers.Qwen3VLForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32).eval()
    samples = [painter.sample(160, 64, 2, 10) for _ in range(2)]
    batch = data.make_batch(samples, "What is written here?", picture_first=False)
    pixels = batch.patches.view(-1, 3, 1, 256).expand(-1, -1, 2, -1).reshape(-1, 1536)
    with torch.no_grad():
        ours = model(batch)[0]
        want = theirs(input_ids=batch.ids, pixel_values=pixels, image_grid_thw=torch.tensor([[1, *batch.grid]] * 2),
                      mm_token_type_ids=(batch.ids == rc.IMAGE_PAD).int()).logits
    # Both are float32 sums over at most 768 products; 1e-4 is about 1000 roundings of logits near 1.
    assert float((ours - want).abs().max()) < 1e-4 * float(want.abs().max())


def test_stepwise_decoding_equals_the_whole_pass(model, painter):
    samples = [painter.sample(128, 64, 1, 8) for _ in range(3)]
    batch = data.make_batch(samples, "Read the text.", picture_first=True)
    answers = read_pictures(model, batch.patches, batch.grid, most=6)
    start = batch.pictures.stop + len(data.prompt_parts("Read the text.")[1])
    ids = batch.ids[:, :start]
    chosen = []
    for _ in range(6):
        positions = data.position_ids(batch.pictures.start, 2, 4, ids.shape[1] - batch.pictures.stop)
        whole = data.Batch(batch.patches, batch.grid, ids, positions, batch.pictures, ids, batch.aux, batch.patch_aux, [])
        with torch.no_grad():
            best = model(whole)[0][:, -1].argmax(-1)
        chosen.append(best)
        ids = torch.cat((ids, best[:, None]), dim=1)
    for i, answer in enumerate(answers):
        row = [int(step[i]) for step in chosen]
        ends = [j for j, token in enumerate(row) if token in (rc.IM_END, rc.END_OF_TEXT)]
        row = row[:ends[0]] if ends else row
        assert answer == bytes(t for t in row if t < 256).decode("utf-8", "replace")


def test_half_products_have_the_gradients_of_full_ones():
    torch.manual_seed(0)
    layer, x = Linear(64, 48), torch.randn(5, 7, 64, requires_grad=True)
    found = []
    for half in (False, True):
        Linear.half = half
        try:
            y = layer(x)
            found.append([y.detach(), *torch.autograd.grad(y.square().sum(), [x, layer.weight, layer.bias])])
        finally:
            Linear.half = False
    for full, rounded in zip(*found):
        # bfloat16 keeps 8 bits: each operand is within 2^-9 of its value.
        assert float((full - rounded).norm() / full.norm()) < 4 * 2**-8


@pytest.mark.parametrize(("a", "b", "distance"), [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("ab", "ba", 2)])
def test_edit_distance(a, b, distance):
    assert evaluate_reader.edit_distance(a, b) == distance


def test_score_counts_characters_and_exact_lines():
    score = evaluate_reader.Score()
    score.add(["abc", "de"], "abc\ndx")
    score.add(["f"], "f\nextra")
    row = score.row()
    assert (row["characters"], row["lines"]) == (7, 3)
    assert row["exact_lines"] == round(2 / 3, 4)
    assert row["character_accuracy"] == round(1 - 2 / 7, 4)  # the surplus line counts as one, its answer's whole length


@pytest.mark.parametrize(("size", "wanted"), [
    ((320, 96), (320, 96)),
    ((324, 116), (320, 128)),  # to the nearest multiple of 32
    ((48, 80), (64, 64)),  # ties go to the even multiple: 1.5 -> 2, 2.5 -> 2
    ((20, 10), (96, 64)),  # 4096 pixels at least
    ((1600, 1200), (320, 224)),  # 76800 pixels at most
])
def test_pictures_are_sized_as_the_processor_does(size, wanted):
    assert input_size(*size) == wanted


class TestCommittedReader:
    """The checkpoint in the package, its files and what it reads."""

    def test_is_at_most_ten_megabytes(self):
        assert sum(file.stat().st_size for file in READER.iterdir()) <= 10_000_000

    @pytest.mark.parametrize("name", sorted(export.configs()))
    def test_json_files_are_those_that_training_writes(self, name):
        assert json.loads((READER / name).read_text(encoding="utf-8")) == export.configs()[name]

    def test_tokenizer_is_the_one_that_training_writes(self):
        assert json.loads((READER / "tokenizer.json").read_text(encoding="utf-8")) == json.loads(export.tokenizer().to_str())

    @pytest.mark.parametrize("question", ["Read the text.", ""])
    @pytest.mark.parametrize("example", draw_examples.EXAMPLES, ids=lambda example: example.name)
    def test_reads_the_example_pictures(self, example, question):
        model = evaluate_reader.load(READER)
        assert read_file(model, ROOT / "examples" / example.name, question) == "\n".join(example.lines)

    def test_measurement_in_the_repository_is_of_these_weights(self):
        measured = json.loads((ROOT / "training" / "evaluation.json").read_text(encoding="utf-8"))
        weights = (READER / "model.safetensors").read_bytes()
        assert measured["weights_sha256"] == hashlib.sha256(weights).hexdigest()
