"""Models fed by what was executed: address streams, caches, the critical path."""
