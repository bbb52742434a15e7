"""Kernels that come compiled: the same results as their source, and one line for what is wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import memlab
from memlab.cli.app import main
from memlab.device.compiler import assembly, fat_binary
from memlab.device.compiler.compile import compile_launch, compile_unit
from memlab.device.compiler.cuda_tools import find_cuda_tool
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.measurement import Measurement
from memlab.errors import MemlabWarning, UsageError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import Buffer, Launch, Scalar
from memlab.kernels.signature import KernelParameter
from memlab.kernels.user.arguments.binding import bind_arguments
from memlab.kernels.user.compiled_source import CompiledSource
from memlab.kernels.user.kernel import UserKernel

HOPPER = (9, 0)
SOURCE = """extern "C" __global__ void scale(float factor, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
"""
STRIDED = """.version 8.0
.target sm_80
.address_size 64
.visible .entry strided(.param .u64 .ptr .global in, .param .u64 .ptr .global out)
{
    .reg .b64 %rd<6>;
    .reg .b32 %r<4>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd0, [in];
    ld.param.u64 %rd1, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd2, %r0, 32;
    add.s64 %rd3, %rd0, %rd2;
    ld.global.f32 %f0, [%rd3];
    add.f32 %f1, %f0, %f0;
    mul.wide.u32 %rd4, %r0, 4;
    add.s64 %rd5, %rd1, %rd4;
    st.global.f32 [%rd5], %f1;
    ret;
}
"""
"""Each lane of a warp loads from another sector, and stores next to its neighbour."""
LOAD_LINE, STORE_LINE = 14, 18
X = np.arange(1000, dtype="f4")
LAUNCH: dict[str, Any] = {"grid": 4, "block": 256}


def memory(measurement: Measurement) -> dict[str, float]:
    """All counters but those of instructions, which are of the machine code where there is some."""
    counters = measurement.counters.by_name()
    return {
        name: count
        for name, count in counters.items()
        if "instructions" not in name and "iop" not in name
    }


def assert_same_memory(measured: Measurement, expected: Measurement, assembler: str) -> None:
    """Compare the counts of PTX with its source's; without ptxas, no code is read from DRAM."""
    found, wanted = memory(measured), memory(expected)
    if assembler == "no ptxas":
        assert found.pop("dram_read_bytes") < wanted.pop("dram_read_bytes")
    assert found == wanted


def text_of(argument: object) -> str:
    """An argument of a catalog's launch as a user writes it."""
    if isinstance(argument, Scalar):
        return str(argument.value)
    assert isinstance(argument, Buffer)
    short = {"float32": "f32", "float64": "f64", "float16": "f16", "int32": "i32"}[argument.dtype]
    return f"{argument.role}:{short}[{','.join(map(str, argument.shape))}]"


def options_of(launch: Launch) -> dict[str, Any]:
    return {
        "grid": launch.grid,
        "block": launch.block,
        "shared": launch.dynamic_shared_bytes,
        "args": [text_of(argument) for argument in launch.arguments],
        "constants": [f"{constant.name}=random" for constant in launch.constants],
    }


@pytest.fixture(scope="module")
def ptx() -> str:
    return compile_unit(TranslationUnit(SOURCE, "scale.cu", HOPPER)).ptx


@pytest.fixture(params=["ptxas", "no ptxas"])
def assembler(request, monkeypatch):
    """With ptxas, if there is one, and without."""
    if request.param == "no ptxas":
        monkeypatch.setattr(assembly, "find_cuda_tool", lambda name: None)
    elif find_cuda_tool("ptxas") is None:
        pytest.skip("there is no ptxas")
    return request.param


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("tiled", {"width": 64, "tile": 16}),
        # Rows of 64 bytes would be merged by the pace of blocks, which is the PTX's without ptxas.
        ("tiled-dynamic", {"width": 64, "tile": 32}),
        pytest.param("strided", {"n": 4096}, marks=pytest.mark.slow),
        pytest.param("transpose-padded", {"width": 64}, marks=pytest.mark.slow),
        pytest.param("double-buffered", {"width": 64}, marks=pytest.mark.slow),
        ("column-sum", {"width": 64}),
    ],
)
def test_a_ptx_file_counts_as_its_source_does(name, parameters, assembler, tmp_path):
    launch = CATALOG[name].prepare(parameters, launch_limits(loader.load_datasheet("h200")))
    path = tmp_path / "kernel.ptx"
    path.write_text(compile_launch(launch, HOPPER).ptx)
    measured = memlab.run(path, device="h200", **options_of(launch)).measurement
    expected = memlab.run(name, device="h200", **parameters).measurement
    assert_same_memory(measured, expected, assembler)
    assert measured.resources.static_shared_bytes == expected.resources.static_shared_bytes


