"""Models of what a trace implies: access streams, caches, the critical path."""
