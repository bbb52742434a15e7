"""Kernels that Python packages make: Numba, CuPy and Triton, one module each."""
