import os
import re
import resource
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from memlab.device.compiler import compile as compiler
from memlab.device.compiler import forked_process, nvrtc
from memlab.device.compiler.diagnostics import CompileError
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.errors import DeviceError, UsageError

SCALE = """extern "C" __global__ void scale(float* values) {
  values[threadIdx.x] *= FACTOR;
}
"""
HOPPER = (9, 0)
SCALED = TranslationUnit(SCALE, "scale.cu", HOPPER, {"FACTOR": "2"})


def test_ptx_holds_the_entry_the_define_and_the_source_lines():
    ptx = compiler.compile_unit(TranslationUnit(SCALE, "scale.cu", HOPPER, {"FACTOR": "3.0f"})).ptx
    assert ".target sm_90" in ptx
    assert ".entry scale(" in ptx
    assert "0f40400000" in ptx  # 3.0 in IEEE 754.
    assert ".loc\t1 2 " in ptx
    assert "scale.cu" in ptx


def test_one_run_gives_ptx_cubin_and_resources():
    compiled = compiler.compile_kernel(SCALED, "scale")
    assert compiled.ptx == compiler.compile_unit(SCALED).ptx
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.resources.registers_per_thread > 0
    assert compiled.log == ""


def test_warnings_are_kept():
    source = 'extern "C" __global__ void idle() { int unused; }'
    compiled = compiler.compile_kernel(TranslationUnit(source, "idle.cu", HOPPER), "idle")
    assert "idle.cu(1): warning" in compiled.log


def test_options_reach_the_compiler():
    source = """extern "C" __global__ void gather(const float* in, float* out, int n) {
      float kept[64];
      for (int i = 0; i < 64; ++i) kept[i] = in[i * n];
      __syncthreads();
      for (int i = 0; i < 64; ++i) out[i * n] = kept[63 - i];
    }"""
    compiled = compiler.compile_kernel(
        TranslationUnit(source, "gather.cu", HOPPER, options=("--maxrregcount=32",)), "gather"
    )
    assert compiled.resources.registers_per_thread <= 32
    assert compiled.resources.local_bytes_per_thread >= (64 - 32) * 4  # What cannot be held.


def test_an_error_names_file_and_line_and_ends_with_a_next_step(without_nvcc):
    source = "\n\n__global__ void broken() { missing(); }"
    with pytest.raises(CompileError) as caught:
        compiler.compile_unit(TranslationUnit(source, "my kernel.cu", HOPPER))
    assert caught.value.exit_code == 2
    assert 'my kernel.cu(3): error: identifier "missing" is undefined' in caught.value.log
    message, _, advice = str(caught.value).rpartition("\n")
    assert message == caught.value.log
    assert re.fullmatch(r"could not compile my kernel.cu with NVRTC 13.\d for sm_90: .*", advice)


@pytest.mark.parametrize(
    ("source", "said", "advised"),
    [
        (
            "#include <thrust/device_ptr.h>\n"
            "__global__ void k(thrust::device_ptr<float> p) { *p = 1; }",
            "k.cu(2)",
            "pip install 'memlab[nvcc]'",
        ),
        (
            "__global__ void k(cudaEvent_t e) { cudaEventRecord(e); }",
            "k.cu(1)",
            "hide host code between #ifndef __CUDACC_RTC__",
        ),
        ("__global__ void k(uint32_t n) {}", "k.cu(1)", "#include <cstdint>"),
        ("__global__ void k(uint n) {}", "k.cu(1)", "#include <sys/types.h>"),
        ("__global__ void k(float* p) { *p = FLT_MAX; }", "k.cu(1)", "#include <float.h>"),
        ("__global__ void k(int* p) { *p = INT_MAX; }", "k.cu(1)", "#include <limits.h>"),
        ("__global__ void k(int* p) { std::sort(p, p + 1); }", "k.cu(1)", "cuda::std in <cuda/std"),
        ("__global__ void k(int* p) { k<<<1, 1>>>(p); }", "k.cu(1)", "__CUDACC_RTC__"),
        (
            '#include "mine.h"\n__global__ void k(mine* p) {}',
            "k.cu(2)",
            "name the folder of mine.h with -I DIR",
        ),
        (
            "__global__ void k(int* p) { __shared__ int s[12289]; s[*p] = 1; *p = s[p[1]]; }",
            "too much shared data",
            "48 KiB",
        ),
    ],
)
def test_frequent_errors_have_their_own_advice(source, said, advised, without_nvcc):
    with pytest.raises(CompileError) as caught:
        compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER))
    assert said in caught.value.log
    assert advised in str(caught.value).splitlines()[-1]


