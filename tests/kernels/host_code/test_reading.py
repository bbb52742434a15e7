"""The launches that host code makes: what a C++ compiler and a run of the program would give."""

from __future__ import annotations

import pytest
from host_launches import read_launches

from memlab.kernels.host_code.machine import MAX_LAUNCHES_OF_LINE, RecordedLaunch
from memlab.kernels.host_code.preprocessor import preprocess
from memlab.kernels.host_code.values import Container, Number, Pointer, Record, Value

KERNEL = "__global__ void k(float* y, const float* x, int n) { y[0] = x[n]; }\n"


def shown(value: Value) -> str:
    """A value as text: a number, or the bytes or elements behind a pointer."""
    if isinstance(value, Number):
        return value.formula.text(lambda each: each.name)
    if isinstance(value, Pointer | Container):
        size = value.allocation.nbytes
        if value.allocation.count is not None:
            return value.allocation.count.text(lambda each: each.name)
        return "?" if size is None else f"{size.text(lambda each: each.name)} B"
    if isinstance(value, Record):
        return f"{value.type}({','.join(shown(cell.value) for cell in value.members.values())})"
    return type(value).__name__


def launches(code: str, headers: dict[str, str] | None = None, **defines: str) -> list[str]:
    """The launches of a file, each as `kernel<arguments> grid|block|shared|arguments`."""
    return list(map(described, read_launches(code, "f.cu", headers or {}, defines)))


def described(launch: RecordedLaunch) -> str:
    template = ",".join(launch.template_arguments or ())
    parts = (launch.grid, launch.block, (launch.shared,), launch.arguments)
    texts = "|".join(",".join(map(shown, part)) for part in parts)
    return f"{launch.kernel}{f'<{template}>' if template else ''} {texts}"


def main(body: str) -> str:
    return f"{KERNEL}int main(int argc, char** argv) {{ float *x, *y; {body} }}"


TYPICAL = "cudaMalloc(&x, n * sizeof(float)); cudaMalloc((void**)&y, n * 4);"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("int n = 1 << 20;" + TYPICAL + "k<<<(n + 255) / 256, 256>>>(y, x, n);", "4096"),
        ("const int n = 1000; dim3 g(n / 8, 2), b(16, 16); k<<<g, b, 64>>>(x, y, n);", "dims"),
    ],
)
def test_a_plain_launch(body: str, expected: str) -> None:
    found = {
        "4096": "k 4096,1,1|256,1,1|0|4194304 B,4194304 B,1048576",
        "dims": "k 125,2,1|16,16,1|64|Unresolved,Unresolved,1000",
    }
    assert launches(main(body)) == [found[expected]]


def test_numbers_of_the_command_line_stay_symbols() -> None:
    body = "int n = atoi(argv[1]);" + TYPICAL + "k<<<ceil(n / 256.0), 256>>>(y, x, n);"
    assert launches(main(body)) == ["k ceil(n/256),1,1|256,1,1|0|4*n B,4*n B,n"]


@pytest.mark.parametrize(
    ("quotient", "grid"),
    [
        ("n % b != 0 ? n / b + 1 : n / b", "ceil(n/b)"),
        ("!(n % b) ? n / b : n / b + 1", "ceil(n/b)"),
        ("n % b ? 1 + n / b : n / b", "ceil(n/b)"),
        ("n % 2 ? n / b + 1 : n / b", "Unresolved"),
        ("n % b ? n / b + 2 : n / b", "Unresolved"),
        ("n % b == 0 ? n / b + 1 : n / b", "Unresolved"),
        ("n % b ? n / b : n / b + 1", "Unresolved"),
    ],
)
def test_quotients_that_a_condition_rounds_up(quotient: str, grid: str) -> None:
    body = "int n = atoi(argv[1]), b = atoi(argv[2]);" + TYPICAL
    (found,) = launches(main(body + f"k<<<{quotient}, 256>>>(y, x, n);"))
    assert found.split("|")[0] == f"k {grid},1,1"


def test_the_defaults_hold_where_the_command_line_is_optional() -> None:
    body = "int n = 512; if (argc > 1) n = atoi(argv[1]); k<<<n, 32>>>(y, x, n);"
    assert launches(main(body)) == ["k 512,1,1|32,1,1|0|Unresolved,Unresolved,512"]


def test_a_program_that_demands_arguments_gets_some() -> None:
    body = "if (argc < 2) { printf(); return 1; } int n = atoi(argv[1]); k<<<n, 32>>>(y, x, n);"
    assert launches(main(body)) == ["k n,1,1|32,1,1|0|Unresolved,Unresolved,n"]


def test_with_arguments_the_optional_ones_may_be_there_too() -> None:
    body = "int n = 64; if (argc < 2) return 1; if (argc > 2) n = 9; k<<<n, argc>>>(y, x, n);"
    assert launches(main(body)) == ["k n,1,1|argc,1,1|0|Unresolved,Unresolved,n"]


def test_what_an_explored_branch_does_is_taken_back() -> None:
    body = "int n = 64; if (0) { n = 7; k<<<n, 1>>>(y, x, n); } k<<<n, 2>>>(y, x, n);"
    assert [each[:10] for each in launches(main(body))] == ["k 7,1,1|1,", "k 64,1,1|2"]


def test_branches_that_disagree_give_a_symbol() -> None:
    body = "int n = 512, m = 4; if (fast()) { n = 64; m = 8 / 2; } k<<<n, m>>>(y, x, n);"
    assert launches(main(body)) == ["k n,1,1|4,1,1|0|Unresolved,Unresolved,n"]


def test_a_branch_that_ends_the_program_does_not_count() -> None:
    body = "int n = 512; if (failed()) { n = 1; exit(1); } k<<<n, 32>>>(y, x, n);"
    assert launches(main(body)) == ["k 512,1,1|32,1,1|0|Unresolved,Unresolved,512"]


