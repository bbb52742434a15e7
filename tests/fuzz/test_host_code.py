"""Host code of any kind: its launches are read within limits of time and memory, or left unread."""

from __future__ import annotations

import tracemalloc

import pytest
from fuzzing import cases, seldom
from host_launches import read_launches
from hypothesis import given
from hypothesis import strategies as st

from memlab.kernels.signature import KernelParameter, Signature
from memlab.kernels.user.kernel import UserKernel
from memlab.kernels.user.proposals import propose_launch

KERNEL = "__global__ void k(float* y, const int* x, int n) {}\n"
PARAMETERS = (
    KernelParameter("y", "pointer", "f32", "float *", 8, 4),
    KernelParameter("x", "pointer", "i32", "const int *", 8, 4, readonly=True),
    KernelParameter("n", "scalar", "i32", "int", 4),
)
SIGNATURE = Signature("k", "k", PARAMETERS, ())
NUMBERS = [
    "0",
    "1",
    "n",
    "-1",
    "64",
    "1e9",
    "1e999999999",
    "9" * 5000,
    "0x7fffffffffffffff",
    "a[i]",
]
LANGUAGE = """
int float size_t unsigned auto dim3 static const struct class template typename namespace using
enum std::vector<int> thrust::device_vector<float> n m i p q x y k S T v a[3] *p &n this-> :: . ->
( ) [ ] { } ; , ? : = == += << >> <<< >>> && || ! ~ - + * / % ++ -- sizeof new delete return break
continue goto if else for while do switch case default: try catch throw true nullptr "" 'x' ' " \\
/* */ // #if #ifdef #else #endif #define #undef #include ## __global__ __VA_ARGS__ cudaMalloc
cudaMallocPitch cudaMemcpy cudaMemset cudaLaunchKernel cudaLaunchKernelEx malloc rand() argc argv[1]
[&] [](int
"""
WORDS = LANGUAGE.split()
STATEMENTS = [
    "int n = {0};", "n = n * {0} + {1};", "int* p = (int*)malloc({0} * sizeof(int));",
    "cudaMalloc(&p, {0} * 4);", "cudaMallocPitch(&p, &n, {0}, {1});", "p = p + {0}; p[{1}] = n;",
    "k<<<{0}, {1}>>>(y, p, n);", "k<<<dim3({0}, {1}), n, {0}>>>((float*)p, p + {1}, {0} / {1});",
    "for (int i = {0}; i < {1}; ++i) {{ p[i] = (i * 7) % {0}; }}", "while ({0}) {{ n += {1}; }}",
    "if ({0} < n) {{ n = {1}; return 0; }}", "switch ({0}) {{ case {1}: n = 1; default: n = 2; }}",
    "std::vector<int> v({0}); v.resize({1}); n = v.size();", "int a[{0}][{1}] = {{{0}}};",
    "auto f = [&](int x) {{ return f(x + {0}) * n; }}; n = f({1});", "n <<= {0}; n >>= {1};",
    "struct S {{ S* s; int a[{0}]; }} s; s.s = &s; n = sizeof(s) + s.a[{1}];", "n = n / {0} % {1};",
    "s.a = s; s.b = s; s.c = s;", "n = ceil((float)n / {0}) + sqrt({1}) + pow({0}, {1});",
    "for (;;) for (;;) {{ new float[{0}]; s.a = s; s.b = s; }}", "n = ({0} ? {1} : n), main(n, 0);",
]  # fmt: skip
BYTES = 200 * 2**20
"""Several times what any of these programs needs."""


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Statements that may hold each other, with damage in some of them."""
    statement = st.builds(
        lambda text, first, second: text.format(first, second),
        st.sampled_from(STATEMENTS),
        st.sampled_from(NUMBERS),
        st.sampled_from(NUMBERS),
    )
    body = "\n".join(draw(st.lists(statement, max_size=12)))
    if seldom(draw, 3):
        body = f"for (int i = 0; i < n; ++i) {{ if (n) {{ {body} }} }}"
    code = f"{KERNEL}int main(int argc, char** argv) {{ float* y; {body}\nk<<<n, 64>>>(y, 0, n); }}"
    for _ in range(draw(st.integers(0, 3)) if seldom(draw, 2) else 0):
        at = draw(st.integers(0, len(code)))
        word = draw(st.sampled_from(WORDS) | st.text(max_size=4))
        code = f"{code[:at]}{word}{code[at + draw(st.integers(0, 30)) :]}"
    return code


def read(code: str, headers: dict[str, str] | None = None) -> int:
    """Read a program's launches and propose them; the number of them."""
    found = read_launches(code, "f.cu", headers or {}, {})
    for launch in found:
        propose_launch(UserKernel("f.cu"), launch, SIGNATURE)
    return len(found)