def test_a_missing_library_is_one_line(without_nvcc):
    source = "#include <curand_kernel.h>\n__global__ void k(curandState* s) { curand(s); }"
    with pytest.raises(UsageError) as caught:
        compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER))
    assert str(caught.value) == (
        "k.cu needs a header that is not installed: curand_kernel.h comes with pip install "
        "nvidia-curand (77 MB), or a CUDA toolkit"
    )


def test_a_missing_library_hides_no_other_error(without_nvcc):
    source = "#include <curand_kernel.h>\n__global__ void k(absent* s) {}"
    with pytest.raises(CompileError, match='"absent" is undefined'):
        compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER))


def test_every_error_is_reported_with_file_and_line(tmp_path):
    (tmp_path / "part.h").write_text("\n__device__ int two() { return absent; }\n")
    source = """#include "part.h"
template <int N> __device__ void few() { static_assert(N > 3, "too few"); }
__global__ void k(float* p) { few<2>(); first(); second(); }"""
    with pytest.raises(CompileError) as caught:
        compiler.compile_unit(TranslationUnit(source, str(tmp_path / "k.cu"), HOPPER))
    log = caught.value.log
    assert f'{tmp_path}/part.h(2): error: identifier "absent" is undefined' in log
    assert f'{tmp_path}/k.cu(3): error: identifier "first" is undefined' in log
    assert f'{tmp_path}/k.cu(3): error: identifier "second" is undefined' in log
    assert f'{tmp_path}/k.cu(2): error: static assertion failed with "too few"' in log
    assert "4 errors detected" in log


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SCALE + "\0hidden", "scale.cu holds a NUL byte in line 4"),
        (b"\xff\xfe_\0_\0".decode(errors="replace"), "holds a NUL byte in line 1"),
        ("", "no kernel 'scale'"),
    ],
)
def test_an_invalid_source_is_a_usage_error(source, said):
    with pytest.raises(UsageError, match=said):
        compiler.compile_kernel(
            TranslationUnit(source, "scale.cu", HOPPER, {"FACTOR": "2"}), "scale"
        )


def test_a_file_name_is_not_taken_for_an_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.cu").write_text("#error other")
    for name in ("--preinclude=other.cu", "-DFACTOR=3.cu", "-h"):
        ptx = compiler.compile_unit(TranslationUnit(SCALE, name, HOPPER, {"FACTOR": "2.0f"})).ptx
        assert "0f40000000" in ptx or "add.f32" in ptx  # times 2.0, or added to itself


def test_a_file_name_that_would_break_the_ptx_is_refused():
    with pytest.raises(UsageError, match=r"quotation mark .* rename it"):
        compiler.compile_unit(TranslationUnit(SCALE, 'a"b.cu', HOPPER, {"FACTOR": "2"}))


@pytest.mark.parametrize("before", ["\ufeff", "// caf\udce9\n"])
def test_a_byte_order_mark_and_stray_bytes_in_comments_do_no_harm(before):
    ptx = compiler.compile_unit(
        TranslationUnit(before + SCALE, "scale.cu", HOPPER, {"FACTOR": "2"})
    ).ptx
    assert ".entry scale(" in ptx


def test_the_standard_can_be_chosen_without_a_warning():
    source = "static_assert(__cplusplus == 202002L); __global__ void k() {}"
    compiled = compiler.compile_kernel(
        TranslationUnit(source, "k.cu", HOPPER, options=("-std=c++20",)), "_Z1kv"
    )
    assert compiled.log == ""


TEMPLATES = """namespace space {
template <int N> __global__ void fill(float* out) { out[threadIdx.x] = N; }
}
namespace { __global__ void hidden(float* out) { *out = 1; } }
__device__ float helper(float x) { return x; }
__global__ void plain(float* out) { *out = helper(2); }"""


