"""Damaged files with compiled kernels run, or are refused by an error that memlab explains."""

from __future__ import annotations

import subprocess
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from fuzzing import cases
from hypothesis import given
from hypothesis import strategies as st

import memlab
from memlab.device.compiler import assembly
from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.cuda_tools import find_cuda_tool
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info.compiled_kernels import compiled_source
from memlab.errors import MemlabError
from memlab.kernels.user.kernel import UserKernel

SOURCE = """#include <cstdio>
struct View { float* data; int n; };
__constant__ float factors[4] = {1, 2, 3, 4};
__device__ int counter;
__device__ __noinline__ float scaled(float x, int i) { return x * factors[i % 4]; }
extern "C" __global__ void __launch_bounds__(64) k(View view, const float* x, float a) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncthreads();
    if (i < view.n) view.data[i] = a * scaled(tile[63 - i], i);
    if (i == 0 && atomicAdd(&counter, 1) > 3) printf("%d", i);
}
"""
LAUNCH = {"grid": 1, "block": 64, "args": ["struct=out:f32[64],i32=64,i32=0", "in:f32[64]", "2.0"]}


@cache
def sound_ptx() -> bytes:
    return compile_unit(TranslationUnit(SOURCE, "k.cu", (9, 0))).ptx.encode()


@cache
def sound_binary(option: str) -> bytes:
    """A fat binary or a cubin of the same PTX, by nvcc."""
    nvcc, cuobjdump = find_cuda_tool("nvcc"), find_cuda_tool("cuobjdump")
    if nvcc is None or cuobjdump is None:
        pytest.skip("there is no nvcc, or no cuobjdump")
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "k.ptx", Path(folder) / "k.made"
        source.write_bytes(sound_ptx())
        command = [nvcc, option, "-arch=sm_90", source, "-o", made]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            pytest.skip(f"nvcc does not work here: {result.stderr[:200]}")
        return made.read_bytes()


@st.composite
def damaged(draw: st.DrawFn, sound: bytes) -> bytes:
    """A file with changed, lost or repeated bytes, or cut off."""
    content = bytearray(sound)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(len(content) - 1, 0)))
        length = draw(st.integers(1, 40))
        match draw(st.sampled_from(("change", "change", "lose", "repeat", "cut"))):
            case "change":
                content[start : start + 1] = bytes([draw(st.integers(0, 255))])
            case "lose":
                del content[start : start + length]
            case "repeat":
                content[start:start] = content[start : start + length]
            case "cut":
                del content[start:]
    return bytes(content)


@given(st.data())
@cases(150)
def test_damaged_ptx_runs_or_is_refused(tmp_path_factory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.ptx"
    path.write_bytes(data.draw(damaged(sound_ptx())))
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        suppress(MemlabError),
    ):
        warnings.simplefilter("ignore")
        patch.setattr(assembly, "find_cuda_tool", lambda name: None)
        memlab.run(path, device="h200", timeout_s=0.3, memory_bytes=2**30, **LAUNCH)


@pytest.mark.parametrize("option", ["-fatbin", "-cubin"])
@given(data=st.data())
@cases(40)
def test_damaged_binaries_are_read_or_refused(
    option: str, tmp_path_factory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / f"damaged.{option[1:]}"
    path.write_bytes(data.draw(damaged(sound_binary(option))))
    with warnings.catch_warnings(), suppress(MemlabError):
        warnings.simplefilter("ignore")
        compiled_source(UserKernel(str(path), "k"), (9, 0))
        memlab.occupancy(f"{path}:k", device="h200", block=64)