def test_what_a_loop_leaves_behind() -> None:
    body = "int t = 1; while (t < 100) t *= 2; k<<<t, 32>>>(y, x, 0);"
    assert launches(main(body))[0].startswith("k 128,1,1|")
    body = "int t = 1; while (more()) t *= 2; k<<<t, 32>>>(y, x, 0);"
    assert launches(main(body))[0].startswith("k t,1,1|")


def test_launches_of_a_loop_and_of_branches_not_taken() -> None:
    body = "for (int n = 32; n < 2000; n *= 2) k<<<1, n>>>(y, x, n); if (0) k<<<7, 1>>>(y, x, 7);"
    found = read_launches(main(body), "f.cu", {}, {})
    assert [shown(each.block[0]) for each in found[:2]] == ["32", "64"]
    assert found[0].in_loop
    assert not found[0].is_explored
    assert found[-1].is_explored
    assert shown(found[-1].grid[0]) == "7"


def test_repeated_launches_of_an_inner_loop_leave_time_for_the_outer_one() -> None:
    body = """
for (int i = 0; i < 8; i++) {
  void (*f)(float*, float*, int) = &k;
  if (i == 7) f = &last;
  for (int j = 0; j < 100; j++) f<<<8, 32>>>(y, x, 1);
}
for (int n = 1, j = 0; j < 100; j++) { k<<<n, 64>>>(y, x, 2); if (j == 1) n = 9; }"""
    code = "__global__ void last(float* y, float* x, int n) { y[0] = x[n]; }\n" + main(body)
    found = read_launches(code, "f.cu", {}, {})
    first = [each for each in found if shown(each.block[0]) == "32"]
    assert [each.kernel for each in first] == ["k"] * 14 + ["last"] * 2
    grids = [shown(each.grid[0]) for each in found if each not in first]
    assert grids[:4] == ["1", "1", "9", "9"]


def test_functions_templates_and_macros() -> None:
    code = """
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define CHECK(call) do { cudaError_t e = call; if (e != cudaSuccess) exit(1); } while (0)
template <typename T, int B> __global__ void scale(T* y, T a, int n) { y[0] = a * n; }
template <typename T> void alloc(T** p, size_t n) { CHECK(cudaMalloc(p, n * sizeof(T))); }
template <class T> void run(T* y, int n) { scale<T, 128><<<CEIL_DIV(n, 128), 128>>>(y, T(2), n); }
int main() { double* y; alloc(&y, 1000); run(y, 1000); }
"""
    assert launches(code) == ["scale<double,128> 8,1,1|128,1,1|0|8000 B,2,1000"]


def test_macros_that_call_functions_of_their_own_name() -> None:
    code = """
void check(int code, int line) { if (code != 0) { exit(1); } }
#define check(code) { check((code), __LINE__); }
#define cudaMalloc(p, n) (cudaMalloc(p, n), 0)
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define size(v) v.size()
__global__ void k(float* y, int n) {}
int main() {
  float* y;
  std::vector<float> v(5);
  check(cudaMalloc(&y, 400));
  check(cublasSgemm(h, y));
  k<<<MIN(MIN(9, 7), 8), 1>>>(y, size(v));
}
"""
    assert launches(code) == ["k 7,1,1|1,1,1|0|400 B,5"]
    (launch,) = read_launches(code, "f.cu", {}, {})
    (pointer, _) = launch.arguments
    assert isinstance(pointer, Pointer)
    assert pointer.allocation.events[0].kind == "filled"


def test_arrays_of_pointers_and_addresses_of_variables() -> None:
    code = (
        KERNEL
        + """
__device__ float scratch[300];
void allocate(float** p, int n) { *p = (float*)malloc(1); cudaMalloc(p, n * sizeof **p); }
int main() {
  float *all[2], *s;
  for (int i = 0; i < 2; ++i) {
    allocate(&all[i], 100 * (i + 1));
    for (int j = 0; j < 1000; ++j) for (int k = 0; k < 1000; ++k) touch(j);
  }
  cudaGetSymbolAddress((void**)&s, scratch);
  k<<<1, 1>>>(all[1], s, sizeof(all) / sizeof(all[0]));
}
"""
    )
    assert launches(code) == ["k 1,1,1|1,1,1|0|800 B,1200 B,2"]


def test_deduced_template_arguments() -> None:
    code = """
template <class T, class I, int B = 64> __global__ void k(T* y, I n) {}
int main() { float* y; cudaMalloc(&y, 256); k<<<1, 64>>>(y, 64u); }
"""
    assert launches(code) == ["k<float,unsigned int> 1,1,1|64,1,1|0|256 B,64"]


def test_structures_vectors_and_methods() -> None:
    code = (
        KERNEL
        + """
struct Size { int n; double d; };
class Grid {
 public:
  Grid(int n) : n_(n), block(128) {}
  void run(float* y, float* x) { k<<<n_ / block, block>>>(y, x, n_); }
 private:
  int n_; int block;
};
int main() {
  Size size; size.n = 2048;
  std::vector<float> h(size.n);
  thrust::device_vector<float> d(h.size() * 2);
  Size* s; cudaMalloc(&s, 3 * sizeof(*s));
  Grid grid(size.n);
  grid.run(thrust::raw_pointer_cast(d.data()), (float*)s);
}
"""
    )
    assert launches(code) == ["k 16,1,1|128,1,1|0|16384 B,48 B,2048"]


