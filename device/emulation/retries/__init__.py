"""How often atomics that are loops in the machine code are tried, by the words of some blocks."""
