"""`mbarrier`s that also count the bytes of transactions (PTX ISA, "mbarrier")."""

import numpy as np
import pytest

import memlab

SETUP = """
__device__ bool is_over(unsigned barrier, unsigned parity)
{
  unsigned over;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
               " selp.u32 %0, 1, 0, p; }" : "=r"(over) : "r"(barrier), "r"(parity) : "memory");
  return over;
}
#define OPERATION(NAME, COUNT) \\
  asm volatile("mbarrier." NAME ".shared::cta.b64 [%0], %1;" \\
               :: "r"(barrier), "r"(COUNT) : "memory")
#define ARRIVAL(NAME, COUNT) \\
  asm volatile("mbarrier." NAME ".shared::cta.b64 _, [%0], %1;" \\
               :: "r"(barrier), "r"(COUNT) : "memory")

__global__ void steps(int *over)
{
  __shared__ unsigned long long word;
  unsigned barrier = (unsigned)__cvta_generic_to_shared(&word);
  if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], ARRIVALS;" :: "r"(barrier) : "memory");
  __syncthreads();
  int step = 0;
#define STEP(...) \\
  if (threadIdx.x == step) { __VA_ARGS__; over[step] = is_over(barrier, 0); } \\
  __syncthreads(); ++step;
"""

CASES = {
    "bytes that come after the arrivals": (
        2,
        ["A arrive 1", "A arrive.expect_tx 96", "O complete_tx 64", "O complete_tx 32"],
        [0, 0, 0, 1],
    ),
    "bytes that come before they are expected": (
        2,
        ["O complete_tx 96", "A arrive 1", "A arrive.expect_tx 96"],
        [0, 0, 1],
    ),
    "bytes that are expected without an arrival": (
        1,
        ["O expect_tx 16", "O expect_tx 48", "O complete_tx 64", "A arrive 1"],
        [0, 0, 0, 1],
    ),
    "the most bytes": (
        1,
        ["A arrive.expect_tx 1048575", "O complete_tx 1048574", "O complete_tx 1"],
        [0, 0, 1],
    ),
    "a scope and an order": (
        2,
        [
            "A arrive_drop.expect_tx.release.cta 8",
            "O expect_tx.relaxed.cta 8",
            "O complete_tx.relaxed.cta 16",
            "A arrive.release.cta 1",
        ],
        [0, 0, 0, 1],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_phase_waits_for_arrivals_and_bytes(case: str) -> None:
    arrivals, steps, expected = CASES[case]
    code = SETUP.replace("ARRIVALS", str(arrivals))
    for step in steps:
        form, name, count = step.split()
        code += f'  STEP({"ARRIVAL" if form == "A" else "OPERATION"}("{name}", {count}))\n'
    kernel = memlab.source(code + "}\n", "steps")
    over = memlab.inout(np.full(len(steps), -1, np.int32))
    run = memlab.run(kernel, grid=1, block=32, args=[over])
    np.testing.assert_array_equal(run.outputs["over"], expected)
