"""Number formats, tensor tables, and loading weights from a checkpoint."""

from ouzel.weights.check import check_finite
from ouzel.weights.formats import AUTO, FLOATS, FORMATS, PACKED, PARTS, Format, FormatPlan, format_of
from ouzel.weights.load import DEFAULT_IGNORE, choose_format, load_weights
from ouzel.weights.table import TensorSpec
from ouzel.weights.weight_set import Weight, WeightSet

__all__ = [
    "AUTO",
    "DEFAULT_IGNORE",
    "FLOATS",
    "FORMATS",
    "PACKED",
    "PARTS",
    "Format",
    "FormatPlan",
    "TensorSpec",
    "Weight",
    "WeightSet",
    "check_finite",
    "choose_format",
    "format_of",
    "load_weights",
]
