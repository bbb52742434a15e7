"""The execution of a program over the lanes of a chunk of blocks."""