def test_long_loops_over_data_do_not_shorten_the_loop_that_launches() -> None:
    code = (
        KERNEL
        + """
void compare(const float* a, const float* b, int n) {
  for (int i = 0; i < n; i++) if (a[i] - b[i] > 1e-3f || a[i] - b[i] < -1e-3f) printf("%d", i);
}
int main() {
  int n = 1 << 20; float *a = (float*)malloc(4 * n), *b = (float*)malloc(4 * n);
  for (int j = 0; j < 8; j++) {
    k<<<j + 1, 64>>>(0, 0, n);
    for (int i = 0; i < 9; i++) { compare(a, b, n); compare(b, a, n); }
  }
  k<<<9, 64>>>(0, 0, n);
}
"""
    )
    grids = [int(each.split()[1].split(",")[0]) for each in launches(code)]
    assert grids == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_conditions_of_the_preprocessor_and_headers() -> None:
    code = (
        '#include "size.h"\n#ifndef N\n#define N 64\n#endif\n#if MODE == 2 && defined(N)\n'
        f"{KERNEL}#else\nbroken(\n#endif\nint main() {{ k<<<N, LANES>>>(0, 0, N); }}"
    )
    chosen = "#if 1\n#define L 3\n#elif 1\n#define L 4\n#else\n#define L 5\n#endif\n"
    assert launches(chosen + main("k<<<L, 1>>>(x, y, 0);"))[0].startswith("k 3,1,1|")
    headers = {"/p/size.h": "#pragma once\nconst int LANES = 32;\n#define MODE 2\n"}
    assert launches(code, headers) == ["k 64,1,1|32,1,1|0|Number,Number,64".replace("Number", "0")]
    assert launches(code, headers, N="7") == ["k 7,1,1|32,1,1|0|0,0,7"]


def test_lines_keep_their_numbers() -> None:
    code = "/* a\n b */\n#define K \\\n 3\n" + KERNEL + "int main() {\n\n k<<<K, 1>>>(0, 0, 0); }"
    (launch,) = read_launches(code, "f.cu", {}, {})
    assert (launch.line, shown(launch.grid[0])) == (8, "3")
    assert len(preprocess(code, "f.cu", {}, {}).texts[0].text.split("\n")) == code.count("\n") + 1


def test_a_file_without_main_has_symbols_for_what_its_functions_take() -> None:
    code = KERNEL + "void go(float* y, float* x, int n) { k<<<n / 4, 4>>>(y, x, n); }"
    assert launches(code) == ["k floor(n/4),1,1|4,1,1|0|?,?,n"]


def test_every_case_of_a_switch_is_found() -> None:
    code = """
template <int B> __global__ void k(int* y) {}
void go(int b, int* y) {
  switch (b) { case 64: k<64><<<2, 64>>>(y); break; case 32: k<32><<<4, 32>>>(y); }
}
int main(int argc, char** argv) { go(atoi(argv[1]), 0); }
"""
    assert [each.partition(" ")[0] for each in launches(code)] == ["k<64>", "k<32>"]
    known = code.replace("atoi(argv[1])", "32")
    found = read_launches(known, "f.cu", {}, {})
    assert {(each.template_arguments, each.is_explored) for each in found} == {
        (("64",), True),
        (("32",), False),
    }


def test_a_benchmark_of_many_kernels_makes_all_of_them() -> None:
    # As in public ladders of matrix products: what other passes explore must not use up the steps.
    numbers = range(24)
    steps = " ".join(f"int t{n} = m + {n}; t{n} = t{n} * 2 + t{n} / 3;" for n in range(12))
    kernels = "".join(f"__global__ void k{n}(int* y) {{}}\n" for n in numbers)
    cases = "".join(f"case {n}: run{n}(m, y); break;\n" for n in numbers)
    runners = "".join(
        f"void run{n}(int m, int* y) {{ {steps} k{n}<<<m, 32>>>(y); }}\n" for n in numbers
    )
    code = f"""{kernels}{runners}
void run(int kernel, int m, int* y) {{ switch (kernel) {{ {cases} case 99: k0<<<1, 1>>>(y); }} }}
int main() {{
  int* y;
  for (int kernel : {{{", ".join(map(str, numbers))}}}) {{
    run(kernel, 512, y);
    for (int j = 0; j < 8; j++) run(kernel, 512, y);
  }}
}}
"""
    found = read_launches(code, "f.cu", {}, {})
    made = {each.kernel for each in found if not each.is_explored}
    assert made == {f"k{number}" for number in numbers}


def test_branches_of_each_instance_of_a_template_are_explored() -> None:
    code = f"""
template <int B> __global__ void k(int* y) {{}}
template <int B> void run(int* y) {{ if (0) k<B><<<1, B>>>(y); }}
int main() {{ int* y; {"run<32>(y); " * 20} run<64>(y); }}
"""
    found = read_launches(code, "f.cu", {}, {})
    assert {each.template_arguments for each in found} == {("32",), ("64",)}


def test_code_that_never_ends_is_given_up() -> None:
    body = "int i = 0; for (;;) { for (;;) { i = f(i) + 1; } } k<<<1, 1>>>(y, x, i);"
    assert launches(main(body)) == ["k 1,1,1|1,1,1|0|Unresolved,Unresolved,i"]
    # Three functions that call each other twice: the steps are over before the launch is reached.
    code = "".join(
        f"int f{i}(int n) {{ return f{j}(n) + f{j}(n); }}" for i, j in ("ab", "bc", "ca")
    )
    assert launches(KERNEL + code + "int main() { k<<<fa(1), 1>>>(0, 0, 0); }") == []


