"""Tied and untied heads with the head's tensor present or absent: the config decides."""

from __future__ import annotations

import numpy as np
import pytest

from ouzel.errors import TensorError
from ouzel.weights import FormatPlan, TensorSpec, load_weights

SHAPE = (11, 8)
TABLE = [
    TensorSpec("text.embed.weight", ("model.embed_tokens.weight",), SHAPE, "embedding", "embedding"),
    TensorSpec("head.weight", ("lm_head.weight",), SHAPE, "linear", "head"),
]
TIED = {"head.weight": "text.embed.weight"}


@pytest.fixture
def embed(stored):
    return stored("bf16", SHAPE, 1)


@pytest.fixture
def head(stored):
    return stored("bf16", SHAPE, 2)


def test_untied_with_its_tensor(checkpoint, embed, head):
    weights = load_weights(checkpoint({"model.embed_tokens.weight": embed, "lm_head.weight": head}), TABLE)
    assert np.array_equal(weights["text.embed.weight"].array, embed)
    assert np.array_equal(weights["head.weight"].array, head)
    assert weights.total_bytes() == embed.nbytes + head.nbytes and weights.notes == ()


def test_untied_without_its_tensor(checkpoint, embed):
    tensors = checkpoint({"model.embed_tokens.weight": embed})
    with pytest.raises(TensorError, match=r"'lm_head.weight'.*no such tensors"):
        load_weights(tensors, TABLE)


def test_tied_without_its_tensor(checkpoint, embed):
    weights = load_weights(checkpoint({"model.embed_tokens.weight": embed}), TABLE, tied=TIED)
    assert weights["head.weight"].array is weights["text.embed.weight"].array
    assert np.array_equal(weights["head.weight"].array, embed)
    assert weights.total_bytes() == embed.nbytes and weights.bytes_by_part() == {"embedding": embed.nbytes}
    assert weights.notes == ()


def test_tied_with_an_equal_tensor(checkpoint, embed):
    tensors = checkpoint({"model.embed_tokens.weight": embed, "lm_head.weight": embed})
    weights = load_weights(tensors, TABLE, tied=TIED)
    assert weights["head.weight"].array is weights["text.embed.weight"].array and weights.notes == ()


def test_tied_with_another_tensor(checkpoint, embed, head):
    tensors = checkpoint({"model.embed_tokens.weight": embed, "lm_head.weight": head})
    weights = load_weights(tensors, TABLE, tied=TIED)
    assert np.array_equal(weights["head.weight"].array, embed)
    [note] = weights.notes
    assert "'lm_head.weight' differs from 'model.embed_tokens.weight'" in note


def test_tied_with_a_tensor_of_another_shape(checkpoint, embed, stored):
    tensors = checkpoint({"model.embed_tokens.weight": embed, "lm_head.weight": stored("bf16", (3, 8))})
    weights = load_weights(tensors, TABLE, tied=TIED)
    assert np.array_equal(weights["head.weight"].array, embed) and len(weights.notes) == 1


def test_tied_with_the_heads_tensor_only(checkpoint, head):
    """Files saved with the other of the two names load too, as in transformers."""
    weights = load_weights(checkpoint({"lm_head.weight": head}), TABLE, tied=TIED)
    assert np.array_equal(weights["text.embed.weight"].array, head)
    assert weights["head.weight"].array is weights["text.embed.weight"].array and weights.notes == ()


def test_tied_with_neither(checkpoint):
    with pytest.raises(TensorError, match=r"'model.embed_tokens.weight'"):
        load_weights(checkpoint({}), TABLE, tied=TIED)


def test_a_tied_head_has_the_format_of_its_part(checkpoint, embed):
    tensors = checkpoint({"model.embed_tokens.weight": embed})
    weights = load_weights(tensors, TABLE, FormatPlan(head="f32"), tied=TIED)
    assert weights["text.embed.weight"].mapped and weights["text.embed.weight"].format.name == "bf16"
    assert weights["head.weight"].format.name == "f32"
    assert np.array_equal(weights["head.weight"].array, weights["text.embed.weight"].f32())
    assert weights.bytes_by_part() == {"embedding": embed.nbytes, "head": 2 * embed.nbytes}
