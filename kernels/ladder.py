"""The matmul ladder beyond one element per thread: parameters, limits and launches of its steps.

The steps from `coarsened` to `warp-tiled` compute in float32. The tensor kernels multiply in a
narrower type and add in float32. Their references round the inputs to that type first, so that
verification measures the error of the arithmetic, without the error of rounding the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memlab.errors import UsageError
from memlab.kernels import matmul
from memlab.kernels.kernel import Kernel, Limits, Parameter, require_capability
from memlab.kernels.launch import Launch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays

PER_THREAD = "per_thread"
PER_THREAD_OPTION = "--per-thread"
FLOAT_BYTES = matmul.FLOAT_BYTES
# As in the sources from `register-tiled-2d` on.
TILE_DEPTH = 8  # of the tiles, along k
ROW_PADDING = 4  # floats after each row of a transposed tile

# As in the source of `warp-tiled`.
WARP_TILED_ROWS, WARP_TILED_COLUMNS, WARP_TILED_DEPTH = 128, 256, 16
WARP_TILED_THREADS = 256
WARP_TILED_SHARED_BYTES = (
    2 * WARP_TILED_DEPTH * (WARP_TILED_ROWS + ROW_PADDING + WARP_TILED_COLUMNS) * FLOAT_BYTES
)

OPERAND_DTYPES = {"tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""The type of M and N in memory, by the type that the tensor cores multiply."""


@dataclass(frozen=True)
class TileLimits:
    """The resources of one step of the ladder, which limit its tile.

    R stands for the elements per thread, in each direction that a thread covers.

    Attributes:
        tile_multiple: Of R, the number that divides the tile.
        threads: Of the tile and R, the threads of a block.
        shared_bytes: Of the tile and R, the shared memory of a block, bytes.
    """

    tile_multiple: Callable[[int], int]
    threads: Callable[[int, int], int]
    shared_bytes: Callable[[int, int], int]


