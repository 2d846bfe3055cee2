"""The verifier: goldens from PyTorch, and whether Ouzel computes the same, stage by stage (docs/verification.md)."""
