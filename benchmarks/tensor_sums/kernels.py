"""Kernels that compute one product of matrices per block, on matrices in row order.

Every kernel is `product(a, b, c, metadata, out)` on 32-bit words. A block computes D = A B + C of
its own matrices, in a chain of `steps` products where there are several: of each step A of shape
(rows, depth) and B of (columns, depth), and C and D of (rows, columns). A of sparse products has
half the columns, and `metadata` a word for each lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "f32": 32}
"""Bits of an element in memory, by PTX's type."""


@dataclass(frozen=True)
class Kernel:
    """One kernel.

    Attributes:
        instruction: `mma`, `sp` (`mma.sp::ordered_metadata`) or `wgmma`.
        columns: Columns of B and C.
        depth: Columns of A that are multiplied in a step.
        total: PTX's type of C and D.
        of_a: PTX's type of A.
        of_b: PTX's type of B.
        steps: Products in a chain.
    """

    instruction: str
    columns: int
    depth: int
    total: str
    of_a: str
    of_b: str
    steps: int = 1

    @property
    def rows(self) -> int:
        """Rows of A and C."""
        return 64 if self.instruction == "wgmma" else 16

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 128 if self.instruction == "wgmma" else 32

    @property
    def stored_depth(self) -> int:
        """Columns of A in memory."""
        return self.depth // 2 if self.instruction == "sp" else self.depth

    @property
    def name(self) -> str:
        """Such as `wgmma_m64n16k32_f32_e4m3_e5m2_4`."""
        shape = f"m{self.rows}n{self.columns}k{self.depth}"
        return f"{self.instruction}_{shape}_{self.total}_{self.of_a}_{self.of_b}_{self.steps}"

    @property
    def row_words(self) -> tuple[int, int, int]:
        """Words of a row of A, of B and of C."""
        return (
            self.stored_depth * BITS[self.of_a] // 32,
            self.depth * BITS[self.of_b] // 32,
            self.columns * BITS[self.total] // 32,
        )

    @property
    def source(self) -> str:
        """Its CUDA C++."""
        return _wgmma(self) if self.instruction == "wgmma" else _mma(self)


