"""Host code is removed where NVRTC refuses it; device code never is."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.device.compiler import compilation, host_code, nvrtc, reductions
from memlab.device.compiler import compile as compiler
from memlab.device.compiler.diagnostics import CompileError
from memlab.device.compiler.headers import IncludedHeaders
from memlab.device.compiler.reductions import Reduction
from memlab.device.compiler.translation_unit import TranslationUnit

HOPPER = (9, 0)

MIXED = """#include <algorithm>
#include <cstdio>
#include <iostream>
#include <vector>
#include <helper_cuda.h>
using std::cout;
#define CHECK(call) if ((call) != cudaSuccess) { fprintf(stderr, "}"); exit(1); }
#define KERNEL extern "C" __global__ void
using Values = std::vector<float>;
struct Timer {
  cudaEvent_t start;
  Timer() : start{} { cudaEventCreate(&start); }
  ~Timer() { cudaEventDestroy(start); }
};
struct Pair {
  float a;
  __device__ float plus(float b) const { return a + b; }
  std::string name() const { return "it's"; }
};
float on_the_host[1 << 28];
constexpr int rounded_up(int a, int b) { return (a + b - 1) / b; }
template <typename T = float, int N = (2)> inline T times(T x) { return N * x; }
void verify(const Values& values) {
  for (float each : values) if (each != 2) cout << each << "\\n";
}
KERNEL scale(float* p, int n, Pair pair) {
  __shared__ float part[rounded_up(33, 32)];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  part[i % 2] = times(p[i]);
  if (i < n) p[i] = std::min(part[0], pair.plus(1'000.0f));
}
namespace host {
#ifdef LATER
void run(float* p, cudaStream_t stream)
#else
__host__ void run(float* p)
#endif
{ scale<<<rounded_up(32, 32), 32>>>(p, 32, Pair{1}); CHECK(cudaGetLastError()); }
}
int main() {
  Timer timer;
  Values values(32, 1.0f);
  float* p = nullptr;
  CHECK(cudaMalloc(&p, 128));
  host::run(p);
  verify(values);
  return on_the_host[0] > 0;
}
"""


def body(ptx):
    return [line for line in ptx.partition(".entry")[2].splitlines() if "\t." not in line]


def test_a_file_with_main_compiles_like_its_kernel_alone():
    alone = []
    kept = (
        "struct Pair",
        "  float a;",
        "  __device__ float plus",
        "constexpr",
        "template",
        "#incl",
    )
    inside = False
    for line in MIXED.splitlines():  # as with #ifndef __CUDACC_RTC__ around all else
        inside |= line.startswith("KERNEL")
        alone.append(line if inside or line.startswith(kept) or "KERNEL" in line else "")
        alone[-1] += "};" if line.startswith("  __device__ float plus") else ""
        inside &= line != "}"
    alone = "\n".join(alone).replace("constexpr", "__device__ constexpr")
    alone = alone.replace("inline", "__device__ inline")
    options = ["-lineinfo"]
    whole = compiler.compile_kernel(
        TranslationUnit(MIXED, "k.cu", HOPPER, options=options), "scale"
    )
    part = compiler.compile_kernel(TranslationUnit(alone, "k.cu", HOPPER, options=options), "scale")
    assert body(whole.ptx) == body(part.ptx)
    assert "on_the_host" not in whole.ptx


THRUST = """#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/sort.h>
#include <thrust/execution_policy.h>
#include <thrust/tuple.h>
using namespace thrust;
host_vector<float> kept;
struct Batch { thrust::device_vector<float> values; int size; };
__global__ void first(float* p) { *p = thrust::get<0>(thrust::make_tuple(*p, 2)); }
float sum(const Batch& batch) {
  return thrust::reduce(thrust::device, batch.values.begin(), batch.values.end());
}
int main() {
  thrust::host_vector<float> from(100, 1.0f);
  Batch batch{from, 100};
  thrust::sort(batch.values.begin(), batch.values.end());
  first<<<1, 1>>>(thrust::raw_pointer_cast(batch.values.data()));
  return sum(batch) == 100;
}
"""
CUB = """#include <cub/cub.cuh>
#include <cub/device/device_scan.cuh>
__global__ void first(const int* x, int* y) {
  using Reduce = cub::BlockReduce<int, 64>;
  __shared__ typename Reduce::TempStorage storage;
  int sum = Reduce(storage).Sum(x[threadIdx.x]);
  if (threadIdx.x == 0) *y = sum;
}
int main() {
  size_t bytes = 0;
  int* p = nullptr;
  cub::DeviceReduce::Sum(nullptr, bytes, p, p, 10);
  cub::CachingDeviceAllocator allocator(true);
}
"""


def test_the_macros_that_nvcc_always_includes_are_there(without_nvcc):
    source = "__global__ void k(float* p) { *p = INFINITY; p[1] = M_PI; }\n"
    output = compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER))
    assert "2139095040;" in output.ptx  # the bits 0x7f800000
    unknown = TranslationUnit(source.replace("M_PI", "M_TAU"), "k.cu", HOPPER)
    with pytest.raises(CompileError, match=r"k\.cu\(1\): error: identifier .M_TAU. is undefined"):
        compiler.compile_unit(unknown)


@pytest.mark.parametrize("source", [THRUST, pytest.param(CUB, marks=pytest.mark.slow)])
def test_thrust_and_cub_of_the_host_are_left_out(source):
    """What device code may use of them stays: tuples, and CUB's parts for blocks and warps."""
    ptx = compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER)).ptx

    assert re.findall(r"\.entry (\w+)", ptx) == [re.search(r"_Z5first\w+", ptx)[0]]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("__global__ void k(int* p) { *p = absent; }", 'k.cu(2): error: identifier "absent"'),
        ("#define GPU __global__\n#define KERNEL GPU void\nKERNEL k(nothing* p) {}", "k.cu(4)"),
        ('static_assert(sizeof(int) == 8, "no");\n', "static assertion failed"),
        ("struct S { nothing x; int y; };\n__global__ void k(S s) {}", '"nothing" is undefined'),
        (
            "int twice(int x) { return absent; }\n__global__ void k(int* p) { *p = twice(1); }",
            "(2)",
        ),
        ("}\nvoid f() { absent(); }\n__global__ void k() {}", "k.cu(2): error: expected a decl"),
    ],
)
def test_errors_in_device_code_are_reported_and_not_removed(source, said):
    with pytest.raises(CompileError) as caught:
        compiler.compile_unit(
            TranslationUnit(f"int main() {{ puts(0); }}\n{source}\n", "k.cu", HOPPER)
        )
    assert said in caught.value.log


