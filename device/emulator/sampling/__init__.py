"""Which blocks of a large grid run, and how values differ from block to block."""
