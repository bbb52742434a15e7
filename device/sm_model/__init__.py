"""One SM in time: its warps issue machine code to pipes, caches and its share of memory."""
