"""Kernels of public repositories, run by the first command that a user would type.

Eight kernels were drawn at random from the `.cu` and `.cuh` files of each repository (twelve from
the largest, all where there are fewer), before any of them was run; a kernel of the same name in
several files was drawn once. Exercises with gaps, which no compiler takes, are listed by their
solutions.

The first command was written from reading the source, before anything was run, and was not changed
afterwards. It is `memlab run FILE.cu:KERNEL` where the file launches the kernel, with `--set` for
sizes that the program takes from its user, and with `--grid`, `--block` and `--arg` where nothing
launches it. References are our own, in NumPy with float64, and compute what the source says. Each
finding of `memlab check` was judged by reading the source.
"""
