"""The tokenizer: recorded ids and texts, bytes of tokens, building without tokenizer.json."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from ouzel.errors import PromptError
from ouzel.text.bytelevel import char_to_byte, token_to_bytes
from ouzel.text.split import PieceEncoder
from ouzel.text.tokenizer import Tokenizer

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"
REAL = json.loads((FIXTURES / "qwen3/tokenizer_cases.json").read_text(encoding="utf-8"))["cases"]
TINY = json.loads((FIXTURES / "qwen3/tokenizer_cases_tiny.json").read_text(encoding="utf-8"))["cases"]
FOLDERS = ["qwen3/tiny", "qwen3/tiny_untied", "qwen3_vl/tiny", "qwen3_vl/tiny_tied"]


def check(tokenizer: Tokenizer, case: dict[str, Any]) -> None:
    ids = case["ids"]
    assert tokenizer.encode(case["text"]) == ids
    assert tokenizer.encode(case["text"], add_special_tokens=False) == ids
    decoded = case.get("decoded", case["text"])
    assert tokenizer.decode(ids, skip_special_tokens=False) == decoded
    assert b"".join(map(tokenizer.token_bytes, ids)).decode("utf-8", errors="replace") == decoded
    if "decoded_skip_special" in case or "decoded" not in case:
        assert tokenizer.decode(ids) == case.get("decoded_skip_special", skip_special(tokenizer, ids))


def skip_special(tokenizer: Tokenizer, ids: list[int]) -> str:
    kept = [token for token in ids if not tokenizer.is_special(token)]
    return tokenizer.decode(kept, skip_special_tokens=False)


@pytest.mark.parametrize("case", REAL, ids=range(len(REAL)))
def test_the_real_tokenizer_gives_the_recorded_ids_and_texts(real: Tokenizer, case: dict[str, Any]) -> None:
    check(real, case)


@pytest.mark.parametrize("case", TINY, ids=range(len(TINY)))
def test_the_tiny_tokenizer_gives_the_recorded_ids_and_texts(tiny: Tokenizer, case: dict[str, Any]) -> None:
    check(tiny, case)


def test_encoding_in_pieces_equals_encoding_at_once(real: Tokenizer, tiny: Tokenizer) -> None:
    """Without marks the path for shielded text gives the tokenizer's own ids, for every recorded text."""
    for tokenizer, cases in ((real, REAL), (tiny, TINY)):
        pieces = PieceEncoder(tokenizer)
        for case in cases:
            assert pieces.encode(case["text"], case["text"]) == case["ids"], case["text"]


def test_facts_of_the_real_tokenizer(real: Tokenizer) -> None:
    assert real.vocab_size == 151669
    assert real.largest_id == 151668
    assert real.special_ids == frozenset(range(151643, 151657))
    assert list(real.added_tokens) == list(range(151643, 151669))
    assert real.id_of("<|image_pad|>") == 151655
    assert real.token_of(151667) == "<think>"
    assert not real.is_special(151667) and real.is_special(151645)


def test_facts_of_the_tiny_tokenizer(tiny: Tokenizer) -> None:
    assert (tiny.vocab_size, tiny.largest_id) == (984, 983)
    assert tiny.eos_token == "<|im_end|>" and tiny.eos_id == 960
    assert tiny.bos_token is None
    assert tiny.id_of("no such token") is None
    assert tiny.token_of(984) is None and tiny.token_of(-1) is None and tiny.token_of(1 << 40) is None


def test_ids_without_a_token_decode_to_nothing(tiny: Tokenizer) -> None:
    assert tiny.decode([39, 1000, 72]) == "Hi"
    assert tiny.token_bytes(1000) == b""


@pytest.mark.parametrize("token", [-1, 1 << 32, 1 << 70])
def test_impossible_ids_are_an_error_of_the_prompt(tiny: Tokenizer, token: int) -> None:
    with pytest.raises(PromptError, match=str(token)):
        tiny.decode([39, token])


