"""The machine code of a program, written with LLVM: stretches, memory accesses, schedule."""
