"""A launch on the emulated device: which blocks run, their totals, and the device's answers."""
