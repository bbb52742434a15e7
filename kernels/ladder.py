"""The matmul ladder beyond one element a thread: what each step may be launched with.

The steps from `coarsened` to `double-buffered` compute in float32. The tensor kernels multiply in a
narrower type and add in float32. Their references take the inputs as that type holds them, so
verification holds a kernel to what its arithmetic can do, not to what rounding the inputs costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels import matmul
from memlab.kernels.kernel import Kernel, Limits, Parameter
from memlab.kernels.launch import Launch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays

PER_THREAD = "per_thread"
PER_THREAD_OPTION = "--per-thread"
FLOAT_BYTES = matmul.FLOAT_BYTES
TILE_DEPTH = 8  # of the tiles along k, as the sources from `register-tiled-2d` on have it
ROW_PADDING = 4  # floats behind each row of a transposed tile, likewise

_OPERAND_DTYPES = {"tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""The type that M and N have in memory, by what the tensor cores multiply."""


@dataclass(frozen=True)
class TileLimits:
    """What limits the tile of one step of the ladder, for R elements a thread and direction.

    Attributes:
        multiple: The tile must be a multiple of this, given R.
        threads: Threads of a block, given the tile and R.
        shared_bytes: Shared memory of a block, given the tile and R.
    """

    tile_multiple: Callable[[int], int]
    threads: Callable[[int, int], int]
    shared_bytes: Callable[[int, int], int]


