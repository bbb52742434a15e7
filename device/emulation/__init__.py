"""The emulated device: which blocks are executed, the totals of the grid, names of addresses."""
