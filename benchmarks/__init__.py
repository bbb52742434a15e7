"""Benchmarks of memlab and their limits: `python -m benchmarks` in the repository's root."""
