"""Nsight Compute and Compute Sanitizer: running them and reading their output."""
