"""Small tensors in safetensors files for the weight tests."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest

from ouzel.checkpoint import Checkpoint, TensorIndex
from ouzel.weights.formats import FORMATS

_WORDS = {"f4": "F32", "f2": "F16", "u2": "BF16", "f8": "F64", "i4": "I32", "u1": "U8"}


@pytest.fixture
def checkpoint(tmp_path):
    """Writes arrays as model.safetensors (uint16 arrays are bfloat16 bits) and gives their `TensorIndex`."""

    def write(tensors: dict[str, np.ndarray]) -> TensorIndex:
        header, place = {}, 0
        for name, array in tensors.items():
            end = place + array.nbytes
            header[name] = {"dtype": _WORDS[array.dtype.str[1:]], "shape": array.shape, "data_offsets": [place, end]}
            place = end
        text = json.dumps(header).encode("utf-8")
        text += b" " * (-len(text) % 64 + 56)  # the tensors begin on a multiple of 64
        data = b"".join(array.tobytes() for array in tensors.values())
        # A folder of its own: an earlier file may still be mapped.
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        (folder / "config.json").write_text('{"model_type": "none"}', encoding="utf-8")
        return Checkpoint.open(folder).tensors

    return write


@pytest.fixture
def stored():
    """Random normal values in a stored format: `stored("bf16", shape, seed)`."""

    def make(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
        values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
        return np.ascontiguousarray(FORMATS[name].encode(values))

    return make
