"""The byte-level alphabet: every byte has one visible character, so that a vocabulary of strings can hold any bytes."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1)
def char_to_byte() -> dict[str, int]:
    """Character to byte value. Printable Latin-1 stands for itself; the other bytes, in order, follow U+0100."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in visible}
    hidden = [byte for byte in range(256) if chr(byte) not in table]
    table.update({chr(0x100 + index): byte for index, byte in enumerate(hidden)})
    return table


def token_to_bytes(token: str) -> bytes:
    """The bytes a byte-level decoder makes of a token.

    A token with any character outside the alphabet (an added token such as `<｜User｜>`) is taken as UTF-8 text.
    """
    table = char_to_byte()
    try:
        return bytes([table[char] for char in token])
    except KeyError:
        return token.encode("utf-8", errors="replace")
