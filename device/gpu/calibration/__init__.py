"""A GPU's datasheet, measured: the constants of the time model by micro-benchmarks."""