_SQUARE_BLOCK = TileLimits(
    tile_multiple=lambda each: 1,
    threads=lambda tile, each: tile * tile,
    shared_bytes=lambda tile, each: (1 + each) * tile * tile * FLOAT_BYTES,
)
_COLUMN_PER_THREAD = TileLimits(
    tile_multiple=lambda each: each,
    threads=lambda tile, each: tile * (tile // each),
    shared_bytes=lambda tile, each: 2 * tile * (tile // each) * FLOAT_BYTES,
)
_SQUARE_PER_THREAD = TileLimits(
    tile_multiple=lambda each: each,
    threads=lambda tile, each: (tile // each) ** 2,
    shared_bytes=lambda tile, each: TILE_DEPTH * (2 * tile + ROW_PADDING) * FLOAT_BYTES,
)
_DOUBLE_BUFFERED = replace(
    _SQUARE_PER_THREAD,
    shared_bytes=lambda tile, each: 2 * _SQUARE_PER_THREAD.shared_bytes(tile, each),
)
_TENSOR = TileLimits(
    tile_multiple=lambda each: 64,
    threads=lambda tile, each: 32 * (tile // 64) * (tile // 32),
    shared_bytes=lambda tile, each: 64 * tile + 64 * (tile + 8),  # N's rows are padded by 8
)


def _per_thread_parameter(what: str, default: int, most: int) -> Parameter:
    return Parameter(PER_THREAD, f"{what} that a thread computes", default=default, maximum=most)


def _tile_parameter(default: int, accepts: str) -> Parameter:
    return Parameter("tile", "Edge T of the tile of P", default=default, accepts=accepts)


_TILE_MULTIPLE_TEXT = "a multiple of what a thread computes"
COARSENED_PARAMETERS = (
    *matmul.SIZE_PARAMETERS,
    Parameter("tile", "Edge T of the block", default=16, accepts=matmul.TILE_RANGE_TEXT),
    _per_thread_parameter("Elements of a row", 4, 32),
)
REGISTER_TILED_1D_PARAMETERS = (
    *matmul.SIZE_PARAMETERS,
    _tile_parameter(64, _TILE_MULTIPLE_TEXT),
    _per_thread_parameter("Rows", 8, 64),
)
REGISTER_TILED_2D_PARAMETERS = (
    *matmul.SIZE_PARAMETERS,
    _tile_parameter(128, _TILE_MULTIPLE_TEXT),
    _per_thread_parameter("Rows and columns", 8, 16),
)
VECTORIZED_PARAMETERS = (
    *matmul.SIZE_PARAMETERS,
    _tile_parameter(128, _TILE_MULTIPLE_TEXT),
    replace(_per_thread_parameter("Rows and columns", 8, 16), accepts="4, 8, 12 or 16"),
)
TENSOR_PARAMETERS = (
    *matmul.SIZE_PARAMETERS,
    _tile_parameter(128, "64, 128 or 192; 256 spills registers"),
)


def launch_coarsened(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel whose threads compute several elements of a row, a tile apart.

    Raises:
        UsageError: The block needs more threads or shared memory than the device allows.
    """
    tile, each = values["tile"], values[PER_THREAD]
    _check_tile(_SQUARE_BLOCK, values, limits)
    return _product_launch(kernel, values, block=(tile, tile, 1), columns=each * tile)


def launch_register_tiled_1d(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel whose threads compute several elements of a column.

    Raises:
        UsageError: The tile is no multiple of the rows a thread, or the block needs more threads
            or shared memory than the device allows.
    """
    threads = _check_tile(_COLUMN_PER_THREAD, values, limits)
    return _product_launch(kernel, values, block=(threads, 1, 1))


def launch_register_tiled_2d(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel whose threads compute a square of P; errors as for the column."""
    threads = _check_tile(_SQUARE_PER_THREAD, values, limits)
    return _product_launch(kernel, values, block=(threads, 1, 1))


def launch_vectorized(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel that moves four elements at a time.

    Raises:
        UsageError: As for the column, or a thread's rows do not come in fours.
    """
    _check_multiple_of_four(kernel, values)
    return launch_register_tiled_2d(kernel, values, limits)


def launch_double_buffered(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel with two copies of each tile; errors as for `launch_vectorized`."""
    _check_multiple_of_four(kernel, values)
    threads = _check_tile(_DOUBLE_BUFFERED, values, limits)
    return _product_launch(kernel, values, block=(threads, 1, 1))


def tensor_launcher(
    element: str,
) -> Callable[[Kernel, Mapping[str, Any], Limits], Launch]:
    """Make the launch function of a tensor kernel.

    `tf32` takes float32 matrices, which the kernel rounds; `fp16` and `bf16` take matrices of
    that type. P is float32.

    Args:
        element: What the tensor cores multiply: `tf32`, `fp16` or `bf16`.

    Returns:
        A launch function; it raises UsageError where the device's tensor cores lack the type, or
        the tile does not suit.
    """
    needed = (7, 5) if element == "fp16" else (8, 0)

    def launch(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
        capability = limits.compute_capability
        if capability is not None and capability < needed:
            help_ = "--device a100" if capability < (7, 5) else "tensor-fp16, or --device a100"
            raise UsageError(
                f"{kernel.name} needs compute capability {_format_capability(needed)} or later "
                "(mma.sync on "
                f"{element.upper()}); {limits.name} has {_format_capability(capability)}: use "
                f"{help_}"
            )
        threads = _check_tile(_TENSOR, values, limits)
        product = matmul.make_product_launch(
            kernel,
            values,
            values["tile"],
            factors=_OPERAND_DTYPES[element],
            block=(threads, 1, 1),
            defines={"TILE": str(values["tile"]), "INPUT": element.upper()},
        )
        k = product.buffers[0].shape[1]
        return replace(
            product,
            entry="tensor",
            references={"P": _tf32_reference} if element == "tf32" else product.references,
            tolerance=tensor_tolerance(k),
        )

    return launch


def tensor_tolerance(k: int) -> float:
    """Largest relative error of k exact products of non-negative numbers, summed by tensor cores.

    Tensor cores add 4 products or more to the sum at a time and cut the result off to float32's
    24 bits (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ
    Computer Science 7, 2021): each addition loses less than 2**-23 of the sum so far, always in the
    same direction. Of terms that are alike the sum grows evenly and is half of the whole on
    average. What aligning the addends loses besides scatters like rounding: `matmul.tolerance`.
    """
    return -(-k // 4) * 2.0**-24 + matmul.inner_product_tolerance(k)


def _tf32_reference(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    return matmul.product_reference(
        {name: _round_to_tf32(each) for name, each in inputs.items()}, flat_index
    )


def _round_to_tf32(array: NDArray[Any]) -> NDArray[np.float32]:
    """Round float32 to TF32's 10 bits of fraction, ties away from zero (PTX: `cvt.rna.tf32`)."""
    import numpy as np

    bits = array.view(np.uint32)
    return ((bits + np.uint32(1 << 12)) & np.uint32(0xFFFF_E000)).view(np.float32)


def _product_launch(
    kernel: Kernel,
    values: Mapping[str, Any],
    block: tuple[int, int, int],
    columns: int | None = None,
) -> Launch:
    tile, each = values["tile"], values[PER_THREAD]
    return matmul.make_product_launch(
        kernel,
        values,
        tile,
        columns=columns,
        block=block,
        chosen={PER_THREAD: each},
        defines={"TILE": str(tile), "PER_THREAD": str(each)},
    )


def _check_multiple_of_four(kernel: Kernel, values: Mapping[str, Any]) -> None:
    each = values[PER_THREAD]
    if each % 4:
        raise UsageError(
            f"{kernel.name} moves 4 elements at a time, got {PER_THREAD_OPTION} {each}: "
            f"use {PER_THREAD_OPTION} 4, 8, 12 or 16"
        )


def _check_tile(step: TileLimits, values: Mapping[str, Any], limits: Limits) -> int:
    """Check the tile against a step's limits and say which tiles suit where it does not.

    Returns:
        Threads of a block.
    """
    tile, each = values["tile"], values.get(PER_THREAD, 1)
    threads_allowed = limits.max_threads_per_block
    shared_allowed = limits.max_shared_memory_per_block_bytes
    multiple = step.tile_multiple(each)
    suitable = [
        candidate
        for candidate in range(multiple, 16 * threads_allowed + 1, multiple)
        if step.threads(candidate, each) <= threads_allowed
        and step.shared_bytes(candidate, each) <= shared_allowed
    ]
    if tile in suitable:
        return step.threads(tile, each)
    threads, shared_bytes = step.threads(tile, each), step.shared_bytes(tile, each)
    with_each = f" with {PER_THREAD_OPTION} {each}" if PER_THREAD in values else ""
    if tile % multiple:
        reason = f"tile {tile}{with_each} must be a multiple of {multiple}"
    elif threads > threads_allowed:
        reason = (
            f"tile {tile}{with_each} needs {threads} threads a block; {limits.name} allows "
            f"{threads_allowed}"
        )
    else:
        reason = (
            f"tile {tile}{with_each} needs {shared_bytes} bytes of shared memory a block; "
            f"{limits.name} allows {shared_allowed}"
        )
    if not suitable:
        raise UsageError(f"{reason}: use a smaller {PER_THREAD_OPTION}, or another --device")
    if multiple == 1:
        raise UsageError(f"{reason}: use --tile {suitable[-1]} or less")
    below = [candidate for candidate in suitable if candidate < tile][-1:]
    above = [candidate for candidate in suitable if candidate > tile][:1]
    raise UsageError(
        f"{reason}: use --tile {' or '.join(map(str, below + above))}, or any of {suitable[0]} to "
        f"{suitable[-1]} in steps of {multiple}"
    )


def _format_capability(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
