"""Guessing ahead: the same tokens as without, whatever the guesses; and fewer passes on text that repeats."""

from __future__ import annotations

import numpy as np
import pytest
from goldens import FIXTURES

from ouzel import Model, load
from ouzel.engines.registry import engine_names
from ouzel.errors import RequestError
from ouzel.generation.speculate import MOST, Ngrams, Speculator

TEXT = FIXTURES / "qwen3" / "tiny"
REPEATING = [300, 301, 302, 303, 304, 305] * 6
PLAIN = [int(token) for token in np.random.default_rng(4).permutation(900)[:40]]
PROMPTS = {"repeating": REPEATING, "plain": PLAIN, "short": [300]}
SETTINGS = {
    "greedy": {},
    "sampled": {"temperature": 0.9, "seed": 11},
    "cold": {"temperature": 0.05, "seed": 3, "top_k": 5},
    "penalties": {"repetition_penalty": 1.2, "frequency_penalty": 0.5},
    "biased": {"logit_bias": {300: 30.0, 301: 30.0, 302: 30.0}, "frequency_penalty": 1.0},
    "stuck": {"logit_bias": {305: 100.0}},
    "logprobs": {"logprobs": 2, "temperature": 0.3, "seed": 1},
}

Guess = tuple[int, ...]


@pytest.fixture(scope="module")
def model() -> Model:
    return load(TEXT)


@pytest.mark.parametrize("engine", engine_names())
def test_every_engine(engine: str) -> None:
    given = {"max_tokens": 16, "ignore_eos": True, "temperature": 0.05, "seed": 3}
    one = load(TEXT, engine=engine)
    assert one.generate(REPEATING, speculate="ngram", **given).ids == one.generate(REPEATING, **given).ids


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_same_tokens(model: Model, prompt: str, settings: str) -> None:
    given = SETTINGS[settings] | {"max_tokens": 40, "ignore_eos": True}
    plain = model.generate(PROMPTS[prompt], **given)
    guessed = model.generate(PROMPTS[prompt], speculate="ngram", **given)
    assert (guessed.ids, guessed.text, guessed.finish_reason) == (plain.ids, plain.text, plain.finish_reason)
    if plain.logprobs is not None:
        assert guessed.logprobs == plain.logprobs


@pytest.mark.parametrize("settings", ["greedy", "sampled", "biased"])
def test_the_same_tokens_together(model: Model, settings: str) -> None:
    given = SETTINGS[settings] | {"max_tokens": 40, "ignore_eos": True}
    singles = [model.generate(prompt, **given).ids for prompt in PROMPTS.values()]
    together = model.generate(list(PROMPTS.values()), speculate="ngram", **given)
    assert [one.ids for one in together] == singles


@pytest.mark.parametrize("seed", range(4))
def test_wrong_guesses_change_nothing(model: Model, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Guesses that are right by half and wrong by half, of every length: rejected rows leave nothing behind."""
    given = {"max_tokens": 48, "ignore_eos": True, "temperature": 0.7, "seed": 5}
    wanted = model.generate(PLAIN, **given).ids
    random = np.random.default_rng(seed)

    def guess(self: Speculator, ids: list[int], most: int) -> Guess:
        at = len(ids) - len(PLAIN)
        right = wanted[at : at + int(random.integers(0, 12))][:most]
        return tuple(token if random.random() < 0.6 else int(random.integers(0, 900)) for token in right)

    monkeypatch.setattr(Speculator, "guess", guess)
    assert model.generate(PLAIN, speculate="ngram", **given).ids == wanted


def test_fewer_passes_on_repeating_text(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    run = model.generator._text.run
    monkeypatch.setattr(model.generator._text, "run", lambda *given: steps.append(1) or run(*given))
    given = {"max_tokens": 40, "ignore_eos": True, "logit_bias": {305: 100.0}}
    model.generate(REPEATING, **given)
    plain = len(steps)
    model.generate(REPEATING, speculate="ngram", **given)
    assert plain == 40
    assert len(steps) - plain <= 10


def test_ends_inside_a_guess(model: Model) -> None:
    """An end token, a stop string and the token limit count in the middle of what held."""
    eos = next(iter(model.eos_ids))
    stuck = {"logit_bias": {305: 100.0}, "ignore_eos": True}
    whole = model.generate(REPEATING, max_tokens=30, **stuck)
    for most in (1, 2, 3, 7, 13):
        assert model.generate(REPEATING, max_tokens=most, speculate="ngram", **stuck).ids == whole.ids[:most]
    # The penalty moves the choice from one token to the end token after some turns.
    falling = {"logit_bias": {305: 100.0, eos: 90.0}, "frequency_penalty": 2.0, "max_tokens": 30}
    assert model.generate(REPEATING, speculate="ngram", **falling).ids == model.generate(REPEATING, **falling).ids
    stop = whole.text[4:7]
    found = model.generate(REPEATING, max_tokens=30, speculate="ngram", stop=stop, **stuck)
    assert found.text == model.generate(REPEATING, max_tokens=30, stop=stop, **stuck).text


def test_later_prompts_may_reuse_blocks(model: Model) -> None:
    """Kept blocks hold what was accepted only."""
    given = {"max_tokens": 40, "ignore_eos": True, "temperature": 0.4, "seed": 2}
    longer = REPEATING + list(model.generate(REPEATING, **given).ids)
    model.generate(REPEATING, speculate="ngram", **given)
    fresh = load(TEXT, engine=model.engine.name)
    assert model.generate(longer, speculate="ngram", **given).ids == fresh.generate(longer, **given).ids


def test_an_unknown_word() -> None:
    with pytest.raises(RequestError, match="speculate"):
        load(TEXT).generate([300], speculate="magic")


def test_ngrams() -> None:
    grams = Ngrams()
    assert grams.guess([1, 2, 3, 4], 3) == ()
    assert grams.guess([1, 2, 3, 4, 1, 2], 3) == (3, 4, 1)
    assert grams.guess([1, 2, 3, 4, 1, 2, 3], 2) == (4, 1)
    assert Ngrams().guess([7, 7, 7], 5) == (7,) * 5
    assert Ngrams().guess([5], 4) == ()
    assert Ngrams().guess([1, 2, 9, 1, 2, 8, 1, 2], 1) == (8,)


def test_the_length_adapts() -> None:
    one = Speculator(limit=1000)
    ids = [1, 2, 3] * 5
    lengths = []
    for _ in range(4):
        lengths.append(len(one.guess(ids, 100)))
        one.learn(lengths[-1], lengths[-1])
    assert lengths == [2, 4, MOST, MOST]
    assert len(one.guess(ids, 3)) == 3
    one.learn(3, 0)
    rests = []
    for _ in range(3):
        rests.append(0)
        while not (found := one.guess(ids, 100)):
            rests[-1] += 1
        one.learn(len(found), 0)
    assert rests == [1, 2, 4]
    assert Speculator(limit=len(ids) + 1).guess(ids, 100) == ()
