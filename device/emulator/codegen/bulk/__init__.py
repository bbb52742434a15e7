"""The machine code of bulk copies."""
