"""Devices that run a kernel: a real GPU, or the emulated device that a datasheet describes."""