def test_a_kernel_in_memory_computes_what_its_source_does(ptx, assembler, tmp_path):
    path = tmp_path / "scale.cu"
    path.write_text(SOURCE)
    arguments = [2.5, X, memlab.out(1000, "f4"), 1000]
    kernel = UserKernel("s.py", "s", compiled=CompiledSource(ptx, "scale", SOURCE, "s.py"))
    options = {**LAUNCH, "args": arguments}
    measured = memlab.run(kernel, expect={"param_2": 2.5 * X}, **options).measurement
    assert measured.verification.status == "passed"
    assert measured.kernel == "s.py:s"
    expected = memlab.run(path, expect={"y": 2.5 * X}, **options).measurement
    assert_same_memory(measured, expected, assembler)
    assert [(line.line, line.text) for line in measured.lines] == [
        (line.line, line.text) for line in expected.lines
    ]
    if assembler == "no ptxas":
        assert measured.resources.registers_per_thread is None
        assert measured.occupancy.theoretical == 1.0  # registers limit nothing
        assert "memlab[nvcc]" in measured.instructions.reason


def test_a_front_end_names_the_parameters(ptx):
    names = KernelParameter("factor", "scalar", "f32", "float", 4)
    parameters = (
        names,
        KernelParameter("x", "pointer", "f32", "float *", 8, 4, readonly=True),
        KernelParameter("y", "pointer", "f32", "float *", 8, 4),
        KernelParameter("n", "scalar", "i32", "int", 4),
    )
    kernel = UserKernel("s.py", "s", compiled=CompiledSource(ptx, parameters=parameters))
    options = {**LAUNCH, "args": [2.5, X, memlab.out(1000, "f4"), 1000]}
    run = memlab.run(kernel, expect={"y": 2.5 * X}, **options)
    assert run.measurement.verification.status == "passed"
    texts = {**LAUNCH, "args": ["2.5", "in:f32[1000]", "out:f32[1000]", "1000"]}
    assert memlab.run(kernel, **texts).recipe is None  # nothing names it outside this process
    with pytest.raises(UsageError, match=r"x.*pointer to const"):
        memlab.run(kernel, **LAUNCH, args=[2.5, "inout:f32[1000]", memlab.out(1000, "f4"), 1000])


def test_without_a_source_the_lines_are_those_of_the_ptx(tmp_path):
    path = tmp_path / "strided.ptx"
    path.write_text(STRIDED)
    options = {"grid": 1, "block": 32, "args": ["in:f32[256]", "out:f32[32]"]}
    found = memlab.analyze(path, **options)
    lines = {line.line: line for line in found.lines}
    load, store = lines[LOAD_LINE], lines[STORE_LINE]
    assert load.text.strip() == "ld.global.f32 %f0, [%rd3];"
    assert (load.global_requests, load.global_sectors) == (1, 32)
    assert (store.global_requests, store.global_sectors) == (1, 4)
    assert found.source_name == str(path)


def test_the_source_is_read_where_it_is_there(tmp_path):
    source = tmp_path / "scale.cu"
    made = compile_unit(TranslationUnit(SOURCE, str(source), HOPPER)).ptx
    path = tmp_path / "scale.ptx"
    path.write_text(made)
    options = {**LAUNCH, "args": ["2.5", "in:f32[1000]", "out:f32[1000]", "1000"]}
    assert memlab.analyze(path, **options).source_name == str(path)
    source.write_text(SOURCE)
    found = memlab.analyze(path, **options)
    assert found.source_name == str(source)
    assert {line.line for line in found.lines if line.global_requests} == {3}
    source.write_text("// too short to be it\n")
    assert memlab.analyze(path, **options).source_name == str(path)
    secret = tmp_path / "secret.txt"
    secret.write_text("a\n" * 99)
    path.write_text(made.replace("scale.cu", "secret.txt"))
    assert memlab.analyze(path, **options).source_name == str(path)  # it is no source file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["f64=2.5", "in:f32[9]", "out:f32[9]", "9"], "param_0, .f32. is f32, got 'f64=2.5'"),
        (["2.5", "in:f32[9]", "out:f32[9]", "f64=9"], "param_3, .u32. has 4 bytes, got 'f64=9'"),
        (["2.5", "in:f32[9]", "out:f32[9]", "null"], "param_3, .u32. has 4 bytes, and a pointer"),
        (["2.5", "in:f32[9]", "out:f32[9]", "2.5"], "param_3, .u32. has 4 bytes, got '2.5'"),
        (["2.5", "in:f32[9]"], "takes 4 arguments"),
    ],
)
def test_an_argument_must_have_the_size_of_its_parameter(ptx, arguments, message, tmp_path):
    path = tmp_path / "k.ptx"
    path.write_text(ptx)
    with pytest.raises(UsageError, match=message):
        memlab.run(path, **LAUNCH, args=arguments)


