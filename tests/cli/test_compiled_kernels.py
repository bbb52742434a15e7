"""Kernels that come compiled, as PTX: the same counters as their source, and clear refusals."""

import numpy as np
import pytest

import memlab
from memlab.device.compiler import assembly
from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.measurement import Measurement
from memlab.kernels.user.compiled_source import CompiledSource
from memlab.kernels.user.kernel import UserKernel

SOURCE = """extern "C" __global__ void scale(float factor, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
"""
X = np.arange(1000, dtype="f4")
LAUNCH = {"grid": 4, "block": 256, "device": "a100"}


def _memory(measurement: Measurement) -> dict[str, float]:
    """All counters but those of instructions, which are of the machine code where there is some."""
    counters = measurement.counters.by_name()
    return {
        name: count
        for name, count in counters.items()
        if "instructions" not in name and "iop" not in name
    }


@pytest.fixture(scope="module")
def ptx() -> str:
    return compile_unit(TranslationUnit(SOURCE, "scale.cu", (8, 0))).ptx


@pytest.mark.parametrize("with_ptxas", [True, False])
def test_a_kernel_in_memory_computes_and_counts_as_its_source_does(
    ptx, with_ptxas, monkeypatch, tmp_path
):
    if not with_ptxas:
        monkeypatch.setattr(assembly, "find_cuda_tool", lambda name: None)
    path = tmp_path / "scale.cu"
    path.write_text(SOURCE)
    arguments = [2.5, X, memlab.out(1000, "f4"), 1000]
    compiled = CompiledSource(ptx, "scale", SOURCE, "scale.cu")
    kernel = UserKernel("scale.cu", "scale", compiled=compiled)
    options = {**LAUNCH, "args": arguments, "expect": {"param_2": 2.5 * X}}
    measured = memlab.run(kernel, **options).measurement
    assert measured.verification.status == "passed"
    expected = memlab.run(path, **{**options, "expect": {"y": 2.5 * X}}).measurement
    assert _memory(measured) == _memory(expected)
    assert [(line.line, line.text) for line in measured.lines] == [
        (line.line, line.text) for line in expected.lines
    ]
    if not with_ptxas:
        assert measured.resources.registers_per_thread is None
        assert "memlab[nvcc]" in measured.instructions.reason
