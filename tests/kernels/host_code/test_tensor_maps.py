"""Tensor maps that host code encodes: the words of `--arg` that give the same map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from host_launches import read_launches

import memlab
from memlab.kernels.signature import KernelParameter, Signature
from memlab.kernels.user.kernel import UserKernel
from memlab.kernels.user.proposals import ProposedLaunch, propose_launch

MAP = KernelParameter("m", "structure", "", "const CUtensorMap", 128)
OTHER = KernelParameter("o", "structure", "", "const CUtensorMap", 128)
POINTER = KernelParameter("x", "pointer", "f32", "float *", 8, 4)
PLAIN = (
    "CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,"
    "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE"
)
KERNELS = (
    "__global__ void k(const __grid_constant__ CUtensorMap m) {}\n"
    "__global__ void two(const __grid_constant__ CUtensorMap m, float* x) {}\n"
    "__global__ void both(const __grid_constant__ CUtensorMap m,"
    " const __grid_constant__ CUtensorMap o) {}\n"
)
PARAMETERS = {"k": (MAP,), "two": (MAP, POINTER), "both": (MAP, OTHER)}
START = (
    "float *p; cudaMalloc(&p, 64 * 128 * 4); CUtensorMap m; cuuint64_t dims[] = {128, 64};"
    "cuuint64_t strides[1] = {512}; cuuint32_t box[2] = {32, 8}, ones[2] = {1, 1};"
)
TYPE = "CU_TENSOR_MAP_DATA_TYPE_FLOAT32"
ENCODE = f"(&m, {TYPE}, 2, p, dims, strides, box, ones, {PLAIN});"
DIRECT = f"cuTensorMapEncodeTiled{ENCODE}"


def proposed(body: str, before: str = "", stored: str = "") -> ProposedLaunch:
    """The last launch of a file whose kernels store through the named parameters."""
    code = f"{KERNELS}{before}\nint main(int argc, char** argv) {{ {START} {body} }}"
    launch = read_launches(code, "f.cu", {}, {})[-1]
    parameters = PARAMETERS[launch.kernel]
    names = [each.name for each in parameters]
    uses = frozenset(map(names.index, stored)), frozenset(range(len(names)))
    signature = Signature(launch.kernel, launch.kernel, parameters, ())
    return propose_launch(UserKernel("f.cu"), launch, signature, *uses)


GETTER = (
    "{0} get() {{ void* f = nullptr; cudaDriverEntryPointQueryResult status;"
    'cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, 0, &status);'
    "assert(status == cudaDriverEntryPointSuccess); return reinterpret_cast<{0}>(f); }}"
).format("PFN_cuTensorMapEncodeTiled_v12000")
HELPER = (
    "template <int R, int C> void make(CUtensorMap* to, void* at, int rows, int columns,"
    "  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE) {"
    "  uint64_t d[5] = {(uint64_t)C * columns, (uint64_t)R * rows, 1, 1, 1};"
    "  uint64_t s[5] = {sizeof(float), sizeof(float) * C * columns, 0, 0, 0};"
    "  uint32_t b[5] = {uint32_t(C), uint32_t(R), 1, 1, 1}, e[5] = {1, 1, 1, 1, 1};"
    f"  CUresult r = cuTensorMapEncodeTiled(to, {TYPE}, 2, at, d, s + 1, b, e,"
    "   CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,"
    "   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE); assert(r == CUDA_SUCCESS); }"
)
RETURNS = (
    "CUtensorMap made(float* at, uint64_t rows, uint64_t columns) { CUtensorMap to;"
    "  uint64_t pitch = columns * 4; std::vector<cuuint64_t> d = {columns, rows};"
    "  std::array<uint32_t, 2> b = {32, 8}, e{1, 1};"
    f"  if (cuTensorMapEncodeTiled(&to, {TYPE}, 2, at, d.data(), &pitch, b.data(), &e[0], {PLAIN})"
    '    != CUDA_SUCCESS) throw std::runtime_error("no map"); return to; }'
)
SPACES = (
    "namespace a { CUtensorMap held; int n = 0; void run(float* p) { if (n != 64) { "
    "make<4, 32>(&held, p, 16, 4); n = 64; } k<<<1, 32>>>(held); } }"
    "namespace b { CUtensorMap held; int n = 0; void run(float* p) { if (n != 64) { "
    "make<8, 32>(&held, p, 8, 4); n = 64; } k<<<1, 32>>>(held); } }"
)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("", f"{DIRECT} k<<<1, 32>>>(m);"),
        (GETTER, f"auto cuTensorMapEncodeTiled = get(); auto r = cuTensorMapEncodeTiled{ENCODE}"
                 "if (r != CUDA_SUCCESS) return 1; k<<<1, 32>>>(m);"),
        (GETTER, f"get(){ENCODE} k<<<1, 32>>>(m);"),
        (GETTER, "static PFN_cuTensorMapEncodeTiled_v12000 f = nullptr; if (!f) f = get();"
                 f"f{ENCODE} k<<<1, 32>>>(m);"),
        ("", "void* l = dlopen(\"libcuda.so\", 0); decltype(&cuTensorMapEncodeTiled) f ="
             "(decltype(f))dlsym(l, \"cuTensorMapEncodeTiled\");" f"f{ENCODE} k<<<1, 32>>>(m);"),
        (HELPER, "make<8, 32>(&m, (void*)p, 8, 4); k<<<1, 32>>>(m);"),
        (RETURNS, "auto n = made(p, 64, 128); k<<<1, 32>>>(n);"),
        (RETURNS, "struct { CUtensorMap a, b; } s; s.b = made(p, 64, 128); k<<<1, 32>>>(s.b);"),
        (RETURNS, "std::vector<CUtensorMap> v; v.push_back(made(p, 64, 128)); k<<<1, 9>>>(v[0]);"),
        (HELPER + SPACES, "a::run(p); b::run(p);"),
        ("", f"float* q; {DIRECT} cuTensorMapReplaceAddress(&m, q); k<<<1, 32>>>(m);"),
    ],
)  # fmt: skip
def test_usual_forms_give_the_same_map(before: str, body: str) -> None:
    launch = proposed(body, before)
    assert launch.args == ("tensormap=f32[64,128]:box[8,32]",)
    assert (launch.gaps, launch.symbols) == ({}, ())


def encoded(**parts: str) -> str:
    names = {
        "type": TYPE, "rank": "2", "at": "p", "dims": "dims", "strides": "strides", "box": "box",
        "ones": "ones", "interleave": "0", "swizzle": "CU_TENSOR_MAP_SWIZZLE_NONE",
        "promotion": "CU_TENSOR_MAP_L2_PROMOTION_NONE", "fill": "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
    }  # fmt: skip
    return f"cuTensorMapEncodeTiled(&m, {', '.join({**names, **parts}.values())});"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (encoded(swizzle="CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B"), ":swizzle128"),
        (encoded(promotion="CU_TENSOR_MAP_L2_PROMOTION_L2_256B"), ":promote256"),
        (encoded(fill="CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA"), ":nan"),
        (encoded(type="CU_TENSOR_MAP_DATA_TYPE_TFLOAT32"), ":tf32"),
        (f"ones[1] = 2; {encoded()}", ":step[2,1]"),
        (f"strides[0] = 640; {encoded()}", ":strides[640]"),
    ],
)
def test_options_are_those_of_the_call(body: str, text: str) -> None:
    assert proposed(f"{body} k<<<1, 32>>>(m);").args == (f"tensormap=f32[64,128]:box[8,32]{text}",)


@pytest.mark.parametrize(("more", "strides"), [(0, ""), (256, ":strides[8448,2304,256]")])
def test_interleaved_maps_have_arrays_of_slices(more: int, strides: str) -> None:
    dims = "cuuint64_t d[] = {16, 8, 4, 4}"
    body = (
        f"{dims}, s[] = {{256, {2048 + more}, {8192 + more}}};"
        "cuuint32_t b[] = {8, 4, 1, 1}, e[] = {1, 1, 1, 1};"
        + encoded(
            rank="4",
            dims="d",
            strides="s",
            box="b",
            ones="e",
            interleave="CU_TENSOR_MAP_INTERLEAVE_16B",
        )
        + "k<<<1, 32>>>(m);"
    )
    launch = proposed(body)
    assert launch.args == (f"tensormap=f32[4,4,8,16,4]:box[1,1,4,8]{strides}:interleave16",)
    assert launch.gaps == {}


def test_im2col_gives_the_corners() -> None:
    body = (
        "cuuint64_t d[4] = {16, 20, 10, 3}, s[3] = {64, 1280, 12800}; int lower[2] = {-1, -2},"
        "upper[2] = {1, 2}; cuuint32_t e[4] = {1, 1, 1, 1};"
        f"cuTensorMapEncodeIm2col(&m, {TYPE}, 4, p, d, s, lower, upper, 8, 64, e, {PLAIN});"
        "k<<<1, 32>>>(m);"
    )
    text = "tensormap=f32[3,10,20,16]:box[64,8]:lower[-2,-1]:upper[2,1]"
    assert proposed(body).args == (text,)


def test_maps_share_arrays_with_pointers_and_each_other() -> None:
    head = "tensormap=@x[64,128]:box[8,32]"
    assert proposed(f"{DIRECT} two<<<1, 32>>>(m, p);", stored="x").args == (
        head,
        "inout:f32[8192]",
    )
    offset = encoded(at="p + 128")
    assert proposed(f"{offset} two<<<1, 32>>>(m, p);").args[0] == head.replace("@x", "@x+128")
    again = "CUtensorMap n = m; both<<<1, 32>>>(m, n);"
    assert proposed(f"{DIRECT} {again}", stored="o").args == (
        "tensormap=inout:f32[64,128]:box[8,32]",
        "tensormap=@m[64,128]:box[8,32]",
    )
    filled = "cudaMemset(p, 0, 64 * 128 * 4);"
    assert proposed(f"{filled} {DIRECT} k<<<1, 32>>>(m);", stored="m").args == (
        "tensormap=inout:f32[64,128]:box[8,32]=zeros",
    )


def test_numbers_that_are_not_told_are_symbols() -> None:
    launch = proposed(f"dims[1] = atoi(argv[1]); {DIRECT} k<<<dims[1] / 8, 32>>>(m);")
    assert launch.args == (f"tensormap=f32[{launch.symbols[0]},128]:box[8,32]",)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("k<<<1, 32>>>(m);", "which the host code does not tell"),
        (f"make_it(&m); {encoded(rank='unknown()')} k<<<1, 32>>>(m);", "does not tell"),
        (encoded(swizzle="chosen()") + "k<<<1, 32>>>(m);", "whose swizzle the host code"),
        (encoded(at="p + 4") + "k<<<1, 32>>>(m);", "that begins within an array"),
    ],
)
def test_a_map_that_is_not_told_is_a_gap_that_names_the_next_step(body: str, reason: str) -> None:
    gap = proposed(body).gaps[0]
    assert reason in gap
    assert "write tensormap=" in gap


def test_a_file_runs_as_its_host_code_encodes_the_map(tmp_path: Path) -> None:
    file = tmp_path / "shift.cu"
    file.write_text(f"#include <cuda.h>\n#include <cudaTypedefs.h>\n#include <cassert>\n{SHIFT}")
    values = np.random.default_rng(3).integers(-99, 99, (40, 80), np.int32)
    run = memlab.run(str(file), device="h200")
    assert np.asarray(run.outputs["map"]).shape == (40, 80)  # 72 columns and a gap
    np.save(tmp_path / "in.npy", values)
    run = memlab.run(f"{file}:shift", grid=(3, 5), block=32, device="h200",
                     args=[memlab.tensor_map(values, shape=(40, 72), box=(8, 32), strides=(320,),
                                             role="inout")])  # fmt: skip
    expected = values.copy()
    expected[:, :72] += 1
    np.testing.assert_array_equal(run.outputs["map"], expected)


SHIFT = (
    r"""