def test_numbers_take_the_whole_type_that_holds_them(ptx, tmp_path):
    path = tmp_path / "k.ptx"
    path.write_text(ptx)
    options = {**LAUNCH, "expect": {"param_2": 0 * X}}
    for count in ("-1", "i32=-5", "f32=-2.0"):  # the sign bit alone matters: nothing is scaled
        arguments = ["2.5", "in:f32[1000]", "inout:f32[1000]=zeros", count]
        run = memlab.run(path, **{**options, "args": arguments})
        assert run.measurement.verification.status == "passed"


def test_a_structure_is_given_by_its_members_with_their_types(tmp_path):
    source = (
        "struct P { float a; int n; const float* x; double d; };\n"
        'extern "C" __global__ void k(P p, float* y) {\n'
        "    int i = threadIdx.x; if (i < p.n) y[i] = p.a * p.x[i] + p.d; }\n"
    )
    path = tmp_path / "k.ptx"
    path.write_text(compile_unit(TranslationUnit(source, "k.cu", HOPPER)).ptx)
    np.save(tmp_path / "x.npy", X[:100])
    given = f"struct=f32=2.5,i32=100,f32[]=@{tmp_path}/x.npy,f64=0.5"
    options: dict[str, Any] = {"grid": 1, "block": 128}
    expected = {"param_1": 2.5 * X[:100] + 0.5}
    run = memlab.run(path, args=[given, "out:f32[100]"], expect=expected, **options)
    assert run.measurement.verification.status == "passed"
    for wrong, message in (
        ("struct=2.5,i32=100,f32[100],f64=0.5", "does not tell the types"),
        ("struct=f32=2.5,i32=100,f32[100]", "has 24 bytes, and .* takes 16"),
        ("f64=1.0", "has 24 bytes, got 'f64=1.0'"),
    ):
        with pytest.raises(UsageError, match=message):
            memlab.run(path, args=[wrong, "out:f32[100]"], **options)


def test_members_lie_as_c_lays_them_out():
    parameter = KernelParameter("p", "untyped", "", ".b8[32]", 32)
    (bound,) = bind_arguments(["struct=i8=1,f64=2.0,i16=3,i32=4,i8=5"], [parameter])
    assert [offset for offset, _ in bound.members] == [0, 8, 16, 20, 24]


def test_other_versions_of_ptx_are_tried_with_a_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(assembly, "find_cuda_tool", lambda name: None)
    path = tmp_path / "k.ptx"
    options = {"grid": 1, "block": 32, "args": ["in:f32[256]", "out:f32[32]"]}
    for version, age in (("12.3", "newer"), ("4.0", "older")):
        path.write_text(STRIDED.replace("8.0", version, 1))
        with pytest.warns(MemlabWarning, match=f"PTX {version}, {age} than"):
            assert memlab.run(path, **options).measurement.counters.global_load_sectors == 32


def test_the_module_for_the_latest_architecture_of_the_device_is_taken(tmp_path):
    tripled = STRIDED.replace("sm_80", "sm_90").replace(
        "add.f32 %f1, %f0, %f0;", "mul.f32 %f1, %f0, 0f40400000;"
    )
    for_another = STRIDED.replace("sm_80", "sm_90a").replace("add.f32 %f1, %f0, %f0;", "trap;")
    path = tmp_path / "k.ptx"
    path.write_text(tripled + STRIDED + for_another.replace("sm_90a", "sm_120"))
    x = np.arange(256, dtype="f4")
    options = {"grid": 1, "block": 32, "args": [x, memlab.out(32, "f4")]}
    for device, factor in (("a100", 2), ("h200", 3)):
        run = memlab.run(path, device=device, **options, expect={"out": factor * x[::8]})
        assert run.measurement.verification.status == "passed"


