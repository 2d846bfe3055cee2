"""Packed folders out of checkpoints: writing, checking against the source, calibration, and the user's cache."""