@pytest.mark.parametrize(
    ("body", "configuration", "truth"),  # truth: what a program by g++ 12 printed
    [
        # Types: widths, conversions and promotions.
        ("int n = 1 << 30; unsigned m = n * 4 + 2;", "m, 1, n >> 28", (2, 1, 4)),
        ("unsigned n = 0; n--; int m = n >> 28;", "1, 15, m", (1, 15, 15)),
        ("unsigned char c = 300; short s = c * 1000;", "c, 1, s", (44, 1, -21536)),
        ("int n = 65536; size_t m = (size_t)n * n / 1024 / 64;", "m, 1, 0", (65536, 1, 0)),
        ("unsigned a = 10; long long c = 1LL << 33;", "a / 4, c / 1431655765, -7 % 3", (2, 6, -1)),
        ("char c = '\\n'; int m = 'a' - 'A'; bool f = 5;", "m, f + 1, c", (32, 2, 10)),
        ("long s = 31; int m = (1 << s) >> s;", "1, 1, m", (1, 1, -1)),
        ("float *p = x + 10; p += 5;", "p - x, round(2.5), (int)trunc(-2.5)", (15, 3, -2)),
        ("struct S { char c; double d; int i; };", "sizeof(S), 1, 0", (24, 1, 0)),
        ("double a[10];", "sizeof a, sizeof(a) / sizeof(a[0]), 0", (80, 10, 0)),
        # Names: the innermost scope, references and statics.
        ("int n = 4; { int n = 8; n++; } for (int n = 0; n < 3; n++);", "n, 1, 0", (4, 1, 0)),
        ("int n = 3; int& r = n; r = 7;", "n, r, 0", (7, 7, 0)),
        ("auto next = []() { static int c = 0; return ++c; }; next();", "next(), 1, 0", (2, 1, 0)),
        ("int n = 1; auto f = [&](int d) { auto g = [&]() { return n + d; }; return g(); };",
         "f(2), f(3), 0", (3, 4, 0)),
        # Lists and members.
        ("struct P { int m = 3, n = 4; } p; P q = {.n = 8}; P r[] = {{1, 2}, {5, 6}};",
         "p.n, q.n, r[1].m", (4, 8, 5)),
        ("int s = 0; for (int each : {4, 5, 6}) s += each;", "s, 1, 0", (15, 1, 0)),
        ("std::vector<int> v{4, 5, 6}; int s = 0; for (auto& e : v) { if (e == 6) break; s += e; }",
         "s, v.size(), v[2]", (9, 3, 6)),
    ],
)  # fmt: skip
def test_numbers_are_what_cpp_computes(
    body: str, configuration: str, truth: tuple[int, int, int]
) -> None:
    code = main(f"cudaMalloc(&x, 400); {body} go({configuration});")
    code = code.replace(
        "int main", "void go(unsigned g, unsigned b, int n) { k<<<g, b>>>(0, 0, n); }\nint main"
    )
    grid, block, n = truth
    assert launches(code) == [f"k {grid},1,1|{block},1,1|0|0,0,{n}"]


def test_methods_defaults_and_constants_of_classes() -> None:
    code = (
        KERNEL
        + """
void go(int n, int block = 32);
class A {
 public:
  static const int B = 64;
  A(int n) : n(n) {}
  int blocks() const { return n / B; }
  void run(int extra = 1);
  int n;
};
void A::run(int extra) { k<<<blocks() + extra, B>>>(0, 0, this->n); }
int main() { A* a = new A(640); a->run(); go(A::B); }
void go(int n, int block) { k<<<n, block>>>(0, 0, n); }
"""
    )
    assert launches(code) == ["k 11,1,1|64,1,1|0|0,0,640", "k 64,1,1|32,1,1|0|0,0,64"]


@pytest.mark.parametrize(
    "call",
    [
        "cudaLaunchConfig_t c = {0}; c.gridDim = 2; c.blockDim = dim3(4); c.dynamicSmemBytes = 8;"
        "cudaLaunchKernelEx(&c, k, y, (const float*)x, 3);",
        "cudaLaunchConfig_t c; c.gridDim = {2, 1, 1}; c.blockDim = {4}; c.dynamicSmemBytes = 8;"
        "int n = 3; void* a[] = {&y, &x, &n}; cudaLaunchKernelExC(&c, (void*)k, a);",
        "int n = 3; void* a[] = {&y, &x, &n}; cudaLaunchKernel((void*)k, 2, 4, a, 8, 0);",
        "void (*f)(float*, const float*, int) = k; f<<<{2, 1}, {4, 1}, 8>>>(y, x, 3);",
    ],
)
def test_other_ways_to_launch(call: str) -> None:
    code = main(f"cudaMalloc(&x, 40); cudaMalloc(&y, 80); {call}")
    assert launches(code) == ["k 2,1,1|4,1,1|8|80 B,40 B,3"]


@pytest.mark.parametrize(
    "attribute",
    [
        "cudaLaunchAttribute a[2]; a[1].id = cudaLaunchAttributeClusterDimension;"
        "a[1].val.clusterDim.x = 2; a[1].val.clusterDim.y = 4; a[1].val.clusterDim.z = 1;"
        "a[0].id = cudaLaunchAttributePriority; a[0].val.priority = 3; c.attrs = a;",
        "cudaLaunchAttribute a; a.id = cudaLaunchAttributeClusterDimension;"
        "a.val.clusterDim = {2, 4, 1}; c.attrs = &a;",
    ],
)
def test_a_launch_attribute_gives_the_cluster(attribute: str) -> None:
    code = main(
        "cudaMalloc(&x, 40); cudaMalloc(&y, 80); cudaLaunchConfig_t c = {8, 64};"
        f"{attribute} cudaLaunchKernelEx(&c, k, y, x, 3); k<<<8, 64>>>(y, x, 3);"
    )
    with_cluster, without = read_launches(code, "f.cu", {}, {})
    assert with_cluster.cluster is not None
    assert list(map(shown, with_cluster.cluster)) == ["2", "4", "1"]
    assert without.cluster is None


