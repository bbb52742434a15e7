"""A GPU's ceilings and latencies, measured by micro-benchmarks."""
