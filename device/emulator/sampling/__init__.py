"""Sampling of a large grid: the blocks to execute, and blocks that do the same."""
