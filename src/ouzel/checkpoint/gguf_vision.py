"""The picture file (mmproj) of a Qwen3-VL GGUF: configuration, preprocessor files and tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.checkpoint.gguf_config import ARCHITECTURES
from ouzel.checkpoint.gguf_file import GgufFile
from ouzel.checkpoint.gguf_metadata import GgufMetadata
from ouzel.checkpoint.gguf_names import PATCH, SECOND_PATCH
from ouzel.checkpoint.safetensors_file import TensorView
from ouzel.checkpoint.text import shown
from ouzel.errors import ConfigError, TensorError, UnsupportedError

PROJECTOR = "qwen3vl_merger"
_TEMPORAL = 2

# Areas in pixels of the release's preprocessor files; the metadata has room for those of images only.
_IMAGE_AREAS = (65536, 16777216)
_VIDEO_AREAS = (4096, 25165824)


class VisionFile:
    """An mmproj file beside the text file `text`, whose configuration is `config`.

    Raises UnsupportedError for other projectors and activations, ConfigError and TensorError when the two do not fit.
    """

    def __init__(self, file: GgufFile, text: GgufMetadata, config: dict[str, Any]) -> None:
        self.file = file
        self.meta = meta = GgufMetadata(file.path, file.metadata)
        if ARCHITECTURES[text.arch].pictures is None:
            wanted = " or ".join(name for name, one in ARCHITECTURES.items() if one.pictures)
            raise UnsupportedError(f"reading {text.path}", expected=f"a {wanted} model with --mmproj", got=f"'{text.arch}'")
        kind = meta.text("clip.vision.projector_type", None) or meta.text("clip.projector_type", "")
        if meta.arch != "clip" or kind != PROJECTOR:
            raise UnsupportedError(
                f"reading {file.path}", expected=f"a picture file (mmproj) with the projector {PROJECTOR}",
                got=f"the architecture '{meta.arch}' with the projector {shown(kind)}",
            )  # fmt: skip
        if not meta.bool("clip.use_gelu", False):
            raise meta.unsupported("clip.use_gelu", meta.values.get("clip.use_gelu"), ["true"])
        self.layers: int = meta.int("clip.vision.block_count", high=4096)
        self.deepstack = self._deepstack(text)
        self.config = self._config(config)

    def _deepstack(self, text: GgufMetadata) -> tuple[int, ...]:
        """Blocks whose output goes to the first layers of the text part."""
        flags = self.meta.array("clip.vision.is_deepstack_layers", np.zeros(self.layers, bool), self.layers)
        found = tuple(int(i) for i in np.flatnonzero(flags))
        wanted = text.int(".n_deepstack_layers", len(found), low=0)
        if wanted != len(found):
            raise ConfigError(
                f"reading {self.file.path}", expected=f"{wanted} deepstack layers, as {text.path.name} has", got=f"{len(found)}",
                fix="give the mmproj file that belongs to the model",
            )  # fmt: skip
        return found

    def _config(self, text: dict[str, Any]) -> dict[str, Any]:
        meta = self.meta
        table = self.file.shape("v.position_embd.weight") or (0,)
        out = meta.int("clip.vision.projection_dim", text["hidden_size"])
        if out != text["hidden_size"]:
            raise meta.error("clip.vision.projection_dim", f"the text part's width ({text['hidden_size']})", out)
        eps = meta.float("clip.vision.attention.layer_norm_epsilon", 1e-6)
        if np.float32(eps) != np.float32(1e-6):
            raise meta.unsupported("clip.vision.attention.layer_norm_epsilon", eps, ["1e-06"])
        return {
            "depth": self.layers,
            "hidden_act": "gelu_pytorch_tanh",
            "hidden_size": meta.int("clip.vision.embedding_length"),
            "intermediate_size": meta.int("clip.vision.feed_forward_length"),
            "num_heads": meta.int("clip.vision.attention.head_count"),
            "in_channels": 3,
            "patch_size": meta.int("clip.vision.patch_size"),
            "spatial_merge_size": meta.int("clip.vision.spatial_merge_size", 2),
            "temporal_patch_size": _TEMPORAL,
            "num_position_embeddings": table[0],
            "deepstack_visual_indexes": list(self.deepstack),
            "out_hidden_size": out,
        }

    def preprocessor(self, video: bool) -> dict[str, Any]:
        """preprocessor_config.json, or video_preprocessor_config.json."""
        low, high = _VIDEO_AREAS if video else _IMAGE_AREAS
        if not video:
            low = self.meta.int("clip.vision.image_min_pixels", low)
            high = self.meta.int("clip.vision.image_max_pixels", high)
        kind = {"video_processor_type": "Qwen3VLVideoProcessor"} if video else {"image_processor_type": "Qwen2VLImageProcessorFast"}
        return {
            "size": {"shortest_edge": low, "longest_edge": high},
            "patch_size": self.config["patch_size"],
            "merge_size": self.config["spatial_merge_size"],
            "temporal_patch_size": _TEMPORAL,
            "image_mean": self._channels("clip.vision.image_mean"),
            "image_std": self._channels("clip.vision.image_std"),
            **kind,
        }

    def _channels(self, key: str) -> list[float]:
        values = self.meta.array(key, length=3)
        if values.dtype.kind != "f" or not np.isfinite(values).all():
            raise self.meta.error(key, "three finite numbers", "others")
        return [float(value) for value in values]

    def patch_tensor(self, name: str) -> TensorView:
        """The patch embedding [out, channels, time, y, x] from its two time slices [out, channels, y, x]."""
        slices = []
        for source in (PATCH, SECOND_PATCH):
            shape = self.file.shape(source)
            if shape is None or len(shape) != 4:
                raise TensorError(
                    f"reading {self.file.path}", expected=f"the tensor '{source}' with four axes",
                    got="none" if shape is None else f"{list(shape)}",
                )  # fmt: skip
            slices.append(self.file[source])
        first, second = slices
        if first.shape != second.shape or first.dtype != second.dtype:
            raise TensorError(f"reading {self.file.path}", expected=f"'{PATCH}' and '{SECOND_PATCH}' alike", got="others")
        data: NDArray[Any] = np.stack([first.data, second.data], axis=2)
        return TensorView(name, first.dtype, data.shape, data, self.file.path)
