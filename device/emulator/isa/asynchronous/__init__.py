"""Asynchronous instructions: copies by the copy engine of an SM, and products of warpgroups."""
