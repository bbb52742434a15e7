"""The kernels that memlab knows, in the order of a lesson: each does one thing differently.

To add one: a `.cu` file beside this module, an entry here, a line in its test.
"""

from __future__ import annotations

from memlab.errors import UsageError, nearest
from memlab.kernels import matmul
from memlab.kernels.kernel import Kernel

CATALOG: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            name="naive",
            summary="Matrix product; every operand is read from global memory",
            source_file="naive.cu",
            parameters=(*matmul.SIZES, matmul.BLOCK_TILE),
            make_launch=matmul.launch_naive,
        ),
        Kernel(
            name="tiled",
            summary="Matrix product; tiles are staged in static shared memory",
            source_file="tiled.cu",
            parameters=(*matmul.SIZES, matmul.STATIC_TILE),
            make_launch=matmul.launch_tiled,
        ),
        Kernel(
            name="tiled-dynamic",
            summary="Matrix product; tiles in dynamic shared memory",
            source_file="tiled_dynamic.cu",
            parameters=(*matmul.SIZES, matmul.DYNAMIC_TILE),
            make_launch=matmul.launch_tiled_dynamic,
        ),
    )
}
"""Every kernel by its name on the command line."""


def find(name: str) -> Kernel:
    """Return the kernel of this name.

    Raises:
        UsageError: There is none; the message gives the nearest names.
    """
    if name not in CATALOG:
        raise UsageError(f"unknown kernel {name!r}: {nearest(name, CATALOG)}")
    return CATALOG[name]
