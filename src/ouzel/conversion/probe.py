"""What a converted model is tried on: a text of our own, and for models with pictures a page with words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import ContextError, ImageError, PromptError
from ouzel.generation.request import Prompt

if TYPE_CHECKING:
    from ouzel.model import Model

TEXT = """The small bird stood on a wet stone in the middle of the stream. Every few seconds it bobbed, as if it agreed with
something, and then it walked straight under the water. On 14 March 2021 the river carried 3.7 cubic metres a second, about
twice its usual share, and still the bird went on turning pebbles for larvae, as its kind has done for thousands of years.
"How does it stay down?" asked the boy. "It spreads its wings," said his grandmother, "and the current presses on them."
She wrote in her book: dipper (Cinclus cinclus), 18 cm, 60 g, seen 3 times; def count(birds): return sum(1 for b in birds).
Wasseramseln singen auch im Winter. Les oiseaux plongent sous la glace. 河里有一只小鸟,它在水下行走。"""

LINES = ("Invoice 2048", "3 stones 12.50", "1 river 99.00", "Total 111.50")
"""Words of the built-in picture."""

QUESTION = "Read the text."

MOST_TOKENS = 256


@dataclass(frozen=True)
class Probe:
    """A prompt whose positions from `start` on are scored: each predicts the token after it."""

    name: str
    prompt: Prompt
    start: int


def probes(model: Model) -> list[Probe]:
    """The text (or, without a tokenizer, fixed ids), and the picture where the model takes one."""
    limit = min(MOST_TOKENS, model.family.sizes.max_context)
    found = [Probe("text", text_prompt(model, TEXT, limit), 0)]
    picture = _picture(model)
    if picture is not None:
        found.append(picture)
    return found


def text_prompt(model: Model, text: str, limit: int) -> Prompt:
    """At most `limit` tokens of a text; ids spread over the vocabulary for a model without a tokenizer."""
    if model.tokenizer is not None:
        ids = list(model.raw_prompt(text).ids)
    else:
        vocab = model.family.sizes.vocab
        spread = [int(i * 2654435761 % 2**32 * vocab // 2**32) for i in range(1, 129)]
        ids = [token for token in spread if token not in model.family.visual_tokens] or [0]
    return model.raw_prompt(ids[:limit])


def _picture(model: Model) -> Probe | None:
    """A page read aloud: the tokens of the right answer are scored. None where the model has no eyes or no template."""
    if model.family.vision_graph() is None or model.tokenizer is None:
        return None
    question: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "image", "image": page()}, {"type": "text", "text": QUESTION}]}
    ]
    answer = {"role": "assistant", "content": "\n".join(LINES)}
    try:
        asked, whole = model.prepare(question), model.prepare([*question, answer])
    except (PromptError, ImageError, ContextError):
        return None
    start = _common(asked.ids, whole.ids)
    if not 0 < start < len(whole.ids) - 1 or len(whole.ids) > model.family.sizes.max_context:
        return None
    return Probe("picture", whole, start - 1)


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Tokens at the beginning that two prompts share."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def page() -> NDArray[np.uint8]:
    """The built-in picture, [height, width, 3]: LINES in black on white."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (320, 192), "white")
    draw = ImageDraw.Draw(image)
    for i, line in enumerate(LINES):
        draw.text((20, 20 + 40 * i), line, fill="black", font=ImageFont.load_default(size=28))
    return np.asarray(image)
