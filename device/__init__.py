"""Where a kernel runs: a real GPU, or the emulator with a datasheet."""
