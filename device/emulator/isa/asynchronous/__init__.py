"""Asynchronous copies that the copy engine of an SM executes."""