@pytest.mark.parametrize("bad", [[-1], [1.5], ["1"], [True], [984], [None]], ids=str)
def test_check_ids_names_the_position(tiny: Tokenizer, bad: list[Any]) -> None:
    assert tiny.check_ids([0, 983], 984) == [0, 983]
    with pytest.raises(PromptError, match=r"ids\[1\]"):
        tiny.check_ids([0, *bad], 984)


def test_lone_surrogates_become_replacement_characters(tiny: Tokenizer) -> None:
    assert tiny.encode("a\ud800b") == tiny.encode("a\ufffdb")
    assert tiny.encode("\ud83d\ude00") == tiny.encode("\U0001f600")


def test_the_byte_alphabet_is_a_bijection() -> None:
    table = char_to_byte()
    assert len(table) == 256 and set(table.values()) == set(range(256))
    assert table["Ġ"] == 0x20 and table["Ċ"] == 0x0A and table["a"] == 0x61
    assert token_to_bytes("Ġa") == b" a"
    assert token_to_bytes("<｜User｜>") == "<｜User｜>".encode()


def test_token_bytes_equal_the_decoder_for_every_token(real: Tokenizer) -> None:
    numbers = random.Random(5)
    for token in [*range(256), *numbers.sample(range(real.vocab_size), 3000), *real.added_tokens]:
        text = real.decode([token], skip_special_tokens=False)
        assert real.token_bytes(token).decode("utf-8", errors="replace") == text


@pytest.mark.parametrize("folder", FOLDERS)
def test_vocab_and_merges_do_without_tokenizer_json(folder: str, tmp_path: Path) -> None:
    source = FIXTURES / folder
    for name in ("vocab.json", "merges.txt", "tokenizer_config.json"):
        shutil.copy(source / name, tmp_path)
    built, whole = Tokenizer.from_folder(tmp_path), Tokenizer.from_folder(source)
    assert built.special_ids == whole.special_ids
    assert [token.content for token in built.added_tokens.values()] == [
        token.content for token in whole.added_tokens.values()
    ]
    for case in [*TINY, *REAL]:
        assert built.encode(case["text"]) == whole.encode(case["text"])
        assert built.decode(case["ids"]) == whole.decode(case["ids"])


def test_limits_of_a_training_run_are_not_kept(tmp_path: Path, tiny: Tokenizer) -> None:
    data = json.loads((FIXTURES / "qwen3/tiny/tokenizer.json").read_text(encoding="utf-8"))
    data["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    data["padding"] = {"strategy": {"Fixed": 50}, "direction": "Right", "pad_to_multiple_of": None}
    data["padding"] |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "!"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    text = "a text of more than three tokens"
    assert Tokenizer.from_folder(tmp_path).encode(text) == tiny.encode(text)


def test_a_post_processor_adds_its_tokens_only_when_asked(tmp_path: Path, tiny: Tokenizer) -> None:
    data = json.loads((FIXTURES / "qwen3/tiny/tokenizer.json").read_text(encoding="utf-8"))
    begin = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    data["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [begin, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [958], "tokens": ["<|endoftext|>"]}},
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(data), encoding="utf-8")
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.encode("Hi") == [958, *tiny.encode("Hi")]
    assert tokenizer.encode("Hi", add_special_tokens=False) == tiny.encode("Hi")


def test_tokens_of_the_config_are_added_and_marked(tmp_path: Path) -> None:
    """A token that only tokenizer_config.json lists exists; one that it names as end token is special."""
    source = FIXTURES / "qwen3/tiny"
    shutil.copy(source / "tokenizer.json", tmp_path)
    config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["added_tokens_decoder"]["984"] = {"content": "<new>", "special": False}
    config["eos_token"] = {"content": "</think>", "lstrip": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.encode("a<new>") == [64, 984]
    assert not tokenizer.is_special(984)
    assert tokenizer.eos_id == 983 and tokenizer.is_special(983)


def test_an_ordinary_word_that_is_named_as_padding_stays_a_word(tmp_path: Path, tiny: Tokenizer) -> None:
    shutil.copy(FIXTURES / "qwen3/tiny/tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "!", "unk_token": "<nowhere>"}', encoding="utf-8")
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.vocab_size == tiny.vocab_size
    assert tokenizer.decode(tokenizer.encode("Hi!")) == "Hi!"
