"""The catalog of memlab's kernels, in the order of the lessons; each shows one difference.

To add a kernel, write a `.cu` file in this folder, an entry here and a line in its test.
"""

from __future__ import annotations

from memlab.errors import UsageError, suggest_nearest
from memlab.kernels import (
    attention,
    banks,
    coalescing,
    corner_turning,
    hopper,
    image,
    ladder,
    matmul,
    spaces,
    sums,
)
from memlab.kernels.kernel import MAX_SIZE_T_INDEXED_ELEMENTS, Kernel

CATALOG: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            name="naive",
            summary="Matrix product; every operand is read from global memory",
            source_file="naive.cu",
            parameters=(*matmul.SIZE_PARAMETERS, matmul.BLOCK_TILE),
            make_launch=matmul.launch_naive,
        ),
        Kernel(
            name="tiled",
            summary="Matrix product; tiles are staged in static shared memory",
            source_file="tiled.cu",
            parameters=(*matmul.SIZE_PARAMETERS, matmul.STATIC_TILE),
            make_launch=matmul.launch_tiled,
        ),
        Kernel(
            name="tiled-dynamic",
            summary="Matrix product; tiles are staged in dynamic shared memory",
            source_file="tiled_dynamic.cu",
            parameters=(*matmul.SIZE_PARAMETERS, matmul.DYNAMIC_TILE),
            make_launch=matmul.launch_tiled_dynamic,
        ),
        Kernel(
            name="coarsened",
            summary="Matrix product; one thread computes several row elements",
            source_file="coarsened.cu",
            parameters=ladder.COARSENED_PARAMETERS,
            make_launch=ladder.launch_coarsened,
        ),
        Kernel(
            name="register-tiled-1d",
            summary="Matrix product; one thread computes part of a column",
            source_file="register_tiled_1d.cu",
            parameters=ladder.REGISTER_TILED_1D_PARAMETERS,
            make_launch=ladder.launch_register_tiled_1d,
        ),
        Kernel(
            name="register-tiled-2d",
            summary="Matrix product; one thread computes a square from registers",
            source_file="register_tiled_2d.cu",
            parameters=ladder.REGISTER_TILED_2D_PARAMETERS,
            make_launch=ladder.launch_register_tiled_2d,
        ),
        Kernel(
            name="vectorized",
            summary="Matrix product; every thread moves 16 bytes at a time",
            source_file="vectorized.cu",
            parameters=ladder.VECTORIZED_PARAMETERS,
            make_launch=ladder.launch_vectorized,
        ),
        Kernel(
            name="double-buffered",
            summary="Matrix product; the next tiles load during the inner product",
            source_file="double_buffered.cu",
            parameters=ladder.VECTORIZED_PARAMETERS,
            make_launch=ladder.launch_double_buffered,
        ),
        Kernel(
            name="warp-tiled",
            summary="Matrix product; warps compute squares of 64 x 64",
            source_file="warp_tiled.cu",
            parameters=matmul.SIZE_PARAMETERS,
            make_launch=ladder.launch_warp_tiled,
        ),
        *(
            Kernel(
                name=f"tensor-{element}",
                summary=f"Matrix product on tensor cores; {element.upper()} inputs, FP32 sums",
                source_file="tensor.cu",
                parameters=ladder.TENSOR_PARAMETERS,
                make_launch=ladder.tensor_launcher(element),
            )
            for element in ("tf32", "fp16", "bf16")
        ),
        *(
            Kernel(
                name=name,
                summary=f"Matrix product by wgmma; {what}",
                source_file=name.replace("-", "_") + ".cu",
                parameters=hopper.PARAMETERS,
                make_launch=hopper.launcher(step),
                library_file=hopper.LIBRARY_FILE,
            )
            for name, what, step in (
                ("wgmma", "the copy engine fills the tiles", hopper.PLAIN),
                ("wgmma-pipelined", "copies run ahead in a ring of tiles", hopper.PIPELINED),
                ("wgmma-specialized", "one warpgroup copies, two multiply", hopper.SPECIALIZED),
                ("wgmma-persistent", "a block computes many tiles of P", hopper.PERSISTENT),
                ("wgmma-cluster", "two blocks share a tile of N", hopper.CLUSTER),
                ("wgmma-pingpong", "two warpgroups multiply in turns", hopper.PINGPONG),
                ("wgmma-overlapped", "sums are stored during products", hopper.CLUSTER),
            )
        ),
        Kernel(
            name="wgmma-tf32",
            summary="Matrix product by wgmma in TF32; N goes through registers",
            source_file="wgmma_tf32.cu",
            parameters=matmul.SIZE_PARAMETERS,
            make_launch=hopper.launch_tf32,
            library_file=hopper.LIBRARY_FILE,
        ),
        Kernel(
            name="blur",
            summary="Image blur; every pixel is read from global memory",
            source_file="blur.cu",
            parameters=image.PARAMETERS,
            make_launch=image.launch_blur,
        ),
        Kernel(
            name="blur-tiled",
            summary="Image blur; tiles with their border are in shared memory",
            source_file="blur_tiled.cu",
            parameters=image.PARAMETERS,
            make_launch=image.launch_blur_tiled,
        ),
        Kernel(
            name="blur-vectorized",
            summary="Image blur; a thread averages 4 x 4 pixels in registers",
            source_file="blur_vectorized.cu",
            parameters=image.VECTORIZED_PARAMETERS,
            make_launch=image.launch_blur_vectorized,
        ),
        Kernel(
            name="aligned",
            summary="Copy; a warp reads one aligned line",
            source_file="aligned.cu",
            parameters=coalescing.PARAMETERS,
            make_launch=coalescing.launch_aligned,
        ),
        Kernel(
            name="permuted",
            summary="Copy; a warp reads one aligned line in another order",
            source_file="permuted.cu",
            parameters=coalescing.PARAMETERS,
            make_launch=coalescing.launch_permuted,
        ),
        Kernel(
            name="misaligned",
            summary="Copy; a warp reads 32 words that start inside a line",
            source_file="misaligned.cu",
            parameters=(*coalescing.PARAMETERS, coalescing.OFFSET_PARAMETER),
            make_launch=coalescing.launch_misaligned,
        ),
        Kernel(
            name="broadcast",
            summary="Copy; a warp reads one word",
            source_file="broadcast.cu",
            parameters=coalescing.PARAMETERS,
            make_launch=coalescing.launch_broadcast,
        ),
        Kernel(
            name="scattered",
            summary="Copy; a warp reads 32 words at random positions",
            source_file="scattered.cu",
            parameters=coalescing.PARAMETERS,
            make_launch=coalescing.launch_scattered,
        ),
        Kernel(
            name="strided",
            summary="Copy; a warp reads words at a stride",
            source_file="strided.cu",
            parameters=(*coalescing.PARAMETERS, coalescing.STRIDE_PARAMETER),
            make_launch=coalescing.launch_strided,
            max_elements=MAX_SIZE_T_INDEXED_ELEMENTS,
        ),
        Kernel(
            name="copy-vectorized",
            summary="Copy; every thread moves 16 bytes at a time",
            source_file="copy_vectorized.cu",
            parameters=(coalescing.WORDS_PARAMETER,),
            make_launch=coalescing.launch_vectorized,
        ),
        Kernel(
            name="row-sum",
            summary="Sums along rows, one thread per row; uncoalesced",
            source_file="row_sum.cu",
            parameters=sums.PARAMETERS,
            make_launch=sums.launch_row_sum,
            max_elements=MAX_SIZE_T_INDEXED_ELEMENTS,
        ),
        Kernel(
            name="row-sum-block",
            summary="Sums along rows, one block per row; coalesced",
            source_file="row_sum_block.cu",
            parameters=sums.PARAMETERS,
            make_launch=sums.launch_row_sum_block,
            max_elements=MAX_SIZE_T_INDEXED_ELEMENTS,
        ),
        Kernel(
            name="column-sum",
            summary="Sums along columns, one thread per column; coalesced",
            source_file="column_sum.cu",
            parameters=sums.PARAMETERS,
            make_launch=sums.launch_column_sum,
            max_elements=MAX_SIZE_T_INDEXED_ELEMENTS,
        ),
        Kernel(
            name="column-sum-block",
            summary="Sums along columns, one block per 64 columns",
            source_file="column_sum_block.cu",
            parameters=sums.PARAMETERS,
            make_launch=sums.launch_column_sum_block,
            max_elements=MAX_SIZE_T_INDEXED_ELEMENTS,
        ),
        Kernel(
            name="bank-stride",
            summary="Reads of shared memory at a stride; bank conflicts",
            source_file="bank_stride.cu",
            parameters=banks.STRIDE_PARAMETERS,
            make_launch=banks.launch_bank_stride,
        ),
        Kernel(
            name="transpose",
            summary="Transpose; rows are read and columns are written",
            source_file="transpose.cu",
            parameters=banks.TRANSPOSE_PARAMETERS,
            make_launch=banks.launch_transpose,
        ),
        Kernel(
            name="transpose-shared",
            summary="Transpose through shared memory, with bank conflicts",
            source_file="transpose_shared.cu",
            parameters=banks.TRANSPOSE_PARAMETERS,
            make_launch=banks.launch_transpose,
        ),
        Kernel(
            name="transpose-padded",
            summary="Transpose through shared memory, padded to avoid conflicts",
            source_file="transpose_padded.cu",
            parameters=banks.TRANSPOSE_PARAMETERS,
            make_launch=banks.launch_transpose,
        ),
        Kernel(
            name="transpose-vectorized",
            summary="Transpose through shared memory, 16 bytes at a time",
            source_file="transpose_vectorized.cu",
            parameters=banks.TRANSPOSE_PARAMETERS,
            make_launch=banks.launch_transpose_vectorized,
        ),
        Kernel(
            name="matmul-column-major",
            summary="Matrix product; N is stored by columns, read uncoalesced",
            source_file="matmul_column_major.cu",
            parameters=(*matmul.SIZE_PARAMETERS, corner_turning.COLUMN_MAJOR_TILE),
            make_launch=corner_turning.launch_column_major,
        ),
        Kernel(
            name="corner-turning",
            summary="Matrix product; N by columns is transposed in shared memory",
            source_file="corner_turning.cu",
            parameters=(*matmul.SIZE_PARAMETERS, corner_turning.CORNER_TURNING_TILE),
            make_launch=corner_turning.launch_corner_turning,
        ),
        Kernel(
            name="filter-registers",
            summary="Small filter; coefficients in registers",
            source_file="filter_registers.cu",
            parameters=spaces.FILTER_PARAMETERS,
            make_launch=spaces.launch_filter,
        ),
        Kernel(
            name="filter-local",
            summary="Small filter; coefficients in local memory",
            source_file="filter_local.cu",
            parameters=spaces.FILTER_PARAMETERS,
            make_launch=spaces.launch_filter,
        ),
        Kernel(
            name="filter-shared",
            summary="Small filter; coefficients in shared memory",
            source_file="filter_shared.cu",
            parameters=spaces.FILTER_PARAMETERS,
            make_launch=spaces.launch_filter,
        ),
        Kernel(
            name="filter-constant",
            summary="Small filter; coefficients in constant memory, uniform",
            source_file="filter_constant.cu",
            parameters=spaces.FILTER_PARAMETERS,
            make_launch=spaces.launch_filter_constant,
        ),
        Kernel(
            name="filter-constant-divergent",
            summary="Small filter; coefficients in constant memory, divergent",
            source_file="filter_constant_divergent.cu",
            parameters=spaces.FILTER_PARAMETERS,
            make_launch=spaces.launch_filter_constant,
        ),
        Kernel(
            name="filter-global",
            summary="Small filter; coefficients in global memory",
            source_file="filter_global.cu",
            parameters=spaces.FILTER_PARAMETERS,
            make_launch=spaces.launch_filter,
        ),
        Kernel(
            name="register-pressure",
            summary="Variance of 64 values per thread, with limited registers",
            source_file="register_pressure.cu",
            parameters=spaces.PRESSURE_PARAMETERS,
            make_launch=spaces.launch_register_pressure,
        ),
        Kernel(
            name="attention-scores",
            summary="Attention, 1st of 3 kernels; all scores go to DRAM",
            source_file="attention_scores.cu",
            parameters=attention.PARAMETERS,
            make_launch=attention.launch_scores,
        ),
        Kernel(
            name="attention-softmax",
            summary="Attention, 2nd of 3 kernels; scores become weights, in DRAM",
            source_file="attention_softmax.cu",
            parameters=attention.PARAMETERS,
            make_launch=attention.launch_softmax,
        ),
        Kernel(
            name="attention-values",
            summary="Attention, 3rd of 3 kernels; values are weighted",
            source_file="attention_values.cu",
            parameters=attention.PARAMETERS,
            make_launch=attention.launch_values,
        ),
        Kernel(
            name="attention-tiled",
            summary="Attention in one kernel: online softmax, shared memory, FP32",
            source_file="attention_tiled.cu",
            parameters=attention.PARAMETERS,
            make_launch=attention.launch_tiled,
        ),
        Kernel(
            name="attention-mma",
            summary="Attention in one kernel on tensor cores; BF16, FP32 sums",
            source_file="attention_mma.cu",
            parameters=attention.PARAMETERS,
            make_launch=attention.launch_mma,
        ),
        Kernel(
            name="attention-wgmma",
            summary="Attention by warpgroups in turns, fed by tensor maps; BF16",
            source_file="attention_wgmma.cu",
            parameters=attention.PARAMETERS,
            make_launch=attention.launch_wgmma,
        ),
    )
}
"""Every kernel by its name on the command line."""


def find_kernel(name: str) -> Kernel:
    """Return the kernel of this name.

    Raises:
        UsageError: There is none; the message suggests the nearest name.
    """
    if name not in CATALOG:
        listing = "'memlab kernels' lists all"
        raise UsageError(f"unknown kernel {name!r}: {suggest_nearest(name, CATALOG, listing)}")
    return CATALOG[name]