@pytest.mark.parametrize("call", ["__shfl(x, 3)", "__shfl_xor(x, 3)"])
def test_a_function_that_cuda_removed_is_answered_with_its_successor(call):
    source = f"__global__ void k(int* p) {{ int x = *p; *p = {call}; }}\n"
    with pytest.raises(CompileError, match="call __shfl_sync and the like"):
        compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER))


def test_texture_references_are_answered_with_texture_objects():
    source = (
        "texture<float, 1, cudaReadModeElementType> table;\n"
        "__global__ void k(float* p) { *p = tex1Dfetch(table, 3); }\n"
    )
    with pytest.raises(CompileError, match="give the kernel a cudaTextureObject_t"):
        compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER))


def test_macros_in_user_headers_can_mark_device_code(tmp_path):
    (tmp_path / "macros.h").write_text("#define GPU_CODE __device__\n")
    source = '#include "macros.h"\nGPU_CODE int f() { return absent; }\nint main() { puts(0); }\n'
    with pytest.raises(CompileError, match=r"k\.cu\(2\): error: identifier .absent. is undefined"):
        compiler.compile_unit(TranslationUnit(source, str(tmp_path / "k.cu"), HOPPER))


@pytest.mark.parametrize(
    ("source", "line", "left"),
    [
        # A class goes with the variable behind it, as one declaration.
        ("int a;\nstruct H {\nstring s;\n} h;\nint b;", 3, "int a;\n\n\n\nint b;"),
        ("struct H {\nint a;\nvoid f() { g(); }\n} h;", 3, "struct H {\nint a;\n\n} h;"),
        ("struct H {\nint a; struct I { string s; };\n} h;", 2, ""),
        ("namespace n {\nstring s;\n}\nint a;", 2, "namespace n {\n\n}\nint a;"),
        ("namespace n {\nint a;\n}\nstring s;", 4, "namespace n {\nint a;\n}"),
    ],
)
def test_the_declaration_with_an_error_is_removed_as_a_whole(source, line, left):
    log = f"k.cu({line}): error: bad\n"
    found, faults = host_code.remove_host_code(source, "k.cu", log, ())
    assert "\n".join(text.rstrip() for text in found.split("\n")).rstrip() == left
    assert faults == (log.strip(),)


