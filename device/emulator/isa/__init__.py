"""The instruction table, and the meaning of each opcode."""
