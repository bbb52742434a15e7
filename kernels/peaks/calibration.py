"""The sizes of the micro-benchmarks of `memlab calibrate`, as their `.cu` files define them."""

from __future__ import annotations

# pipes.cu
PIPE_CHAINS, PIPE_REPEAT = 8, 32
LOAD_PLACES, PLACE_WORDS = 8, 32 * 33
L1_STRIDE_WORDS = 33
"""Words between lanes, so that 32 lanes read 32 lines in 32 banks."""
PIPES = ("fma", "alu", "imad", "fp64", "fp16", "mufu", "f2i", "i2f", "popc", "shuffle")
PIPES_FROM_8_0 = ("bf16", "redux")
# mma_latency.cu
MMA_CHAINS = 4
MMA_FLOP = {
    "fp16": 2 * 16 * 8 * 16,
    "bf16": 2 * 16 * 8 * 16,
    "tf32": 2 * 16 * 8 * 8,
    "int8": 2 * 16 * 8 * 32,
    "fp64": 2 * 8 * 8 * 4,
}
"""Floating-point (or integer) operations of one `mma.sync`, of the shapes that its file names."""
# ports.cu
PORT_THREADS, PORT_TILE_WORDS = 1024, 4096
# misses.cu
GATHER_UNROLL = 8
# atomics.cu
SHARED_ATOMICS_PER_TRIP = 8
# code.cu
CODE_KIB = (2, 4, 8, 16, 32, 64, 96, 128, 192)
CODE_ROUNDS, INSTRUCTION_BYTES = 3, 16
# constant_reach.cu
REACH_BYTES = tuple(2**power for power in range(10, 17))


def pipes(compute_capability: tuple[int, int]) -> tuple[str, ...]:
    """The pipes whose instructions a GPU has."""
    return PIPES + (PIPES_FROM_8_0 if compute_capability >= (8, 0) else ())


def mma_flop(compute_capability: tuple[int, int]) -> dict[str, int]:
    """The operations of one `mma.sync` by input type, of the shapes that a GPU has."""
    return MMA_FLOP if compute_capability >= (8, 0) else {}
