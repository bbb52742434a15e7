"""The signatures of the kernels of a cubin without PTX: names, and the sizes of parameters."""

from __future__ import annotations

from memlab.device.compiler import cubin as cubin_file
from memlab.device.debug_info.ptx_signatures import plain_name
from memlab.kernels.signature import KernelParameter, Signature


def read_signature(cubin: bytes, entry: str) -> Signature:
    """Read the signature of a kernel.

    Args:
        cubin: The machine code.
        entry: The kernel's name in it.

    Raises:
        UsageError: There is no such kernel.
    """
    return Signature(
        plain_name(entry),
        entry,
        tuple(
            KernelParameter(f"param_{number}", "untyped", "", f"{size} bytes", size)
            for number, size in enumerate(cubin_file.parameter_sizes(cubin, entry))
        ),
        (),
        bounds=cubin_file.launch_bounds(cubin, entry),
    )


def read_signatures(cubin: bytes) -> tuple[Signature, ...]:
    """Read the signatures of all kernels of a cubin."""
    return tuple(read_signature(cubin, entry) for entry in cubin_file.kernel_names(cubin))
