"""Memory spaces: a small filter with its coefficients in each space, and register pressure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlab.kernels.kernel import Kernel, Limits, Parameter
from memlab.kernels.launch import Buffer, Constant, Launch, Scalar, block_count
from memlab.kernels.matmul import inner_product_tolerance

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from memlab.kernels.launch import Arrays

BLOCK = 256
TAPS = 16
OUTPUTS_PER_THREAD = 16
VALUES_PER_THREAD = 64
FILTER_PARAMETERS = (Parameter("n", "Outputs of the filter", default=4194304),)
PRESSURE_PARAMETERS = (
    Parameter("n", "Outputs, of 64 inputs each", default=262144),
    Parameter(
        "registers",
        "The most registers per thread",
        default_text="the compiler's choice",
        minimum=24,
        maximum=255,
    ),
)


def launch_filter(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch a filter whose coefficients are an argument."""
    return _launch_filter(kernel, values["n"], in_constant_memory=False)


def launch_filter_constant(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch a filter whose coefficients are a `__constant__` array."""
    return _launch_filter(kernel, values["n"], in_constant_memory=True)


def launch_register_pressure(kernel: Kernel, values: Mapping[str, Any], limits: Limits) -> Launch:
    """Launch the variance of 64 values per thread, with a limit of registers per thread."""
    n, registers = values["n"], values["registers"]
    return kernel.launch(
        {"n": n} | ({} if registers is None else {"registers": registers}),
        grid=(block_count(n, BLOCK), 1, 1),
        block=(BLOCK, 1, 1),
        arguments=(
            Buffer("in", (VALUES_PER_THREAD, n), "float32", "in"),
            Buffer("out", (n,), "float32", "out"),
            Scalar("n", "int32", n),
        ),
        # Per value: an addition for the mean, then a difference, a product and an addition.
        flop=4 * VALUES_PER_THREAD * n + 2 * n,
        reference=_variances,
        tolerance=inner_product_tolerance(VALUES_PER_THREAD),
        compile_options=() if registers is None else (f"--maxrregcount={registers}",),
    )


def _launch_filter(kernel: Kernel, n: int, in_constant_memory: bool) -> Launch:
    argument = Buffer("coefficients", (TAPS,), "float32", "in")
    constant = Constant("coefficients", (TAPS,), "float32")
    return kernel.launch(
        {"n": n},
        grid=(block_count(n, BLOCK * OUTPUTS_PER_THREAD), 1, 1),
        block=(BLOCK, 1, 1),
        arguments=(
            Buffer("in", (n + TAPS - 1,), "float32", "in"),
            *(() if in_constant_memory else (argument,)),
            Buffer("out", (n,), "float32", "out"),
            Scalar("n", "int32", n),
        ),
        flop=2 * TAPS * n,
        reference=_filtered,
        tolerance=inner_product_tolerance(TAPS),
        constants=(constant,) if in_constant_memory else (),
    )


def _filtered(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    import numpy as np

    signal, coefficients = inputs["in"], inputs["coefficients"].astype(np.float64)
    total = np.zeros(np.shape(flat_index))
    for tap in range(TAPS):
        total += coefficients[tap] * signal[flat_index + tap]
    return total


def _variances(inputs: Arrays, flat_index: NDArray[np.int64]) -> NDArray[np.float64]:
    variances: NDArray[np.float64] = inputs["in"][:, flat_index].var(axis=0, dtype="float64")
    return variances
