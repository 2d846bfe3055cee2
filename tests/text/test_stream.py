"""Streaming: pieces join to the whole, stop strings are cut exactly."""

from __future__ import annotations

import itertools
import random

import pytest

from ouzel.errors import RequestError
from ouzel.text.stream import StopStrings, StreamDecoder
from ouzel.text.tokenizer import Tokenizer


def streamed(tokenizer: Tokenizer, ids: list[int], skip: bool) -> list[str]:
    decoder = StreamDecoder(tokenizer, skip_special_tokens=skip)
    return [*map(decoder.push, ids), decoder.finish()]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("seed", range(30))
def test_random_ids_join_to_the_whole(tiny: Tokenizer, seed: int, skip: bool) -> None:
    """Random ids give broken characters of every kind, special tokens and ids without a token among them."""
    numbers = random.Random(seed)
    ids = [numbers.randrange(1000) if numbers.random() < 0.5 else numbers.randrange(256) for _ in range(300)]
    assert "".join(streamed(tiny, ids, skip)) == tiny.decode(ids, skip_special_tokens=skip)


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_of_the_real_vocabulary(real: Tokenizer, seed: int) -> None:
    numbers = random.Random(seed)
    # Ids below 256 are single bytes; the others are words of all scripts and added tokens.
    ids = [numbers.choice([numbers.randrange(256), numbers.randrange(real.vocab_size)]) for _ in range(500)]
    assert "".join(streamed(real, ids, True)) == real.decode(ids)


def test_every_two_bytes_join_to_the_whole(tiny: Tokenizer) -> None:
    """All starts of characters before all kinds of second bytes, each also cut there."""
    second = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xF0, 0xF4, 0xFF]
    ids_of = {tiny.token_bytes(token)[0]: token for token in range(256) if len(tiny.token_bytes(token)) == 1}
    assert len(ids_of) == 256
    for first, other in itertools.product(range(0x80, 0x100), second):
        for rest in ([], [0x80], [0x80, 0x41], [0x80, 0x80]):
            ids = [ids_of[byte] for byte in (first, other, *rest)]
            assert "".join(streamed(tiny, ids, True)) == tiny.decode(ids)


@pytest.mark.parametrize("text", ["héllo wörld", "👩‍💻🤷🏿‍♀️", "北京是中国的首都。", "السَّلَامُ"])
def test_nothing_broken_is_ever_sent(real: Tokenizer, text: str) -> None:
    pieces = streamed(real, real.encode(text), True)
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_an_unfinished_character_comes_at_the_end(real: Tokenizer) -> None:
    ids = real.encode("👩‍💻")
    cut = next(end for end in range(1, len(ids)) if real.decode(ids[:end]).endswith("\ufffd"))
    pieces = streamed(real, ids[:cut], True)
    assert pieces[-1] == "\ufffd" and "\ufffd" not in "".join(pieces[:-1])


def pieces_of(text: str, numbers: random.Random) -> list[str]:
    cuts = sorted(numbers.randrange(len(text) + 1) for _ in range(numbers.randrange(8)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)])]


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], bool, str | None]:
    machine = StopStrings(stops)
    out, stopped = [], False
    for piece in pieces:
        safe, stopped = machine.push(piece)
        out.append(safe)
        if stopped:
            break
    if not stopped:
        out.append(machine.finish())
    return out, stopped, machine.matched


def by_definition(stops: list[str], text: str) -> tuple[str, bool]:
    """Character by character: the first end at which any stop string ends, the longest there."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


@pytest.mark.parametrize("seed", range(60))
def test_any_pieces_give_the_same_cut(seed: int) -> None:
    """Few letters, so that stop strings begin, fail, overlap and hold each other."""
    numbers = random.Random(seed)
    for _ in range(40):
        text = "".join(numbers.choices("ab北", k=numbers.randrange(30)))
        stops = ["".join(numbers.choices("ab北", k=numbers.randint(1, 6))) for _ in range(numbers.randrange(4))]
        out, stopped, matched = run(stops, pieces_of(text, numbers))
        assert ("".join(out), stopped) == by_definition(stops, text)
        assert (matched in stops) == stopped


@pytest.mark.parametrize("seed", range(20))
def test_what_is_held_back_is_only_what_may_become_a_stop(seed: int) -> None:
    numbers = random.Random(seed)
    stops = ["".join(numbers.choices("ab", k=numbers.randint(1, 5))) for _ in range(3)]
    machine, sent, seen = StopStrings(stops), "", ""
    for char in numbers.choices("abc", k=60):
        seen += char
        safe, stopped = machine.push(char)
        sent += safe
        if stopped:
            break
        held = seen[len(sent) :]
        assert not held or any(stop.startswith(held) for stop in stops)
        # And nothing longer was possible: no ending that is longer than the held one begins a stop string.
        assert not any(stop.startswith(seen[start:]) for start in range(len(sent)) for stop in stops)


def test_examples() -> None:
    assert run(["END"], ["a E", "N", "D b"]) == (["a ", "", ""], True, "END")
    assert run(["END"], ["a E", "N", "X b"]) == (["a ", "", "ENX b", ""], False, None)
    assert run(["END"], ["a E", "N"]) == (["a ", "", "EN"], False, None)
    assert run(["\n\n"], ["x\n", "\ny"]) == (["x", ""], True, "\n\n")
    assert run([], ["abc"]) == (["abc", ""], False, None)


def test_after_a_stop_nothing_comes_out() -> None:
    machine = StopStrings(["x"])
    assert machine.push("axb") == ("a", True)
    assert machine.push("more") == ("", True)
    assert machine.finish() == ""


@pytest.mark.parametrize("bad", ["", None, 3, b"x"])
def test_a_stop_that_cannot_be_met_is_refused(bad: object) -> None:
    with pytest.raises(RequestError, match=r"stop\[1\]"):
        StopStrings(["ok", bad])  # type: ignore[list-item]
