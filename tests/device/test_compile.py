import sys

import pytest

from memlab.device import compile as compiler
from memlab.errors import DeviceError, UsageError

SCALE = """extern "C" __global__ void scale(float* values) {
  values[threadIdx.x] *= FACTOR;
}
"""
HOPPER = (9, 0)


def test_ptx_holds_the_entry_the_define_and_the_source_lines():
    ptx = compiler.compile_ptx(SCALE, "scale.cu", HOPPER, {"FACTOR": "3.0f"})
    assert ".target sm_90" in ptx
    assert ".entry scale(" in ptx
    assert "0f40400000" in ptx  # 3.0 in IEEE 754.
    assert ".loc\t1 2 " in ptx
    assert "scale.cu" in ptx


def test_one_run_gives_ptx_cubin_and_resources():
    compiled = compiler.compile_kernel(SCALE, "scale.cu", "scale", HOPPER, {"FACTOR": "2"})
    assert compiled.ptx == compiler.compile_ptx(SCALE, "scale.cu", HOPPER, {"FACTOR": "2"})
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.resources.registers_per_thread > 0
    assert compiled.log == ""


def test_warnings_are_kept():
    source = 'extern "C" __global__ void idle() { int unused; }'
    compiled = compiler.compile_kernel(source, "idle.cu", "idle", HOPPER, {})
    assert "idle.cu(1): warning" in compiled.log


def test_options_reach_the_compiler():
    source = """extern "C" __global__ void gather(const float* in, float* out, int n) {
      float kept[64];
      for (int i = 0; i < 64; ++i) kept[i] = in[i * n];
      __syncthreads();
      for (int i = 0; i < 64; ++i) out[i * n] = kept[63 - i];
    }"""
    compiled = compiler.compile_kernel(
        source, "gather.cu", "gather", HOPPER, {}, options=["--maxrregcount=32"]
    )
    assert compiled.resources.registers_per_thread <= 32
    assert compiled.resources.local_bytes_per_thread >= (64 - 32) * 4  # What cannot be held.


def test_an_error_names_file_and_line_and_ends_with_a_next_step():
    source = "\n\n__global__ void broken() { missing(); }"
    with pytest.raises(compiler.CompileError) as caught:
        compiler.compile_ptx(source, "my kernel.cu", HOPPER, {})
    assert caught.value.exit_code == 2
    assert 'my kernel.cu(3): error: identifier "missing" is undefined' in caught.value.log
    message, _, advice = str(caught.value).rpartition("\n")
    assert message == caught.value.log
    assert "my kernel.cu for compute capability 9.0" in advice


@pytest.mark.parametrize(
    ("source", "said", "advised"),
    [
        ("#include <stdio.h>\n__global__ void k() {}", "k.cu(1)", "remove the #include"),
        (
            "__global__ void k(int* p) { __shared__ int s[12289]; s[*p] = 1; *p = s[p[1]]; }",
            "too much shared data",
            "48 KiB",
        ),
    ],
)
def test_frequent_errors_have_their_own_advice(source, said, advised):
    with pytest.raises(compiler.CompileError) as caught:
        compiler.compile_cubin(source, "k.cu", HOPPER, {})
    assert said in caught.value.log
    assert advised in str(caught.value).splitlines()[-1]


@pytest.mark.parametrize("name", ["scael", "other"])
def test_a_kernel_that_is_not_there_is_a_usage_error(name):
    with pytest.raises(UsageError, match=rf"no kernel '{name}'.*scale.*extern \"C\""):
        compiler.compile_kernel(SCALE, "scale.cu", name, HOPPER, {"FACTOR": "2"})


@pytest.mark.parametrize(("asked", "nearest"), [((5, 2), "7.5"), ((99, 0), "12.1")])
def test_an_unknown_architecture_is_named_with_the_known_ones(asked, nearest):
    with pytest.raises(DeviceError) as caught:
        compiler.compile_ptx(SCALE, "scale.cu", asked, {"FACTOR": "2"})
    message = str(caught.value)
    assert f"compute capability {asked[0]}.{asked[1]}" in message
    assert "7.5, 8.0" in message
    assert message.endswith(f"the nearest is {nearest}")


def test_every_architecture_compiles():
    for architecture in compiler.supported_architectures():
        ptx = compiler.compile_ptx(SCALE, "scale.cu", architecture, {"FACTOR": "2"})
        assert f".target sm_{architecture[0]}{architecture[1]}" in ptx


def test_programs_are_destroyed_when_the_source_is_wrong(monkeypatch):
    from cuda.bindings import nvrtc

    live = []
    create, destroy = nvrtc.nvrtcCreateProgram, nvrtc.nvrtcDestroyProgram

    def counting_create(*arguments):
        live.append("program")
        return create(*arguments)

    def counting_destroy(program):
        live.pop()
        return destroy(program)

    monkeypatch.setattr(nvrtc, "nvrtcCreateProgram", counting_create)
    monkeypatch.setattr(nvrtc, "nvrtcDestroyProgram", counting_destroy)
    with pytest.raises(compiler.CompileError):
        compiler.compile_ptx("wrong", "wrong.cu", HOPPER, {})
    compiler.compile_ptx(SCALE, "scale.cu", HOPPER, {"FACTOR": "2"})
    assert live == []


def test_without_the_bindings_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    compiler._nvrtc.cache_clear()
    compiler.nvrtc_version.cache_clear()
    try:
        with pytest.raises(DeviceError, match="pip install nvidia-cuda-nvrtc cuda-bindings"):
            compiler.nvrtc_version()
    finally:
        monkeypatch.undo()
    assert compiler.nvrtc_version() >= (13, 0)