@pytest.mark.parametrize(
    ("expression", "entry"),
    [
        ("space::fill<32>", "_ZN5space4fillILi32EEEvPf"),
        ("space::fill< 4 * 8 >", "_ZN5space4fillILi32EEEvPf"),
        ("plain", "_Z5plainPf"),
    ],
)
def test_a_name_expression_instantiates_the_kernel(expression, entry):
    compiled = compiler.compile_kernel(
        TranslationUnit(TEMPLATES, "t.cu", HOPPER, name_expression=expression), entry
    )
    assert f".entry {entry}(" in compiled.ptx


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("space::fill", "cannot determine which instance"),
        ("plan", 'identifier "plan" is undefined'),
        ("helper", "non-__global__"),
        ("plain; other", "Extra tokens"),
        ("plain\n#include <x>", "line break"),
    ],
)
def test_the_error_of_a_wrong_name_expression_hides_nvrtcs_file(expression, reason):
    with pytest.raises(UsageError) as caught:
        compiler.compile_kernel(
            TranslationUnit(TEMPLATES, "t.cu", HOPPER, name_expression=expression), "k"
        )
    message = str(caught.value)
    assert reason in message
    assert not isinstance(caught.value, CompileError)
    assert "__nv_name_map" not in message
    assert "\n" not in message


def test_an_error_in_the_source_is_reported_before_one_in_the_name():
    with pytest.raises(CompileError) as caught:
        compiler.compile_kernel(
            TranslationUnit(
                TEMPLATES + "\n!", "t.cu", HOPPER, name_expression="space::fill<true ? 1>"
            ),
            "k",
        )
    assert "t.cu(7): error: expected a declaration" in caught.value.log
    assert "__nv_name_map" not in str(caught.value)


@pytest.mark.parametrize("name", ["scael", "other"])
def test_a_missing_kernel_is_a_usage_error(name):
    with pytest.raises(UsageError, match=rf"no kernel '{name}'.*scale.*extern \"C\""):
        compiler.compile_kernel(SCALED, name)


@pytest.mark.parametrize(("asked", "nearest"), [((5, 2), "7.5"), ((99, 0), "12.1")])
def test_an_unknown_architecture_is_named_with_the_known_ones(asked, nearest):
    with pytest.raises(DeviceError) as caught:
        compiler.compile_unit(TranslationUnit(SCALE, "scale.cu", asked, {"FACTOR": "2"}))
    message = str(caught.value)
    assert f"compute capability {asked[0]}.{asked[1]}" in message
    assert "7.5, 8.0" in message
    assert message.endswith(f"the nearest is {nearest}")


@pytest.mark.parametrize(
    ("architecture", "target"), [((9, 0), "sm_90a"), ((8, 0), "sm_80"), ((10, 0), "sm_100")]
)
def test_an_architecture_of_the_project_counts_on_its_own_devices(architecture, target):
    options = ("--specific-arch=sm_90a", "--specific-arch=sm_120f")
    unit = TranslationUnit(SCALE, "scale.cu", architecture, {"FACTOR": "2"}, options)
    assert f".target {target}\n" in compiler.compile_unit(unit).ptx


def test_what_one_architecture_alone_has_is_compiled_for_it():
    source = """__global__ void k(float* d) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        d[0] = FACTOR;
    }"""
    unit = TranslationUnit(source, "fence.cu", (9, 0), {"FACTOR": "2"})
    for compile_it in (compiler.compile_unit, compiler.compile_with_debug_info):
        output = compile_it(unit)
        assert ".target sm_90a" in output.ptx
        assert output.cubin
    for architecture in ((8, 0), (12, 0)):
        with pytest.raises(CompileError, match="wgmma"):
            compiler.compile_unit(replace(unit, architecture=architecture))


def test_functions_of_libcu_for_one_architecture_alone_are_compiled_for_it():
    # As cuda::ptx of CUDA 13.0 refuses other targets: by a function that is nowhere.
    source = """
    extern "C" __device__ void __cuda_ptx_copy_is_not_supported_before_SM_90a_SM_100a__();
    __global__ void k(float* d) {
    #if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL)
        d[0] = FACTOR;
    #else
        __cuda_ptx_copy_is_not_supported_before_SM_90a_SM_100a__();
    #endif
    }"""
    for architecture, target in (((9, 0), "sm_90a"), ((10, 0), "sm_100a")):
        unit = TranslationUnit(source, "copy.cu", architecture, {"FACTOR": "2"})
        assert f".target {target}\n" in compiler.compile_unit(unit).ptx
    with pytest.raises(CompileError, match="is_not_supported_before"):
        compiler.compile_unit(TranslationUnit(source, "copy.cu", (8, 0), {"FACTOR": "2"}))


def test_every_architecture_compiles():
    for architecture in nvrtc.supported_architectures():
        ptx = compiler.compile_unit(
            TranslationUnit(SCALE, "scale.cu", architecture, {"FACTOR": "2"})
        ).ptx
        assert f".target sm_{architecture[0]}{architecture[1]}" in ptx