CALLS = """#include <cstdio>
#include <cassert>
__device__ __noinline__ float doubled(float x) { return 2 * x; }
extern "C" __global__ void k(const float* x, float* y) {
    int i = threadIdx.x;
    assert(x[i] < 1000);
    y[i] = doubled(x[i]);
    if (x[i] > 500) printf("%f", x[i]);
}
"""


@pytest.mark.usefixtures("assembler")
@pytest.mark.parametrize("options", [(), ("-G",)])
def test_ptx_may_call_functions_its_own_and_the_systems_and_be_for_debuggers(options, tmp_path):
    path = tmp_path / "k.ptx"
    path.write_text(compile_unit(TranslationUnit(CALLS, "k.cu", HOPPER, options=options)).ptx)
    assert "vprintf" in path.read_text()
    run = memlab.run(
        path,
        grid=1,
        block=32,
        args=[X[:32], memlab.out(32, "f4")],
        expect={"param_1": 2 * X[:32]},
    )
    assert run.measurement.verification.status == "passed"


def test_a_number_without_a_type_takes_the_one_that_its_parameter_may_have():
    four = KernelParameter("n", "untyped", "", "4 bytes", 4)
    unsigned = KernelParameter("n", "untyped", "", ".u32", 4)
    eight = KernelParameter("n", "untyped", "", "8 bytes", 8)
    bound = bind_arguments(["2.5", "-1", "4294967295", "2.5"], [four, unsigned, four, eight])
    assert [(each.dtype, each.value) for each in bound] == [
        ("float32", 2.5),
        ("int32", -1),
        ("uint32", 4294967295),
        ("float64", 2.5),
    ]
    with pytest.raises(UsageError, match=r"has 4 bytes, got '2\.5'"):
        bind_arguments(["2.5"], [unsigned])


def test_options_of_a_compiler_are_refused(tmp_path, capsys):
    path = tmp_path / "k.ptx"
    path.write_text(STRIDED)
    for option in (["-D", "N=3"], ["--use_fast_math"], ["--std", "c++20"]):
        assert main(["run", str(path), *option, "--grid", "1", "--block", "32"]) == 2
        assert "is compiled already" in capsys.readouterr().err


