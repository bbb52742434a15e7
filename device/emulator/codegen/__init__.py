"""Turns a program into the machine code of this CPU, through LLVM."""
