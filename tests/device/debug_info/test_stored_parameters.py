"""The pointers that kernels write through, against what the sources say."""

import pytest

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info.stored_parameters import stored_parameters

SIGNATURE = "float* a, float* b, int* i, int n, float** p"


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("a[n] = b[i[n]];", {0}),
        ("a[i[n]] = n;", {0}),
        ("for (int k = 0; k < n; ++k, a += n) *a = b[k];", {0}),
        ("float* c = n > 3 ? a : b; *c = 1;", {0, 1}),
        ("atomicAdd(b, 1.0f); a[0];", {1}),
        ("i[3] = atomicAdd(i, 1);", {2}),
        ("float f = atomicAdd(b + 1, a[1]); if (f > 0) asm(\"red.global.add.s32 [%0], 1;\"::"
         "\"l\"(i));", {1, 2}),
        ("__shared__ float s[32]; s[n] = a[n]; __syncthreads(); b[n] = s[31 - n];", {1}),
        ("p[n] = a;", {0, 4}),  # others may write through it
        ("p[n][3] = 2;", set()),  # an address that is loaded
        ("float* l[4] = {a, a, b, b}; for (int k = 0; k < 4; ++k) l[(k + n) % 4][k] = 1;", {0, 1}),
        ("other(b, n);", {1}),
        ("*(float4*)a = *(float4*)b;", {0}),
        ("if (a[0] == b[0]) __trap();", set()),
    ],
)  # fmt: skip
def test_the_parameters_that_a_kernel_writes_through(body: str, stored: set[int]) -> None:
    source = (
        "__device__ __noinline__ void other(float* x, int n) { if (n) { x[n] = n; "
        f'other(x + 1, n - 1); }} }}\nextern "C" __global__ void k({SIGNATURE}) {{ {body} }}\n'
    )
    ptx = compile_unit(TranslationUnit(source, "k.cu", (9, 0))).ptx

    found = stored_parameters(ptx, "k")

    assert found is not None
    assert found - {3} == stored  # the number 3 is no pointer; it may be part of an address


def test_unknown_kernels_are_not_judged() -> None:
    assert stored_parameters(".version 8.0 .target sm_90 .address_size 64", "k") is None
    assert stored_parameters("no PTX at all {", "k") is None
