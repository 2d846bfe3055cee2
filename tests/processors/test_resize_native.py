"""The native resize kernel equals the NumPy meaning byte for byte."""

from __future__ import annotations

import numpy as np
import pytest

from ouzel import _native
from ouzel.processors.resize import resize_numpy

FILTERS = ("nearest", "box", "bilinear", "bicubic", "lanczos")

# Around the tile of 16 rows, the span of 32 bytes, and single pixels.
EDGES = (1, 2, 10, 11, 15, 16, 17, 31, 32, 33, 64, 65)


@pytest.mark.parametrize("filter_name", FILTERS)
def test_edges(filter_name):
    generator = np.random.default_rng(1)
    for height in EDGES:
        for width in EDGES:
            picture = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
            new_height, new_width = (int(side) for side in generator.choice(EDGES, 2))
            native = _native.resize_u8(picture, new_height, new_width, filter_name)
            np.testing.assert_array_equal(native, resize_numpy(picture, new_height, new_width, filter_name))


@pytest.mark.parametrize("seed", range(40))
def test_random_sizes(seed):
    generator = np.random.default_rng(seed)
    height, width, new_height, new_width = (int(side) for side in np.exp(generator.uniform(0, 6.2, 4)))
    channels = int(generator.integers(1, 5))
    picture = generator.integers(0, 2, (height, width, channels), dtype=np.uint8) * np.uint8(255)
    for filter_name in FILTERS:
        native = _native.resize_u8(picture, new_height, new_width, filter_name)
        np.testing.assert_array_equal(native, resize_numpy(picture, new_height, new_width, filter_name))
