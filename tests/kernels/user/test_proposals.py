"""Proposed launches: the roles, sizes and values that the host code gives to each argument."""

from __future__ import annotations

import pytest

from memlab.kernels.host_code.reading import read_launches
from memlab.kernels.signature import KernelParameter, Signature, StructureMember
from memlab.kernels.user.kernel import UserKernel
from memlab.kernels.user.proposals import ProposedLaunch, propose_launch

MEMBERS = (StructureMember("n", "i32", 0, "int"), StructureMember("size.x", "u32", 4, "unsigned"))
PARAMETERS = {
    "a": KernelParameter("a", "pointer", "f32", "float *", 8, 4),
    "b": KernelParameter("b", "pointer", "f32", "float *", 8, 4),
    "c": KernelParameter("c", "pointer", "i32", "const int *", 8, 4, readonly=True),
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


def proposed(body: str, names: str) -> ProposedLaunch:
    code = f"__global__ void k({', '.join('int ' + each for each in names)}) {{}}\n"
    code = (
        code.replace("int a", "float* a").replace("int b", "float* b").replace("int f", "float f")
    )
    code += f"int main(int argc, char** argv) {{ {START} {body} }}"
    launch = read_launches(code, "f.cu", {}, {})[-1]
    signature = Signature("k", "k", tuple(PARAMETERS[each] for each in names), ())
    return propose_launch(UserKernel("f.cu"), launch, signature)


@pytest.mark.parametrize(
    ("body", "names", "args"),
    [
        # Filled and not read: an input, even if freed. Only read afterwards: an output.
        (f"cudaMemcpy(a, h, 400, {H2D}); k<<<1, 1>>>(a, b); cudaMemcpy(h, b, 800, {D2H}); "
         "cudaFree(a);", "ab", ["in:f32[100]", "out:f32[200]"]),
        (f"cudaMemcpy(a, h, 400, {H2D}); k<<<1, 1>>>(a, b); cudaMemcpy(h, a, 400, {D2H}); ",
         "ab", ["inout:f32[100]", "out:f32[200]"]),
        ("cudaMemset(b, 0, 800); k<<<1, 1>>>(a, b);", "ab",
         ["out:f32[100]", "inout:f32[200]=zeros"]),
        (f"cudaMemset(b, 0, 800); cudaMemcpy(a, h, 400, {H2D}); k<<<1, 1>>>(a, b); "
         f"cudaMemcpy(h, a, 4, {D2H});", "ab", ["inout:f32[100]", "inout:f32[200]=zeros"]),
        # Nothing tells what is written: anything that is not const may be.
        (f"cudaMemcpy(a, h, 400, {H2D}); k<<<1, 1>>>(a, c);", "ac",
         ["inout:f32[100]", "in:i32[10]=arange"]),
        # What a kernel wrote is there for the next one; a launch that is not made wrote nothing.
        ("k<<<1, 1>>>(a, b); k<<<1, 1>>>(a, b);", "ab", ["inout:f32[100]", "inout:f32[200]"]),
        ("if (0) k<<<1, 1>>>(a, b); k<<<1, 1>>>(a, b);", "ab", ["out:f32[100]", "out:f32[200]"]),
        ("k<<<1, 1>>>(b + 50, NULL);", "ab", ["out:f32[150]", "null"]),
        ("k<<<1, 1>>>(a, a);", "ab", ["out:f32[100]", "@a"]),
        ("k<<<1, 1>>>(b);", "v", ["out:f32[50,4]"]),
        ("k<<<1, 1>>>(-1, 0.1f);", "nf", ["u32=4294967295", "f32=0.1"]),
        ("s.n = 3; s.size.x = 4; k<<<1, 1>>>(s);", "s", ["struct=3,4"]),
    ],
)  # fmt: skip
def test_arguments(body: str, names: str, args: list[str]) -> None:
    launch = proposed(body, names)
    assert list(launch.args) == args
    assert launch.kernel.args == tuple(args)
    assert (launch.gaps, launch.symbols) == ({}, ())


def test_symbols_have_names_of_their_own() -> None:
    launch = proposed(
        "int grid = atoi(argv[1]); int n = f(); if (g()) { int n = f(); k<<<grid, n>>>(n, n); }"
        "else { int n = f(); float* a = get(); k<<<n + grid, 1>>>(n, a); }",
        "na",
    )
    assert launch.kernel.grid == ("grid_ + n",)
    assert launch.args == ("u32=n", "inout:f32[a_size]")
    assert set(launch.symbols) == {"grid_", "n", "a_size"}


def test_what_no_symbol_can_stand_for_is_a_gap() -> None:
    launch = proposed("s.size.x = 4; k<<<1, 1>>>(t, s, b + 200);", "tsb")
    assert launch.args == (None, None, None)
    assert "texture" in launch.gaps[0]
    assert "member n" in launch.gaps[1]
    assert "behind the memory" in launch.gaps[2]
    assert launch.kernel.args == ()
    assert -1 in proposed("k<<<0, 1>>>(1);", "n").gaps
