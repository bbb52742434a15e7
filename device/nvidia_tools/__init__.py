"""Nsight Compute and Compute Sanitizer: how they are run and how their output is read."""
