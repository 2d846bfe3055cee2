"""Converting a model with care: calibration before, comparison with the source after."""
