from collections import Counter

import pytest
from machine_code import access_of, accesses
from paths import DATA

from memlab.device.compiler import cubin
from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.nvrtc import supported_architectures
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.errors import UsageError

ARCHITECTURES = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]

# Nsight Compute's launch__registers_per_thread on an H200, for h200-kernels.cu.
H200_REGISTERS = {
    "naive": 32,
    "tiled8": 32,
    "tiled16": 32,
    "tiled32": 32,
    "row_sum": 31,
    "column_sum": 32,
    "copy": 16,
    "permuted": 16,
    "misaligned": 16,
    "broadcast": 16,
    "scattered": 16,
    "scattered_cg": 16,
    "strided": 16,
    "transpose_naive": 20,
    "transpose_shared": 28,
    "transpose_padded": 28,
    "blur": 23,
    "bank2": 16,
    "bank32": 16,
}
H200_FEWEST_REGISTERS = 16  # Nsight Compute shows what is allocated, never fewer than these.

KERNELS = """extern "C" {
__global__ void no_shared(float* out) { out[threadIdx.x] = 1; }
__global__ void static_shared(float* out) {
  __shared__ float tile[32][32];
  tile[threadIdx.y][threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
__global__ void dynamic_shared(float* out) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x ^ 1];
}
__global__ void local_array(float* out, int n) {
  float kept[64];
  for (int i = 0; i < n; ++i) kept[i * 7 & 63] = out[i];
  out[threadIdx.x] = kept[threadIdx.x & 63];
}
__device__ int climb(int n) { return n > 0 ? climb(n - 1) * n + climb(n - 2) : 1; }
__global__ void recursive(int* out) { out[0] = climb(out[1]); }
__global__ void vector_copy(const float4* in, float4* out) { out[threadIdx.x] = in[threadIdx.x]; }
}
"""


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=lambda it: f"sm_{it[0]}{it[1]}")
def code(request):
    if request.param not in supported_architectures():
        pytest.skip(f"this NVRTC does not compile for {request.param}")
    return compile_unit(TranslationUnit(KERNELS, "kernels.cu", request.param)).cubin


@pytest.fixture(scope="module")
def h200_code():
    source = (DATA / "h200-kernels.cu").read_text()
    return compile_unit(TranslationUnit(source, "h200-kernels.cu", (9, 0))).cubin


def test_static_shared_counts_neither_dynamic_nor_reserved(code):
    shared = {
        entry: cubin.kernel_resources(code, entry).static_shared_bytes
        for entry in ("static_shared", "dynamic_shared", "no_shared")
    }
    assert shared == {"static_shared": 32 * 32 * 4, "dynamic_shared": 0, "no_shared": 0}


def test_local_bytes_are_those_of_an_indexed_array(code):
    assert cubin.kernel_resources(code, "local_array").local_bytes_per_thread == 64 * 4
    assert cubin.kernel_resources(code, "static_shared").local_bytes_per_thread == 0


def test_unbounded_recursion_has_a_finite_frame(code):
    assert cubin.kernel_resources(code, "recursive").local_bytes_per_thread < 1024


def test_registers_match_the_hardware(h200_code):
    registers = {
        entry: max(
            cubin.kernel_resources(h200_code, entry).registers_per_thread, H200_FEWEST_REGISTERS
        )
        for entry in H200_REGISTERS
    }
    assert registers == H200_REGISTERS


def test_a_float4_copy_is_one_wide_load_and_one_wide_store(code):
    assert Counter(accesses(code, "vector_copy")) == {
        ("global_load", 16): 1,
        ("global_store", 16): 1,
    }


def test_local_memory_is_found_with_its_width(code):
    found = Counter(accesses(code, "local_array"))
    assert found["local_store", 4] > 0
    assert found["local_load", 4] == 1


def test_neighbouring_shared_loads_are_merged_as_the_hardware_counted(h200_code):
    # Per warp and tile the H200 counted 40 shared load instructions at T = 32: the 32 words of
    # a row of `a`, four at a time, and 32 single words of `b`; at T = 16 it counted 20.
    assert Counter(accesses(h200_code, "tiled32")) == {
        ("global_load", 4): 2,
        ("global_store", 4): 1,
        ("shared_store", 4): 2,
        ("shared_load", 16): 8,
        ("shared_load", 4): 32,
    }
    tiled16 = Counter(accesses(h200_code, "tiled16"))
    assert tiled16["shared_load", 16] * 4 == tiled16["shared_load", 4]
    assert tiled16["shared_load", 16] % 4 == 0


MNEMONICS = {
    "LD": "generic_load",
    "LDG": "global_load",
    "LDGSTS": "global_to_shared",
    "LDL": "local_load",
    "LDS": "shared_load",
    "LDSM": "shared_load",
    "ST": "generic_store",
    "STG": "global_store",
    "STL": "local_store",
    "STS": "shared_store",
    "STSM": "shared_store",
    "ATOM": "generic_atomic",
    "ATOMG": "global_atomic",
    "ATOMS": "shared_atomic",
    "RED": "global_atomic",
    "REDG": "global_atomic",
}
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}


def expected_access(mnemonic):
    """The access of an instruction in NVIDIA's disassembly, as (kind, width)."""
    name, *modifiers = mnemonic.split(".")
    if name not in MNEMONICS:
        return None
    kind = MNEMONICS[name]
    if kind.endswith("atomic") or name == "LDGSTS":
        return kind, None
    if name in ("LDSM", "STSM"):
        return kind, 4 * int(modifiers[-1]) if modifiers[-1].isdigit() else 4
    return kind, next((WIDTHS[modifier] for modifier in modifiers if modifier in WIDTHS), 4)


def test_instructions_decode_as_nvdisasm_reads_them():
    lines = (DATA / "nvdisasm-instructions.txt").read_text().splitlines()
    known = [line.split() for line in lines if not line.startswith("#")]
    decoded = {(word, name): access_of(int(word, 16)) for _, word, name in known}
    assert decoded == {(word, name): expected_access(name) for _, word, name in known}


def test_an_invalid_cubin_is_a_usage_error():
    with pytest.raises(UsageError, match="not a cubin"):
        cubin.kernel_resources(b"PK\x03\x04 something else", "k")


def test_the_error_for_a_missing_kernel_names_similar_ones(code):
    with pytest.raises(UsageError, match=r"no kernel 'vektor_copy'.*'vector_copy'"):
        cubin.kernel_resources(code, "vektor_copy")


def test_machine_code_is_told_apart_by_its_instructions_alone():
    """Comments and line numbers do not change the hash; one other instruction does."""

    def code_hash(source):
        unit = TranslationUnit(source, "k.cu", (9, 0))
        return cubin.machine_code_sha256(compile_unit(unit).cubin, "k")

    source = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] *= 2.0f; }\n'
    assert code_hash(f"// a comment\n\n{source}") == code_hash(source)
    other = 'extern "C" __global__ void other(int *y) { *y = 1; }\n'
    assert code_hash(source + other) == code_hash(source)
    assert code_hash(source.replace("2.0f", "3.0f")) != code_hash(source)