def test_launches_of_one_line_are_not_all_recorded() -> None:
    body = "for (int i = 0; i < 40; ++i) { k<<<i, 1>>>(y, x, i); }\n k<<<7, 7>>>(y, x, 0);"
    found = launches(main(body))
    assert len(found) == MAX_LAUNCHES_OF_LINE + 1
    assert found[-1].startswith("k 7,1,1|7,1,1")


DEVICE = {
    "multiProcessorCount": 132,
    "maxThreadsPerMultiProcessor": 2048,
    "maxGridSize": (2147483647, 65535, 65534),
}


@pytest.mark.parametrize(
    ("body", "grid"),
    [
        ("cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);"
         "int g = p.multiProcessorCount * p.maxThreadsPerMultiProcessor / 512;", "528"),
        ("cudaDeviceProp* p = new cudaDeviceProp; cudaGetDeviceProperties(p, 0);"
         "int g = p->maxGridSize[2];", "65534"),
        ("cudaDeviceProp p; CHECK(cudaGetDeviceProperties(&p, 0)); int g = p.regsPerBlock;",
         "regsPerBlock"),
        ("int g; cudaDeviceGetAttribute(&g, cudaDevAttrMultiProcessorCount, 0);", "132"),
        ("int g; cuDeviceGetAttribute(&g, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0);", "132"),
        ("int g; cudaDeviceGetAttribute(&g, cudaDevAttrMaxGridDimY, 0);", "65535"),
        ("int g = 5; cudaDeviceGetAttribute(&g, cudaDevAttrWarpSize, 0);", "g"),
        ("int g = 5; cudaDeviceGetAttribute(&g, cudaDevAttrMaxBlockDimX, 0);", "g"),
        ("int g = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;", "132"),
        ("int g = properties.multiProcessorCount;", "132"),
    ],
)  # fmt: skip
def test_figures_of_the_device(body: str, grid: str) -> None:
    code = "extern cudaDeviceProp properties;\n" + main(f"{body} k<<<g, 64>>>(y, x, 0);")
    (launch,) = read_launches(code, "f.cu", {}, {}, device=DEVICE)
    assert shown(launch.grid[0]) == grid


INSTANTIATED = """
template <class T, int B> __global__ void k(T* y, T a, size_t n) {}
template <class T> void launch(T* y, T const* a, size_t n);
template <class T> void launch(T* y, T const* a, size_t n) {
  T* copy; cudaMalloc(&copy, n * sizeof(T));
  k<T, 64><<<n / 64, 64>>>(copy, *a, n);
}
namespace s { template <class T, int B> void sized(T* y) { k<T, B><<<8, B>>>(y, 1, 8 * B); } }
"""


@pytest.mark.parametrize(
    ("instantiations", "expected"),
    [
        ("template void launch<float>(float*, float const*, size_t);"
         "template void launch(double* y, double const* a, size_t n);"
         "template void launch(double* y, double const* a);"
         "template void s::sized<half, 32>(half* y);",
         ["k<half,32> 8,1,1|32,1,1|0|?,1,256",
          "k<float,64> floor(n/64),1,1|64,1,1|0|4*n B,Unresolved,n",
          "k<double,64> floor(n/64),1,1|64,1,1|0|8*n B,Unresolved,n"]),
        ("int main() { float *y, a = 2; launch<float>(y, &a, 640); }"
         "template void launch<double>(double*, double const*, size_t);"
         "template void s::sized<half, 32>(half* y);",
         ["k<float,64> 10,1,1|64,1,1|0|2560 B,2,640", "k<half,32> 8,1,1|32,1,1|0|?,1,256"]),
    ],
)  # fmt: skip
def test_explicit_instantiations_are_calls(instantiations: str, expected: list[str]) -> None:
    assert sorted(launches(INSTANTIATED + instantiations)) == sorted(expected)


def test_templates_that_are_never_instantiated_have_unknown_arguments() -> None:
    found = read_launches(INSTANTIATED, "f.cu", {}, {})
    assert [(each.template_arguments, each.is_undeduced) for each in found] == [
        (("auto", "64"), True),
        (("auto", "?B"), True),
    ]


STRUCTURES = """
#define LEN (1 << 4)
const int M = 3;
enum class Kind : uint8_t { A, B = 5, C };
struct Inner { float x[LEN]; float y[LEN]; };
struct Outer { char c; Inner in[M]; double d; Kind kind; };
struct Vec { char c; float3 p; double4 q; short s; };
union U { double d; char c[12]; };
struct alignas(32) Big { int a; U u; };
struct __align__(16) Al { float a, b, c; };
struct Anon { int tag; union { float4 v; float a[4]; }; struct { char r, g; } px[3]; float& ref; };
template <class T, int N = 2> struct alignas(16) Packed {
  static constexpr int size = sizeof(int4) / sizeof(T);
  static const int twice = size * N;
  T p[size];
  enum { E = 7 };
};
typedef Packed<short> P16;
template <> struct Packed<char, 9> { static constexpr int size = 77; char c; };
struct Bits { int a : 3; };
struct Derived : Inner { char c; };
struct Virtual { virtual void f(); };
"""


@pytest.mark.parametrize(
    ("expression", "value"),  # as a program by g++ 12 printed them
    [
        *{"Inner": 128, "Outer": 408, "Vec": 64, "U": 16, "Big": 32, "Al": 16, "Anon": 48}.items(),
        ("P16", 16),
        ("Packed<double, 1>", 16),
    ],
)
def test_sizes_of_structures(expression: str, value: int) -> None:
    (found,) = launches(STRUCTURES + main(f"k<<<sizeof({expression}), 1>>>(0, 0, 0);"))
    assert found.startswith(f"k {value},1,1|")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("P16::size", 8),
        ("P16::twice", 16),
        ("Packed<float, 5>::twice", 20),
        ("Packed<char, 9>::size", 77),
        ("(int)Kind::C", 6),
    ],
)
def test_constants_of_classes_and_enumerators(expression: str, value: int) -> None:
    (found,) = launches(STRUCTURES + main(f"k<<<{expression}, 1>>>(0, 0, 0);"))
    assert found.startswith(f"k {value},1,1|")