def kernels() -> Iterator[Kernel]:
    """All kernels: every type of factors that Hopper sums in floating point."""
    pairs = [(x, y) for x in ("e4m3", "e5m2") for y in ("e4m3", "e5m2")]
    for depth in (8, 16):
        yield Kernel("mma", 8, depth, "f32", "f16", "f16")
        yield Kernel("mma", 8, depth, "f16", "f16", "f16")
        yield Kernel("mma", 8, depth, "f32", "bf16", "bf16")
        yield Kernel("mma", 8, depth // 2, "f32", "tf32", "tf32")
    for total in ("f32", "f16"):
        for of_a, of_b in pairs:
            yield Kernel("mma", 8, 32, total, of_a, of_b)
            yield Kernel("wgmma", 16, 32, total, of_a, of_b)
            yield Kernel("wgmma", 16, 32, total, of_a, of_b, 4)
        yield Kernel("mma", 8, 16, total, "e4m3", "e5m2")
        yield Kernel("wgmma", 16, 16, total, "f16", "f16")
        yield Kernel("wgmma", 16, 16, total, "f16", "f16", 4)
    for steps in (1, 4):
        yield Kernel("wgmma", 16, 16, "f32", "bf16", "bf16", steps)
        yield Kernel("wgmma", 16, 8, "f32", "tf32", "tf32", steps)
    yield Kernel("wgmma", 128, 32, "f32", "e4m3", "e4m3")
    yield Kernel("wgmma", 8, 32, "f32", "e5m2", "e4m3")
    yield Kernel("mma", 8, 32, "f32", "e4m3", "e4m3", 4)
    yield Kernel("mma", 8, 16, "f32", "f16", "f16", 4)
    for depth, of in ((16, "f16"), (32, "f16"), (32, "bf16"), (8, "tf32"), (16, "tf32")):
        yield Kernel("sp", 8, depth, "f32", of, of)
    yield Kernel("sp", 8, 64, "f32", "e4m3", "e5m2")


def _listed(first: int, count: int) -> str:
    """Operands of an instruction: `{%4,%5}`."""
    return "{" + ",".join(f"%{first + i}" for i in range(count)) + "}"


def _constraints(kind: str, name: str, count: int) -> str:
    """Constraints of inline assembly: `"r"(x[0]), "r"(x[1])`."""
    return ", ".join(f'"{kind}"({name}[{i}])' for i in range(count))


def _mma(of: Kernel) -> str:
    """A warp's product (PTX ISA, "Matrix Fragments for mma")."""
    a_row, b_row, c_row = of.row_words
    a_count, b_count, c_count = a_row // 2, b_row // 4, c_row // 2
    sparse = of.instruction == "sp"
    name = "mma.sp::ordered_metadata" if sparse else "mma"
    operands = [_listed(0, c_count), _listed(c_count, a_count)]
    operands += [_listed(c_count + a_count, b_count), _listed(0, c_count)]
    operands += [f"%{c_count + a_count + b_count}", "0x0"] if sparse else []
    types = f"{of.total}.{of.of_a}.{of.of_b}.{of.total}"
    text = f"{name}.sync.aligned.m16n8k{of.depth}.row.col.{types} {', '.join(operands)};"
    inputs = f"{_constraints('r', 'x', a_count)}, {_constraints('r', 'y', b_count)}"
    inputs += ', "r"(selected)' if sparse else ""
    row, word = "g + 8 * r", "t"
    if of.total == "f32":
        row, word = "g + 8 * (r >> 1)", "2 * t + (r & 1)"
    place = f"(blockIdx.x * 16 + {row}) * {c_row} + {word}"
    return f"""
extern "C" __global__ void product(const unsigned* a, const unsigned* b, const unsigned* c,
                                   const unsigned* metadata, unsigned* out) {{
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
  unsigned d[{c_count}];
  for (int r = 0; r < {c_count}; ++r) d[r] = c[{place}];
  for (int step = 0; step < {of.steps}; ++step) {{
    const unsigned at = blockIdx.x * {of.steps} + step;
    unsigned x[{a_count}], y[{b_count}], selected = metadata[at * 32 + lane];
    for (int r = 0; r < {a_count}; ++r)
      x[r] = a[(at * 16 + g + 8 * (r & 1)) * {a_row} + t + 4 * (r >> 1)];
    for (int r = 0; r < {b_count}; ++r) y[r] = b[(at * 8 + g) * {b_row} + t + 4 * r];
    asm volatile("{text}" : {_constraints("+r", "d", c_count)} : {inputs});
  }}
  for (int r = 0; r < {c_count}; ++r) out[{place}] = d[r];
}}
"""


def _wgmma(of: Kernel) -> str:
    """A warpgroup's product of matrices in shared memory, K-major and without a swizzle."""
    c_row = of.row_words[2]
    count = of.columns * BITS[of.total] // 64
    flags = "1, 1, 1" + (", 0, 0" if of.of_a in ("f16", "bf16") else "")
    text = (
        f"wgmma.mma_async.sync.aligned.m64n{of.columns}k{of.depth}.{of.total}.{of.of_a}.{of.of_b} "
        f"{_listed(0, count)}, %{count}, %{count + 1}, {flags};"
    )
    row, word = "g + 8 * (r & 1)", "4 * (r >> 1) + t"
    if of.total == "f32":
        row, word = "g + 8 * (r >> 1 & 1)", "8 * (r >> 2) + 2 * t + (r & 1)"
    place = f"(blockIdx.x * 64 + 16 * warp + {row}) * {c_row} + {word}"
    return f"""
__device__ unsigned long long descriptor(const void* matrix) {{
  unsigned address = (unsigned)__cvta_generic_to_shared(matrix);
  return (unsigned long long)((address & 0x3FFFF) >> 4) | 128ull >> 4 << 16 | 256ull >> 4 << 32;
}}
__device__ void place(unsigned* shared, const unsigned* matrix, int rows) {{
  for (int i = threadIdx.x; i < rows * 8; i += 128) {{
    int row = i / 8, word = i % 8;
    shared[(row >> 3) * 64 + (word >> 2) * 32 + (row & 7) * 4 + (word & 3)] = matrix[i];
  }}
}}
extern "C" __global__ void __launch_bounds__(128)
    product(const unsigned* a, const unsigned* b, const unsigned* c, const unsigned* metadata,
            unsigned* out) {{
  __shared__ __align__(1024) unsigned in_a[{of.steps}][64 * 8], in_b[{of.steps}][{of.columns} * 8];
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int step = 0; step < {of.steps}; ++step) {{
    const unsigned at = blockIdx.x * {of.steps} + step;
    place(in_a[step], a + at * 64 * 8, 64);
    place(in_b[step], b + at * {of.columns} * 8, {of.columns});
  }}
  unsigned d[{count}];
#pragma unroll
  for (int r = 0; r < {count}; ++r) d[r] = c[{place}];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int step = 0; step < {of.steps}; ++step)
    asm volatile("{text}"
                 : {_constraints("+r", "d", count)}
                 : "l"(descriptor(in_a[step])), "l"(descriptor(in_b[step])));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int r = 0; r < {count}; ++r) {{
    asm volatile("" : "+r"(d[r]));
    out[{place}] = d[r];
  }}
}}
"""
