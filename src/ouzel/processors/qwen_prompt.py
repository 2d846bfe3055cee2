"""What the Qwen-VL processors put in the place of the template's picture and video marks.

Two layouts of videos exist. The one the models were released with replaces the template's triple (vision start, pad,
vision end) as a whole by the timed groups; transformers 5 replaces the pad alone, which leaves an outer pair around
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ouzel.errors import PromptError

LAYOUTS = ("release", "transformers5")


@dataclass(frozen=True)
class VisionMarks:
    """The control strings around pictures and videos."""

    start: str = "<|vision_start|>"
    end: str = "<|vision_end|>"
    image: str = "<|image_pad|>"
    video: str = "<|video_pad|>"


@dataclass(frozen=True)
class Replacement:
    """`pattern` in the rendered prompt, in its place in order, becomes `text`."""

    pattern: str
    text: str


def image_text(tokens: int, marks: VisionMarks = VisionMarks()) -> Replacement:
    """One pad of the template becomes one per merged token."""
    return Replacement(marks.image, marks.image * tokens)


def video_text(
    timestamps: Sequence[float], tokens_per_group: int, *, layout: str = "release", marks: VisionMarks = VisionMarks()
) -> Replacement:
    """The timed groups of one video.

    timestamps: seconds of every temporal group, printed with one decimal (ties follow the binary value: 0.25 prints
    0.2). tokens_per_group: merged tokens of one group. layout: "release" or "transformers5". Raises PromptError for
    others.
    """
    if layout not in LAYOUTS:
        raise PromptError("lay out a video", expected=f"a layout out of {', '.join(LAYOUTS)}", got=repr(layout))
    group = marks.start + marks.video * tokens_per_group + marks.end
    text = "".join(f"<{time:.1f} seconds>{group}" for time in timestamps)
    return Replacement(marks.start + marks.video + marks.end if layout == "release" else marks.video, text)
