"""Damaged and hostile tokenizer files: one line that names the file, never a traceback of a library."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ouzel.errors import CheckpointError, OuzelError, UnsupportedError
from ouzel.text.tokenizer import Tokenizer

SOURCE = Path(__file__).parents[1] / "data" / "fixtures" / "qwen3" / "tiny"
GOOD = json.loads((SOURCE / "tokenizer.json").read_text(encoding="utf-8"))
CONFIG = json.loads((SOURCE / "tokenizer_config.json").read_text(encoding="utf-8"))

RAW: dict[str, bytes] = {
    "empty": b"",
    "spaces": b"   \n",
    "not json": b"hello",
    "cut": json.dumps(GOOD).encode()[:5000],
    "list": b"[]",
    "null": b"null",
    "number": b"1e999",
    "empty object": b"{}",
    "latin-1": b'{"a": "\xe9"}',
    "zeros": bytes(1000),
    "deep": b"[" * 100_000,
    "deep objects": b'{"added_tokens":' * 50_000,
    "html": b"<!DOCTYPE html><title>404</title>",
    "lfs pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 11422654\n",
}


def model(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["model"].update({key: value})


def added(index: int, key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["added_tokens"][index].update({key: value})


EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "no model": lambda data: data.pop("model"),
    "model of another kind": model("type", "Teapot"),
    "no vocab": lambda data: data["model"].pop("vocab"),
    "vocab a list": model("vocab", ["a", "b"]),
    "negative id": lambda data: data["model"]["vocab"].update({"!": -1}),
    "id above 32 bits": lambda data: data["model"]["vocab"].update({"!": 1 << 40}),
    "id a string": lambda data: data["model"]["vocab"].update({"!": "0"}),
    "merge of unknown tokens": lambda data: data["model"]["merges"].append(["zz", "qq"]),
    "merge of three": lambda data: data["model"]["merges"].append(["a", "b", "c"]),
    "merges a number": model("merges", 7),
    "bad regex": lambda data: data["pre_tokenizer"]["pretokenizers"][0]["pattern"].update({"Regex": "("}),
    "unknown normalizer": lambda data: data.update({"normalizer": {"type": "Nope"}}),
    "added token without id": lambda data: data["added_tokens"][0].pop("id"),
    "added token with another id": added(0, "id", 5),
    "added token with a huge id": added(3, "id", 4_000_000_000),
    "added tokens swapped": lambda data: (added(0, "id", 959)(data), added(1, "id", 958)(data)),
    "added token without content": added(2, "content", ""),
    "added token content a number": added(2, "content", 7),
    "added tokens an object": lambda data: data.update({"added_tokens": {"a": 1}}),
}


def write(folder: Path, data: bytes | dict[str, Any], config: dict[str, Any] | None = None) -> None:
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    (folder / "tokenizer.json").write_bytes(raw)
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG if config is None else config), encoding="utf-8")


def refused(folder: Path, file: str = "tokenizer.json") -> None:
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.from_folder(folder)
    message = str(caught.value)
    assert file in message
    assert "\n" not in message and len(message) < 600 + len(str(folder))


@pytest.mark.parametrize("name", RAW)
def test_raw_rubbish(name: str, tmp_path: Path) -> None:
    write(tmp_path, RAW[name])
    refused(tmp_path)


@pytest.mark.parametrize("name", EDITS)
def test_one_wrong_value(name: str, tmp_path: Path) -> None:
    data = copy.deepcopy(GOOD)
    EDITS[name](data)
    write(tmp_path, data)
    refused(tmp_path)


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_never_escapes_as_another_error(seed: int, tmp_path: Path) -> None:
    numbers = random.Random(seed)
    raw = bytearray(json.dumps(GOOD).encode())
    for _ in range(numbers.choice([1, 3, 20])):
        place = numbers.randrange(len(raw))
        raw[place : place + numbers.randrange(3)] = numbers.randbytes(numbers.randrange(3))
    write(tmp_path, bytes(raw))
    try:
        tokenizer = Tokenizer.from_folder(tmp_path)
        tokenizer.decode(tokenizer.encode("It's 12 o'clock <|im_end|> 北京"))
    except OuzelError as error:
        assert "\n" not in str(error)


DECODERS: list[Any] = [
    None,
    {"type": "WordPiece", "prefix": "##", "cleanup": True},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
]


@pytest.mark.parametrize("decoder", DECODERS, ids=[str(item and item["type"]) for item in DECODERS])
def test_tokenizers_that_are_not_byte_level_are_refused_by_name(decoder: Any, tmp_path: Path) -> None:
    write(tmp_path, {**GOOD, "decoder": decoder})
    with pytest.raises(UnsupportedError, match=decoder["type"] if decoder else "none"):
        Tokenizer.from_folder(tmp_path)


def test_a_sequence_of_one_byte_level_decoder_is_fine(tmp_path: Path) -> None:
    write(tmp_path, {**GOOD, "decoder": {"type": "Sequence", "decoders": [GOOD["decoder"]]}})
    assert Tokenizer.from_folder(tmp_path).decode([39, 72]) == "Hi"


CONFIGS: dict[str, Any] = {
    "decoder a list": {"added_tokens_decoder": ["x"]},
    "key not a number": {"added_tokens_decoder": {"x": {"content": "a"}}},
    "key negative": {"added_tokens_decoder": {"-1": {"content": "a"}}},
    "key huge": {"added_tokens_decoder": {"9" * 5000: {"content": "a"}}},
    "entry a string": {"added_tokens_decoder": {"958": "<|endoftext|>"}},
    "another id": {"added_tokens_decoder": {"3": {"content": "<|im_end|>"}}},
    "a gap": {"added_tokens_decoder": {"990": {"content": "<new>"}}},
    "empty content": {"added_tokens_decoder": {"984": {"content": ""}}},
    "end token a number": {"eos_token": 5},
    "end token without content": {"eos_token": {"id": 3}},
    "special tokens a string": {"additional_special_tokens": "<a>"},
    "special token a number": {"additional_special_tokens": [3]},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_wrong_tokenizer_config(name: str, tmp_path: Path) -> None:
    write(tmp_path, GOOD, CONFIGS[name])
    refused(tmp_path, "tokenizer_config.json")


@pytest.mark.parametrize("content", [b"[1]", b"{", b"\xff\xfe", b"{" * 99999], ids=["list", "cut", "utf-16", "deep"])
def test_a_damaged_tokenizer_config(content: bytes, tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    refused(tmp_path, "tokenizer_config.json")


def test_an_empty_folder_names_what_it_lacks(tmp_path: Path) -> None:
    refused(tmp_path)


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    refused(tmp_path)


def test_vocab_without_merges(tmp_path: Path) -> None:
    shutil.copy(SOURCE / "vocab.json", tmp_path)
    refused(tmp_path, "merges.txt")


VOCABULARIES: dict[str, tuple[bytes, bytes, str]] = {
    "merge of three": (b'{"a": 0, "b": 1, "ab": 2}', b"#version: 0.2\na b c\n", "merges.txt"),
    "merge unknown": (b'{"a": 0, "b": 1}', b"a b\n", "vocab.json"),
    "vocab a list": (b"[]", b"", "vocab.json"),
    "vocab negative": (b'{"a": -1}', b"", "vocab.json"),
    "merges not text": (b'{"a": 0}', b"\xff\xfe\x00", "merges.txt"),
}


@pytest.mark.parametrize("name", VOCABULARIES)
def test_damaged_vocab_and_merges(name: str, tmp_path: Path) -> None:
    vocab, merges, file = VOCABULARIES[name]
    (tmp_path / "vocab.json").write_bytes(vocab)
    (tmp_path / "merges.txt").write_bytes(merges)
    refused(tmp_path, file)


def test_vocab_and_merges_of_another_class_are_not_guessed(tmp_path: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(SOURCE / name, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer"}', encoding="utf-8")
    with pytest.raises(CheckpointError, match="RobertaTokenizer"):
        Tokenizer.from_folder(tmp_path)
