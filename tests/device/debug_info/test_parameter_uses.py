"""The pointers that kernels read and write through, against what the sources say."""

import pytest

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info.parameter_uses import parameter_uses

SIGNATURE = "float* a, float* b, int* i, int n, float** p"


@pytest.mark.parametrize(
    ("body", "stored", "loaded"),
    [
        ("a[n] = b[i[n]];", {0}, {1, 2}),
        ("a[i[n]] = n;", {0}, {2}),
        ("for (int k = 0; k < n; ++k, a += n) *a = b[k];", {0}, {1}),
        ("float* c = n > 3 ? a : b; *c = 1;", {0, 1}, set()),
        ("atomicAdd(b, 1.0f); a[0];", {1}, {1}),
        ("i[3] = atomicAdd(i, 1);", {2}, {2}),
        ("float f = atomicAdd(b + 1, a[1]); if (f > 0) asm(\"red.global.add.s32 [%0], 1;\"::"
         "\"l\"(i));", {1, 2}, {0, 1, 2}),
        ("__shared__ float s[32]; s[n] = a[n]; __syncthreads(); b[n] = s[31 - n];", {1}, {0}),
        ("p[n] = a;", {0, 4}, {0}),  # others may write through it
        ("p[n][3] = 2;", set(), {4}),  # an address that is loaded
        ("float* l[4] = {a, a, b, b}; for (int k = 0; k < 4; ++k) l[(k + n) % 4][k] = 1;",
         {0, 1}, {0, 1}),
        ("other(b, n);", {1}, {1}),
        ("a[n] += 1; b[n] = 2;", {0, 1}, {0}),
        ("*(float4*)a = *(float4*)b;", {0}, {1}),
        ("if (a[0] == b[0]) __trap();", set(), {0, 1}),
        ("asm(\"cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
         "[%0], [%1, {%2}], [%0];\" :: \"r\"(n), \"l\"(a), \"r\"(n));"
         "asm(\"cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%1, {%0}], [%0];\""
         " :: \"r\"(n), \"l\"(b));"
         "asm(\"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32 [%1], [%0], %0;\""
         " :: \"r\"(n), \"l\"(i));", {1, 2}, {0, 2}),
    ],
)  # fmt: skip
def test_the_parameters_that_a_kernel_uses(body: str, stored: set[int], loaded: set[int]) -> None:
    source = (
        "__device__ __noinline__ void other(float* x, int n) { if (n) { x[n] = n; "
        f'other(x + 1, n - 1); }} }}\nextern "C" __global__ void k({SIGNATURE}) {{ {body} }}\n'
    )
    ptx = compile_unit(TranslationUnit(source, "k.cu", (9, 0))).ptx

    found = parameter_uses(ptx, "k")

    assert found is not None
    # The number 3 is no pointer; it may be part of an address.
    assert (found.stored - {3}, found.loaded - {3}) == (stored, loaded)


def test_unknown_kernels_are_not_judged() -> None:
    assert parameter_uses(".version 8.0 .target sm_90 .address_size 64", "k") is None
    assert parameter_uses("no PTX at all {", "k") is None
