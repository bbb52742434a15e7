"""cuBLAS, NVIDIA's library for matrix products: the baseline of the matmul ladder on a GPU.

It is not a kernel of the catalog: its source is not public, so memlab can neither emulate it nor
count its accesses. This module only queues the product of a launch; the caller provides the GPU's
memory and the stream, and measures the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from memlab.errors import DeviceError
from memlab.kernels.launch import Launch, Scalar

_CUDA_R_32F, _CUDA_R_16F, _CUDA_R_16BF = 0, 2, 14  # cudaDataType_t (CUDA's library_types.h)

_GEMM_TYPES = {
    "fp32": (_CUDA_R_32F, "COMPUTE_32F"),
    "tf32": (_CUDA_R_32F, "COMPUTE_32F_FAST_TF32"),
    "fp16": (_CUDA_R_16F, "COMPUTE_32F"),
    "bf16": (_CUDA_R_16BF, "COMPUTE_32F"),
}
"""cuBLAS's types of the matrices and of the computation, by the type that the kernel multiplies."""


class CublasError(DeviceError):
    """cuBLAS is not available as a baseline; the rest of memlab works without it."""


@contextmanager
def prepare_gemm(
    launch: Launch, addresses: Mapping[str, int], stream: int = 0
) -> Iterator[Callable[[], None]]:
    """Prepare cuBLAS for the product that a launch of the ladder computes.

    Args:
        launch: Any of the matrix kernels with row-major M, N and P.
        addresses: Addresses of the matrices in the GPU's memory, by name.
        stream: The CUDA stream of the product; 0 is the default stream.

    Yields:
        A function that queues the product once and returns.

    Raises:
        CublasError: cuBLAS or its binding is not installed, or cuBLAS refuses.
    """
    cublas, handle = _create_handle()
    element = launch.defines.get("INPUT", "fp32").lower()
    data_type, compute_name = _GEMM_TYPES[element]
    compute = cublas.ComputeType[compute_name]
    transpose = cublas.Operation.N
    algorithm = cublas.GemmAlgo.DEFAULT
    m, k, n = (_scalar_value(launch, name) for name in ("m", "k", "n"))
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    try:
        cublas.set_stream(handle, stream)

        def once() -> None:
            # cuBLAS is column-major: to it, row-major matrices are transposed, so P' = N' M'.
            cublas.gemm_ex(
                handle,
                transpose,
                transpose,
                n,
                m,
                k,
                one.ctypes.data,
                addresses["N"],
                data_type,
                n,
                addresses["M"],
                data_type,
                k,
                zero.ctypes.data,
                addresses["P"],
                _CUDA_R_32F,
                n,
                compute,
                algorithm,
            )

        yield once
    finally:
        cublas.destroy(handle)


def _create_handle() -> tuple[Any, int]:
    """Import the binding of cuBLAS and create a handle."""
    try:
        from nvmath.bindings import cublas

        return cublas, cublas.create()
    except Exception as error:  # the binding, the library or the driver may be missing
        reason = str(error).strip().partition("\n")[0]
        raise CublasError(
            f"cuBLAS is not available ({reason}): on a machine with a GPU, "
            "pip install 'memlab[cublas]'"
        ) from error


def _scalar_value(launch: Launch, name: str) -> int:
    return next(
        int(argument.value)
        for argument in launch.arguments
        if isinstance(argument, Scalar) and argument.name == name
    )
