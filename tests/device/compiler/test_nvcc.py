"""nvcc compiles what NVRTC refuses; its kernels are those that NVRTC makes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from memlab.device.compiler import compilation, headers, nvcc, nvrtc
from memlab.device.compiler import compile as compiler
from memlab.device.compiler.cubin import machine_code_sha256
from memlab.device.compiler.diagnostics import CompileError, NameExpressionError
from memlab.device.compiler.headers import HeaderChanges, IncludedHeaders, find_headers
from memlab.device.compiler.reductions import Reduction
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info import kernel_lookup
from memlab.errors import DeviceError, UsageError

HOPPER = (9, 0)


def _is_usable():
    try:
        return nvcc.find_toolchain() is not None
    except DeviceError:
        return False


pytestmark = pytest.mark.skipif(
    os.environ.get("MEMLAB_NVCC") != "required" and not _is_usable(),
    reason="there is no nvcc, or no compiler of the host",
)

KERNELS = """#define SIDE 4
template <int N> __global__ void fill(float* out) { out[threadIdx.x] = N * FACTOR; }
namespace space {
__constant__ float weights[SIDE];
struct Pair { float a; int b; };
__global__ void sum(const Pair* pairs, float* out, int n) {
  __shared__ float part[64];
  part[threadIdx.x] = threadIdx.x < n ? pairs[threadIdx.x].a * weights[threadIdx.x % SIDE] : 0;
  __syncthreads();
  if (threadIdx.x == 0) for (int i = 0; i < 64; ++i) out[blockIdx.x] += part[i] / 3;
}
}
"""
HOST_ONLY = (
    "#include <vector>\nusing Element = std::vector<float>::value_type;\n"
    + KERNELS.replace("fill(float*", "fill(Element*")
)
"""Its kernel needs a header of the host, so leaving out host code does not help NVRTC."""


def compiled_by_nvcc(unit, included=None):
    """Compile without NVRTC; with the headers that it finds, or those given."""
    if included is None:
        included = find_headers(unit.source, unit.source_name, unit.options)
    compiler = compilation._nvcc(nvcc.find_toolchain())
    answer, left = compilation._reduce(compiler, unit, included, Reduction(unit.source))
    return compilation._output(compiler, unit, included, answer, left)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("MEMLAB_CACHE", str(folder))
    return folder


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("-G",), marks=pytest.mark.slow),
        pytest.param(("--use_fast_math", "--maxrregcount=16"), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("expression", ["fill<3>", "space::sum"])
def test_nvcc_makes_the_machine_code_that_nvrtc_makes(options, expression, tmp_path):
    """Both are of one release here; another nvcc may allocate registers otherwise."""
    if not nvcc.find_toolchain().version.startswith(f"nvcc {nvrtc.package_version()} "):
        pytest.skip("NVRTC and nvcc are of different releases")
    unit = TranslationUnit(KERNELS, "k.cu", HOPPER, {"FACTOR": "2"}, options, expression)
    theirs, ours = compiled_by_nvcc(unit), compiler.compile_unit(unit)
    assert ours.compiler.startswith("NVRTC")
    assert theirs.compiler.startswith("nvcc")
    assert theirs.lowered_name == ours.lowered_name
    entry = ours.lowered_name
    if "-G" not in options:  # of such code the debug information alone is read
        assert machine_code_sha256(theirs.cubin, entry) == machine_code_sha256(ours.cubin, entry)
    assert nvcc._NAME_VARIABLE not in theirs.ptx
    assert '"k.cu"' in theirs.ptx
    if "-G" in options:
        named = [
            kernel
            for kernel in kernel_lookup._signatures_from_output(theirs)
            if kernel.linkage_name == entry
        ]
        expected = [
            kernel
            for kernel in kernel_lookup._signatures_from_output(ours)
            if kernel.linkage_name == entry
        ]
        assert [replace(each, used=frozenset()) for each in named] == [
            replace(each, used=frozenset()) for each in expected
        ]


def test_what_nvrtc_refuses_nvcc_compiles_and_the_cache_keeps(cache, monkeypatch):
    unit = TranslationUnit(HOST_ONLY, "k.cu", HOPPER, {"FACTOR": "2"}, ("-std=c++20",), "fill<1>")
    output = compiler.compile_unit(unit)
    assert output.compiler == nvcc.find_toolchain().version
    assert output.left_out == ()
    monkeypatch.setattr(compilation, "compile_source", None)  # is not called again
    assert compiler.compile_unit(unit) == output


def test_a_changed_header_of_the_system_causes_a_new_compilation(cache, tmp_path, monkeypatch):
    system = tmp_path / "system"
    system.mkdir()
    (system / "sizes.hpp").write_text("#define SIZE 5\n")
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(system))
    nvcc.find_toolchain.cache_clear()
    try:
        source = "#include <sizes.hpp>\n__global__ void k(int* p) { *p = SIZE; }"
        unit = TranslationUnit(source, "k.cu", HOPPER)
        first = compiler.compile_unit(unit)
        assert any(path == str(system / "sizes.hpp") for path, *_ in first.files)
        (system / "sizes.hpp").write_text("#define SIZE 66\n")
        second = compiler.compile_unit(unit)
        assert (", 5;" in first.ptx, ", 66;" in second.ptx) == (True, True)
    finally:
        nvcc.find_toolchain.cache_clear()


def test_the_kernel_that_a_name_stands_for_is_found_by_nvcc_too():
    unit = TranslationUnit(HOST_ONLY, "k.cu", HOPPER, {"FACTOR": "2"}, ("-std=c++20",))
    signature = kernel_lookup.signature_of(unit, "space::sum")
    assert signature.linkage_name == "_ZN5space3sumEPKNS_4PairEPfi"
    assert [each.name for each in signature.parameters] == ["pairs", "out", "n"]
    with pytest.raises(UsageError, match="'fill' is declared template <int N>"):
        kernel_lookup.signature_of(unit, "fill")
    with pytest.raises(UsageError, match=r"no kernel 'fil<2>': did you mean 'fill'"):
        kernel_lookup.signature_of(unit, "fil<2>")
    with pytest.raises(NameExpressionError):
        compiler.compile_unit(replace(unit, name_expression="kept"))


def test_kernels_without_a_name_outside_the_file_keep_theirs(tmp_path):
    source = HOST_ONLY + "namespace { __global__ void inside(int* p) { *p = 1; } }\n"
    source += "int main() { inside<<<1, 1>>>(nullptr); }"
    unit = TranslationUnit(source, "k.cu", HOPPER, {"FACTOR": "2"}, ("-std=c++20",), "inside")
    assert compiled_by_nvcc(unit).lowered_name == compiled_by_nvcc(unit).lowered_name != ""


def test_the_users_text_never_reaches_a_shell(tmp_path):
    """nvcc gives its arguments to a shell, which would execute these."""
    folder = tmp_path / "a $(touch escaped) `touch escaped` ; touch escaped"
    folder.mkdir()
    (folder / "size.h").write_text("constexpr int size = 4;\n")
    source = (
        "#include <concepts>\n#include <size.h>\n__global__ void k(int* p) { *p = size + ONE; }"
    )
    unit = TranslationUnit(
        source,
        str(folder / "k $(touch escaped).cu"),
        HOPPER,
        {"ONE": "1", "A": "$(touch escaped)", "B": "`touch escaped`", "C": '";touch escaped;"'},
        (f"-I{folder}", "-DTWO=`touch escaped`"),
    )
    output = compiler.compile_unit(unit)
    assert output.compiler.startswith("nvcc")
    assert ", 5;" in output.ptx
    assert not list(tmp_path.rglob("escaped"))
    assert not Path("escaped").exists()
    with pytest.raises(DeviceError, match="is not given the option"):
        compiled_by_nvcc(replace(unit, options=(f"-I{folder}", "-std=c++17;touch")))


@pytest.mark.parametrize(
    "line",
    [
        "#include <../../../../../../../..{secret}>",  # of a folder of the system
        '#import "{secret}"',
        '#define NAME "{secret}"\n#include BOOST_LIKE',
    ],
)
@pytest.mark.parametrize("directive", ["", "#leaked directive\n"])  # refused by the preprocessor
def test_files_outside_the_named_folders_are_not_shown(line, directive, tmp_path):
    project, secret = tmp_path / "project", tmp_path / "secret.h"
    project.mkdir()
    secret.write_text(f"leaked words\n{directive}")
    source = line.format(secret=secret).replace("BOOST_LIKE", "NAME")
    unit = TranslationUnit(f"{source}\n__global__ void k() {{}}", str(project / "k.cu"), HOPPER)
    with pytest.raises(UsageError) as caught:
        compiled_by_nvcc(unit, IncludedHeaders())
    assert "leaked" not in str(caught.value)
    assert directive or "which lies outside the folder" in str(caught.value)
    (project / "own.h").write_text("leaked words\n")  # what may be read is shown
    source = line.format(secret=project / "own.h").replace("BOOST_LIKE", "NAME")
    unit = replace(unit, source=f"{source}\n__global__ void k() {{}}")
    with pytest.raises(CompileError, match="leaked"):
        compiled_by_nvcc(unit, IncludedHeaders())


def test_headers_are_found_beside_the_file_and_named_as_the_user_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "inc").mkdir()
    (tmp_path / "src" / "beside.h").write_text("__device__ inline int one() { return absent; }\n")
    (tmp_path / "inc" / "named.h").write_text("__device__ inline int two() { return gone; }\n")
    source = '#include "beside.h"\n#include <named.h>\n__global__ void k(int* p) { *p = one(); }'
    unit = TranslationUnit(source, "src/k.cu", HOPPER, options=("-Iinc",))
    with pytest.raises(CompileError) as caught:
        compiled_by_nvcc(unit)
    assert 'src/beside.h(1): error: identifier "absent" is undefined' in caught.value.log
    assert 'detected in the compilation of "src/k.cu"' in caught.value.log
    assert 'inc/named.h(1): error: identifier "gone" is undefined' in caught.value.log
    assert "memlab_" not in str(caught.value)


def test_the_error_is_that_of_the_users_line_before_all_others(tmp_path):
    (tmp_path / "part.h").write_text("__device__ inline int one() { int idle; return absent; }\n")
    source = '#include <concepts>\n#include "part.h"\n__global__ void k() { int idle; missing(); }'
    unit = TranslationUnit(source, str(tmp_path / "k.cu"), HOPPER)
    with pytest.raises(CompileError) as caught:
        compiler.compile_unit(unit)
    first, *_ = caught.value.log.splitlines()
    assert first == f'{tmp_path}/k.cu(3): error: identifier "missing" is undefined'
    assert f'{tmp_path}/part.h(1): error: identifier "absent" is undefined' in caught.value.log
    assert "warning" not in caught.value.log


def test_an_error_of_the_assembler_names_the_line_of_the_source():
    source = """#include <concepts>
