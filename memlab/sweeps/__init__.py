"""`memlab.sweep`: its definition, its loop, and the processes that run its points."""
