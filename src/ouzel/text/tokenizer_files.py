"""Building a `tokenizers.Tokenizer` from a checkpoint folder. The files come from anyone: every fault is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from ouzel.errors import CheckpointError, UnsupportedError
from ouzel.text.files import read_bytes, read_json, read_text
from ouzel.text.special import extra_special_tokens, named_special_tokens

# The pieces into which Qwen's tokenizers cut a text before merging: contractions, letters with one leading sign, single
# numbers, other signs with the line ends after them, line ends, spaces.
QWEN_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_CLASSES = ("Qwen2Tokenizer", "Qwen2TokenizerFast", "Qwen3Tokenizer", "Qwen3TokenizerFast")


def load_backend(folder: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a folder, from `tokenizer.json` or, without it, from `vocab.json` and `merges.txt`."""
    path = folder / "tokenizer.json"
    data = read_bytes(path)
    backend = _from_json(data, path) if data is not None else _from_vocabulary(folder)
    # Some files were saved with the limits of a training run; a prompt must never be cut or filled up.
    backend.no_truncation()
    backend.no_padding()
    _check_decoder(backend, path if data is not None else folder / "vocab.json")
    _add_configured_tokens(backend, folder)
    return backend


def _from_json(data: bytes, path: Path) -> tokenizers.Tokenizer:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"reading {path}", expected="UTF-8 text", got=f"byte {error.start} of another kind") from None
    backend = _guarded(lambda: tokenizers.Tokenizer.from_str(text), path)
    for entry in _added_entries(text, path):
        _check_id(backend, entry.get("content"), entry.get("id"), path)
    return backend


def _guarded(build: Any, path: Path) -> Any:
    try:
        return build()
    except (KeyboardInterrupt, SystemExit):
        raise
    # The library's own panics do not derive from Exception.
    except BaseException as error:
        raise CheckpointError(
            f"reading {path}", expected="a tokenizer", got=f"'{str(error)[:200]}'", fix="download the file again"
        ) from None


def _added_entries(text: str, path: Path) -> list[dict[str, Any]]:
    """The `added_tokens` list, read without parsing the whole of a file of many megabytes where possible."""
    key = '"added_tokens"'
    start = text.find(key)
    entries: Any = None
    if start >= 0:
        colon = text.find(":", start + len(key))
        begin = colon + 1 + (len(text[colon + 1 : colon + 200]) - len(text[colon + 1 : colon + 200].lstrip()))
        try:
            entries = json.JSONDecoder().raw_decode(text, begin)[0]
        except (ValueError, RecursionError):
            entries = None
    if not isinstance(entries, list):
        entries = json.loads(text).get("added_tokens") or []
    if not all(isinstance(entry, dict) for entry in entries):
        raise CheckpointError(f"reading {path}: added_tokens", expected="a list of objects", got="something else")
    return list(entries)


def _check_id(backend: tokenizers.Tokenizer, content: Any, wanted: Any, path: Path) -> None:
    """The library numbers added tokens itself; a file that says another number would mean another token."""
    if not isinstance(content, str) or not content:
        raise CheckpointError(f"reading {path}: added token {wanted}", expected="a text", got="none")
    got = backend.token_to_id(content)
    if got != wanted:
        raise CheckpointError(f"reading {path}: added token {content[:40]!r}", expected=f"id {wanted}", got=f"id {got}")


def _check_decoder(backend: tokenizers.Tokenizer, path: Path) -> None:
    decoder = backend.decoder
    if isinstance(decoder, decoders.ByteLevel):
        return
    state = b"null" if decoder is None else decoder.__getstate__()
    kinds = json.loads(state) or {}
    inner = [item.get("type") for item in kinds.get("decoders", [])]
    if inner and set(inner) <= {"ByteLevel"}:
        return
    raise UnsupportedError(
        f"tokenizer of {path}", expected="a byte-level decoder", got=f"{kinds.get('type', 'none')} {inner or ''}".strip()
    )


def _from_vocabulary(folder: Path) -> tokenizers.Tokenizer:
    vocab, merges = read_json(folder / "vocab.json"), read_text(folder / "merges.txt")
    if vocab is None or merges is None:
        raise CheckpointError(
            f"tokenizer of {folder}",
            expected="tokenizer.json, or vocab.json and merges.txt",
            got=f"no {'vocab.json' if vocab is None else 'merges.txt'}",
            fix="download the missing file",
        )
    kind = (read_json(folder / "tokenizer_config.json") or {}).get("tokenizer_class")
    if kind not in (None, *QWEN_CLASSES):
        raise CheckpointError(
            f"tokenizer of {folder}",
            expected="tokenizer.json",
            got=f"only vocab.json of a {kind}",
            fix="download tokenizer.json",
        )
    return _qwen_backend(vocab, _merges(merges, folder / "merges.txt"), folder / "vocab.json")


def _merges(text: str, path: Path) -> list[tuple[str, str]]:
    lines = [line for line in text.split("\n") if line and not line.startswith("#version")]
    pairs = [tuple(line.split(" ")) for line in lines]
    for line, pair in zip(lines, pairs):
        if len(pair) != 2:
            raise CheckpointError(f"reading {path}", expected="two tokens a line", got=repr(line[:40]))
    return [(pair[0], pair[1]) for pair in pairs]


def _qwen_backend(vocab: dict[str, Any], merges: list[tuple[str, str]], path: Path) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(_guarded(lambda: models.BPE(vocab=vocab, merges=merges), path))
    backend.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(QWEN_PIECES), behavior="isolated", invert=False)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    backend.decoder = decoders.ByteLevel()
    return backend


def _add_configured_tokens(backend: tokenizers.Tokenizer, folder: Path) -> None:
    """Adds what `tokenizer_config.json` lists and the tokenizer lacks, and marks the named special tokens as special."""
    path = folder / "tokenizer_config.json"
    listed = (read_json(path) or {}).get("added_tokens_decoder") or {}
    if not isinstance(listed, dict):
        raise CheckpointError(f"{path}: added_tokens_decoder", expected="an object", got=type(listed).__name__)
    for number, entry in sorted(((_number(key, path), entry) for key, entry in listed.items()), key=lambda item: item[0]):
        if not isinstance(entry, dict) or not isinstance(entry.get("content"), str):
            raise CheckpointError(f"{path}: added token {number}", expected="an object with content", got="something else")
        if backend.token_to_id(entry["content"]) is None:
            backend.add_tokens([_added_token(entry)])
        _check_id(backend, entry["content"], number, path)
    special_of = {token.content: token.special for token in backend.get_added_tokens_decoder().values()}
    for text in (*named_special_tokens(folder).values(), *extra_special_tokens(folder)):
        # Only added tokens: a new one would lie outside the embedding, and an ordinary word ("!" as the padding token)
        # must stay a word.
        if special_of.get(text) is False:
            backend.add_special_tokens([AddedToken(text, normalized=False, special=True)])


def _number(key: str, path: Path) -> int:
    if not key.isdecimal() or len(key) > 9:
        raise CheckpointError(f"{path}: added_tokens_decoder", expected="token ids as keys", got=repr(key[:40]))
    return int(key)


def _added_token(entry: dict[str, Any]) -> AddedToken:
    flags = {name: bool(entry.get(name, False)) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
    return AddedToken(entry["content"], **flags)
