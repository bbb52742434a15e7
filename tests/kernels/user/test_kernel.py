"""User kernels: from their options to a launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memlab.errors import UsageError
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Constant, Launch
from memlab.kernels.signature import KernelParameter, LaunchBounds, ModuleVariable, Signature
from memlab.kernels.user import kernel as user_kernel
from memlab.kernels.user import launch as user_launch
from memlab.kernels.user.arguments.fills import parse_fill
from memlab.kernels.user.compiler_flags import flag_options
from memlab.kernels.user.kernel import UserKernel, apply_launch_options, split_target

SIGNATURE = Signature(
    "saxpy",
    "_Z5saxpyfPKfPfi",
    (
        KernelParameter("a", "scalar", "f32", "float", 4),
        KernelParameter("x", "pointer", "f32", "const float *", 8, 4, readonly=True),
        KernelParameter("y", "pointer", "f64", "double *", 8, 8),
        KernelParameter("z", "pointer", "i32", "int *", 8, 4),
    ),
    (
        ModuleVariable("ns::table", "_ZN2ns5tableE", "const", "f32", (3, 5), 60),
        ModuleVariable("corners", "corners", "global", "", (7,), 112, member_dtype="f32"),
        ModuleVariable("alpha", "alpha", "const", "f64", (), 8),
        ModuleVariable("pointers", "pointers", "global", "", (2,), 16),
    ),
)
SAXPY = UserKernel(
    "saxpy.cu",
    "saxpy",
    grid=(16, 2),
    block=(256,),
    args=("f32=2", "f32[64,32]", "out:f64[10]", "inout:i32[100]"),
)
LIMITS = Limits("a GPU", total_memory_bytes=2**20)


def launched(limits: Limits = LIMITS, executed: bool = True, **changes: Any) -> Launch:
    kernel = replace(SAXPY, **changes)
    return user_launch.make_user_launch(kernel, SIGNATURE, "text", limits, executed=executed)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        ("saxpy.cu:saxpy", ("saxpy.cu", "saxpy")),
        ("saxpy.cu", ("saxpy.cu", "")),
        ("a/b.cuh:ns::sgemm<32, float>", ("a/b.cuh", "ns::sgemm<32, float>")),
        ("a:b/c.cu: k ", ("a:b/c.cu", "k")),
        ("c.cu:::k", ("c.cu", "k")),
        ("saxpy", None),
        ("saxpy.cuda", None),
        ("tiled", None),
    ],
)
def test_the_file_ends_where_the_kernel_begins(target: str, parts: Any) -> None:
    assert split_target(target) == parts


def test_of_several_splits_the_file_that_is_there_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.cu:new.cu").write_text("")

    assert split_target("old.cu:new.cu:k") == ("old.cu:new.cu", "k")


def test_the_launch_is_what_was_chosen() -> None:
    launch = launched(
        shared=64, defines=("N", "M=2", "N=3"), std="c++20", max_registers=32, source="dir/saxpy.cu"
    )

    assert (launch.kernel, launch.entry) == ("saxpy.cu:saxpy", "_Z5saxpyfPKfPfi")
    assert (launch.grid, launch.block, launch.dynamic_shared_bytes) == ((16, 2, 1), (256, 1, 1), 64)
    assert dict(launch.defines) == {"N": "3", "M": "2"}
    assert launch.compile_options == (
        "-Idir",
        "-std=c++20",
        "--maxrregcount=32",
    )
    assert launch.flop is None
    # x is read, y written, z read and written: 64 * 32 * 4 + 10 * 8 + 2 * 100 * 4 bytes.
    assert launch.compulsory_bytes == 8192 + 80 + 800
    assert launch.parameters == {
        "grid": "16x2",
        "block": "256",
        "shared": 64,
        "defines": "N M=2 N=3",
        "std": "c++20",
        "max_registers": 32,
        "args": "f32=2 f32[64,32] out:f64[10] inout:i32[100]",
    }


def test_flags_are_those_of_the_compiler_in_a_fixed_order() -> None:
    chosen = {
        "fmad": "false",
        "ptxas_options": "-O1,-v",
        "use_fast_math": True,
        "ftz": False,
        "prec_sqrt": "true",
    }
    kernel = apply_launch_options(SAXPY, chosen)
    flags = ("--use_fast_math", "--ftz=false", "--prec-sqrt=true", "--fmad=false")
    assert flag_options(kernel) == (*flags, "--ptxas-options=-O1")
    assert user_kernel.compile_options(kernel)[-5:] == flag_options(kernel)
    launch = user_launch.make_user_launch(kernel, SIGNATURE, "", LIMITS)
    assert launch.parameters["flags"] == " ".join(flag_options(kernel))
    assert "flags" not in launched().parameters
    # The last level counts; what ptxas prints only, changes nothing.
    assert apply_launch_options(SAXPY, {"ptxas_options": ["-O0", "-O2"]}).ptxas_options == ("-O2",)
    assert apply_launch_options(SAXPY, {"ptxas_options": "-v"}).ptxas_options == ()


def test_each_output_is_compared_as_its_type_allows() -> None:
    assert launched().tolerances == {"y": 1e-10, "z": 0.0}
    assert (launched(tolerance=1e-3).tolerances, launched(tolerance=1e-3).tolerance) == ({}, 1e-3)
    exact = apply_launch_options(SAXPY, {"tolerance": "0"})
    assert (launched(tolerance=exact.tolerance).tolerance, launched().tolerance) == (0, 0)


def test_a_block_may_have_all_that_the_device_allows() -> None:
    limits = replace(LIMITS, max_shared_memory_per_block_optin_bytes=65536)
    launch = launched(limits, block=(32, 32), grid=(2**31 - 1,), shared=65536)
    assert (launch.threads_per_block, launch.blocks) == (1024, 2**31 - 1)
    with pytest.raises(UsageError, match="65537 bytes of dynamic shared memory; a GPU allows 6"):
        launched(limits, shared=65537)


def test_constants_get_type_and_shape_from_the_source() -> None:
    found = launched(constants=("alpha=0.5", "ns::table=@t.npy", "corners=zeros", "alpha=2"))
    by_name = {constant.name: constant for constant in found.constants}

    assert by_name["_ZN2ns5tableE"].shape == (3, 5)
    assert (by_name["corners"].shape, by_name["corners"].dtype) == ((7, 4), "float32")
    assert by_name["alpha"] == Constant("alpha", (1,), "float64", by_name["alpha"].fill)
    assert by_name["alpha"].fill == parse_fill("f64", "2")


def test_an_occupancy_needs_no_more_than_a_block() -> None:
    launch = launched(executed=False, grid=(), args=())

    assert (launch.grid, launch.arguments) == ((1, 1, 1), ())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"grid": ()}, "saxpy.cu:saxpy has no grid: add --grid X"),
        ({"block": ()}, "saxpy.cu:saxpy has no block: add --block X"),
        ({"block": (32, 64)}, "a block has 2048 threads; a GPU allows 1024: use a smaller --block"),
        ({"block": (1, 1, 65)}, "65 threads per block in z; a GPU allows 64"),
        ({"grid": (1, 70000)}, "70000 blocks in y; a GPU allows 65535"),
        ({"shared": 2**20}, "1048576 bytes of dynamic shared memory; a GPU allows 49152"),
        ({"args": ("f32=2", "f32[1048576]", "out:f64[1]", "i32[1]")}, "need 4194316 bytes"),
        ({"defines": ("1=2",)}, "-D '1=2' defines no C++ name"),
        ({"defines": ("A B",)}, "-D 'A B' defines no C++ name"),
        ({"include": ("nowhere",)}, "-I nowhere: there is no such folder"),
        ({"constants": ("ns::tabel=ones",)}, "variable 'ns::tabel': did you mean 'ns::table'?"),
        ({"constants": ("alpha",)}, "--const 'alpha' has no '='"),
        (
            {"constants": ("alpha=one",)},
            "--const alpha (f64): an array cannot be filled with 'one'",
        ),
        (
            {"constants": ("pointers=random",)},
            "--const pointers: its elements are neither numbers nor",
        ),
    ],
)
def test_what_a_device_cannot_do_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        launched(**changes)

    assert said in str(error.value)


def test_a_parameter_may_not_be_called_as_a_variable() -> None:
    variable = ModuleVariable("y", "y", "global", "f32", (4,), 16)
    signature = replace(SIGNATURE, variables=(variable,))

    with pytest.raises(UsageError, match="parameter y has the name of a __constant__"):
        user_launch.make_user_launch(SAXPY, signature, "", LIMITS)


def test_later_choices_add_to_lists_and_replace_the_rest() -> None:
    first = apply_launch_options(
        UserKernel("a.cu"), {"grid": "0x10,2", "block": 64, "defines": ["A=1"], "args": ["i32=1"]}
    )
    then = apply_launch_options(
        first, {"grid": [4, 5, 6], "defines": ("A=2",), "args": ["i32=2"], "std": None}
    )

    assert (first.grid, first.block) == ((16, 2), (64,))
    assert (then.grid, then.block, then.args) == ((4, 5, 6), (64,), ("i32=2",))
    assert user_kernel.parse_defines(then) == {"A": "2"}


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (
            {"grid": "1,2,3,4"},
            "grid takes one to three whole numbers from 1 to 2147483647, got '1,2,3,4'",
        ),
        ({"grid": 0}, "grid takes one to three"),
        ({"grid": 2**31}, "grid takes one to three whole numbers from 1 to 2147483647"),
        ({"block": (1.5,)}, "block takes one to three"),
        ({"shared": "-1"}, "shared must be a whole number from 0 to 2147483647, got '-1'"),
        ({"max_registers": 256}, "max-registers must be a whole number from 1 to 255, got 256"),
        ({"ftz": "maybe"}, "ftz must be true or false, got 'maybe': use --ftz=true"),
        ({"prec_div": 1}, "prec-div must be true or false, got 1"),
        ({"ptxas_options": "-O4"}, "ptxas-options takes -O0 to -O3, got '-O4'"),
        ({"ptxas_options": "-O1 -o x"}, "ptxas-options takes -O0 to -O3"),
        ({"ptxas_options": "-dlcm=cg"}, "ptxas-options takes -O0 to -O3, got '-dlcm=cg'"),
        ({"std": "gnu++17"}, "std must be one of c++11, c++14, c++17, c++20"),
        ({"tolerance": "nan"}, "tolerance must be a number, 0 or more, got 'nan'"),
        ({"reference": "f.py"}, "reference names a function in a Python file, got 'f.py'"),
        ({"reference": "f.py:a;b"}, "reference names a function in a Python file"),
        ({"reference": "f.txt:a"}, "reference names a function in a Python file"),
        ({"args": [{1}]}, "args[0]: an argument cannot be an object of type set"),
        ({"width": 5}, "no launch option 'width'"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        apply_launch_options(UserKernel("a.cu"), choice)

    assert said in str(error.value)


def test_a_source_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for path in ("missing.cu", str(tmp_path), "a\0.cu", "a" * 5000 + ".cu"):
        with pytest.raises(UsageError, match=r"cannot read|is not a file"):
            user_kernel.read_source(UserKernel(path))


@pytest.mark.parametrize(
    ("bounds", "block", "message"),
    [
        (LaunchBounds(128), (128,), ""),
        (LaunchBounds(128), (129,), r"129 threads; .* is declared __launch_bounds__\(128\)"),
        (LaunchBounds(128), (16, 16), r"256 threads; .*use a smaller --block"),
        (LaunchBounds(block=(64, 2, 1)), (64, 2), ""),
        (LaunchBounds(block=(64, 2, 1)), (128,), "not 128,1,1: use --block 64,2,1"),
    ],
)
def test_a_block_that_a_gpu_refuses_is_refused(
    bounds: LaunchBounds, block: tuple[int, ...], message: str
) -> None:
    def launch() -> Launch:
        kernel, signature = replace(SAXPY, block=block), replace(SIGNATURE, bounds=bounds)
        return user_launch.make_user_launch(kernel, signature, "text", LIMITS, executed=False)

    if message:
        with pytest.raises(UsageError, match=message):
            launch()
    else:
        assert launch().block[: len(block)] == block