__global__ void wait(float* values) {
  asm volatile("bar.sync 1, 48;" ::: "memory");
  values[threadIdx.x] = 1;
}
"""
    with pytest.raises(CompileError, match=r"wait\.cu\(3\): ptxas error: Number of threads"):
        compiler.compile_unit(TranslationUnit(source, "wait.cu", HOPPER))


MISSING = """#include "../../common/book.h"
#include <GL/nowhere.h>
#ifdef _WIN32
#include <windows.h>
#endif
{more}
GLuint buffer;
void draw(GLuint which) {{ glutPostRedisplay(); }}
__global__ void k(int* p) {{ *p = 7; }}
int main() {{ book::handle(k<<<1, 1>>>); glutMainLoop(); }}
"""


@pytest.mark.parametrize(
    ("more", "by"), [("", "NVRTC"), ("#include <concepts>\n#include <vector>", "nvcc")]
)
def test_headers_that_do_not_exist_are_left_out_and_named(more, by, tmp_path):
    unit = TranslationUnit(MISSING.format(more=more), str(tmp_path / "a/b/k.cu"), HOPPER)
    output = compiler.compile_unit(unit)
    assert output.compiler.startswith(by)
    assert output.left_out == ("../../common/book.h", "GL/nowhere.h")
    assert ", 7;" in output.ptx


def test_nvcc_too_finds_the_headers_of_another_toolkit(tmp_path, monkeypatch):
    include = tmp_path / "toolkit/include"
    include.mkdir(parents=True)
    (include / "cuda_runtime.h").write_text("#error of the toolkit\n")
    (include / "only_there.h").write_text("#define VALUE 5\n")
    monkeypatch.setattr(headers.cuda_tools, "toolkit_folders", lambda: iter([include.parent]))
    source = "#include <only_there.h>\n__global__ void k(int* p) { *p = VALUE; }"
    output = compiled_by_nvcc(TranslationUnit(source, "k.cu", HOPPER))
    assert ", 5;" in output.ptx
    assert str(include / "only_there.h") in [path for path, *_ in output.files]


def test_a_header_that_device_code_needs_is_named_with_the_next_step(tmp_path):
    source = '#include "vec.h"\n__global__ void k(vec3* p) { p->x = 7; }'
    with pytest.raises(CompileError) as caught:
        compiler.compile_unit(TranslationUnit(source, str(tmp_path / "k.cu"), HOPPER))
    message = str(caught.value)
    assert message.startswith(f'{tmp_path}/k.cu(2): error: identifier "vec3" is undefined')
    assert "Left out, since not found: vec.h\n" in message
    advice = "with -I DIR, or the project's folder with --root DIR"
    assert message.splitlines()[-1] == f"name the folder of vec.h {advice}"
    more = f'#include "a.h"\n#include "b.h"\n{source}'
    with pytest.raises(CompileError) as caught:
        compiler.compile_unit(TranslationUnit(more.replace("vec.h", "c.h"), "k.cu", HOPPER))
    last = str(caught.value).splitlines()[-1]
    assert last == f"name the folders of the headers that device code needs {advice}"


def test_a_header_that_the_source_asks_for_first_is_not_replaced(tmp_path):
    source = """#if __has_include("config.h")