HOST = (
    "int main() { if (1) { return '}'; } }",
    "using std::vector;",
    'template <class T = int>\nvoid f(T x) { g<<<1, 2>>>(x, "{"); } // }',
    "static std::vector<int> v = {1, 2};",
    "struct H { H() : a{1}, b(2) {} int a, b; } h;",
    "auto f = [](int x) { return x; };",
    'extern "C" void f() {}',
    'const char* text = R"(}{)";',
    "enum class E : int { A = 1, B };",
    "int f()\n#if 1\n{ return 1; }\n#endif\n",
)
DEVICE = (
    "__global__ void k(int* p) { if (*p) { *p = '{'; } }",
    "template <class T, int N = (3)> struct D { __device__ D() : a{1} {} int a; };",
    "__constant__ float c[2] = {1, 2};",
    "/* } */ __device__ __forceinline__ int d(int x) { return x / 1'0; }",
    'extern "C" __global__ __launch_bounds__(32) void e() {}',
    "MARKED int m() { return 1; }",
)


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(HOST + DEVICE), max_size=8),
    space=st.sampled_from(
        ["{}", "namespace a {{ namespace {{\n{}\n}} }}", 'extern "C" {{\n{}\n}}']
    ),
)
def test_of_a_file_full_of_errors_device_code_alone_is_left(pieces, space):
    source = "#define MARKED __device__\n" + space.format("\n".join(pieces))
    log = "".join(f"k.cu({line}): error: bad\n" for line in range(1, source.count("\n") + 2))
    while True:
        source, faults = host_code.remove_host_code(source, "k.cu", log, ())
        if not faults:
            break
    left = [piece for piece in pieces if piece in source]
    assert left == [piece for piece in pieces if piece in DEVICE]


FRAGMENTS = st.sampled_from(
    [
        *"{}()[];,:=<>#'\"\\/\n ",
        "//",
        "/*",
        "*/",
        'R"(',
        ')"',
        "\n#if 1\n",
        "\n#define M __device__\n",
        "int f",
        "struct S",
        "namespace n",
        'extern "C"',
        "enum",
        "M",
        "__global__",
        "public:",
        "é\0",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(FRAGMENTS, max_size=40).map("".join))
def test_whatever_a_file_holds_its_lines_stay_and_so_does_what_marks_device_code(source):
    log = "".join(f"k.cu({line}): error: bad\n" for line in range(1, source.count("\n") + 2))
    left, faults = host_code.remove_host_code(source, "k.cu", log, ())
    assert [len(line) for line in left.split("\n")] == [len(line) for line in source.split("\n")]
    assert faults or left == source
    code = re.sub(r"//.*|/\*.*?(\*/|\Z)|\"[^\"\n]*\"?|'[^'\n]*'?", "", source, flags=re.S)
    if code == source:  # in comments and texts nothing marks anything
        marks = re.compile(r"(?<!\w)__global__(?!\w)")
        assert len(marks.findall(left)) == len(marks.findall(source))


def test_device_code_may_use_the_types_of_numbers_that_host_headers_bring():
    source = """#include <cublasLt.h>
#include <cublas_v2.h>
#include <cufftXt.h>
#include <helper_cuda.h>
__device__ uint32_t few;
__global__ void k(__nv_bfloat16* b, __half* h, cufftComplex* c, cufftDoubleReal* d) {
  *b = 1; *h = 2; *c = cuCmulf(*c, make_cuFloatComplex(0, 1)); *d = 3;
}
int main() { cublasLtHandle_t handle; cublasLtCreate(&handle); cufftHandle plan; }
"""
    output = compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER))
    assert output.compiler.startswith("NVRTC")
    assert "_Z1kP13__nv_bfloat16P6__halfP6float2Pd(" in output.ptx


INDIRECT = """#include <algorithm>
template <int N> struct Packed { using type = std::conditional_t<N == 1, char, short>; };
template <int N> std::enable_if_t<N == 1, int> chosen() { return cudaGetLastError(); }
__global__ void widths(int* p) { *p = std::max(sizeof(typename Packed<2>::type), sizeof(char)); }
int main() { return chosen<1>(); }
"""


