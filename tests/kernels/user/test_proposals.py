"""Proposed launches: the roles, sizes and values that the host code gives to each argument."""

from __future__ import annotations

from typing import Any

import pytest
from host_launches import read_launches

from memlab.kernels.signature import KernelParameter, Signature, StructureMember
from memlab.kernels.user.kernel import UserKernel
from memlab.kernels.user.proposals import ProposedLaunch, propose_launch

MEMBERS = (StructureMember("n", "i32", 0, "int"), StructureMember("size.x", "u32", 4, "unsigned"))
PARAMETERS = {
    "a": KernelParameter("a", "pointer", "f32", "float *", 8, 4),
    "b": KernelParameter("b", "pointer", "f32", "float *", 8, 4),
    "c": KernelParameter("c", "pointer", "i32", "const int *", 8, 4, readonly=True),
    "d": KernelParameter("d", "pointer", "i32", "int *", 8, 4),
    "v": KernelParameter("v", "pointer", "", "float4 *", 8, 16, member_dtype="f32"),
    "n": KernelParameter("n", "scalar", "u32", "unsigned int", 4),
    "f": KernelParameter("f", "scalar", "f32", "float", 4),
    "t": KernelParameter("t", "scalar", "u64", "cudaTextureObject_t", 8),
    "s": KernelParameter("s", "structure", "", "S", 8, parts=MEMBERS),
}
H2D, D2H = (f"cudaMemcpy{way}" for way in ("HostToDevice", "DeviceToHost"))
START = (
    "float *h, *a, *b; int* c; cudaMalloc(&a, 400); cudaMalloc(&b, 800); cudaMalloc(&c, 40);"
    "struct S s; cudaTextureObject_t t;"
)


def proposed(
    body: str, names: str, stored: str | None = None, loaded: str = "", **options: Any
) -> ProposedLaunch:
    """The last launch, of a kernel that stores and loads through some of its parameters."""
    code = f"__global__ void k({', '.join('int ' + each for each in names)}) {{}}\n"
    code = (
        code.replace("int a", "float* a").replace("int b", "float* b").replace("int f", "float f")
    )
    code += f"int main(int argc, char** argv) {{ {START} {body} }}"
    launch = read_launches(code, "f.cu", {}, {})[-1]
    signature = Signature("k", "k", tuple(PARAMETERS[each] for each in names), ())
    uses = (frozenset(map(names.index, each)) for each in (stored or "", loaded))
    known = (None, None) if stored is None else uses
    return propose_launch(UserKernel("f.cu", **options), launch, signature, *known)


@pytest.mark.parametrize(
    ("body", "uses", "args"),
    [
        # What is not written is an input; what is written and neither filled nor read, an output.
        (f"cudaMemcpy(a, h, 400, {H2D}); k<<<1, 1>>>(a, b);", "b a",
         ["in:f32[100]", "out:f32[200]"]),
        ("k<<<1, 1>>>(a, b);", "b a", ["in:f32[100]", "out:f32[200]"]),
        ("k<<<1, 1>>>(a, b);", "ab b", ["out:f32[100]", "inout:f32[200]"]),
        (f"cudaMemset(b, 0, 800); cudaMemcpy(a, h, 400, {H2D}); k<<<1, 1>>>(a, b);", "ab ",
         ["inout:f32[100]", "inout:f32[200]=zeros"]),
        # What a kernel wrote is there for the next one; a launch that is not made wrote nothing.
        ("k<<<1, 1>>>(a, b); k<<<1, 1>>>(a, b);", "b a", ["in:f32[100]", "inout:f32[200]"]),
        ("if (0) k<<<1, 1>>>(a, b); k<<<1, 1>>>(a, b);", "b a", ["in:f32[100]", "out:f32[200]"]),
        # Memory of the host holds what the host wrote, without a copy.
        ("a = (float*)malloc(400); k<<<1, 1>>>(a, b);", "ab ", ["inout:f32[100]", "out:f32[200]"]),
        # One array for two parameters is used as both use it.
        ("k<<<1, 1>>>(a, a);", "b a", ["@b", "inout:f32[100]"]),
        ("k<<<1, 1>>>(a, a);", "a ", ["out:f32[100]", "@a"]),
        ("k<<<1, 1>>>(b + 50, NULL);", "ab ", ["inout:f32[200]+50", "null"]),
    ],
)  # fmt: skip
def test_roles(body: str, uses: str, args: list[str]) -> None:
    stored, _, loaded = uses.partition(" ")
    launch = proposed(body, "ab", stored, loaded)
    assert list(launch.args) == args
    assert launch.kernel.args == tuple(args)
    assert (launch.gaps, launch.symbols) == ({}, ())


