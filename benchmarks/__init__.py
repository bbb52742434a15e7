"""Figures that memlab must reach, measured; `python -m benchmarks` from the repository's root."""