def test_templates_and_enumerators_inside_functions() -> None:
    of = "template <class T> void of() { k<<<Packed<T>::size, sizeof(Packed<T>)>>>(0, 0, 0); }"
    code = KERNEL + STRUCTURES + of + "int main() { of<double>(); }"
    assert launches(code) == ["k 2,1,1|16,1,1|0|0,0,0"]
    body = "enum { A = 3, B, SIZE = B * LEN }; struct L { char c[B]; };"
    body += "k<<<SIZE, sizeof(L)>>>(x, y, A);"
    assert launches(STRUCTURES + main(body))[0].startswith("k 64,1,1|4,1,1|0|")


@pytest.mark.parametrize("kind", ["Bits", "Derived", "Virtual"])
def test_sizes_that_are_not_computed_stay_symbols(kind: str) -> None:
    (found,) = launches(STRUCTURES + main(f"int n = sizeof({kind}); k<<<n, 1>>>(0, 0, 0);"))
    assert found.startswith("k n,1,1|")


def test_macros_that_define_functions() -> None:
    code = """
__global__ void fill_half(short* p, int n) {}
__global__ void fill_whole(float* p, int n) {}
#define NAME(word) #word
#define BIND(suffix, type, lanes) \\
  void fill_##suffix(int n) { \\
    type* p; cudaMalloc(&p, n * sizeof(type)); log(NAME(suffix)); \\
    fill_##suffix<<<n / (lanes), 32>>>(p, n); \\
  }
BIND(half,
     short, 2)
BIND(whole, float, (4))
int main() { fill_whole(64); fill_half(32); }
"""
    assert launches(code) == [
        "fill_whole 16,1,1|32,1,1|0|256 B,64",
        "fill_half 16,1,1|32,1,1|0|64 B,32",
    ]
    assert [each.line for each in read_launches(code, "f.cu", {}, {})] == [12, 10]


CLASS_TEMPLATES = """
enum class Mode { plain, scaled };
template <typename T> struct Wide { using type = T; static constexpr int lanes = 4; };
template <> struct Wide<half> { using type = float; static constexpr int lanes = 8; };
template <typename T> struct Wide<T*> { typedef T type; static constexpr int lanes = 2; };
template <typename In, typename Out> struct Load {
  Load(const In* from, long pitch) : from(from), pitch(pitch) {}
  const In* from;
  long pitch;
};
template <class L, typename T, int N, bool B, Mode M> __global__ void k(L load, long n) {}
template <class L, typename T, int N, Mode M>
typename std::enable_if<N == 1 && !std::is_same<T, double>::value, int>::type go(L load, long n) {
  k<L, T, 100, false, M><<<1, 32>>>(load, n);
}
template <class L, typename T, int N, Mode M>
std::enable_if_t<N == 2, int> go(L load, long n) {
  if (n < 0) return 1;
#define CASE(limit)                                          \\
  else if (n <= limit) {                                     \\
    k<L, T, limit * N, (limit > 4), M><<<n / limit, 32>>>(load, n); \\
  }
  CASE(4)
  CASE(64)
#undef CASE
  else return 2;
  return 0;
}
template <class L, typename T, Mode M> struct Choice {
  int operator()(L load, long n) {
    if (n % 2 == 0) return go<L, T, 2, M>(load, n);
    return go<L, T, 1, M>(load, n);
  }
};
template <class L, typename T>
void choose(L load, long n) { Choice<L, T, Mode::scaled>()(load, n); }
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("Load<half, Wide<half>::type> load(p, 7); choose<decltype(load), float>(load, 48);",
         "k<Load<half, float>,float,128,true,Mode(1)> 0,1,1|32,1,1|0|Load<half, float>(64 B,7),48"),
        ("auto load = Load<half, half>(p, 7); choose<Load<half, half>, Wide<half>::type>(load, 4);",
         "k<Load<half, half>,float,8,false,Mode(1)> 1,1,1|32,1,1|0|Load<half, half>(64 B,7),4"),
        ("using W = Wide<half*>; Load<half, W::type> load(p, W::lanes); Choice<decltype(load), "
         "typename Wide<int>::type, Mode::plain> c; c(load, Wide<int>::lanes + 1);",
         "k<Load<half, half>,int,100,false,Mode(0)> 1,1,1|32,1,1|0|Load<half, half>(64 B,2),5"),
    ],
)  # fmt: skip
def test_templates_of_classes_and_functors_are_followed(body: str, expected: str) -> None:
    code = f"{CLASS_TEMPLATES}int main() {{ half* p; cudaMalloc(&p, 64); {body} }}"
    made = [each for each in read_launches(code, "f.cu", {}, {}) if not each.is_explored]
    assert [described(each) for each in made if not each.is_undeduced] == [expected]


def test_a_macro_means_what_it_means_where_it_stands() -> None:
    code = """
__global__ void k(int n) {}
#define WIDTH 32
#define RUN(n) k<<<n, WIDTH>>>(n); log("RUN")
void first() { RUN(
  1); }