@pytest.mark.parametrize(
    ("body", "names", "args"),
    [
        # Without a compiled kernel, anything that is not const may be read and written.
        ("k<<<1, 1>>>(a, c);", "ac", ["inout:f32[100]", "in:i32[10]=arange"]),
        ("k<<<1, 1>>>(b);", "v", ["inout:f32[50,4]"]),
        # A pointer into an array: the kernel may use what lies before it.
        ("k<<<1, 1>>>(b + 50, NULL);", "ab", ["inout:f32[200]+50", "null"]),
        ("k<<<1, 1>>>(b, b + 50);", "ab", ["inout:f32[200]", "@a+50"]),
        # The array belongs to a pointer that is not const, so that it can be an output.
        ("k<<<1, 1>>>((int*)b + 8, (int*)b);", "cd", ["@d+8", "inout:i32[200]=randint:0:192"]),
        ("k<<<1, 1>>>(b + 2, (float4*)b + 1);", "av", ["inout:f32[200]+2", "@a+4"]),
        # Elements of another type, or no whole ones: memory of its own.
        ("k<<<1, 1>>>(b, (int*)b + 8);", "ac", ["inout:f32[200]", "in:i32[192]=arange"]),
        ("k<<<1, 1>>>(b, (float*)((char*)b + 2));", "ab", ["inout:f32[200]", "inout:f32[199]"]),
        ("k<<<1, 1>>>(-1, 0.1f);", "nf", ["u32=4294967295", "f32=0.1"]),
        ("s.n = 3; s.size.x = 4; k<<<1, 1>>>(s);", "s", ["struct=3,4"]),
    ],
)
def test_values(body: str, names: str, args: list[str]) -> None:
    assert list(proposed(body, names).args) == args


def test_symbols_have_names_of_their_own() -> None:
    launch = proposed(
        "int grid = atoi(argv[1]); int n = f(); if (g()) { int n = f(); k<<<grid, n>>>(n, n); }"
        "else { int n = f(); float* a = get(); k<<<n + grid, 1>>>(n, a); }",
        "na",
    )
    assert launch.kernel.grid == ("grid_ + n",)
    assert launch.args == ("u32=n", "inout:f32[a_size]")
    assert set(launch.symbols) == {"grid_", "n", "a_size"}


def test_objects_of_an_unknown_class_give_arrays_of_their_own() -> None:
    launch = proposed("Data x, y; k<<<1, 1>>>(x.address(), y.address());", "ab")
    assert launch.args == ("inout:f32[a_size]", "inout:f32[b_size]")


def test_pointers_into_memory_of_unknown_size() -> None:
    body = "}} void launch(float* x, int n) {{ k<<<1, 1>>>(x + {}, x + {});"
    assert proposed(body.format("n", "n"), "ab").args == ("inout:f32[a_size]", "@a")
    assert proposed(body.format("n", "n + 2"), "ab").args == ("inout:f32[a_size]", "@a+2")
    assert proposed(body.format("3", "4"), "ab").args == ("inout:f32[a_size]+3", "@a+4")
    separate = ("inout:f32[a_size]", "inout:f32[b_size]")
    assert proposed(body.format("0", "n"), "ab").args == separate


def test_the_distance_of_a_pointer_may_be_an_expression() -> None:
    body = "int n = f(); float* x; cudaMalloc(&x, 8 * n); k<<<1, 1>>>(x, x + n);"
    assert proposed(body, "ab").args == ("inout:f32[2*n]", "@a+n")


def test_symbols_of_options_that_are_given_are_not_asked_for() -> None:
    body = "float* a = get(); int n = f(), m = f(); k<<<n, m>>>(n, a);"
    given = ("8", "f32[64]")
    assert set(proposed(body, "na").symbols) == {"n", "m", "a_size"}
    assert set(proposed(body, "na", args=given).symbols) == {"n", "m"}
    assert set(proposed(body, "na", args=given, grid=(4,)).symbols) == {"m"}
    assert proposed(body, "na", args=("m", "f32[64]"), grid=(4,), block=(2,)).symbols == ("m",)
    assert (
        proposed(body, "na", args=given, grid=("n",), block=("m",), symbols=("n=2", "m=4")).symbols
        == ()
    )


def test_what_no_symbol_can_stand_for_is_a_gap() -> None:
    launch = proposed("s.size.x = 4; k<<<1, 1>>>(t, s, b + 200);", "tsb")
    assert launch.args == (None, None, None)
    assert launch.gaps[0] == (
        "is a texture object, which the host code does not tell: write "
        "texture=f32[512,512]:linear:wrap:normalized"
    )
    assert "member n" in launch.gaps[1]
    assert "behind the memory" in launch.gaps[2]
    assert launch.kernel.args == ()
    assert -1 in proposed("k<<<0, 1>>>(1);", "n").gaps


INDICES = f"int* i = (int*)malloc(40); %s cudaMemcpy(c, i, 40, {H2D}); k<<<1, 1>>>(a, c);"
FLOATS = f"float* h = new float[100]; %s cudaMemcpy(a, h, 400, {H2D}); k<<<1, 1>>>(a, c);"


