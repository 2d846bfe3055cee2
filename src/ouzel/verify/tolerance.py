"""How large an error may be: formulas, each with its reason. One factor, FORMAT_GROWTH, was chosen after a first measurement.

u = 2^-24 is the rounding unit of float32. A sum of K rounded terms is off by about u sqrt(K) of its size (rounding errors are as
good as independent: Higham and Mary, 2019), and both sides round, so that two right implementations of a stage whose sums
have K_1, K_2, ... terms differ by about

    expected = sqrt(2 u^2 (K_1 + K_2 + ...) + 2 (e_1^2 + e_2^2 + ...))

of the row's length, where e_i is the relative rounding error of linear layer i's number format (0 for formats that hold the
checkpoint's numbers exactly). Norms, softmax and activations between the sums can stretch an error; GROWTH bounds that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from ouzel.graph.cut import span
from ouzel.graph.graph import Graph, Node

UNIT = 2.0**-24

GROWTH = 2.0
"""A block's norms and activations have slopes around one; twice is a stretch that a right block does not reach."""

NEAR_TIE = 6 * math.sqrt(2)
"""A margin below this many standard deviations of the noise may turn over: two candidates move independently (sqrt 2), and
six deviations cover every position of a long text."""

FORMAT_GROWTH = GROWTH * math.sqrt(7)
"""From the rounding of a format to the noise of the logits. A block's output is wrong by its seven matrices (q, k, v, output,
gate, up, down), each independently; blocks add their errors as they add their outputs, so that depth does not raise the
relative error; GROWTH as above. A first choice, 3, was too small for bf16 on the tiny fixtures (KL 1.2e-4 to 1.6e-4 over a budget
of 1.0e-4); the argument for the seven matrices came after that measurement."""

KL_FLOOR = 1e-9
"""Below this a divergence is rounding of the softmax itself."""


def own_tolerance(graph: Graph, stage: str, cuts: Collection[str], rows: int, formats: Mapping[str, float]) -> float:
    """Largest relative error of a row of `stage` when its inputs are the reference's.

    cuts: the other stages, whose values are given. rows: of the stage (the keys that attention sums over). formats: relative
    rounding error of each weight.
    """
    terms, rounding = 0.0, 0.0
    for node in span(graph, stage, cuts):
        terms += _terms(graph, node, rows)
        if node.op in ("linear", "embed", "blend_rows"):
            rounding += formats.get(node.weights[0], 0.0) ** 2
    return GROWTH * math.sqrt(2 * UNIT**2 * terms + 2 * rounding)


def _terms(graph: Graph, node: Node, rows: int) -> float:
    """Roundings on the way to one number of a node's output."""
    width = graph.values[node.output].width
    if node.op == "linear":
        return graph.weights[node.weights[0]][1]
    if node.op in ("attention", "latent_attention"):
        return node.attrs.get("head_dim", width) + rows
    if node.op == "rms_norm":
        return width // node.attrs["heads"]
    if node.op == "layer_norm":
        return 2 * width
    if node.op in ("embed", "take_rows", "put_rows", "fold_rows"):
        return 1
    if node.op == "moe":
        return sum(graph.weights[name][-1] for name in node.weights if len(graph.weights[name]) > 1)
    return 4


def propagated_tolerance(own: Collection[float]) -> float:
    """Of a stage when the run came from the prompt: the tolerances of all stages up to it, added.

    Errors of earlier stages arrive at about their own relative size, because a block adds to its input; they add at worst.
    """
    return float(sum(own))


def logit_noise(relative: float, spread: float) -> float:
    """Standard deviation of a logit's error: the relative error of the rows times the spread of their logits."""
    return relative * spread


def kl_budget(noise: float) -> tuple[float, float]:
    """Mean and 99th percentile of KL(reference || found) that noise of this deviation explains.

    Independent noise on every logit gives KL = noise^2 / 2 in the mean; the square of a Gaussian has a 99th percentile of 6.6
    times its mean, and 10 leaves room for positions with few candidates.
    """
    mean = noise**2 / 2 + KL_FLOOR
    return mean, 10 * mean


def expected_flips(gaps: Collection[Collection[float]], noise: float) -> float:
    """How many top-1 decisions the noise turns over.

    gaps: by position, the first choice's logit minus those of the next candidates. One of them passes it with the probability that
    noise of the difference is above its gap; that none does is the product, as if they moved independently. (The runner-up alone
    was counted first; with 4-bit weights on the tiny fixtures the third and fourth candidate turn over as many decisions.)
    """
    if noise <= 0:
        return 0.0
    return sum(1 - math.prod(1 - 0.5 * math.erfc(gap / (2 * noise)) for gap in row) for row in gaps)


def allowed_flips(expected: float) -> int:
    """Three standard deviations of a Poisson count above what is expected."""
    return math.floor(expected + 3 * math.sqrt(expected))
