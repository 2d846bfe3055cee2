"""What transformers makes of a case's messages: ids, pixels, grids. Its own tokenizer, template and image processor are used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from ouzel.checkpoint.folder import Checkpoint
from ouzel.errors import UnsupportedError
from ouzel.verify.cases import Case
from ouzel.verify.torch_model import first_line


class Inputs:
    """Turns cases into model inputs. how: "processor", or "tokenizer and image processor" where the whole processor cannot be
    loaded (Qwen's needs torchvision for videos even when there are none)."""

    def __init__(self, checkpoint: Checkpoint, trust_remote_code: bool) -> None:
        from transformers import AutoTokenizer

        self._checkpoint, self._trust = checkpoint, trust_remote_code
        self._tokenizer = AutoTokenizer.from_pretrained(checkpoint.path, trust_remote_code=trust_remote_code)
        self._processor, self._why_not = self._whole()
        self.how = "processor" if self._processor is not None else "tokenizer and image processor"

    def _whole(self) -> tuple[Any, str]:
        from transformers import AutoProcessor

        if self._checkpoint.file("preprocessor_config.json") is None and self._checkpoint.file("processor_config.json") is None:
            return None, "it has no preprocessor_config.json"
        try:
            made = AutoProcessor.from_pretrained(self._checkpoint.path, trust_remote_code=self._trust)
        except (ImportError, ValueError, OSError) as error:
            return None, first_line(error)
        return (made, "") if hasattr(made, "image_processor") else (None, "it has no image processor")

    def make(self, case: Case, images: Path) -> tuple[dict[str, Any], str, str]:
        """The model's inputs, the rendered template, and the text with placeholders expanded."""
        messages = [_for_template(message) for message in case.messages]
        pictures = [Image.open(images / name).convert("RGB") for name in _names(case)]
        maker = self._processor if self._processor is not None else self._tokenizer
        prompt = maker.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **case.template)
        if not pictures:
            return dict(self._tokenizer(prompt, return_tensors="pt", add_special_tokens=False)), prompt, prompt
        if self._processor is not None:
            made = dict(self._processor(text=[prompt], images=pictures, return_tensors="pt"))
            return made, prompt, self._tokenizer.decode(made["input_ids"][0], skip_special_tokens=False)
        return self._expanded(prompt, pictures)

    def _expanded(self, prompt: str, pictures: list[Any]) -> tuple[dict[str, Any], str, str]:
        """As Qwen's processors do: one placeholder becomes one for each merged patch."""
        from transformers import AutoImageProcessor

        token_id = self._checkpoint.config.get("image_token_id")
        if not isinstance(token_id, int):
            raise UnsupportedError(
                f"reading pictures with {self._checkpoint.path} in transformers", expected="its processor", got=self._why_not
            )
        processor = AutoImageProcessor.from_pretrained(self._checkpoint.path, trust_remote_code=self._trust)
        made = dict(processor(images=pictures, return_tensors="pt"))
        if "image_grid_thw" not in made:
            raise UnsupportedError(f"reading pictures with {self._checkpoint.path}", expected="its processor", got=self._why_not)
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        pieces = prompt.split(token)
        counts = [int(grid.prod()) // processor.merge_size**2 for grid in made["image_grid_thw"]]
        if len(pieces) != len(counts) + 1:
            raise UnsupportedError("the chat template", expected=f"{len(counts)} placeholders {token}", got=str(len(pieces) - 1))
        text = pieces[0] + "".join(token * count + piece for count, piece in zip(counts, pieces[1:]))
        made |= dict(self._tokenizer(text, return_tensors="pt", add_special_tokens=False))
        made["mm_token_type_ids"] = (made["input_ids"] == token_id).long()
        return made, prompt, text

    def decode(self, ids: list[int]) -> str:
        """The text of an answer, special tokens shown."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=False))


def _names(case: Case) -> list[str]:
    parts = [part for m in case.messages if isinstance(m["content"], list) for part in m["content"]]
    return [part["image"] for part in parts if part["type"] == "image"]


def _for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """Pictures are placeholders for the template; their files are given apart."""
    content = message["content"]
    if isinstance(content, str):
        return dict(message)
    return {**message, "content": [{"type": "image"} if part["type"] == "image" else part for part in content]}