def test_what_the_hosts_headers_include_of_each_other_is_there(without_nvcc):
    """libstdc++'s <algorithm> declares `std::conditional_t`, on which device code depends here."""
    compiled = compiler.compile_unit(TranslationUnit(INDIRECT, "k.cu", HOPPER))
    assert re.search(r"mov\.\w+\s+\S+, 2;", compiled.ptx)


CHAIN = """#include <cstdio>
template <int N> __global__ void fill(int* p) { *p = N; }
__global__ void clear(int* p) { *p = 0; }
static cudaStream_t stream;
void wait() { cudaStreamSynchronize(stream); }
void wait_twice() { wait(); wait(); }
int main() { wait_twice(); fill<1><<<1, 1>>>(nullptr); }
"""


def test_host_code_is_found_once_for_all_kernels_and_options(monkeypatch, tmp_path, without_nvcc):
    monkeypatch.setenv("MEMLAB_CACHE", str(tmp_path))
    asked = []

    def call_in_child(work):
        asked.append(work)
        return work()

    monkeypatch.setattr(compilation.forked_process, "call_in_child", call_in_child)
    unit = TranslationUnit(CHAIN, "k.cu", HOPPER, name_expression="clear")
    compiler.compile_unit(unit)
    first = len(asked)
    for expression, options in (("clear", ("-G",)), ("fill<3>", ()), ("fill<4>", ("-G",))):
        output = compiler.compile_unit(replace(unit, name_expression=expression, options=options))
        assert output.lowered_name
    assert first > 1
    assert len(asked) == first + 3
    with pytest.raises(CompileError, match="wrong"):
        compiler.compile_unit(replace(unit, source=CHAIN + "__global__ void k() { wrong(); }"))


PICKY = """template <class T> constexpr int size(T x) { return x.bytes + sizeof(T); }
struct Packet { int bytes; };
template <class T> __global__ void sizes(int* p) { *p = size(T{}); }
__global__ void one(int* p) { *p = 1; }
std::vector<int> kept;
"""


def test_a_kernel_that_needs_what_another_was_compiled_without_compiles(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLAB_CACHE", str(tmp_path))
    unit = TranslationUnit(PICKY, "k.cu", HOPPER, name_expression="one")
    included = IncludedHeaders()
    identity = nvrtc.compiler_identity()
    less = Reduction("\n".join(["", *PICKY.splitlines()[1:4]]))
    reductions.store_reduction(unit, included, identity, less)
    assert reductions.load_reduction(unit, included, identity) == less
    for expression in ("one", "sizes<Packet>"):
        assert compiler.compile_unit(replace(unit, name_expression=expression)).lowered_name


EXTENSION = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/DeviceUtils.cuh>
template <typename T> __global__ void sums(const T* x, T* y) {
  at::acc_type<T, true> sum = x[threadIdx.x];
  for (int lanes = 16; lanes; lanes /= 2) sum += WARP_SHFL_XOR(sum, lanes);
  y[threadIdx.x] = sum;
}
void run(at::Tensor x, torch::Tensor y) {
  auto stream = at::cuda::getCurrentCUDAStream();
  sums<<<1, 32, 0, stream>>>(x.data_ptr<at::Half>(), y.data_ptr<c10::Half>());
}
"""


def test_an_extension_of_pytorch_compiles_without_its_headers(without_nvcc):
    unit = TranslationUnit(EXTENSION, "k.cu", HOPPER, name_expression="sums<at::Half>")
    output = compiler.compile_unit(unit)
    assert not output.left_out
    assert output.ptx.count("shfl.sync.bfly.b32") == 5
    assert "add.f32" in output.ptx  # the sum of half numbers is a float


def test_functions_whose_errors_the_compiler_reports_one_at_a_time_are_all_left_out(without_nvcc):
    """A compiler stops at the first function with an unknown name before `::`."""
    functions = "".join(f"void run{i}(torch::Tensor x) {{ x.size({i}); }}\n" for i in range(14))
    kernel = "__global__ void scale(float* x) { x[threadIdx.x] *= 2.f; }\n"
    source = f"#include <torch/extension.h>\n{kernel}{functions}"
    output = compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER, name_expression="scale"))
    assert "mul.f32" in output.ptx or "add.f32" in output.ptx