#include "config.h"
#else
#define SIZE 3
#endif
#include "absent.h"
__global__ void k(int* p) { *p = SIZE; }"""
    output = compiler.compile_unit(TranslationUnit(source, str(tmp_path / "k.cu"), HOPPER))
    assert output.left_out == ("absent.h",)
    assert ", 3;" in output.ptx
    assert find_headers(source, str(tmp_path / "k.cu"), ()).absent == ("absent.h",)


def test_without_nvcc_the_message_tells_how_to_get_it_where_it_would_help(without_nvcc):
    def last_line(source):
        with pytest.raises(CompileError) as caught:
            compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER))
        return str(caught.value).splitlines()[-1]

    thrust = "#include <thrust/sort.h>\n__global__ void k(int* p) { thrust::sort(p, p + 9); }"
    assert "pip install 'memlab[nvcc]'" in last_line(thrust)
    assert "pip install" not in last_line("__global__ void k() { missing(); }")


def test_an_nvcc_without_a_compiler_of_the_host_names_what_to_install(tmp_path, monkeypatch):
    fake = tmp_path / "nvcc"
    fake.write_text(
        "#!/bin/sh\n"
        "echo '#$ INCLUDES=\"-I/nowhere\"' >&2\n"
        "echo '#$ absent-gcc -E -x c++ -D__CUDACC_VER_MAJOR__=13 -D__CUDACC_VER_MINOR__=5 "
        "-D__CUDACC_VER_BUILD__=37 x' >&2\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(nvcc, "find_cuda_tool", lambda _: fake)
    nvcc.find_toolchain.cache_clear()
    try:
        with pytest.raises(DeviceError, match=r"absent-gcc, which is not there: install g\+\+"):
            nvcc.find_toolchain()
        thrust = "#include <thrust/sort.h>\n__global__ void k(int* p) { thrust::sort(p, p + 9); }"
        with pytest.raises(CompileError, match=r"install g\+\+$"):
            compiler.compile_unit(TranslationUnit(thrust, "k.cu", HOPPER))
        kernel = TranslationUnit("__global__ void k() {}", "k.cu", HOPPER)
        assert compiler.compile_unit(kernel).compiler.startswith("NVRTC")
    finally:
        monkeypatch.undo()
        nvcc.find_toolchain.cache_clear()


def test_a_compiler_that_does_not_end_is_stopped_with_what_it_started(tmp_path, monkeypatch):
    from memlab.device.compiler import forked_process

    slow = tmp_path / "nvcc"
    slow.write_text(f"#!/bin/sh\nsleep 60 & echo $! > {tmp_path}/child\nwait\n")
    slow.chmod(0o755)
    toolchain = replace(nvcc.find_toolchain(), nvcc=slow)
    monkeypatch.setattr(forked_process, "COMPILE_TIMEOUT_S", 0.5)
    unit = TranslationUnit("__global__ void k() {}", "k.cu", HOPPER)
    with pytest.raises(forked_process.ChildProcessLostError):
        compilation._nvcc(toolchain).compile(unit, IncludedHeaders(), HeaderChanges())
    child = int((tmp_path / "child").read_text())
    status = Path(f"/proc/{child}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


HELPERS = """#pragma once
#include "sizes.h"
#define DEVICE __device__
void report(absentStatus_t status) { printf("%d", status); }
struct Timer { cudaEvent_t start; Timer() { cudaEventCreate(&start); } };
DEVICE inline int twice(int x) { return SIZE * x; }
"""


@pytest.mark.parametrize("more", ["", "#include <concepts>\n#include <vector>"])
@pytest.mark.parametrize(
    "include",
    [
        '"inc/helpers.h"',
        pytest.param("<helpers.h>", marks=pytest.mark.slow),
        pytest.param('"./inc/helpers.h"', marks=pytest.mark.slow),
    ],
)
def test_host_code_is_removed_from_the_users_headers_too(include, more, tmp_path):
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc/helpers.h").write_text(HELPERS)
    (tmp_path / "inc/sizes.h").write_text("#define SIZE 2\n")
    source = f"""{more}