def test_a_file_that_is_no_ptx_ends_in_one_line(tmp_path, capsys):
    path = tmp_path / "k.ptx"
    for text, message in (
        ("hello", "is no PTX"),
        ("", "is no PTX"),
        (".version 8.0\n.target sm_80\n", "has no kernel"),
        (STRIDED[: STRIDED.index("ld.param")], "PTX line"),
        (STRIDED.replace("sm_80", "sm_100"), "for sm_100 and later GPUs"),
    ):
        path.write_text(text)
        words = ["--grid", "1", "--block", "32", "--arg", "f32[256]", "--arg", "out:f32[32]"]
        assert main(["run", str(path), *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["analyze", "check", "trace", "occupancy", "sass", "init"])
def test_each_command_takes_a_ptx_file(command, tmp_path, capsys, monkeypatch):
    if command == "sass" and find_cuda_tool("ptxas") is None:
        pytest.skip("there is no ptxas")
    monkeypatch.chdir(tmp_path)
    Path("k.ptx").write_text(STRIDED)
    words = ["--grid", "1", "--block", "32", "--arg", "in:f32[256]", "--arg", "out:f32[32]"]
    assert main([command, "k.ptx:strided", *([] if command == "init" else words)]) == 0
    if command == "init":
        assert "inout:f32[1048576]" in Path("memlab.toml").read_text()
        assert main(["run", "strided"]) == 0
    capsys.readouterr()


def test_a_sweep_runs_ptx(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("k.ptx").write_text(STRIDED)
    words = ["--set", "N=1,2", "--grid", "N", "--block", "32"]
    words += ["--arg", "in:f32[256]", "--arg", "out:f32[32]"]
    assert main(["sweep", "k.ptx:strided", *words]) == 0
    assert "2 of 2 points done" in capsys.readouterr().out


PROGRAM = """
template <int FACTOR> __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = FACTOR * x[i];
}
__global__ void other(float* y) { y[threadIdx.x] = 1; }
int main() { scale<2><<<1, 1>>>(nullptr, nullptr, 0); other<<<1, 1>>>(nullptr); }
"""
BINARIES = {
    "program": [
        "-gencode",
        "arch=compute_80,code=compute_80",
        "-gencode",
        "arch=compute_90,code=sm_90",
    ],
    "k.exe": ["-gencode", "arch=compute_80,code=[sm_80,compute_80]"],
    "k.so": ["-shared", "-Xcompiler", "-fPIC", "-arch=sm_80"],
    "k.fatbin": ["-fatbin", "-arch=sm_80"],
    "k.o": ["-c", "-arch=sm_80"],
    "k.cubin": ["-cubin", "-arch=sm_90"],
    "machine.fatbin": ["-fatbin", "-gencode", "arch=compute_90,code=sm_90"],
}
SCALED = {"grid": 4, "block": 256, "args": [X, memlab.out(1000, "f4"), 1000]}


@pytest.fixture(scope="module")
def binaries(tmp_path_factory) -> Path:
    """Files of all kinds with the same kernels, made by nvcc."""
    nvcc = find_cuda_tool("nvcc")
    if nvcc is None or find_cuda_tool("cuobjdump") is None or shutil.which("g++") is None:
        pytest.skip("there is no nvcc with g++, or no cuobjdump")
    folder = tmp_path_factory.mktemp("binaries")
    source = folder / "k.cu"
    source.write_text(PROGRAM)
    for name, options in BINARIES.items():
        command = [nvcc, "-lineinfo", *options, source, "-o", folder / name]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            pytest.skip(f"nvcc does not work here: {made.stderr[:200]}")
    return folder


@pytest.mark.parametrize("name", ["program", "k.exe", "k.so", "k.fatbin", "k.o"])
def test_the_ptx_in_a_binary_is_run(name, binaries):
    run = memlab.run(f"{binaries / name}:scale", device="a100", **SCALED, expect={"param_1": 2 * X})
    assert run.measurement.verification.status == "passed"
    assert run.measurement.code.source_name == str(binaries / "k.cu")  # by the PTX's lines
    with pytest.raises(UsageError, match=r"2 kernels, .*_Z5otherPf.*name one, as in"):
        memlab.run(binaries / name, device="a100", **SCALED)


@pytest.mark.parametrize("name", ["k.cubin", "machine.fatbin"])
def test_machine_code_alone_needs_a_gpu(name, binaries):
    target = f"{binaries / name}:scale"
    with pytest.raises(UsageError, match="machine code alone, which only a GPU executes"):
        memlab.run(target, device="h200", **SCALED)
    with pytest.raises(UsageError, match="only machine code for sm_90, which such a GPU"):
        memlab.run(target, device="a100", **SCALED)
    found = memlab.occupancy(target, device="h200", block=256)
    assert found.theoretical == 1.0  # its registers are read from the machine code


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["k.cubin", "machine.fatbin"])
def test_machine_code_alone_runs_on_a_gpu(name, binaries):
    run = memlab.run(f"{binaries / name}:scale", device=0, **SCALED, expect={"param_1": 2 * X})
    assert run.measurement.verification.status == "passed"
    assert run.measurement.time.provenance == "measured"
    assert "machine code alone" in run.measurement.coverage.not_counted


@pytest.mark.gpu
@pytest.mark.usefixtures("assembler")
def test_ptx_runs_on_a_gpu(tmp_path):
    path = tmp_path / "strided.ptx"
    path.write_text(STRIDED)
    x = np.arange(256, dtype="f4")
    run = memlab.run(
        path,
        device=0,
        grid=1,
        block=32,
        args=[x, memlab.out(32, "f4")],
        expect={"out": 2 * x[::8]},
    )
    assert run.measurement.verification.status == "passed"
    assert run.measurement.time.provenance == "measured"


def test_files_without_cuda_code_end_in_one_line(tmp_path, capsys):
    if find_cuda_tool("cuobjdump") is None:
        pytest.skip("there is no cuobjdump")
    for name, content, message in (
        ("k.cubin", b"hello", "cuobjdump cannot read it"),
        ("k.fatbin", b"", "cuobjdump cannot read it"),
        ("k.fatbin", b"\x50\xed\x55\xba", "cuobjdump cannot read it"),
        ("program", Path("/bin/true").resolve().read_bytes(), "no CUDA code"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert main(["run", str(path), "--grid", "1", "--block", "1"]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert main(["run", str(tmp_path / "absent.so"), "--grid", "1", "--block", "1"]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_without_cuobjdump_the_message_says_what_brings_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fat_binary, "find_cuda_tool", lambda name: None)
    path = tmp_path / "k.fatbin"
    path.write_bytes(b"\x50\xed\x55\xba")
    assert main(["run", str(path), "--grid", "1", "--block", "1"]) == 3
    assert "pip install 'memlab[nvcc]'" in capsys.readouterr().err