@pytest.mark.parametrize(
    ("code", "fill"),
    [
        ("for (int j = 0; j < 10; ++j) i[j] = j;", "arange"),
        ("for (int j = 0; j < 10; j++) i[j] = (j * 7) % 5;", "randint:0:5"),
        ("for (int j = 0; j < 10; j++) { i[j] = (int)(rand() % (n - 1)) + 2; }", "randint:2:n + 1"),
        ("for (int j = 0; j < 10; j++) i[j] = rand() & 0xF;", "randint:0:16"),
        ("for (int j = 0; j < 10; j++) if (rand() % 2) i[j] = 3; else i[j] = 9;", "randint:3:10"),
        ("for (int j = 0; j < 10; j++) i[j] = j % 2 ? 0 : 4 * (rand() % 8);", "randint:0:29"),
        ("for (int j = 0; j < 10; j++) i[j] = 7;", "7"),
        ("for (int j = 0; j < 10; j++) i[j] = j * 3 + 1;", "arange"),  # offsets: they rise
        ("int j = 0; while (j < 10) { i[j] = 1; j++; }", "ones"),
        ("memset(i, -1, 40);", "-1"),
        ("std::iota(i, i + 10, 0);", "arange"),
        ("std::generate(i, i + 10, []() { return rand() % 100; });", "randint:0:100"),
        ("std::vector<int> v(10); std::generate(begin(v), end(v), []{ return 'a' + rand() % 26; });"
         "std::copy(std::cbegin(v), std::cend(v), i);", "randint:97:123"),
        ("std::vector<int> v(10); std::fill_n(data(v), 10, 6); copy(begin(v), end(v), i);", "6"),
        ("std::vector<int> v; v.push_back(5); int e = *(end(v) - 1) + *(end(x) - 1);", "arange"),
        ("std::vector<int> v(10, 4); memcpy(i, v.data(), 40);", "4"),
        ("std::vector<int> v(10); for (auto& e : v) e = rand() % 6; copy(v.begin(), v.end(), i);",
         "randint:0:6"),
        ("int table[] = {0, 2, 2, 5}; memcpy(i, table, 16);", "randint:0:6"),
        ("fill_somehow(i);", "arange"),
        # What is stored does not tell all elements, or is not what the array holds at last.
        ("for (int j = 0; j < 10; j++) { i[j] = 0; i[j] += rand(); }", "arange"),
        ("for (int j = 0; j < 10; j++) { int v = j / 2; i[j] = v; }", "arange"),
        ("for (int j = 0; j < 10; j++) i[j] = 5; for (int j = 0; j < 10; j++) i[j] = rand() % 3;",
         "randint:0:3"),
        ("i[3] = 5;", "arange"),
        ("for (int j = 0; j < 10; j++) i[j] += 3;", "arange"),
    ],
)  # fmt: skip
def test_indices_are_filled_as_the_host_does(code: str, fill: str) -> None:
    launch = proposed(f"int n = atoi(argv[1]); {INDICES % code}", "ac")
    assert launch.args[1] == f"in:i32[10]={fill}"


@pytest.mark.parametrize(
    ("code", "fill"),
    [
        ("for (int j = 0; j < 100; ++j) h[j] = 1.0f;", "=ones"),
        ("for (int j = 0; j < 100; ++j) h[j] = 0.5f;", "=0.5"),
        ("for (int j = 0; j < 10; ++j) for (int l = 0; l < 10; ++l) h[j * 10 + l] = 0;", "=zeros"),
        ("for (int j = 0; j < 100; ++j) h[j] = (float)j;", "=arange"),
        ("for (int j = 0; j < 100; ++j) h[j] = rand() % 10;", "=uniform:0:10"),
        ("for (int j = 0; j < 100; ++j) h[j] = rand() / (float)RAND_MAX;", ""),
        ("for (int j = 0; j < 100; ++j) h[j] = j * 0.25f;", ""),
        ("for (int j = 0; j < 100; ++j) { float v = 1; h[j] = v; }", ""),
    ],
)
def test_floats_are_filled_as_the_host_does(code: str, fill: str) -> None:
    assert proposed(FLOATS % code, "ac").args[0] == f"inout:f32[100]{fill}"


def test_arrays_of_unknown_functions_are_not_one_another() -> None:
    launch = proposed("k<<<1, 1>>>(get(h), get(h));", "ab")
    assert launch.args == ("inout:f32[a_size]", "inout:f32[b_size]")


def test_what_a_kernel_changes_is_not_what_the_host_stored() -> None:
    code = (FLOATS % "for (int j = 0; j < 100; ++j) h[j] = 1;") + "k<<<1, 1>>>(a, c);"
    assert proposed(code, "ac").args[0] == "inout:f32[100]"


def test_unknown_indices_are_within_the_smallest_array() -> None:
    long = "int* i; cudaMalloc(&i, 4000); cudaMemcpy(i, h, 4000, cudaMemcpyHostToDevice);"
    assert proposed(f"{long} k<<<1, 1>>>(a, i);", "ac").args[1] == "in:i32[1000]=randint:0:100"
    offsets = "int* i; cudaMalloc(&i, 404); cudaMemcpy(i, h, 404, cudaMemcpyHostToDevice);"
    assert proposed(f"{offsets} k<<<1, 1>>>(a, i);", "ac").args[1] == "in:i32[101]=arange"
