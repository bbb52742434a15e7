"""The machine code of a kernel: its instructions, and how often each of them is executed."""
