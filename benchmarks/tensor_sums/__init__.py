"""Sums of the tensor cores, bit for bit: single products on a GPU and on an emulated device."""
