"""Machine code by ptxas of kernels that come as PTX."""

import stat
from pathlib import Path

import pytest

from memlab.device.compiler import assembly
from memlab.device.compiler.compile import compile_kernel, compile_unit
from memlab.device.compiler.cuda_tools import find_cuda_tool
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.errors import UsageError

BODY = """.address_size 64
.visible .entry k(.param .u64 out) {
    .reg .b64 %rd<2>;
    .reg .b32 %r<2>;
    .shared .align 4 .b8 kept[64];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, kept;
    st.global.u32 [%rd0], %r0;
    ret;
}
"""
PTX = f".version 8.0\n.target sm_80\n{BODY}"

needs_ptxas = pytest.mark.skipif(find_cuda_tool("ptxas") is None, reason="there is no ptxas")


def unit(ptx: str = PTX, architecture: tuple[int, int] = (9, 0), **more: object) -> TranslationUnit:
    return TranslationUnit(ptx, "k.ptx", architecture, ptx=ptx, **more)


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """Put a program in the place of ptxas."""

    def put(script: str) -> Path:
        path = tmp_path / "ptxas"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(assembly, "find_cuda_tool", lambda name: path)
        monkeypatch.setenv("MEMLAB_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)  # it writes there when it is asked for its release, too
        return path

    return put


@needs_ptxas
def test_ptxas_makes_the_machine_code_for_the_device():
    compiled = compile_kernel(unit(), "k")
    assert compiled.resources.registers_per_thread
    assert compiled.resources.static_shared_bytes == 64
    assert compiled.compiler.startswith("ptxas ")
    assert compiled.ptx == PTX
    assert compiled.loadable == compiled.cubin


def test_without_ptxas_there_is_no_machine_code_and_the_log_says_what_brings_it(monkeypatch):
    monkeypatch.setattr(assembly, "find_cuda_tool", lambda name: None)
    compiled = compile_kernel(unit(), "k")
    assert compiled.cubin == b""
    assert "pip install 'memlab[nvcc]'" in compiled.log
    assert compiled.resources.registers_per_thread is None
    assert compiled.resources.local_bytes_per_thread is None
    assert compiled.resources.static_shared_bytes == 64
    assert compiled.loadable == PTX.encode() + b"\0"  # the driver assembles it


def test_options_that_concern_the_assembler_reach_it(stand_in):
    stand_in('echo "$@" > kernel.cubin')
    options = ("--maxrregcount=32", "--ptxas-options=-O1", "-Ifolder")
    command = compile_unit(unit(options=options)).cubin.decode()
    assert command.split() == (
        ["-arch=sm_90", "-lineinfo", "--maxrregcount=32", "-O1", "kernel.ptx", "-o", "kernel.cubin"]
    )
    special = PTX.replace("sm_80", "sm_90a")
    assert "-arch=sm_90a" in compile_unit(unit(special)).cubin.decode()


def test_the_machine_code_is_kept(stand_in, tmp_path):
    path = stand_in(f"echo run >> {tmp_path}/runs; echo code > kernel.cubin")
    first = compile_unit(unit())
    assert compile_unit(unit()) == first
    assert (tmp_path / "runs").read_text() == "run\nrun\n"  # one of them asks for the release
    path.write_text(path.read_text().replace("echo code", "echo other"))
    assert compile_unit(unit()).cubin == b"other\n"


def test_a_ptxas_that_is_too_old_is_no_obstacle(stand_in):
    stand_in(
        'echo "ptxas kernel.ptx, line 1; fatal   : Unsupported .version 9.9; current version is '
        "'9.0'\" >&2; exit 1"
    )
    output = compile_unit(unit())
    assert output.cubin == b""
    assert "Unsupported .version 9.9" in output.log
    assert "memlab[nvcc]" in output.log


@needs_ptxas
def test_what_ptxas_refuses_is_told_in_one_line():
    wrong = PTX.replace("st.global.u32", "st.globe.u32")
    with pytest.raises(UsageError, match=r"^PTX line 10: ptxas: .*globe.*$") as told:
        compile_unit(unit(wrong))
    assert "\n" not in str(told.value)
    bodiless = PTX.replace(".visible", ".extern .func other ();\n.visible")
    bodiless = bodiless.replace("    ret;", "    call other, (); ret;")
    with pytest.raises(UsageError, match=r"^ptxas refuses the PTX: Unresolved extern function"):
        compile_unit(unit(bodiless))


@pytest.mark.parametrize(
    ("target", "architecture", "message"),
    [
        (".target sm_90", (8, 0), "for sm_90 and later GPUs, and the device is sm_80"),
        (".target sm_90a", (12, 0), "for sm_90a alone, and the device is sm_120"),
        (".target sm_100f", (12, 0), "for sm_100f and its family"),
        ("", (9, 0), r"has no \.target"),
        (".target sm_80\n.address_size 32", (9, 0), "addresses of 32 bits"),
    ],
)
def test_ptx_for_another_architecture_is_refused_as_a_driver_does(target, architecture, message):
    text = PTX.replace(".target sm_80", target).replace(BODY.splitlines()[0], "")
    with pytest.raises(UsageError, match=message):
        compile_unit(unit(text, architecture))


def test_machine_code_that_came_with_the_ptx_is_taken(monkeypatch):
    monkeypatch.setattr(assembly, "find_cuda_tool", lambda name: None)
    assert compile_unit(unit(cubin=b"code")).cubin == b"code"