#undef RUN
#define RUN(n) k<<<1, n>>>(WIDTH)
void second() { RUN(2); }
#undef WIDTH
#undef RUN
int main() { first(); second(); }
"""
    assert launches(code) == ["k 1,1,1|32,1,1|0|1", "k 1,1,1|2,1,1|0|32"]
    assert [each.line for each in read_launches(code, "f.cu", {}, {})] == [5, 9]


TENSOR_KERNEL = """
template <typename T> __global__ void k(T* x, T* y, long n, long m) {}
__global__ void f(float* x, float* y, float* z) {}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # Sizes are named by the variables that hold them, and count the elements.
        ("const int n = x.size(0), m = x.size(1); k<<<n, 32>>>($x, $y, n, m);",
         "k<float> n,1,1|32,1,1|0|m*n,m*n,n,m"),
        ("k<<<x.numel() / 4, 32>>>($x, $y, x.numel(), y.numel());",
         "k<float> floor(x_numel/4),1,1|32,1,1|0|x_numel,y_numel,x_numel,y_numel"),
        ("k<<<x.size(1), 32>>>($x, $y, x.sizes()[1], y.size(0));",
         "k<float> x_size_1,1,1|32,1,1|0|x_size_1*y_size_0,y_size_0,x_size_1,y_size_0"),
        ("k<<<1, 32>>>($x, $y, 3, 4);", "k<float> 1,1,1|32,1,1|0|x_numel,y_numel,3,4"),
        # Checks tell which sizes are equal.
        ("int n = x.size(0);if (n != y.size(0) || y.size(1) != 8) throw;k<<<1, 2>>>($x, $y, 0, 0);",
         "k<float> 1,1,1|2,1,1|0|n,8*n,0,0"),
        ("TORCH_CHECK(x.size(0) == 16 && y.size(0) == 4); k<<<1, 32>>>($x, $y, 0, 0);",
         "k<float> 1,1,1|32,1,1|0|16,4,0,0"),
        ("if (y.size(0) == 3) { log(y); } int n = x.size(0); k<<<1, 32>>>($x, $y, n, y.size(0));",
         "k<float> 1,1,1|32,1,1|0|n,y_size_0,n,y_size_0"),
        ("if (y.size(0) != 3) { log(y); } int n = x.size(0); k<<<1, 32>>>($x, $y, n, y.size(0));",
         "k<float> 1,1,1|32,1,1|0|n,y_size_0,n,y_size_0"),
        # A size that is not used is that of another tensor, if all of them agree.
        ("int n = x.size(0), w = y.size(1); k<<<n, w>>>($x, $y, n, w);",
         "k<float> n,1,1|w,1,1|0|n,n*w,n,w"),
        ("int n = x.size(0), m = x.size(1); k<<<n, 2>>>($x, $y, m, y.size(1));",
         "k<float> n,1,1|2,1,1|0|m*n,y_size_0*y_size_1,m,y_size_1"),
        # A tensor of which no size is used is as large as the largest.
        ("int n = x.size(0), w = y.size(1); f<<<1, 1>>>($x, $y, z.data_ptr<float>());",
         "f 1,1,1|1,1,1|0|n,n*w,n*w"),
        ("int n = x.numel(), w = y.numel(); f<<<1, 1>>>($x, $y, z.data_ptr<float>());",
         "f 1,1,1|1,1,1|0|n,w,max(n, w)"),
        # Tensors that the function makes.
        ("auto z = torch::zeros({x.size(0), 4}, opt); k<<<1, 32>>>($x, z.data_ptr<float>(), 0, 0);",
         "k<float> 1,1,1|32,1,1|0|x_size_0,4*x_size_0,0,0"),
        ("auto z = at::empty_like(x); int n = z.numel(); k<<<1, 32>>>($x, z.data<float>(), n, 0);",
         "k<float> 1,1,1|32,1,1|0|n,n,n,0"),
        ("AT_DISPATCH_ALL_TYPES(x.type(), \"k\", ([&] { int n = x.size(0); "
         "k<scalar_t><<<n, 1>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n, 1); }));",
         "k<float> n,1,1|1,1,1|0|n,n,n,1"),
    ],
)  # fmt: skip
def test_tensors_of_an_extension(body: str, expected: str) -> None:
    body = body.replace("$x", "(float*)x.data_ptr()").replace("$y", "y.data_ptr<float>()")
    code = (
        f"{TENSOR_KERNEL}void go(torch::Tensor x, const at::Tensor& y, at::Tensor z) {{ {body} }}"
    )
    assert launches(code) == [expected]


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("float a[4][99]; k<<<sizeof(a) / sizeof(a[0]), sizeof(a[0]), sizeof(a[0][0])>>>(y, x, 0);",
         "4,1,1|396,1,1|4"),
        ("float* a[6]; k<<<sizeof(a) / sizeof(a[0]), sizeof(*a[0])>>>(y, x, 0);", "6,1,1|4,1,1|0"),
        ("int a[][3] = {{1, 2, 3}, {4, 5, 6}}; k<<<a[1][2], a[0][1], sizeof(a)>>>(y, x, 0);",
         "6,1,1|2,1,1|24"),
        ("int a[2][3]; a[1][0] = 7; int* row = a[1]; row[2] = 9; k<<<a[1][0], a[1][2]>>>(y, x, 0);",
         "7,1,1|9,1,1|0"),
        ("int a[4] = {1, 2, 3, 4}; int* p = a + 2; k<<<*p, p[1]>>>(y, x, 0);", "3,1,1|4,1,1|0"),
        ("std::array<int, 3> a = {32, 64, 128}; k<<<a[2], a.size(), sizeof(a)>>>(y, x, 0);",
         "128,1,1|3,1,1|12"),
        ("std::vector<int> v; v.push_back(5); v.push_back(6); k<<<v.back(), v.front()>>>(y, x, 0);",
         "6,1,1|5,1,1|0"),
        ("typedef struct { int key, value; } Entry; Entry t[] = {{1, 10}, {3, 30}, {-1, -1}};"
         "int i = 0; while (t[i].key != 3) i++; k<<<t[i].value, sizeof(t)>>>(y, x, 0);",
         "30,1,1|24,1,1|0"),
    ],
)  # fmt: skip
def test_rows_of_arrays_and_containers(body: str, numbers: str) -> None:
    (found,) = launches(main(body))
    assert found.removeprefix("k ").rpartition("|")[0] == numbers


