"""References of public kernels, in NumPy with float64; one module per repository."""
