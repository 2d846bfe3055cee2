"""Hub ids through huggingface_hub: what is asked for, and one line for each way it can fail. No network is used."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors

from ouzel.checkpoint import Checkpoint, hub
from ouzel.errors import CheckpointError

FIXTURES = Path(__file__).parents[1] / "data" / "fixtures"


@pytest.fixture
def calls(monkeypatch):
    """Stands in for snapshot_download: records its arguments and gives a fixture folder."""
    made = []

    def snapshot_download(repo_id, **options):
        made.append((repo_id, options))
        return str(FIXTURES / "qwen3" / "tiny")

    monkeypatch.delenv("OUZEL_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return made


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("Qwen/Qwen3-VL-2B-Instruct", True),
        ("org/name.v1_2", True),
        ("name", False),
        ("./org/name", False),
        ("../name", False),
        ("org/", False),
        ("/org/name", False),
        ("a/b/c", False),
        ("org/na me", False),
        ("org/..", False),
        ("~/name", False),
        ("C:\\models\\x", False),
        ("org/" + "x" * 200, False),
    ],
)
def test_the_form_of_a_hub_id(text, good):
    assert hub.is_hub_id(text) == good


def test_a_hub_id_is_fetched_with_its_patterns(calls):
    checkpoint = Checkpoint.open("org/name", revision="v1")
    assert checkpoint.model_type == "qwen3" and checkpoint.name == "org/name"
    [(repo_id, options)] = calls
    assert repo_id == "org/name" and options["revision"] == "v1" and options["local_files_only"] is False
    assert set(options["allow_patterns"]) == {"*.json", "*.jinja", "*.txt", "*.safetensors"}


def test_which_files_of_a_repository_are_wanted():
    from huggingface_hub.utils import filter_repo_objects

    files = [
        "config.json",
        "chat_template.jinja",
        "merges.txt",
        "model-00001-of-00002.safetensors",
        "pytorch_model.bin",
        "model.gguf",
        "onnx/model.onnx",
        "onnx/config.json",
        "original/consolidated.safetensors",
        "consolidated.safetensors",
        "script.py",
    ]
    kept = list(filter_repo_objects(files, allow_patterns=hub.ALLOW, ignore_patterns=hub.IGNORE))
    assert kept == files[:4]


def test_an_existing_path_is_never_a_hub_id(calls, tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match="an empty folder"):
        Checkpoint.open("org/name")
    assert calls == []


@pytest.mark.parametrize(
    ("offline", "variable", "local"),
    [(None, None, False), (None, "1", True), (None, "0", False), (True, None, True), (False, "1", False)],
)
def test_offline_from_the_argument_or_the_environment(calls, monkeypatch, offline, variable, local):
    if variable is not None:
        monkeypatch.setenv("OUZEL_OFFLINE", variable)
    Checkpoint.open("org/name", offline=offline)
    assert calls[0][1]["local_files_only"] is local


def http_error(kind, status: int):
    response = SimpleNamespace(status_code=status, headers={}, request=None)
    return kind("Client error\n\nlong text", response=response)


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (lambda: http_error(errors.GatedRepoError, 403), ["asks for permission", "hf auth login"]),
        (lambda: http_error(errors.RepositoryNotFoundError, 401), ["no such model", "spelling"]),
        (lambda: http_error(errors.RevisionNotFoundError, 404), ["no revision 'v9'"]),
        (lambda: http_error(errors.HfHubHTTPError, 503), ["HfHubHTTPError: Client error", "try again"]),
        (lambda: errors.LocalEntryNotFoundError("nothing\nhere"), ["cannot be reached", "path of a folder"]),
        (lambda: errors.OfflineModeIsEnabled("off"), ["neither (offline)"]),
        (lambda: ConnectionError("no route\nto host"), ["ConnectionError: no route", "try again"]),
        (lambda: OSError(28, "No space left on device"), ["No space left"]),
        (lambda: ValueError(""), ["ValueError"]),
    ],
)
def test_failures_are_one_line(monkeypatch, error, parts):
    made = error()

    def fail(repo_id, **options):
        raise made

    monkeypatch.delenv("OUZEL_OFFLINE", raising=False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open("org/name", revision="v9")
    message = str(caught.value)
    assert "'org/name'" in message and "\n" not in message and "long text" not in message
    for part in parts:
        assert part in message, message


def test_the_real_library_offline_with_an_empty_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match=r"'org/name'.*neither \(offline\)"):
        Checkpoint.open("org/name", offline=True)
