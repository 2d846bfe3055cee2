"""A model folder as typed data: configuration, tensors, rotary settings, generation defaults."""

from ouzel.checkpoint.config import ConfigReader, stored_dtype, tie_word_embeddings
from ouzel.checkpoint.folder import Checkpoint
from ouzel.checkpoint.generation_config import GenerationDefaults, eos_token_ids
from ouzel.checkpoint.rope import RopeConfig, inv_freq, read_rope
from ouzel.checkpoint.safetensors_file import SafetensorsFile, TensorView, open_safetensors
from ouzel.checkpoint.tensor_index import TensorIndex

__all__ = [
    "Checkpoint",
    "ConfigReader",
    "GenerationDefaults",
    "RopeConfig",
    "SafetensorsFile",
    "TensorIndex",
    "TensorView",
    "eos_token_ids",
    "inv_freq",
    "open_safetensors",
    "read_rope",
    "stored_dtype",
    "tie_word_embeddings",
]