#include {include}
#include "absentLt.h"
__global__ void k(int* p) {{ *p = twice(21); }}
int main() {{ Timer timer; report(0); }}"""
    options = (f"-I{tmp_path / 'inc'}",)
    unit = TranslationUnit(source, str(tmp_path / "k.cu"), HOPPER, options=options)
    output = compiler.compile_unit(unit)
    assert output.compiler.startswith("nvcc" if more else "NVRTC")
    assert ", 42;" in output.ptx
    (tmp_path / "inc/helpers.h").write_text(HELPERS.replace("SIZE * x", "missing(x)"))
    with pytest.raises(CompileError) as caught:
        compiler.compile_unit(unit)
    first, *_ = caught.value.log.splitlines()
    assert first.endswith('inc/helpers.h(6): error: identifier "missing" is undefined')


@pytest.mark.parametrize("expression", [pytest.param("child", marks=pytest.mark.slow), "fill<3>"])
def test_beside_a_kernel_that_launches_kernels_the_others_compile(expression):
    source = (
        "template <int N> __global__ void fill(float* y) { y[threadIdx.x] = N; }\n"
        "__global__ void child(float* y) { y[threadIdx.x] = 1; }\n"
        "__global__ void parent(float* y) { child<<<1, 32>>>(y); }\n"
    )
    unit = TranslationUnit(source, "k.cu", HOPPER)
    found = kernel_lookup.signature_of(unit, expression)
    assert [each.spelling for each in found.parameters] == ["float *"]
    output = compiler.compile_unit(replace(unit, name_expression=expression))
    assert output.lowered_name == found.linkage_name
    assert f".entry {found.linkage_name}(" in output.ptx
    assert ".entry _Z6parentPf(" in output.ptx
