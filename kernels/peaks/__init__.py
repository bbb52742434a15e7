"""Micro-benchmarks of a GPU's ceilings and latencies."""
