"""User kernels: how they are named and launched."""
