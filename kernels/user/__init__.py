"""User kernels: how they are named, launched and given their arguments."""
