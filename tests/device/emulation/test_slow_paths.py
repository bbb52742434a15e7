"""Divisions and roots whose operands need one of ptxas's functions, counted and projected."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import launches
import numpy as np
import pytest
from numpy.typing import NDArray

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation.device import emulate
from memlab.kernels.launch import Buffer, InMemoryArray

H200 = loader.load_datasheet("h200")
LANES = 256
launch_of = partial(launches.launch_of, blocks=1, threads=LANES)

KERNEL = """extern "C" __global__ void k(TYPE *x, TYPE *y)
{
    int i = threadIdx.x;
    y[i] = FUNCTION;
}
"""
QUOTIENTS = """extern "C" __global__ void k(float *a, float *b, int *chosen, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (chosen[i])
        y[i] = a[i] / b[i];
}
"""
MEASURED = Path(__file__).parents[2] / "data/h200-slow-divisions.csv"
TINY, LARGE = 2.0**-120, 2.0**127
CASES = [
    # What is computed of x, the type, values, and which of them take the slow path.
    ("1.0f / x[i]", "float32", [0.0, 3.0, -5.0, LARGE, 2.0**-127, np.inf, np.nan], "1001111"),
    ("sqrtf(x[i])", "float32", [0.0, 4.0, -4.0, TINY, np.inf, 2.0**-100], "101110"),
    ("1.0 / x[i]", "float64", [0.0, 3.0, 2.0**-1030, np.inf, -7.0], "10110"),
    ("sqrt(x[i])", "float64", [0.0, 4.0, -1.0, 2.0**-1000, 9.0], "10110"),
    ("x[i] / 3.0", "float64", [0.0, 1.0, 2.0**-1000, -1.0], "1010"),
]


def values_of(numbers: list[float], dtype: str) -> NDArray[np.float64]:
    """Each lane of the first warp has one of the numbers, the other warps have 1."""
    values = np.ones(LANES, dtype)
    values[:32] = np.resize(numbers, 32)
    return values


@pytest.mark.parametrize(("function", "dtype", "numbers", "slow"), CASES)
def test_operands_that_need_a_function(
    function: str, dtype: str, numbers: list[float], slow: str
) -> None:
    """The conditions are those of the machine code, computed by hand."""
    kernel = KERNEL.replace("FUNCTION", function)
    source = kernel.replace("TYPE", {"float32": "float", "float64": "double"}[dtype])
    x = Buffer("x", (LANES,), dtype, "in", InMemoryArray(values_of(numbers, dtype)))
    launch = launch_of(source, x, Buffer("y", (LANES,), dtype, "out"))

    listing = emulate(launch, compile_launch(launch, (9, 0)), H200, 3).listing

    (call,) = (step for step in listing if step.text.startswith("CALL"))
    assert call.warps == 1
    assert call.threads == np.resize([int(each) for each in slow], 32).sum()
    entry = next(
        step
        for step in listing
        if step.address > max(each.address for each in listing if each.text.startswith("EXIT"))
        and step.threads
    )
    assert (entry.warps, entry.threads) == (call.warps, call.threads)


@pytest.mark.parametrize("mantissa", [0, 0x7FFFFF])
def test_quotients_by_the_exponents_that_an_h200_calls_a_function_for(mantissa: int) -> None:
    """The slow path takes all that are measured, and none of the others."""
    first = np.arange(256, dtype=np.uint32)
    dividend, divisor = (side.ravel() << 23 | mantissa for side in np.meshgrid(first, first))
    measured = np.loadtxt(MEASURED, delimiter=",", skiprows=5, dtype=int)
    up_to, following = measured[dividend >> 23, 1:].T
    slow = (divisor >> 23 <= up_to) | (divisor >> 23 >= following)

    for chosen in (slow, ~slow):
        calls = calls_of(dividend, divisor, chosen)
        assert calls == (slow.sum() if chosen is slow else 0)


def calls_of(dividend: Any, divisor: Any, chosen: Any) -> int:
    """How many threads call the function, of those that divide."""
    shape = chosen.shape
    launch = launch_of(
        QUOTIENTS,
        Buffer("a", shape, "float32", "in", InMemoryArray(dividend.view(np.float32))),
        Buffer("b", shape, "float32", "in", InMemoryArray(divisor.view(np.float32))),
        Buffer("chosen", shape, "int32", "in", InMemoryArray(chosen.astype(np.int32))),
        Buffer("y", shape, "float32", "out"),
        blocks=len(chosen) // LANES,
    )
    listing = emulate(launch, compile_launch(launch, (9, 0)), H200, 3).listing
    (call,) = (step for step in listing if step.text.startswith("CALL"))
    return call.threads
