"""A loaded model: chat, streaming, raw generation, image features and named stages."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ouzel import env
from ouzel.checkpoint.folder import Checkpoint
from ouzel.engines.base import BLOCK_TOKENS, Engine, Executable
from ouzel.engines.registry import make_engine
from ouzel.errors import CheckpointError, ImageError, PromptError, RequestError
from ouzel.generation.generator import Generator
from ouzel.generation.prepare import Preparer, PromptOptions
from ouzel.generation.request import Chunk, GenerationParams, Prompt, Result
from ouzel.generation.runner import TextRunner, VisionRunner
from ouzel.generation.sequence import Sequence as Running
from ouzel.generation.stages import StageRunner
from ouzel.models.family import Family, PictureOptions
from ouzel.models.registry import make_family
from ouzel.processors.image_loader import load_image
from ouzel.settings import Settings, split_settings
from ouzel.text.prompt import PromptEncoder
from ouzel.text.template_files import load_template
from ouzel.text.tokenizer import Tokenizer
from ouzel.weights.formats import FormatPlan
from ouzel.weights.open import open_weights
from ouzel.weights.weight_set import WeightSet

EMBEDDED = "embedded"
"""Name of the model that comes with the package."""

PREFIX_BYTES = 256 << 20
FEATURE_BYTES = 256 << 20


class Model:
    """One checkpoint on one engine. Made by `ouzel.load`; safe to use from several threads.

    checkpoint, family, weights, tokenizer: what was loaded. engine: what runs it.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        engine: Engine,
        formats: FormatPlan | None = None,
        *,
        chunk: int = 512,
        check: bool = False,
        threads: int | None = None,
    ) -> None:
        if not isinstance(chunk, int) or isinstance(chunk, bool) or chunk < 1:
            raise RequestError("chunk", expected="a whole number from 1", got=repr(chunk))
        self.checkpoint = checkpoint
        self.engine = engine
        self.family: Family = make_family(checkpoint)
        self.weights: WeightSet = open_weights(
            checkpoint, self.family.tensor_table(), formats, tied=self.family.tied, check=check, threads=threads
        )
        self.tokenizer = _tokenizer(checkpoint, self.family.sizes.vocab)
        self._encoder = None if self.tokenizer is None else PromptEncoder(self.tokenizer, load_template(checkpoint.path))
        self._preparer = Preparer(self.family, self._encoder)
        self._compiled: dict[str, Executable] = {}
        self._vision = self._vision_runner()
        self.generator = Generator(
            self.family,
            TextRunner(self.family, self._executable("text")),
            self._vision,
            self.tokenizer,
            self.eos_ids,
            chunk=chunk,
            keep_blocks=PREFIX_BYTES // max(1, self.cache_bytes_per_token * BLOCK_TOKENS),
        )

    # -- describing --------------------------------------------------------------------------------------------------

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an answer: the union of what the configuration, the generation defaults and the tokenizer say."""
        find = self.tokenizer.id_of if self.tokenizer is not None else lambda text: None
        return frozenset(self.checkpoint.eos_token_ids(find))

    @property
    def cache_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token takes in a float32 cache; f16 takes half, q8 about a quarter."""
        return 4 * self.family.text_graph().cache_numbers

    @property
    def cache_bytes(self) -> int:
        """Bytes of cache memory held now; it grows with use."""
        return self._executable("text").cache_bytes

    def describe(self) -> str:
        """One line for people: family, parameters, formats, engine."""
        formats = "+".join(sorted({w.format.name for w in self.weights.values() if w.array.ndim > 1}))
        millions = self.weights.parameters() / 1e6
        return f"{self.family.name}, {millions:,.1f} M parameters, {formats}, {self.engine.describe()}"

    # -- chat --------------------------------------------------------------------------------------------------------

    def chat(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> Result:
        """Answers a conversation.

        messages: in OpenAI's or Hugging Face's shape; images as paths, bytes, PIL images, arrays or data URLs; a `video`
        part is a list of frames with `fps` or `timestamps`.
        settings: see `ouzel.settings.Settings`. Greedy unless `temperature` is given.

        Raises PromptError, ImageError, RequestError or ContextError for what cannot be used, before anything runs.
        """
        chosen = split_settings(settings, self.checkpoint.generation)
        return self._collect(self._add(self.prepare(messages, chosen), chosen.generation))

    def stream(self, messages: Sequence[Mapping[str, Any]], **settings: Any) -> Stream:
        """As `chat`, but the answer comes in pieces: iterate over it; then `.result()` gives the whole."""
        chosen = split_settings(settings, self.checkpoint.generation)
        return Stream(self, self._add(self.prepare(messages, chosen), chosen.generation))

    def prepare(self, messages: Sequence[Mapping[str, Any]], settings: Settings | None = None) -> Prompt:
        """The prompt of a conversation without running it: ids, positions, pictures as the model will see them."""
        return self._preparer.chat(messages, (settings or Settings()).prompt)

    # -- raw generation ----------------------------------------------------------------------------------------------

    @overload
    def generate(self, prompt: str | Sequence[int], **settings: Any) -> Result: ...
    @overload
    def generate(self, prompt: Sequence[str] | Sequence[Sequence[int]], **settings: Any) -> list[Result]: ...
    def generate(self, prompt: Any, **settings: Any) -> Result | list[Result]:
        """Continues token ids, or text without a template; a list of prompts runs together and gives a list of results.

        A prompt's result does not depend on the prompts beside it. Raises PromptError for ids outside the vocabulary.
        """
        chosen = split_settings(settings, self.checkpoint.generation).generation
        if _is_one_prompt(prompt):
            return self._collect(self._add(self._raw(prompt), chosen))
        prompts = [self._raw(one) for one in prompt]
        return self.run(prompts, chosen)

    def run(self, prompts: Sequence[Prompt], params: GenerationParams) -> list[Result]:
        """Runs prepared prompts together."""
        running: list[Running] = []
        try:
            # A prompt that is refused must not leave the ones before it in the queue.
            for prompt in prompts:
                running.append(self._add(prompt, params))
            return [self._collect(one) for one in running]
        finally:
            for one in running:
                self.generator.stop(one)

    def stream_prompt(self, prompt: Prompt | str | Sequence[int], **settings: Any) -> Stream:
        """Streams the continuation of a prepared prompt, of raw text, or of token ids."""
        chosen = split_settings(settings, self.checkpoint.generation).generation
        ready = prompt if isinstance(prompt, Prompt) else self._raw(prompt)
        return Stream(self, self._add(ready, chosen))

    # -- inside ------------------------------------------------------------------------------------------------------

    def encode_image(
        self, image: Any, *, min_pixels: int | None = None, max_pixels: int | None = None, alpha: str = "white"
    ) -> dict[str, NDArray[np.float32]]:
        """Features of one picture as they enter the text model, each [tokens, hidden]: `image_embeds` and the family's
        further ones (`deepstack.<i>`).

        image: anything that `processors.image_loader.load_image` takes. Raises ImageError when it cannot be used.
        """
        if self._vision is None:
            raise ImageError("encoding a picture", expected="a vision-language model", got=f"a text model ({self.family.name})")
        options = PictureOptions(min_pixels, max_pixels, alpha)
        loaded = load_image(image, alpha=alpha, max_pixels_guard=env.get("OUZEL_MAX_IMAGE_PIXELS"))
        picture = self.family.prepare_image(loaded, options)
        return {name: rows.copy() for name, rows in self.generator.encode(picture).items()}

    def stages(
        self, messages: Sequence[Mapping[str, Any]] | Prompt, names: Sequence[str] | None = None, **settings: Any
    ) -> dict[str, NDArray[Any]]:
        """Any named stage of one pass over a conversation's prompt as arrays, [rows, width] float32.

        names: such as "input_ids", "position_ids", "pixel_values", "vision.layers.3", "image_embeds", "deepstack.0",
        "text.inputs_embeds", "text.layers.7", "text.final_norm", "logits" (every position); None for every stage that the
        prompt has. Raises RequestError for unknown names.
        """
        chosen = split_settings(settings, self.checkpoint.generation)
        prompt = messages if isinstance(messages, Prompt) else self.prepare(messages, chosen)
        runner = StageRunner(self.family, self.compile_with)
        return runner.run(prompt, runner.of_prompt(prompt) if names is None else names)

    def stage_names(self) -> tuple[str, ...]:
        """Every name that `stages` may be asked for."""
        return StageRunner(self.family, self.compile_with).available()

    def raw_prompt(self, prompt: str | Sequence[int]) -> Prompt:
        """The prompt of plain text without a template, or of token ids, without running it."""
        return self._raw(prompt)

    # -- private -----------------------------------------------------------------------------------------------------

    def _raw(self, prompt: str | Sequence[int]) -> Prompt:
        return self._preparer.text(prompt) if isinstance(prompt, str) else self._preparer.ids(prompt)

    def _add(self, prompt: Prompt, params: GenerationParams) -> Running:
        return self.generator.add(prompt, params)

    def _collect(self, running: Running) -> Result:
        stream = Stream(self, running)
        for _ in stream:
            pass
        return stream.result()

    def _executable(self, part: str) -> Executable:
        if part not in self._compiled:
            self._compiled[part] = self.compile_with(part, ())
        return self._compiled[part]

    def compile_with(self, part: str, keep: Sequence[str]) -> Executable:
        """A new executable of "text" or "vision" in which `keep` are values of their own; its cache is its own."""
        graph = self.family.text_graph() if part == "text" else self.family.vision_graph()
        assert graph is not None
        return self.engine.compile(graph, self.weights, keep)

    def _vision_runner(self) -> VisionRunner | None:
        if self.family.vision_graph() is None:
            return None
        return VisionRunner(self.family, self._executable("vision"), FEATURE_BYTES)


class Stream:
    """A running answer. Iterating gives `Chunk`s; leaving the loop early stops the work and frees its memory."""

    def __init__(self, model: Model, running: Running) -> None:
        self._model = model
        self._running = running
        self._chunks: list[Chunk] = []
        self._source = model.generator.stream(running)

    def __iter__(self) -> Iterator[Chunk]:
        # A generator of its own, which nothing else holds: leaving the loop ends it at once, and that ends the work.
        try:
            for chunk in self._source:
                self._chunks.append(chunk)
                yield chunk
        finally:
            self.close()

    def __del__(self) -> None:
        # An answer that nobody asks for any more, perhaps not once: the next step takes it out. Only the flag is set,
        # since this may run at any moment, in the middle of a step too.
        running = getattr(self, "_running", None)
        if running is not None:
            running.cancel.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the work; may be called at any time."""
        self._source.close()
        self._model.generator.stop(self._running)

    def cancel(self) -> None:
        """Stops the work from another thread; the iteration ends with finish reason "cancelled"."""
        self._running.cancel.cancel()

    @property
    def prompt(self) -> Prompt:
        """What is being answered."""
        return self._running.prompt

    def result(self) -> Result:
        """The whole answer; runs what is left of it."""
        for _ in self:
            pass
        running = self._running
        chunks = self._chunks
        wanted = running.params.sampling.logprobs is not None
        return Result(
            text="".join(chunk.text for chunk in chunks),
            ids=tuple(running.generated),
            finish_reason=running.finish_reason or "cancelled",
            usage=running.usage(),
            timings=running.timings(),
            prompt_ids=running.prompt.ids,
            logprobs=tuple(p for chunk in chunks for p in chunk.logprobs) if wanted else None,
            pictures=tuple(_picture_report(picture) for picture in running.prompt.pictures),
        )


def load(
    model: str | os.PathLike[str] | None = None,
    *,
    engine: str = "native",
    threads: int | None = None,
    weights: str | FormatPlan = "auto",
    vision: str | None = None,
    projector: str | None = None,
    text: str | None = None,
    head: str | None = None,
    embedding: str | None = None,
    check: bool = False,
    cache_packed: bool = False,
    cache: str = "f32",
    chunk: int = 512,
    revision: str | None = None,
    offline: bool | None = None,
    mmproj: str | os.PathLike[str] | None = None,
) -> Model:
    """Loads a checkpoint folder, a packed folder, a GGUF file, a hub id ("organisation/name"), or, without a name, the
    embedded model.

    engine: "native" (C++) or "reference" (NumPy). threads: of the native engine; None takes the fast physical cores.
    weights: number format of the large matrices, "auto" (as stored, mapped without a copy), "f32", "bf16", "f16", "q8",
    "q4" or "q4m" (the latter two with q8 for head, embedding, vision and projector), or a `FormatPlan` by part; vision,
    projector, text, head, embedding: another format for that part. check: compares a packed folder with its checksums.
    cache_packed: keeps quantised weights in the user's cache and maps them the next time.
    cache: what the native engine keeps keys and values in, "f32", "f16" (half of the memory) or "q8" (about a quarter).
    chunk: prompt tokens in one pass; results do not depend on it. mmproj: the picture file of a Qwen3-VL GGUF model.

    Raises CheckpointError, ConfigError, TensorError or UnsupportedError naming the file and what to do.
    """
    parts = {"vision": vision, "projector": projector, "text": text, "head": head, "embedding": embedding}
    formats = format_plan(weights, parts)
    name = model if model is not None and model != EMBEDDED else embedded_path()
    checkpoint = Checkpoint.open(name, revision=revision, offline=offline, mmproj=mmproj)
    if cache_packed:
        from ouzel.packed.cache import packed_in_cache

        checkpoint = packed_in_cache(checkpoint, formats, threads)
    return Model(checkpoint, make_engine(engine, threads, cache), formats, chunk=chunk, check=check, threads=threads)


def format_plan(weights: str | FormatPlan, parts: Mapping[str, str | None]) -> FormatPlan:
    """The plan of a format's name, or a plan, with other formats for the parts that are not None."""
    if isinstance(weights, FormatPlan):
        return replace(weights, **{part: name for part, name in parts.items() if name is not None})
    return FormatPlan.preset(weights, **parts)


def embedded_path() -> Path:
    """Folder of the model that comes with the package."""
    return Path(__file__).parent / "embedded" / "reader"


def _tokenizer(checkpoint: Checkpoint, vocab: int) -> Tokenizer | None:
    """None when the folder has no tokenizer file at all: token ids still work."""
    if not checkpoint.has_tokenizer:
        return None
    tokenizer = Tokenizer.from_folder(checkpoint.path)
    if tokenizer.largest_id >= vocab:
        raise CheckpointError(
            f"loading {checkpoint.path}", expected=f"a tokenizer with ids below vocab_size ({vocab}, config.json)",
            got=f"the id {tokenizer.largest_id}", fix="take the tokenizer files of the model's own release",
        )  # fmt: skip
    return tokenizer


def _is_one_prompt(prompt: Any) -> bool:
    if isinstance(prompt, str):
        return True
    indexed = isinstance(prompt, Sequence) or (isinstance(prompt, np.ndarray) and prompt.ndim > 0)
    if not indexed or isinstance(prompt, (bytes, bytearray, memoryview)):
        raise PromptError("generate", expected="a text, a list of token ids, or a list of these", got=type(prompt).__name__)
    return len(prompt) == 0 or not isinstance(prompt[0], (str, list, tuple, np.ndarray))


def _picture_report(picture: Any) -> dict[str, Any]:
    """What a user may want to know about a picture: sizes as (width, height) in pixels."""
    return {
        "kind": picture.kind,
        "source_size": list(picture.source_size[::-1]),
        "resized_size": list(picture.resized_size[::-1]),
        "grid": list(picture.grid),
        "tokens": picture.tokens,
        "notes": list(picture.notes),
    }