extern "C" __global__ void shift(const __grid_constant__ CUtensorMap map)
{
  __shared__ alignas(128) int tile[8 * 32];
  __shared__ alignas(8) unsigned long long ready;
  unsigned bar = __cvta_generic_to_shared(&ready), to = __cvta_generic_to_shared(tile);
  int x = blockIdx.x * 32, y = blockIdx.y * 8, done = 0;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" :: "r"(bar) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(&map), "r"(x), "r"(y), "r"(bar) : "memory");
  }
  __syncthreads();
  while (!done)
    asm volatile("{.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
                 "selp.s32 %0, 1, 0, p;}" : "=r"(done) : "r"(bar) : "memory");
  for (int i = threadIdx.x; i < 256; i += 32) tile[i] += 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(&map), "r"(to), "r"(x), "r"(y) : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}
"""
    + GETTER
    + """
int main()
{
  const int rows = 40, columns = 72, pitch = 80;
  int *data;
  cudaMalloc(&data, rows * pitch * sizeof(int));
  CUtensorMap map{};
  uint64_t size[2] = {columns, rows}, stride[1] = {pitch * sizeof(int)};
  uint32_t box[2] = {32, 8}, step[2] = {1, 1};
  get()(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, data, size, stride, box, step,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  shift<<<dim3(3, 5), 32>>>(map);
}
"""
)