_SQUARE_BLOCK = TileLimits(
    tile_multiple=lambda per_thread: 1,
    threads=lambda tile, per_thread: tile * tile,
    shared_bytes=lambda tile, per_thread: (1 + per_thread) * tile * tile * FLOAT_BYTES,
)
_COLUMN_PER_THREAD = TileLimits(
    tile_multiple=lambda per_thread: per_thread,
    threads=lambda tile, per_thread: tile * (tile // per_thread),
    shared_bytes=lambda tile, per_thread: 2 * tile * (tile // per_thread) * FLOAT_BYTES,
)
_SQUARE_PER_THREAD = TileLimits(
    tile_multiple=lambda per_thread: per_thread,
    threads=lambda tile, per_thread: (tile // per_thread) ** 2,
    shared_bytes=lambda tile, per_thread: TILE_DEPTH * (2 * tile + ROW_PADDING) * FLOAT_BYTES,
)
_DOUBLE_BUFFERED = replace(
    _SQUARE_PER_THREAD,
    shared_bytes=lambda tile, per_thread: 2 * _SQUARE_PER_THREAD.shared_bytes(tile, per_thread),
)
_TENSOR = TileLimits(
    tile_multiple=lambda per_thread: 64,
    threads=lambda tile, per_thread: 32 * (tile // 64) * (tile // 32),
    shared_bytes=lambda tile, per_thread: 64 * tile + 64 * (tile + 8),  # N's rows are padded by 8
)


def _per_thread_parameter(what: str, default: int, most: int) -> Parameter:
    return Parameter(PER_THREAD, f"{what} per thread", default=default, maximum=most)


def _tile_parameter(default: int, accepts: str) -> Parameter:
    return Parameter("tile", "Edge T of the tile of P", default=default, accepts=accepts)


_TILE_MULTIPLE_TEXT = "a multiple of --per-thread"
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
    tile, per_thread = values["tile"], values[PER_THREAD]
    _check_tile(_SQUARE_BLOCK, values, limits)
    return _product_launch(kernel, values, block=(tile, tile, 1), columns=per_thread * tile)


def launch_register_tiled_1d(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel whose threads compute several elements of a column.

    Raises:
        UsageError: The tile is not a multiple of the rows per thread, or the block needs more
            threads or shared memory than the device allows.
    """
    threads = _check_tile(_COLUMN_PER_THREAD, values, limits)
    return _product_launch(kernel, values, block=(threads, 1, 1))


def launch_register_tiled_2d(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel whose threads compute a square of P.

    Raises:
        UsageError: As for `launch_register_tiled_1d`.
    """
    threads = _check_tile(_SQUARE_PER_THREAD, values, limits)
    return _product_launch(kernel, values, block=(threads, 1, 1))


def launch_vectorized(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel that moves four elements at a time.

    Raises:
        UsageError: As for `launch_register_tiled_1d`, or the rows per thread are not a multiple
            of four.
    """
    _check_multiple_of_four(kernel, values)
    return launch_register_tiled_2d(kernel, values, limits)


def launch_double_buffered(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel with two buffers per tile.

    Raises:
        UsageError: As for `launch_vectorized`.
    """
    _check_multiple_of_four(kernel, values)
    threads = _check_tile(_DOUBLE_BUFFERED, values, limits)
    return _product_launch(kernel, values, block=(threads, 1, 1))


def launch_warp_tiled(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel whose warps compute squares of P; its tiles have one size.

    Raises:
        UsageError: The device has no asynchronous copies, or too little shared memory.
    """
    require_capability(kernel, limits, (8, 0), "cp.async", "--device a100")
    allowed = max(
        limits.max_shared_memory_per_block_bytes, limits.max_shared_memory_per_block_optin_bytes
    )
    if allowed < WARP_TILED_SHARED_BYTES:
        raise UsageError(
            f"{kernel.name} needs {WARP_TILED_SHARED_BYTES} bytes of shared memory per block; "
            f"{limits.name} allows {allowed}: use double-buffered, or another --device"
        )
    product = matmul.make_product_launch(
        kernel,
        values,
        WARP_TILED_ROWS,
        columns=WARP_TILED_COLUMNS,
        block=(WARP_TILED_THREADS, 1, 1),
        dynamic_shared_bytes=WARP_TILED_SHARED_BYTES,
    )
    (m, k), n = product.buffers[0].shape, product.buffers[1].shape[1]
    whole = not (m % WARP_TILED_ROWS or n % WARP_TILED_COLUMNS or k % WARP_TILED_DEPTH)
    sizes = {name: value for name, value in product.parameters.items() if name != "tile"}
    return replace(product, parameters=sizes, tile=None, defines={"WHOLE_TILES": str(int(whole))})


def tensor_launcher(
    element: str,
) -> Callable[[Kernel, Mapping[str, Any], Limits], Launch]:
    """Make the launch function of a tensor kernel.

    `tf32` takes float32 matrices, which the kernel rounds; `fp16` and `bf16` take matrices of
    that type. P is float32.

    Args:
        element: The type that the tensor cores multiply: `tf32`, `fp16` or `bf16`.

    Returns:
        A launch function; it raises UsageError if the device's tensor cores lack the type, or
        the tile does not fit.
    """
    needed = (7, 5) if element == "fp16" else (8, 0)

    def launch(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
        capability = limits.compute_capability
        old = capability is not None and capability < (7, 5)
        advice = "--device a100" if old else "tensor-fp16, or --device a100"
        require_capability(kernel, limits, needed, f"mma.sync on {element.upper()}", advice)
        threads = _check_tile(_TENSOR, values, limits)
        product = matmul.make_product_launch(
            kernel,
            values,
            values["tile"],
            factors=OPERAND_DTYPES[element],
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
    """The tolerance of a sum of k exact products of non-negative numbers on tensor cores.

    Tensor cores add at least 4 products at a time to the sum and truncate the result to the 24 bits
    of float32 (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ
    Computer Science 7, 2021): each addition loses less than 2**-23 of the partial sum, always in
    the same direction. For terms of similar size the partial sum grows evenly, so on average it is
    half of the final sum. Aligning the addends adds an error that scatters like rounding:
    `matmul.inner_product_tolerance`.
    """
    return -(-k // 4) * 2.0**-24 + matmul.inner_product_tolerance(k)


def _tf32_reference(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    return matmul.product_reference(
        {name: _round_to_tf32(array) for name, array in inputs.items()}, flat_index
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
    tile, per_thread = values["tile"], values[PER_THREAD]
    return matmul.make_product_launch(
        kernel,
        values,
        tile,
        columns=columns,
        block=block,
        other_parameters={PER_THREAD: per_thread},
        defines={"TILE": str(tile), "PER_THREAD": str(per_thread)},
    )


def _check_multiple_of_four(kernel: Kernel, values: Mapping[str, Any]) -> None:
    per_thread = values[PER_THREAD]
    if per_thread % 4:
        raise UsageError(
            f"{kernel.name} moves 4 elements at a time, got {PER_THREAD_OPTION} {per_thread}: "
            f"use {PER_THREAD_OPTION} 4, 8, 12 or 16"
        )


def _check_tile(step: TileLimits, values: Mapping[str, Any], limits: Limits) -> int:
    """Check that a step's tile fits the device.

    Returns:
        Threads of a block.

    Raises:
        UsageError: It does not; the message lists the tiles that do.
    """
    tile, per_thread = values["tile"], values.get(PER_THREAD, 1)
    threads_allowed = limits.max_threads_per_block
    shared_allowed = limits.max_shared_memory_per_block_bytes
    multiple = step.tile_multiple(per_thread)
    suitable = [
        candidate
        for candidate in range(multiple, 16 * threads_allowed + 1, multiple)
        if step.threads(candidate, per_thread) <= threads_allowed
        and step.shared_bytes(candidate, per_thread) <= shared_allowed
    ]
    if tile in suitable:
        return step.threads(tile, per_thread)
    threads, shared_bytes = step.threads(tile, per_thread), step.shared_bytes(tile, per_thread)
    with_per_thread = f" with {PER_THREAD_OPTION} {per_thread}" if PER_THREAD in values else ""
    if tile % multiple:
        reason = f"tile {tile}{with_per_thread} must be a multiple of {multiple}"
    elif threads > threads_allowed:
        reason = (
            f"tile {tile}{with_per_thread} needs {threads} threads per block; {limits.name} allows "
            f"{threads_allowed}"
        )
    else:
        reason = (
            f"tile {tile}{with_per_thread} needs {shared_bytes} bytes of shared memory per block; "
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
