"""The instruction table, and what each opcode means."""