@given(programs() | st.lists(st.sampled_from(WORDS), max_size=80).map(" ".join))
@cases(150)
def test_any_program_is_read_or_left(code: str) -> None:
    read(code)


def nested(opening: str, inside: str, closing: str, depth: int = 3000) -> str:
    return main(f"int n = 1; {opening * depth}{inside}{closing * depth} k<<<n, 1>>>(0, 0, n);")


def main(body: str, before: str = "") -> str:
    return f"{KERNEL}{before}\nint main() {{ {body} }}"


LAMBDAS = "".join(f"auto f{i} = [&](int x) {{ f{i - 1}(x); f{i - 1}(x); }};" for i in range(1, 40))
TREES = "".join(f"struct S{i} {{ S{i + 1} a[2], b, c; }};" for i in range(60))
MACROS = "\n".join(f"#define M{i}(x) M{i + 1}(x x x x) M{i + 1}(x x x x)" for i in range(40))
CONDITIONS = "\n".join(f"#define C{i} C{i + 1} + C{i + 1} + C{i + 1}" for i in range(40))
CHAIN = "".join(f"void f{i}() {{ k<<<1, 1>>>(0, 0, 0); f{i + 1}(); }}\n" for i in range(3000))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(nested("{", "", "}"), id="blocks"),
        pytest.param(nested("if (n) {", "n++;", "} else { n = 2; }"), id="conditions"),
        pytest.param(nested("(", "n", ")", 20000), id="parentheses"),
        pytest.param(nested("for (;;) {", "n = n + 1;", "}", 50), id="loops"),
        pytest.param(nested("namespace a {", "", "}"), id="namespaces"),
        pytest.param(nested("[&]() {", "", "}();"), id="nested lambdas"),
        pytest.param(
            main("k<<<f(1), 1>>>(0, 0, 0);", "int f(int n) { return f(n) + f(n + 1); }"),
            id="recursion",
        ),
        pytest.param(main("f39(1);", LAMBDAS), id="lambdas that call lambdas"),
        pytest.param(main("k<<<sizeof(S0), 1>>>(0, 0, 0);", TREES), id="structures of structures"),
        pytest.param(main("k<<<M0(1 +), 1>>>(0, 0, 0);", MACROS), id="macros of macros"),
        pytest.param(main("k<<<C0, 1>>>(0, 0, 0);", f"{CONDITIONS}\n#if C0\n#endif"), id="#if"),
        pytest.param(main("for (;;) { s.a = s; s.b = s; s.c = s; }"), id="copies of structures"),
        pytest.param(
            main("auto p = new float[1ull << 62]; for (long i = 0; i < 1ll << 60; i++) p[i] = 1;"),
            id="a huge array",
        ),
        pytest.param(CHAIN, id="many functions"),
        pytest.param('"' * 20001 + "'" * 20001 + "/*" * 20001, id="quotes"),
        pytest.param("<" * 20000, id="signs"),
        pytest.param("a<" * 5000 + KERNEL, id="templates"),
    ],
)
def test_memory_is_bounded_and_the_reader_ends(code: str) -> None:
    tracemalloc.start()
    try:
        read(code)
        assert tracemalloc.get_traced_memory()[1] < BYTES
    finally:
        tracemalloc.stop()


def test_headers_that_include_each_other_end() -> None:
    headers = {
        "/p/a.h": '#include "b.h"\n#define N 3\n',
        "/p/b.h": '#include "a.h"\n#include "b.h"\n',
    }
    assert read('#include "a.h"\n' + KERNEL + "int main() { k<<<N, 1>>>(0, 0, N); }", headers) == 1
