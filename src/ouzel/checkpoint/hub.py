"""Hub ids: a checkpoint folder out of the Hugging Face cache, downloaded when it is not there."""

from __future__ import annotations

import re
from pathlib import Path

from ouzel import env
from ouzel.errors import CheckpointError

# What a checkpoint needs; the rest of a repository (pickles, ONNX, other frameworks, subfolders) stays where it is.
ALLOW = ["*.json", "*.jinja", "*.txt", "*.safetensors"]
IGNORE = ["*/*", "consolidated*.safetensors"]

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_HUB_ID = re.compile(rf"^{_PART}/{_PART}$")


def is_hub_id(text: str) -> bool:
    """Whether `text` has the form "organisation/name" of a model on the Hugging Face hub."""
    return _HUB_ID.match(text) is not None and ".." not in text and "--" not in text


def fetch(hub_id: str, *, revision: str | None = None, offline: bool | None = None) -> Path:
    """The local folder of the model `hub_id`, downloaded first when needed (huggingface_hub shows its progress).

    `revision` is a branch, tag or commit. `offline` (default: OUZEL_OFFLINE) takes what the cache has and never uses
    the network. Raises `CheckpointError` with one line: not found, not allowed, no such revision, not in the cache.
    """
    # Slow to import, and needed for hub ids only.
    from huggingface_hub import snapshot_download

    if offline is None:
        offline = env.get("OUZEL_OFFLINE")
    try:
        folder = snapshot_download(
            hub_id,
            revision=revision,
            allow_patterns=ALLOW,
            ignore_patterns=IGNORE,
            local_files_only=offline,
        )
    except Exception as error:  # its tree of errors (HTTP, OS, its own) differs between versions
        raise _one_line(hub_id, revision, offline, error) from None
    return Path(folder)


def _one_line(hub_id: str, revision: str | None, offline: bool, error: Exception) -> CheckpointError:
    """The error of huggingface_hub as one line that says what to do."""
    from huggingface_hub import errors

    operation = f"loading the model '{hub_id}'"
    # The order matters: a gated repository is also "not found" in their tree.
    if isinstance(error, errors.GatedRepoError):
        return CheckpointError(
            operation,
            got="a model that asks for permission",
            fix="accept its terms on the model's page and log in with 'hf auth login'",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return CheckpointError(operation, expected="a branch, tag or commit of it", got=f"no revision '{revision}'")
    if isinstance(error, errors.RepositoryNotFoundError):
        return CheckpointError(
            operation,
            expected="an existing folder or a public model on the hub",
            got="no such folder and no such model",
            fix="check the spelling; for a private model log in with 'hf auth login'",
        )
    if isinstance(error, (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled)):
        state = "offline" if offline or isinstance(error, errors.OfflineModeIsEnabled) else "the hub cannot be reached"
        return CheckpointError(
            operation,
            expected="an existing folder or a model in the Hugging Face cache",
            got=f"neither ({state})",
            fix="download it once with a connection, or give the path of a folder",
        )
    text = (str(error).strip().splitlines() or [""])[0][:200]
    return CheckpointError(operation, got=f"{type(error).__name__}: {text}", fix="check the connection and try again")
