"""Benchmarks of memlab and their limits: `python -m benchmarks` in the repository's root."""

import os

# Commands are timed as users have them: with the bytecode of their modules kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
