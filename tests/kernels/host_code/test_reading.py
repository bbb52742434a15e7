"""The launches that host code makes: what a C++ compiler and a run of the program would give."""

from __future__ import annotations

import pytest

from memlab.kernels.host_code.machine import RecordedLaunch
from memlab.kernels.host_code.preprocessor import preprocess
from memlab.kernels.host_code.reading import read_launches
from memlab.kernels.host_code.values import Container, Number, Pointer, Value

KERNEL = "__global__ void k(float* y, const float* x, int n) { y[0] = x[n]; }\n"


def shown(value: Value) -> str:
    """A value as text: a number, or the bytes behind a pointer."""
    if isinstance(value, Number):
        return value.formula.text(lambda each: each.name)
    if isinstance(value, Pointer | Container):
        size = value.allocation.nbytes
        return "?" if size is None else f"{size.text(lambda each: each.name)} B"
    return type(value).__name__


def launches(code: str, headers: dict[str, str] | None = None, **defines: str) -> list[str]:
    """The launches of a file, each as `kernel<arguments> grid|block|shared|arguments`."""

    def line(launch: RecordedLaunch) -> str:
        template = ",".join(launch.template_arguments or ())
        parts = (launch.grid, launch.block, (launch.shared,), launch.arguments)
        texts = "|".join(",".join(map(shown, part)) for part in parts)
        return f"{launch.kernel}{f'<{template}>' if template else ''} {texts}"

    return list(map(line, read_launches(code, "f.cu", headers or {}, defines)))


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
    assert launches(code) == ["k<float,uint> 1,1,1|64,1,1|0|256 B,64"]


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


def test_code_that_never_ends_is_given_up() -> None:
    body = "int i = 0; for (;;) { for (;;) { i = f(i) + 1; } } k<<<1, 1>>>(y, x, i);"
    assert launches(main(body)) == ["k 1,1,1|1,1,1|0|Unresolved,Unresolved,i"]
    code = KERNEL + "int f(int n) { return f(n) + f(n); } int main() { k<<<f(1), 1>>>(0, 0, 0); }"
    assert launches(code) == []