@pytest.mark.parametrize(
    "table",
    [
        "float* h[3];",
        "float** h = (float**)malloc(3 * sizeof(float*));",
        "std::vector<float*> h(3);",
        "std::array<float*, 3> h;",
    ],
)
def test_tables_of_pointers(table: str) -> None:
    body = f"{table} for (int i = 0; i < 3; i++) cudaMalloc((void**)&h[i], 400 * (i + 1));"
    assert launches(main(body + "k<<<1, 1>>>(h[0], h[2], 0);")) == [
        "k 1,1,1|1,1,1|0|400 B,1200 B,0"
    ]


def test_a_launch_sees_a_vector_as_it_is_then() -> None:
    body = (
        "thrust::device_vector<float> v(8); float* p = thrust::raw_pointer_cast(v.data());"
        "k<<<1, 1>>>(p, p, 0); v.resize(16); k<<<1, 1>>>(p, p, 0);"
    )
    assert [each.split("|")[3] for each in launches(main(body))] == ["32 B,32 B,0", "64 B,64 B,0"]


def test_numbers_for_enumerations_are_casts() -> None:
    code = """
enum Op { ERODE, DILATE };
template <Op op, int B> __global__ void k(float* y) {}
template <Op op> void run(float* y) { k<op, 4><<<1, 1>>>(y); }
int main() { float* y; cudaMalloc(&y, 4); run<DILATE>(y); k<ERODE, 8><<<1, 1>>>(y); }
"""
    assert [each.partition(" ")[0] for each in launches(code)] == ["k<Op(1),4>", "k<Op(0),8>"]


def test_arguments_that_a_launch_leaves_out_are_the_defaults() -> None:
    code = "__global__ void k(float* y, int n = 1000) {} int main() { k<<<1, 1>>>(nullptr); }"
    assert launches(code) == ["k 1,1,1|1,1,1|0|Null,1000"]


def test_an_endless_nest_of_loops_does_not_hide_the_launches_behind_it() -> None:
    loops = "".join(f"for (int {i} = 0; {i} < 90; {i}++) " for i in "abcdefgh")
    body = f"int h[64]; {loops} {{ h[a] = b + c * d; h[e] = f + g * h2(); }} k<<<1, 1>>>(y, x, 5);"
    assert launches(main(body)) == ["k 1,1,1|1,1,1|0|Unresolved,Unresolved,5"]


def test_how_many_blocks_the_device_holds() -> None:
    body = """
      int grid, block, active, n = 1000; cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);
      cudaOccupancyMaxPotentialBlockSize(&grid, &block, k, 64 * 2);
      k<<<grid, block>>>(y, x, n);
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&active, k, 64, 16);
      k<<<active * p.multiProcessorCount, 64>>>(y, x, n);
    """
    asked: list[tuple[str, int]] = []

    def blocks_per_sm(kernel: str, threads: int, shared: int) -> int:
        asked.append((kernel, shared))
        return 300 // threads  # 3 blocks of 96 use the most threads of an SM, 288

    device = {"multiProcessorCount": 10, "maxThreadsPerBlock": 256, "warpSize": 32}
    found = read_launches(main(body), "f.cu", {}, {}, {}, device, blocks_per_sm)
    shapes = [(shown(each.grid[0]), shown(each.block[0])) for each in found]
    assert shapes == [("30", "96"), ("40", "64")]
    assert set(asked) == {("k", 128), ("k", 16)}


def test_a_function_whose_recursion_nothing_ends_does_not_keep_the_rest_from_being_read() -> None:
    walk = """
      struct Node { Node *left, *right; int value; };
      void walk(Node* node, int* sums) {
        if (node->value > 3) { sums[0] += node->value; walk(node->left, sums); }
        else { sums[1] += node->value; }
        walk(node->right, sums);
      }
    """
    code = walk + main("int s[2]; Node* root = build(); walk(root, s); k<<<64, 128>>>(y, x, 7);")
    assert launches(code) == ["k 64,1,1|128,1,1|0|Unresolved,Unresolved,7"]
    halves = "int halves(int n) { return n < 2 ? 0 : 1 + halves(n / 2); }"
    assert launches(halves + main("k<<<halves(32), 32>>>(y, x, 7);"))[0].startswith("k 5,1,1|")


def test_names_are_those_of_the_namespace() -> None:
    code = (
        KERNEL
        + "const int size = 7; int width() { return 9; } struct S { int a; };"
        + "namespace a { int size = 1; int width() { return 2; } struct S { int a[4]; };"
        + " void run(float* x) { size += 2; k<<<size, width()>>>(x, x, sizeof(S)); } }"
        + "namespace b { int size = 5; int width() { return 3; } struct S { int a[8]; };"
        + " void run(float* x) { k<<<size, width()>>>(x, x, sizeof(S)); } }"
        + "int main() { float* x; a::run(x); b::run(x); k<<<size, width()>>>(x, x, sizeof(S)); }"
    )
    assert [each.replace("?,?,", "") for each in launches(code)[:2]] == [
        "k 3,1,1|2,1,1|0|Unresolved,Unresolved,16",
        "k 5,1,1|3,1,1|0|Unresolved,Unresolved,32",
    ]


def test_a_kernel_with_cluster_dimensions_keeps_its_namespace() -> None:
    code = (
        "namespace a { template <int M, int N> __global__ __launch_bounds__(128) void\n"
        "__cluster_dims__(M * max(N, 1), 1, 1) spread(int n) { if (n) { n = 0; } }\n"
        "void run() { spread<2, 1><<<4, 128>>>(3); } } int main() { a::run(); }"
    )
    assert launches(code) == ["a::spread<2,1> 4,1,1|128,1,1|0|3"]
