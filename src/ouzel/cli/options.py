"""Options that several commands share, in groups. A command takes a group as one argument (see `takes`)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import Enum
from typing import Annotated, Any, Optional, get_type_hints

import typer

from ouzel.cli import console


class EngineName(str, Enum):
    """Engines; the registry of engines is the list that counts, and a test compares the two."""

    native = "native"
    reference = "reference"


class WeightFormat(str, Enum):
    """Number formats of weights in memory."""

    auto = "auto"
    f32 = "f32"
    bf16 = "bf16"
    f16 = "f16"
    q8 = "q8"
    q4 = "q4"
    q4m = "q4m"


class CacheFormat(str, Enum):
    """Formats of cached keys and values."""

    f32 = "f32"
    f16 = "f16"
    q8 = "q8"


FORMAT_NAMES = "|".join(form.value for form in WeightFormat)


class Alpha(str, Enum):
    """What becomes of transparency."""

    white = "white"
    drop = "drop"


class Speculation(str, Enum):
    """How tokens are guessed ahead."""

    off = "off"
    ngram = "ngram"


class ControlText(str, Enum):
    """What control strings in a user's text mean."""

    shield = "shield"
    obey = "obey"


def _option(*names: str, panel: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    """An option whose help says its default in words, the same in every version of typer."""
    return typer.Option(*names, help=help, metavar=metavar, rich_help_panel=panel, show_default=False, **more)


_MODEL, _PICTURES, _PROMPT, _SAMPLING, _OUTPUT = "Model", "Pictures", "Prompt", "Generation", "Output"

ModelName = Annotated[
    Optional[str],
    _option(
        "--model", "-m", panel=_MODEL, metavar="FOLDER|FILE|HUB_ID",
        help="A checkpoint folder, a GGUF file, or a hub id such as Qwen/Qwen3-VL-2B-Instruct. Default: the embedded model.",
    ),
]  # fmt: skip
Revision = Annotated[
    Optional[str],
    _option("--revision", panel=_MODEL, metavar="NAME", help="Branch, tag or commit of a hub id. Default: main."),
]
Offline = Annotated[
    bool, _option("--offline", panel=_MODEL, help="Never use the network: take hub ids from the local cache only.")
]


PARTS = ("vision", "projector", "text", "head", "embedding")


def _part_option(part: str, what: str) -> Any:
    help = f"Another format for {what}. Default: what --weights says."
    return _option(f"--{part}", panel=_MODEL, metavar="FORMAT", help=help)


VisionFormat = Annotated[Optional[WeightFormat], _part_option("vision", "the vision tower")]
ProjectorFormat = Annotated[Optional[WeightFormat], _part_option("projector", "the projector behind it")]
TextFormat = Annotated[Optional[WeightFormat], _part_option("text", "the decoder")]
HeadFormat = Annotated[Optional[WeightFormat], _part_option("head", "the vocabulary head")]
EmbeddingFormat = Annotated[Optional[WeightFormat], _part_option("embedding", "the token embedding")]


def part_formats(options: Any) -> dict[str, str | None]:
    """The formats by part out of options named `vision_weights` and so on."""
    chosen = {part: getattr(options, f"{part}_weights") for part in PARTS}
    return {part: None if form is None else form.value for part, form in chosen.items()}


@dataclass(frozen=True)
class ModelOptions:
    """Which model, and how it runs."""

    model: ModelName = None
    mmproj: Annotated[
        Optional[str],
        _option("--mmproj", panel=_MODEL, metavar="FILE", help="The picture file (mmproj) of a Qwen3-VL GGUF model. Without it the model reads text."),
    ] = None
    revision: Revision = None
    offline: Offline = False
    engine: Annotated[
        EngineName,
        _option(
            "--engine", panel=_MODEL, metavar="native|reference",
            help="native: the fast C++ core. reference: plain NumPy, slow. Default: native.",
        ),
    ] = EngineName.native  # fmt: skip
    weights: Annotated[
        WeightFormat,
        _option(
            "--weights", "-w", panel=_MODEL, metavar=FORMAT_NAMES,
            help="Number format of the weights. q4 and q4m keep vision, projector, head and embedding at q8. Default: auto, as stored.",
        ),
    ] = WeightFormat.auto  # fmt: skip
    vision_weights: VisionFormat = None
    projector_weights: ProjectorFormat = None
    text_weights: TextFormat = None
    head_weights: HeadFormat = None
    embedding_weights: EmbeddingFormat = None
    cache_packed: Annotated[
        bool,
        _option(
            "--cache-packed", panel=_MODEL,
            help="Keep the quantised weights in the cache folder (OUZEL_CACHE) and map them the next time.",
        ),
    ] = False  # fmt: skip
    check: Annotated[
        bool, _option("--check", panel=_MODEL, help="Compare a packed folder with its checksums before it is used.")
    ] = False
    threads: Annotated[
        Optional[int],
        _option(
            "--threads", "-t", panel=_MODEL, metavar="N",
            help="Threads of the native engine. Results do not depend on it. Default: the fast physical cores.",
        ),
    ] = None  # fmt: skip
    cache: Annotated[
        CacheFormat,
        _option(
            "--cache", panel=_MODEL, metavar="f32|f16|q8",
            help="What the native engine keeps keys and values in: f16 takes half of the memory, q8 a quarter. Default: f32.",
        ),
    ] = CacheFormat.f32  # fmt: skip
    chunk: Annotated[
        int,
        _option(
            "--chunk", panel=_MODEL, metavar="N",
            help="Prompt tokens that run in one pass. Results do not depend on it. Default: 512.",
        ),
    ] = 512  # fmt: skip


@dataclass(frozen=True)
class PictureOptions:
    """Pictures of the question, and how they are read."""

    image: Annotated[
        Optional[list[str]],
        _option(
            "--image", "-i", panel=_PICTURES, metavar="FILE",
            help="A picture: a file, a data URL, or - for the bytes of stdin. Several come in the order given.",
        ),
    ] = None  # fmt: skip
    video_frames: Annotated[
        Optional[list[str]],
        _option(
            "--video-frames", panel=_PICTURES, metavar="FOLDER",
            help="A video: a folder with its frames as picture files, in the order of the numbers in their names.",
        ),
    ] = None  # fmt: skip
    fps: Annotated[
        Optional[float],
        _option("--fps", panel=_PICTURES, metavar="N", help="Frames per second of the given frames. Default: 24."),
    ] = None
    min_pixels: Annotated[
        Optional[int],
        _option(
            "--min-pixels", panel=_PICTURES, metavar="N",
            help="Enlarge pictures with a smaller area. Default: what the checkpoint says.",
        ),
    ] = None  # fmt: skip
    max_pixels: Annotated[
        Optional[int],
        _option(
            "--max-pixels", panel=_PICTURES, metavar="N",
            help="Shrink pictures with a larger area: fewer tokens, less detail. Default: what the checkpoint says.",
        ),
    ] = None  # fmt: skip
    alpha: Annotated[
        Alpha,
        _option(
            "--alpha", panel=_PICTURES, metavar="white|drop",
            help="Put transparent pictures on white, or drop the transparency as reference loaders do. Default: white.",
        ),
    ] = Alpha.white  # fmt: skip


@dataclass(frozen=True)
class PromptOptions:
    """How the prompt is made."""

    system: Annotated[
        Optional[str], _option("--system", "-s", panel=_PROMPT, metavar="TEXT", help="The system message.")
    ] = None
    think: Annotated[
        Optional[bool],
        _option(
            "--think/--no-think", panel=_PROMPT,
            help="Let the model think before it answers, or not. Default: what its chat template does.",
        ),
    ] = None  # fmt: skip
    control_text: Annotated[
        ControlText,
        _option(
            "--control-text", panel=_PROMPT, metavar="shield|obey",
            help="Control strings such as <|im_end|> in the text stay ordinary text (shield) or act (obey). Default: shield.",
        ),
    ] = ControlText.shield  # fmt: skip


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are chosen and where the answer ends."""

    max_tokens: Annotated[
        Optional[int],
        _option("--max-tokens", "-n", panel=_SAMPLING, metavar="N", help="Most tokens to generate. Default: 1024."),
    ] = None
    temperature: Annotated[
        Optional[float],
        _option(
            "--temperature", panel=_SAMPLING, metavar="X",
            help="0 takes the likeliest token every time; higher values vary more. Default: 0.",
        ),
    ] = None  # fmt: skip
    top_p: Annotated[
        Optional[float],
        _option("--top-p", panel=_SAMPLING, metavar="X", help="Sample from the likeliest tokens that sum up to X."),
    ] = None
    top_k: Annotated[
        Optional[int], _option("--top-k", panel=_SAMPLING, metavar="N", help="Sample from the N likeliest tokens.")
    ] = None
    min_p: Annotated[
        Optional[float],
        _option("--min-p", panel=_SAMPLING, metavar="X", help="Leave out tokens below X times the likeliest."),
    ] = None
    seed: Annotated[
        Optional[int],
        _option("--seed", panel=_SAMPLING, metavar="N", help="The same seed gives the same text. Default: 0."),
    ] = None
    repetition_penalty: Annotated[
        Optional[float],
        _option(
            "--repetition-penalty", panel=_SAMPLING, metavar="X",
            help="Above 1: tokens seen before, in the prompt too, become less likely. Default: what the checkpoint says.",
        ),
    ] = None  # fmt: skip
    presence_penalty: Annotated[
        Optional[float],
        _option(
            "--presence-penalty", panel=_SAMPLING, metavar="X",
            help="Taken off the score of tokens that the answer holds already, from -2 to 2. Default: 0.",
        ),
    ] = None  # fmt: skip
    frequency_penalty: Annotated[
        Optional[float],
        _option(
            "--frequency-penalty", panel=_SAMPLING, metavar="X",
            help="As the presence penalty, once for every time, from -2 to 2. Default: 0.",
        ),
    ] = None  # fmt: skip
    stop: Annotated[
        Optional[list[str]],
        _option("--stop", panel=_SAMPLING, metavar="TEXT", help="End before this text. May be given several times."),
    ] = None
    speculate: Annotated[
        Speculation,
        _option(
            "--speculate", panel=_SAMPLING, metavar="off|ngram",
            help="Guess tokens that repeat earlier text, and check several in one pass. The text is the same. Default: off.",
        ),
    ] = Speculation.off  # fmt: skip
    ignore_eos: Annotated[
        bool, _option("--ignore-eos", panel=_SAMPLING, help="Go on past end tokens, up to --max-tokens.")
    ] = False


Json = Annotated[bool, _option("--json", panel=_OUTPUT, help="One JSON object on stdout instead of text; errors too.")]
Quiet = Annotated[bool, _option("--quiet", "-q", panel=_OUTPUT, help="Nothing on stderr but errors.")]


def takes(command: Callable[..., None]) -> Callable[..., None]:
    """Lets a command declare an option group as one parameter: typer sees the group's options in its place."""
    groups, flat = {}, []
    # Not get_type_hints: Python 3.10 puts Optional around an annotation whose default is None, which hides it from typer.
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = _group_of(parameter.annotation)
        if group is None:
            flat.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        own = get_type_hints(group, include_extras=True)
        groups[parameter.name] = (group, [field.name for field in fields(group)])
        flat += [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=own[field.name])
            for field in fields(group)
        ]

    @functools.wraps(command)
    def flattened(**given: Any) -> None:
        made = {name: group(**{key: given.pop(key) for key in keys}) for name, (group, keys) in groups.items()}
        command(**given, **made)

    flattened.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    flattened.__annotations__ = {parameter.name: parameter.annotation for parameter in flat}
    # Left in place it would lead inspect and typer back to the function with the groups.
    del flattened.__wrapped__
    return flattened


def _group_of(kind: Any) -> Any:
    groups = (ModelOptions, PictureOptions, PromptOptions, SamplingOptions)
    return kind if kind in groups else None


def settings_of(pictures: PictureOptions, prompt: PromptOptions, sampling: SamplingOptions) -> dict[str, Any]:
    """The keyword settings of `Model.stream` that these options say."""
    chosen: dict[str, Any] = {field.name: getattr(sampling, field.name) for field in fields(sampling)}
    # Matched against the answer's characters, so it must be the characters that the user typed, whatever the locale.
    chosen["stop"] = None if sampling.stop is None else [console.given_text(text) for text in sampling.stop]
    chosen |= {"min_pixels": pictures.min_pixels, "max_pixels": pictures.max_pixels, "alpha": pictures.alpha.value}
    chosen["speculate"] = sampling.speculate.value
    chosen |= {"think": prompt.think, "control_text": prompt.control_text.value}
    return chosen
