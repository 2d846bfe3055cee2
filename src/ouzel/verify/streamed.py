"""A transformers model whose weights are read from the checkpoint when a layer runs, and dropped after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ouzel.checkpoint.folder import Checkpoint
from ouzel.errors import TensorError


def build_streamed(maker: Any, config: Any, checkpoint: Checkpoint, trust_remote_code: bool) -> Any:
    """The model without its weights in memory. Raises TensorError for parameters that the checkpoint's files do not hold
    under the same name (rearranged ones, as fused experts): such a model must be loaded whole."""
    with _no_parameters():
        model = maker.from_config(config, attn_implementation="eager", trust_remote_code=trust_remote_code)
    names = _sources(model, checkpoint)
    for unit, module in _units(model):
        mine = {name: names[f"{unit}.{name}" if unit else name] for name, _ in _own_parameters(model, unit, module)}
        if mine:
            module.register_forward_pre_hook(_Load(checkpoint, mine))
            module.register_forward_hook(_Drop(mine))
    return model


@contextmanager
def _no_parameters() -> Iterator[None]:
    """Parameters made inside have shapes and no memory; buffers (rotary tables) are made as usual."""
    import torch

    register = torch.nn.Module.register_parameter

    def hollow(module: Any, name: str, parameter: Any) -> None:
        register(module, name, parameter)
        if parameter is not None:
            module._parameters[name] = torch.nn.Parameter(parameter.to("meta"), requires_grad=False)

    torch.nn.Module.register_parameter = hollow  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register  # type: ignore[method-assign]


def _sources(model: Any, checkpoint: Checkpoint) -> dict[str, str]:
    """The checkpoint's tensor of every parameter; a tied head reads the embedding's."""
    names = {name: name for name, _ in model.named_parameters(remove_duplicate=False)}
    embedding = next((n for n, p in model.named_parameters() if p is model.get_input_embeddings().weight), None)
    missing = []
    for name in names:
        if name in checkpoint.tensors:
            continue
        if name.endswith("lm_head.weight") and embedding in checkpoint.tensors:
            names[name] = embedding
        else:
            missing.append(name)
    if missing:
        raise TensorError(
            f"reading {checkpoint.path} layer by layer", expected=f"tensors named as in transformers ({missing[0]}, ...)",
            got=f"{len(missing)} that are not there", fix="capture with --memory whole",
        )  # fmt: skip
    return names


def _units(model: Any) -> Iterator[tuple[str, Any]]:
    """What is loaded at once: each entry of a list of layers, and every module with weights of its own outside of them."""
    import torch

    layers = [
        f"{name}.{i}" if name else str(i)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList)
        for i in range(len(module))
    ]
    outer = [name for name in layers if not any(name.startswith(other + ".") for other in layers if other != name)]
    for name, module in model.named_modules():
        if name in outer:
            yield name, module
        elif not any(name.startswith(other + ".") for other in outer) and module._parameters:
            yield name, module


def _own_parameters(model: Any, unit: str, module: Any) -> Iterator[tuple[str, Any]]:
    """Parameters below a layer, or directly in any other module."""
    import torch

    parent = model.get_submodule(unit.rpartition(".")[0]) if unit else None
    deep = isinstance(parent, torch.nn.ModuleList)
    return module.named_parameters(recurse=deep, remove_duplicate=False)


def _set(module: Any, name: str, value: Any) -> None:
    import torch

    path, _, leaf = name.rpartition(".")
    holder = module.get_submodule(path) if path else module
    holder._parameters[leaf] = torch.nn.Parameter(value, requires_grad=False)


class _Load:
    """Before a unit runs: its tensors, in float32."""

    def __init__(self, checkpoint: Checkpoint, names: dict[str, str]) -> None:
        self._checkpoint, self._names = checkpoint, names

    def __call__(self, module: Any, args: Any) -> None:
        import torch

        for name, source in self._names.items():
            # A clone lies as torch aligns memory: its sums depend on that.
            _set(module, name, torch.from_numpy(self._checkpoint.tensors[source].to_f32()).clone())


class _Drop:
    """After it has run: shapes only again."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def __call__(self, module: Any, args: Any, output: Any) -> None:
        for name in self._names:
            path, _, leaf = name.rpartition(".")
            holder = module.get_submodule(path) if path else module
            _set(module, name, holder._parameters[leaf].to("meta"))
