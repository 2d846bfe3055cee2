"""Takes the named stages out of a transformers model while it runs, by hooks on its modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import UnsupportedError

# Where models of transformers and remote code keep their parts; the first path that exists counts.
TEXT = ("model.language_model", "language_model.model", "model.text_model", "language_model", "model", "transformer")
VISION = ("model.visual", "visual", "model.vision_tower", "vision_tower", "model.vision_model", "vision_model", "model.vit", "vit")
LAYERS = ("layers", "blocks", "encoder.layers", "encoder.layer", "h")
TEXT_NORM = ("norm", "final_layernorm", "ln_f")
VISION_NORM = ("post_layernorm", "post_trunk_norm", "norm", "encoder.norm")
PATCH_EMBED = ("patch_embed", "embeddings.patch_embedding", "embeddings", "embed")
MERGER = ("merger", "perceive", "projector", "multi_modal_projector")
DEEPSTACK = ("deepstack_merger_list",)


def find(root: Any, paths: tuple[str, ...]) -> Any:
    """The first module that exists below `root`, None when there is none."""
    for path in paths:
        module = root
        for word in path.split("."):
            module = getattr(module, word, None)
            if module is None:
                break
        if module is not None:
            return module
    return None


class Recorder:
    """Keeps what passes through the hooks, by stage name, in the order of the calls."""

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {}

    def keep(self, name: str, value: Any) -> None:
        """Adds one call's output; the first of several outputs is the hidden state."""
        if isinstance(value, (tuple, list)):
            value = value[0]
        if value is None or not hasattr(value, "detach"):
            return
        # A copy: later layers of some models write into their inputs.
        self._parts.setdefault(name, []).append(np.array(value.detach().float().numpy()))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every stage as [rows, width]; calls for several pictures one after another."""
        found = {}
        for name, parts in self._parts.items():
            flat = [part.reshape(-1, part.shape[-1]) for part in parts]
            found[name] = np.ascontiguousarray(np.concatenate(flat)).astype(np.float32)
        return found


@contextmanager
def recording(model: Any) -> Iterator[tuple[Recorder, dict[str, NDArray[Any]]]]:
    """Records the stages of every forward pass inside; beside them the position ids that the text model was given."""
    recorder, handles = Recorder(), []
    positions: dict[str, NDArray[Any]] = {}
    text = next((m for m in (find(model, (path,)) for path in TEXT) if m is not None and find(m, LAYERS) is not None), None)
    if text is None:
        raise UnsupportedError(
            "taking stages out of the model", expected=f"decoder layers below one of {', '.join(TEXT)}", got="none"
        )
    handles += _text_hooks(text, recorder, positions, has_deepstack(model))
    vision = find(model, VISION)
    if vision is not None and find(vision, LAYERS) is not None:
        handles += _vision_hooks(model, vision, recorder)
    head = model.get_output_embeddings()
    if head is not None:
        handles.append(head.register_forward_hook(_output(recorder, "logits")))
    try:
        yield recorder, positions
    finally:
        for handle in handles:
            handle.remove()


def has_deepstack(model: Any) -> bool:
    """Whether the vision tower gives features to later text layers."""
    vision = find(model, VISION)
    return vision is not None and find(vision, DEEPSTACK) is not None


def _text_hooks(text: Any, recorder: Recorder, positions: dict[str, NDArray[Any]], deepstack: bool) -> list[Any]:
    layers = find(text, LAYERS)
    handles = [text.register_forward_pre_hook(_positions(positions), with_kwargs=True)]
    handles.append(layers[0].register_forward_pre_hook(_input(recorder, "text.inputs_embeds"), with_kwargs=True))
    for i, layer in enumerate(layers):
        handles.append(layer.register_forward_hook(_output(recorder, f"text.layers.{i}")))
        if deepstack and i:
            name = f"text.layers.{i - 1}.after_deepstack"
            handles.append(layer.register_forward_pre_hook(_input(recorder, name), with_kwargs=True))
    norm = find(text, TEXT_NORM)
    if norm is not None:
        handles.append(norm.register_forward_hook(_output(recorder, "text.final_norm")))
    return handles


def _vision_hooks(model: Any, vision: Any, recorder: Recorder) -> list[Any]:
    layers, norm = find(vision, LAYERS), find(vision, VISION_NORM)
    last = norm if norm is not None else layers[-1]
    handles = [
        layers[0].register_forward_pre_hook(_input(recorder, "vision.embeddings"), with_kwargs=True),
        last.register_forward_hook(_output(recorder, "vision.final")),
    ]
    handles += [layer.register_forward_hook(_output(recorder, f"vision.layers.{i}")) for i, layer in enumerate(layers)]
    embed = find(vision, PATCH_EMBED)
    if embed is not None:
        handles.append(embed.register_forward_hook(_output(recorder, "vision.patch_embed")))
    merger = find(vision, MERGER) or find(model, tuple(f"model.{name}" for name in MERGER)) or find(model, MERGER)
    if merger is not None:
        handles.append(merger.register_forward_hook(_output(recorder, "image_embeds")))
    for j, one in enumerate(find(vision, DEEPSTACK) or ()):
        handles.append(one.register_forward_hook(_output(recorder, f"deepstack.{j}")))
    return handles


def _output(recorder: Recorder, name: str) -> Callable[..., None]:
    def hook(module: Any, args: Any, output: Any) -> None:
        recorder.keep(name, output)

    return hook


def _input(recorder: Recorder, name: str) -> Callable[..., None]:
    def hook(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        recorder.keep(name, args[0] if args else kwargs.get("hidden_states"))

    return hook


def _positions(store: dict[str, NDArray[Any]]) -> Callable[..., None]:
    def hook(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        found = kwargs.get("position_ids")
        if found is not None:
            store["position_ids"] = found.detach().numpy().astype(np.int64).reshape(-1, found.shape[-1])

    return hook
