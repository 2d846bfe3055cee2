"""Guessing tokens ahead, so that one pass over the weights may give several.

The guessed tokens run as further rows of the sequence. The true logits of every row say what the sampler picks there; rows
count as long as their input was what it picked. Since a row's result does not depend on the rows beside it, and the sampler
draws once for every token that counts, the tokens are those of plain decoding, greedy and sampled alike.
"""

from __future__ import annotations

from collections.abc import Sequence

SPECULATION = ("off", "ngram")
"""Values of the setting `speculate`."""

MOST = 8
"""Most guessed tokens in one pass: about as many rows as cost little beside reading the weights."""

_SIZES = (4, 3, 2)
_LONGEST_REST = 32


class Ngrams:
    """Looks the last tokens of a text up in what came before, prompt and output, and guesses that they go on alike."""

    def __init__(self) -> None:
        # Where the text went on after each run of tokens, the latest place.
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 1

    def guess(self, ids: Sequence[int], most: int) -> tuple[int, ...]:
        """At most `most` tokens after `ids`, which only ever grow; none when the last tokens are new."""
        for end in range(self._indexed, len(ids)):
            for size in _SIZES:
                if size <= end:
                    self._after[tuple(ids[end - size : end])] = end
        self._indexed = max(self._indexed, len(ids))
        for size in _SIZES:
            start = self._after.get(tuple(ids[-size:])) if size <= len(ids) else None
            if start is not None:
                # Text that repeats at once goes on through its own continuation.
                period = len(ids) - start
                return tuple(ids[start + i % period] for i in range(most))
        return ()


class Speculator:
    """The guesses of one request, and how long they should be.

    The length doubles when a whole guess held and follows what held otherwise; after a guess of which nothing held there is
    a rest, twice as long each time, so that text that does not repeat costs next to nothing. limit: tokens of the context.
    """

    def __init__(self, limit: int) -> None:
        self.drafted = 0
        self.accepted = 0
        self._limit = limit
        self._ngrams = Ngrams()
        self._length = 2
        self._rest = 0
        self._next_rest = 1

    def guess(self, ids: Sequence[int], most: int) -> tuple[int, ...]:
        """Guessed tokens after `ids`, at most `most` and no more than the context holds."""
        if self._rest > 0:
            self._rest -= 1
            return ()
        room = min(most, self._length, self._limit - len(ids) - 1)
        return self._ngrams.guess(ids, room) if room > 0 else ()

    def learn(self, drafted: int, accepted: int) -> None:
        """Says how many of the last guess's tokens were right."""
        if not drafted:
            return
        self.drafted += drafted
        self.accepted += accepted
        if accepted:
            self._length = min(MOST, 2 * drafted if accepted == drafted else accepted + 1)
            self._next_rest = 1
        else:
            self._length, self._rest = 2, self._next_rest
            self._next_rest = min(_LONGEST_REST, 2 * self._next_rest)


def make_speculator(kind: str, limit: int) -> Speculator | None:
    """The speculator of a request with the setting `kind`, None for "off"."""
    return Speculator(limit) if kind == "ngram" else None