def test_a_kept_compilation_needs_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMLAB_CACHE", str(tmp_path))
    compiled = compiler.compile_unit(SCALED)
    for function in ("_library", "run_nvrtc", "supported_architectures"):
        monkeypatch.delattr(nvrtc, function)

    assert compiler.compile_unit(SCALED) == compiled


def test_a_crash_of_nvrtc_is_reported_with_its_own_message_if_there_is_one():
    source = "template <foo T> __global__ void copy(T* p) { *p = 1; }"
    with pytest.raises(CompileError, match=r'k.cu\(1\): error: identifier "foo" is undefined'):
        compiler.compile_kernel(
            TranslationUnit(source, "k.cu", HOPPER, name_expression="copy<int>"), "k"
        )


@pytest.mark.parametrize(
    ("work", "limits", "said"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), {}, "crashed .SIGSEGV."),
        (lambda: os._exit(3), {}, "crashed .no result."),
        (lambda: time.sleep(60), {"COMPILE_TIMEOUT_S": 0.1}, "did not end within 0.1 s"),
        (
            lambda: bytearray(1 << 30),
            {"COMPILE_MEMORY_LIMIT_BYTES": 1 << 28},
            "crashed .no result.",
        ),
    ],
)
def test_a_lost_compiler_process_is_reported(work, limits, said, monkeypatch, without_nvcc):
    for name, value in limits.items():
        monkeypatch.setattr(forked_process, name, value)
    monkeypatch.setattr(nvrtc, "run_nvrtc", lambda *_: work())
    monkeypatch.setenv("MEMLAB_CACHE", "off")
    with pytest.raises(CompileError, match=f"NVRTC {said} while compiling scale.cu\n"):
        compiler.compile_unit(SCALED)
    with pytest.raises(ChildProcessError):  # None is left behind.
        os.waitpid(-1, os.WNOHANG)


def test_a_compiler_whose_parent_is_killed_ends_too():
    def limit():
        return resource.getrlimit(resource.RLIMIT_CPU)[0]

    assert 0 < forked_process.call_in_child(limit) <= 2 * forked_process.COMPILE_TIMEOUT_S


def test_the_compiler_does_not_start_the_gpu_driver(tmp_path):
    """NVRTC's own cache would initialize the driver in a fork of a process that may use it."""
    program = (
        "from memlab.device.compiler.compile import compile_unit\n"
        "from memlab.device.compiler.translation_unit import TranslationUnit\n"
        "compile_unit(TranslationUnit('__global__ void f() {}', 'f.cu', (9, 0)))"
    )
    watched = {"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(tmp_path / "libraries")}
    environment = {**os.environ, "MEMLAB_CACHE": "off", **watched}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    looked_for = "".join(file.read_text(errors="replace") for file in tmp_path.iterdir())
    assert "find library=libc.so.6" in looked_for
    assert "find library=libcuda.so" not in looked_for


def test_missing_bindings_give_the_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    nvrtc._library.cache_clear()
    nvrtc.compiler_version.cache_clear()
    try:
        with pytest.raises(DeviceError, match="pip install nvidia-cuda-nvrtc cuda-bindings"):
            nvrtc.compiler_version()
    finally:
        monkeypatch.undo()
    assert nvrtc.compiler_version() >= (13, 0)


def test_an_error_of_the_assembler_names_the_line_of_the_source():
    source = """extern "C" __global__ void wait(float* values) {
  asm volatile("bar.sync 1, 48;" ::: "memory");
  values[threadIdx.x] = 1;
}
"""
    with pytest.raises(CompileError, match=r"wait\.cu\(2\): ptxas error: Number of threads"):
        compiler.compile_unit(TranslationUnit(source, "wait.cu", HOPPER))


def test_a_child_ends_where_its_parent_was_killed() -> None:
    code = """
import os, signal
from memlab.device.compiler import forked_process
forked_process._read_pipe = lambda reader: os.kill(os.getpid(), signal.SIGKILL)
forked_process.call_in_child(lambda: bytes(1 << 22))  # more than a pipe holds
"""
    reader, writer = os.pipe()  # the end of the file comes when all who can write have ended
    with os.fdopen(reader, "rb") as ended:
        parent = subprocess.Popen([sys.executable, "-c", code], pass_fds=[writer])
        os.close(writer)
        assert parent.wait(60) == -signal.SIGKILL
        assert select.select([ended], [], [], 20)[0]
