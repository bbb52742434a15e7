"""Kernels of the user: how they are named, launched and given their arguments."""
