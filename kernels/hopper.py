"""The matmul ladder on Hopper's tensor cores: launches of the kernels whose products are wgmma.

They multiply in a narrower type and add in float32; as in `ladder`, references take the inputs as
the tensor cores see them. The copy engine moves boxes of M and N, which it finds through tensor
maps: their rows have whole 16 bytes, so sizes that do not are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from memlab.errors import UsageError
from memlab.kernels import ladder, matmul
from memlab.kernels.kernel import Kernel, Limits, Parameter, require_wgmma
from memlab.kernels.launch import Argument, Buffer, Launch, TensorBox, TensorMap, block_count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays

LIBRARY_FILE = "hopper.cuh"

SWIZZLE_BYTES = 128
"""Rows of the boxes of M and N in shared memory, which the copy engine swizzles."""
PROMOTION_BYTES = 128
ROW_ALIGNMENT_BYTES = 16
"""The row pitch of a tensor is a multiple of it (CUDA driver API, `cuTensorMapEncodeTiled`)."""
PARAMETERS = (
    *matmul.SIZE_PARAMETERS,
    Parameter("dtype", "Type of M and N", default="bf16", choices=("bf16", "fp16")),
)


@dataclass(frozen=True)
class Step:
    """What the source of one step fixes.

    Attributes:
        rows: Of P that a block computes.
        columns: Of P that a block computes.
        threads: Of a block.
        stages: Pairs of tiles in shared memory.
        stage_barriers: Barriers of each.
        persistent: Whether the grid has as many blocks as the device has SMs, instead of one for
            each tile of P.
        piece: Rows and columns of P that the copy engine stores at once; None if threads store.
        cluster: Blocks of a cluster, down and across P; those side by side share the copies of M.
    """

    rows: int
    columns: int
    threads: int
    stages: int
    stage_barriers: int = 2
    persistent: bool = False
    piece: tuple[int, int] | None = None
    cluster: tuple[int, int] = (1, 1)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, bytes."""
        tiles = self.stages * (self.rows + self.columns) * SWIZZLE_BYTES
        return tiles + self._piece_bytes() + self.stages * self.stage_barriers * 8

    def _piece_bytes(self) -> int:
        if self.piece is None:
            return 0
        groups, pieces = self.threads // 128 - 1, 2  # a warpgroup loads; each other one has two
        return groups * pieces * self.piece[0] * self.piece[1] * matmul.FLOAT_BYTES


PLAIN = Step(rows=64, columns=256, threads=128, stages=1, stage_barriers=1)
PIPELINED = Step(rows=128, columns=256, threads=256, stages=4, stage_barriers=1)
SPECIALIZED = Step(rows=128, columns=256, threads=384, stages=4)
PERSISTENT = replace(SPECIALIZED, persistent=True, piece=(64, 32))
CLUSTER = replace(PERSISTENT, cluster=(2, 1))
PINGPONG = replace(PERSISTENT, columns=128, stages=6)
TF32 = replace(SPECIALIZED, rows=256, columns=128, persistent=True, cluster=(1, 2))


def launcher(step: Step) -> Callable[[Kernel, Mapping[str, Any], Limits], Launch]:
    """Make the launch function of a step in FP16 and BF16.

    Returns:
        A launch function; it raises UsageError if the device is no Hopper GPU, or a row of M or N
        is not of whole 16 bytes.
    """

    def launch(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
        element = values["dtype"]
        return _launch(kernel, values, limits, step, element, {"dtype": element})

    return launch


def launch_tf32(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the kernel that multiplies in TF32, to which the copy engine rounds float32.

    Raises:
        UsageError: As for the launch functions of `launcher`.
    """
    product = _launch(kernel, values, limits, TF32, "tf32", {})
    return replace(product, references={"P": _tf32_reference})


def _tf32_reference(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    return matmul.product_reference(
        {name: _round_to_tf32(array) for name, array in inputs.items()}, flat_index
    )


def _round_to_tf32(array: NDArray[Any]) -> NDArray[np.float32]:
    """Round float32 to TF32's 10 bits of fraction, ties to even, as the copy engine of an H200."""
    import numpy as np

    bits = array.view(np.uint32)
    ties_to_even = np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
    return ((bits + ties_to_even) & np.uint32(0xFFFF_E000)).view(np.float32)


def _launch(
    kernel: Kernel,
    values: Mapping[str, Any],
    limits: Limits,
    step: Step,
    element: str,
    parameters: Mapping[str, str],
) -> Launch:
    require_wgmma(kernel, limits, f"tensor-{element}, or --device h200")
    product = matmul.make_product_launch(
        kernel,
        values,
        step.rows,
        columns=step.columns,
        factors=ladder.OPERAND_DTYPES[element],
        block=(step.threads, 1, 1),
        defines={"INPUT": element.upper()},
        dynamic_shared_bytes=step.shared_bytes,
    )
    left, right, output, *sizes = product.arguments
    assert isinstance(left, Buffer)
    assert isinstance(right, Buffer)
    assert isinstance(output, Buffer)
    _check_rows(kernel, element, left, right)
    given = {name: value for name, value in product.parameters.items() if name != "tile"}
    depth = (
        SWIZZLE_BYTES // left.element_bytes
    )  # of the tiles, along k; also the columns of a box of N
    rounding: Literal["", "tf32"] = "tf32" if element == "tf32" else ""
    arguments: tuple[Argument, ...] = (
        _tensor_map(left, (step.rows // step.cluster[1], depth), rounding),
        _tensor_map(right, (depth, depth), rounding),
        _tensor_map(output, step.piece) if step.piece else output,
        *sizes,
    )
    return replace(
        product,
        parameters={**given, **parameters},
        arguments=arguments,
        grid=_grid(product, step, limits),
        cluster=(prod(step.cluster), 1, 1),
        tile=None,
        tolerance=ladder.tensor_tolerance(left.shape[1]),
    )


def _grid(product: Launch, step: Step, limits: Limits) -> tuple[int, int, int]:
    if not step.persistent:
        return product.grid
    across, down, _ = product.grid
    clusters = prod(map(block_count, (down, across), step.cluster))
    blocks = prod(step.cluster)
    most = (limits.multiprocessor_count or blocks) // blocks
    return min(clusters, most) * blocks, 1, 1


def _tensor_map(
    array: Buffer, extents: tuple[int, int], rounding: Literal["", "tf32"] = ""
) -> TensorMap:
    box = TensorBox(extents, swizzle_bytes=SWIZZLE_BYTES, promotion_bytes=PROMOTION_BYTES)
    return TensorMap(array.name, array, array.dtype, array.shape, box, conversion=rounding)


def _check_rows(kernel: Kernel, element: str, left: Buffer, right: Buffer) -> None:
    for name, array in (("k", left), ("n", right)):
        multiple = ROW_ALIGNMENT_BYTES // array.element_bytes
        size = array.shape[1]
        if size % multiple:
            above = block_count(size, multiple) * multiple
            raise UsageError(
                f"{kernel.name} copies rows of whole {ROW_ALIGNMENT_BYTES} bytes, so {name} is a "
                f"multiple of {multiple}, got {size}: use --{name} {above}, or tensor-{element}"
            )
