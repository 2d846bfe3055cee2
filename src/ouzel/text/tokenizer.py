"""A checkpoint's tokenizer: text to token ids and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from ouzel.errors import PromptError
from ouzel.text.bytelevel import token_to_bytes
from ouzel.text.special import named_special_tokens
from ouzel.text.tokenizer_files import load_backend


class Tokenizer:
    """Wraps the `tokenizers` package; the same ids as the checkpoint's own files give there.

    `named` holds the tokens that the checkpoint names (`bos_token`, `eos_token`, ...).
    """

    def __init__(self, backend: tokenizers.Tokenizer, named: dict[str, str] | None = None) -> None:
        self.backend = backend
        self.named = dict(named or {})
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        """The tokenizer of a checkpoint folder.

        Raises `CheckpointError` naming the file when it is missing or damaged, `UnsupportedError` for a kind of tokenizer
        that is not byte-level.
        """
        root = Path(folder)
        return cls(load_backend(root), named_special_tokens(root))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text. Added tokens in it are recognised; `add_special_tokens` runs the post-processor."""
        return list(self.backend.encode(encodable(text), add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of token ids. Broken UTF-8 becomes U+FFFD; ids without a token (padded rows) give nothing."""
        try:
            return self.backend.decode([int(token) for token in ids], skip_special_tokens=skip_special_tokens)
        except OverflowError:
            bad = next(token for token in ids if not 0 <= token < 1 << 32)
            raise PromptError("decoding token ids", expected="ids of the vocabulary", got=str(bad)) from None

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token adds to the decoded text; none for an id without a token."""
        found = self._bytes.get(token)
        if found is None:
            text = self.token_of(token)
            found = self._bytes[token] = b"" if text is None else token_to_bytes(text)
        return found

    def token_of(self, token: int) -> str | None:
        """The vocabulary's string for an id, in the byte-level alphabet; None for an id without a token."""
        return self.backend.id_to_token(token) if 0 <= token < 1 << 32 else None

    def id_of(self, token: str) -> int | None:
        """The id of a vocabulary string or added token, None when there is none."""
        return self.backend.token_to_id(token)

    @cached_property
    def added_tokens(self) -> dict[int, tokenizers.AddedToken]:
        """The added tokens by id, ascending; special ones and others."""
        return dict(sorted(self.backend.get_added_tokens_decoder().items()))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids that `skip_special_tokens` leaves out."""
        return frozenset(token for token, added in self.added_tokens.items() if added.special)

    def is_special(self, token: int) -> bool:
        """Whether `skip_special_tokens` leaves this id out."""
        return token in self.special_ids

    @cached_property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included. A model may have more rows (padding)."""
        return self.backend.get_vocab_size(with_added_tokens=True)

    @cached_property
    def largest_id(self) -> int:
        """The largest id, which must be below the rows of the embedding."""
        return max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1)

    @property
    def bos_token(self) -> str | None:
        """The named beginning-of-text token."""
        return self.named.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        """The named end-of-text token."""
        return self.named.get("eos_token")

    @property
    def eos_id(self) -> int | None:
        """The id of `eos_token`; only one of the sources of end tokens."""
        return None if self.eos_token is None else self.id_of(self.eos_token)

    def check_ids(self, ids: Iterable[int], rows: int) -> list[int]:
        """Ids as a list, or `PromptError` for one that is not an integer in [0, `rows`)."""
        out = []
        for position, token in enumerate(ids):
            if isinstance(token, bool) or not hasattr(token, "__index__") or not 0 <= int(token) < rows:
                raise PromptError(f"token ids[{position}]", expected=f"an integer from 0 to {rows - 1}", got=str(token)[:40])
            out.append(int(token))
        return out


def encodable(text: str) -> str:
    """The text, with lone surrogates (from JSON escapes or undecodable file names) as U+FFFD: no token holds them."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")
    return text
