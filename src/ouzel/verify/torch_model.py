"""The reference: a checkpoint in transformers, float32, eager attention, whole or one layer at a time in memory.

torch and transformers are imported here and in the modules beside it, when called, and nowhere else in the package.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ouzel.checkpoint.folder import Checkpoint
from ouzel.errors import CheckpointError, UnsupportedError

INSTALL = "pip install 'ouzel[verify]'"


def need_torch() -> None:
    """Raises UnsupportedError that says what to install when torch or transformers are not there."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            "running the PyTorch reference", expected="torch and transformers", got=str(error), fix=f"install them: {INSTALL}"
        ) from None


def load_reference(checkpoint: Checkpoint, *, streamed: bool, trust_remote_code: bool) -> Any:
    """The model, ready to run. `streamed` keeps one layer's weights in memory at a time.

    Raises CheckpointError and UnsupportedError in one line for what transformers cannot load.
    """
    import torch
    from transformers import AutoConfig

    torch.manual_seed(0)
    with plain_errors(checkpoint, trust_remote_code):
        config = AutoConfig.from_pretrained(checkpoint.path, trust_remote_code=trust_remote_code)
        maker = _maker(config)
        if streamed:
            from ouzel.verify.streamed import build_streamed

            model = build_streamed(maker, config, checkpoint, trust_remote_code)
        else:
            model = maker.from_pretrained(
                checkpoint.path, dtype=torch.float32, attn_implementation="eager", trust_remote_code=trust_remote_code
            )
    return model.eval()


def _maker(config: Any) -> Any:
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    for maker in (AutoModelForImageTextToText, AutoModelForCausalLM):
        named = getattr(config, "auto_map", None) or {}
        if maker.__name__ in named or type(config) in maker._model_mapping:
            return maker
    return AutoModelForCausalLM


@contextmanager
def plain_errors(checkpoint: Checkpoint, trust_remote_code: bool) -> Iterator[None]:
    """Errors of transformers as ours, on one line; its warnings and bars stay quiet."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (CheckpointError, UnsupportedError):
        raise
    except ImportError as error:
        raise UnsupportedError(
            f"loading {checkpoint.path} in transformers", expected="the packages that it needs", got=first_line(error)
        ) from error
    except (ValueError, OSError, KeyError, RuntimeError, TypeError) as error:
        text = first_line(error)
        if "trust_remote_code" in str(error) and not trust_remote_code:
            raise UnsupportedError(
                f"loading {checkpoint.path} in transformers", got="a model that brings its own Python code",
                fix="read that code, and if you trust it add --trust-remote-code",
            ) from error  # fmt: skip
        raise CheckpointError(f"running {checkpoint.path} in transformers", got=f"{type(error).__name__}: {text}") from error
    finally:
        logging.set_verbosity(before)


def first_line(error: BaseException) -> str:
    """The first line of an error that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]


def is_large(checkpoint: Checkpoint) -> bool:
    """Whether the weights in float32 would take more than half of the memory that is there."""
    values = sum(view.data.size for view in checkpoint.tensors.values())
    return 4 * values > memory_there() // 2


def memory_there() -> int:
    """Bytes of memory that can be had; what the system does not say counts as 8 GiB."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 8 << 30
