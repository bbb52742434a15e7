"""CUDA's headers without a toolkit, user headers, and the cache that depends on both."""

import math
import os
import re
import struct
from dataclasses import replace
from importlib import metadata

import numpy as np
import pytest

from memlab.device.compiler import cache as compile_cache
from memlab.device.compiler import compilation, headers, nvrtc
from memlab.device.compiler import compile as compiler
from memlab.device.compiler.diagnostics import CompileError
from memlab.device.compiler.translation_unit import CompilerOutput, TranslationUnit
from memlab.errors import UsageError

HOPPER = (9, 0)
KERNEL = 'extern "C" __global__ void k(int* p) { *p = VALUE; }\n'

ALL_OF_CUDA = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
#include <cooperative_groups.h>
#include <cuda/std/array>
#include <cuda/atomic>
#include <cub/block/block_reduce.cuh>
using Reduce = cub::BlockReduce<float, 128>;
extern "C" __global__ void k(half* h, __nv_bfloat16* b, cuda::atomic<int>* counter, float* sum) {
  __shared__ Reduce::TempStorage storage;
  cuda::std::array<float, 2> pair = {__half2float(h[0]), __bfloat162float(b[0])};
  auto block = cooperative_groups::this_thread_block();
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> tile;
  nvcuda::wmma::fill_fragment(tile, pair[0] + pair[1]);
  float total = Reduce(storage).Sum(tile.x[0]);
  block.sync();
  if (block.thread_rank() == 0) { *sum = total; ++*counter; }
}"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("MEMLAB_CACHE", str(folder))
    return folder


@pytest.fixture
def runs(monkeypatch):
    """The runs of the compiler, one line per run."""
    lines = []
    run = compilation.compile_source

    def counted(*arguments):
        lines.append(arguments)
        return run(*arguments)

    monkeypatch.setattr(compilation, "compile_source", counted)
    return lines


def value(name, source=KERNEL, **options):
    """The value that the kernel stores, read from its PTX."""
    ptx = compiler.compile_kernel(TranslationUnit(source, str(name), HOPPER, **options), "k").ptx
    (store,) = (line for line in ptx.splitlines() if "st.global" in line)
    operand = store.rpartition(",")[2].strip(" ;")
    if operand.startswith("%"):
        (move,) = (line for line in ptx.splitlines() if f"\t{operand}, " in line and "mov" in line)
        operand = move.rpartition(",")[2].strip(" ;")
    return int(operand)


@pytest.mark.slow
def test_cuda_headers_compile_without_a_toolkit_and_once(cache, runs):
    first = compiler.compile_kernel(TranslationUnit(ALL_OF_CUDA, "all.cu", HOPPER), "k")
    assert first.log == ""
    assert compiler.compile_kernel(TranslationUnit(ALL_OF_CUDA, "all.cu", HOPPER), "k") == first
    assert len(runs) == 1


def test_a_source_that_includes_nothing_needs_no_folders():
    assert (
        headers.find_headers("// see the #include of FILE\n" + KERNEL, "k.cu", ())
        == headers.IncludedHeaders()
    )


def test_missing_packages_are_named(monkeypatch, without_nvcc):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(headers, "toolkit_folders", tuple)
    monkeypatch.setenv("MEMLAB_CACHE", "off")
    caches = (headers.package_folders, headers._package_versions, nvrtc.package_version)
    for cached in caches:
        cached.cache_clear()
    try:
        with pytest.raises(CompileError) as caught:
            compiler.compile_unit(TranslationUnit("#include <cuda/atomic>\n", "k.cu", HOPPER))
    finally:
        for cached in caches:
            cached.cache_clear()
    last = str(caught.value).splitlines()[-1]
    assert "pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl" in last


def test_user_headers_are_found_beside_the_includer_then_in_named_folders(tmp_path, monkeypatch):
    for folder, content in [
        ("mine", '#include "parts/a.h"'),
        ("mine/parts", '#include "value.h"'),
        ("other", ""),
        ("here", ""),
    ]:
        (tmp_path / folder).mkdir()
        name = "a.h" if folder == "mine/parts" else "top.h"
        (tmp_path / folder / name).write_text(content + "\n")
    (tmp_path / "mine/value.h").write_text("#define VALUE 1\n")
    (tmp_path / "mine/parts/value.h").write_text("#define VALUE 2\n")
    (tmp_path / "other/value.h").write_text("#define VALUE 3\n")
    (tmp_path / "here/value.h").write_text("#define VALUE 4\n")
    monkeypatch.chdir(tmp_path / "here")  # Where one stands is not where the source lies.

    assert value(tmp_path / "mine/k.cu", '#include "value.h"\n' + KERNEL) == 1
    assert value("../mine/k.cu", '#include "top.h"\n' + KERNEL) == 2
    other = (f"-I{tmp_path / 'other'}",)
    assert value("../mine/k.cu", "#include <value.h>\n" + KERNEL, options=other) == 3


@pytest.mark.parametrize(
    "include",
    [
        '#include "outer.h"',
        "#  include /* so */ <outer.h>",
        '%:include "outer.h"',
        '#inc\\\nlude "outer.h"',
        '/**/ # /**/ include"outer.h"',
        '#if __has_include("outer.h")\n#include "outer.h"\n#endif',
    ],
)
def test_a_changed_header_causes_a_new_compilation(include, tmp_path, cache, runs):
    (tmp_path / "outer.h").write_text('#include "inner.h"\n')
    inner = tmp_path / "inner.h"
    seen = []
    for content in ("1", "1", "2", "1"):
        inner.write_text(f"#define VALUE {content}\n")
        source = f"{include}\n{KERNEL}"
        seen.append(value(tmp_path / "k.cu", source, options=(f"-I{tmp_path}",)))
    assert seen == [1, 1, 2, 1]
    assert len(runs) == 2


def test_a_new_header_that_hides_another_is_noticed(tmp_path, cache):
    for name in ("early", "late"):
        (tmp_path / name).mkdir()
    options = (f"-I{tmp_path / 'early'}", f"-I{tmp_path / 'late'}")
    source = "#include <value.h>\n" + KERNEL
    (tmp_path / "late/value.h").write_text("#define VALUE 1\n")
    assert value("k.cu", source, options=options) == 1
    (tmp_path / "early/value.h").write_text("#define VALUE 2\n")
    assert value("k.cu", source, options=options) == 2


def test_only_the_named_folders_are_read(tmp_path):
    mine, outside = tmp_path / "mine", tmp_path / "outside"
    mine.mkdir()
    outside.mkdir()
    (outside / "value.h").write_text("#define VALUE 7\n")
    (mine / "link.h").symlink_to(outside / "value.h")
    os.mkfifo(mine / "pipe.h")
    name = str(mine / "k.cu")
    for include in (f'"{outside}/value.h"', '"../outside/value.h"', '"link.h"'):
        with pytest.raises(
            UsageError, match=rf"lies outside .* add -I {outside}, or --root {tmp_path} "
        ):
            value(name, f"#include {include}\n{KERNEL}")
        for option in (f"-I{outside}", f"--root={tmp_path}"):
            assert value(name, f"#include {include}\n{KERNEL}", options=(option,)) == 7
    for include in ('"pipe.h"', '"/dev/zero"'):
        with pytest.raises(UsageError, match="not a regular file"):
            value(name, f"#include {include}\n{KERNEL}")
    with pytest.raises(UsageError, match="named by a macro"):
        value(name, f'#define FILE "{outside}/value.h"\n#include FILE\n{KERNEL}')


def test_missing_headers_are_looked_for_below_the_root_nearest_first(tmp_path):
    for folder, content in {
        "app/src": "",
        "app/common": "1",
        "lib/common": "2",
        "lib/inner/deep": "3",
    }.items():
        (tmp_path / folder).mkdir(parents=True)
        if content:
            (tmp_path / folder / "value.h").write_text(f"#define VALUE {content}\n")
    (tmp_path / "lib/outer.h").write_text("#include <deep/value.h>\n")
    name, options = str(tmp_path / "app/src/k.cu"), (f"--root={tmp_path}",)
    source = "#include <{}>\n" + KERNEL.replace("{", "{{").replace("}", "}}")
    assert value(name, source.format("value.h"), options=options) == 1
    assert value(name, source.format("inner/deep/value.h"), options=options) == 3
    assert value(name, source.format("outer.h"), options=options) == 3
    (tmp_path / "app/other").mkdir()
    (tmp_path / "app/other/value.h").write_text("#define VALUE 4\n")
    absent = headers.find_headers(source.format("value.h"), name, options).absent
    assert absent == ("value.h",)  # two are as near


def test_hidden_folders_and_virtual_environments_below_the_root_are_not_searched(tmp_path):
    for folder in (".hidden/deep", "environment/include"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "value.h").write_text("")
    source, options = '#include "value.h"\n', (f"--root={tmp_path}",)
    name = str(tmp_path / "k.cu")
    assert headers.find_headers(source, name, options).absent == ()
    (tmp_path / "environment/pyvenv.cfg").write_text("")
    assert headers.find_headers(source, name, options).absent == ("value.h",)
    (tmp_path / ".hidden").rename(tmp_path / "shown")
    assert headers.find_headers(source, name, options).absent == ()


@pytest.mark.parametrize("entry", ["folder", "file of a worktree"])
def test_the_git_repository_of_a_source_is_its_project(tmp_path, monkeypatch, entry):
    (tmp_path / "project/src").mkdir(parents=True)
    (tmp_path / "project/inc").mkdir()
    (tmp_path / "secret.h").write_text("#define VALUE 1\n")
    (tmp_path / "project/inc/value.h").write_text("#define VALUE 7\n")
    marker = tmp_path / "project/.git"
    marker.mkdir() if entry == "folder" else marker.write_text("gitdir: elsewhere\n")
    name = str(tmp_path / "project/src/k.cu")
    assert value(name, f'#include "../inc/value.h"\n{KERNEL}') == 7
    assert value(name, f"#include <value.h>\n{KERNEL}") == 7
    with pytest.raises(UsageError, match=r"secret.h, which lies outside"):
        value(name, f'#include "../../secret.h"\n{KERNEL}')
    assert value(name, f'#include "../../secret.h"\n{KERNEL}', options=(f"--root={tmp_path}",)) == 1
    with monkeypatch.context() as patched:
        patched.setattr(headers, "MAX_PROJECT_FILES", 0)  # nothing is looked for, without an error
        assert headers.find_headers("#include <value.h>\n", name, ()).absent == ("value.h",)
    for home in (tmp_path / "project", tmp_path / "project/src"):
        monkeypatch.setenv("HOME", str(home))
        with pytest.raises(UsageError, match=r"inc/value.h, which lies outside"):
            value(name, f'#include "../inc/value.h"\n{KERNEL}')


def test_the_number_of_files_below_the_root_is_limited(tmp_path, monkeypatch):
    (tmp_path / "a.h").write_text("")
    monkeypatch.setattr(headers, "MAX_PROJECT_FILES", 0)
    with pytest.raises(UsageError, match=r"--root .* has more than 0 files below it"):
        headers.find_headers('#include "b.h"\n', str(tmp_path / "k.cu"), (f"--root={tmp_path}",))


def test_headers_that_the_packages_lack_come_from_a_toolkit(tmp_path, monkeypatch, cache):
    include = tmp_path / "toolkit/include"
    include.mkdir(parents=True)
    (include / "cuda_runtime.h").write_text("")
    (include / "only_there.h").write_text('#include "value.h"\n')
    (include / "value.h").write_text("#define VALUE 5\n")
    (include / "cuda_fp16.h").write_text("#error of the toolkit\n")
    (include / "iostream").write_text("#error of the toolkit\n")
    monkeypatch.setattr(
        headers.cuda_tools, "toolkit_folders", lambda: iter([tmp_path, include.parent])
    )
    source = f"#include <only_there.h>\n#include <cuda_fp16.h>\n#include <iostream>\n{KERNEL}"
    assert value(tmp_path / "k.cu", source) == 5
    assert headers.missing_packages() == ()
    (include / "value.h").write_text("#define VALUE 6\n")
    (include / "cuda_runtime.h").write_text("// of another release\n")
    assert value(tmp_path / "k.cu", source) == 6


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"#/*{'x' * 300}*/include FILE", ()),
        ("#/*\n*/include FILE", ()),
        ("#include /*\n*/ FILE", ()),
        ("// \\ \n#include FILE", ()),  # no line splice for NVRTC
        ("??=include FILE", ("-std=c++11",)),
        ("#??/\ninclude FILE", ("-std=c++14",)),
        ('#include "ordinär/link.h"', ()),
        ('#include "header.h"', ()),
        (f"{'/**/' * 60}#{'/**/' * 60}include{'/**/' * 60} FILE", ()),
    ],
)
def test_no_spelling_hides_an_include(text, options, tmp_path):
    mine, outside = tmp_path / "mine", tmp_path / "value.h"
    (mine / "ordinär").mkdir(parents=True)
    outside.write_text("#define VALUE 7\n")
    (mine / "ordinär/link.h").symlink_to(outside)
    (mine / "header.h").write_text('#include "ordinär/link.h"\n')
    source = f'#define FILE "{outside}"\n{text}\n{KERNEL}'
    with pytest.raises(UsageError, match=r"which is not followed|lies outside the folder"):
        value(mine / "k.cu", source, options=options)


@pytest.mark.slow
def test_the_number_of_includes_is_limited(tmp_path):
    lines = "".join(f'#include "absent{number}.h"\n' for number in range(20_000))
    with pytest.raises(UsageError, match="more than 10000 #include lines"):
        value(tmp_path / "k.cu", lines + KERNEL)


def test_the_size_of_a_header_is_limited(tmp_path, monkeypatch):
    (tmp_path / "a.h").write_text("//34567\n")
    source, name = '#include "a.h"\n', str(tmp_path / "k.cu")
    monkeypatch.setattr(headers, "MAX_HEADER_BYTES", 8)
    ((_, content),) = headers.find_headers(source, name, ()).own
    assert content == b"//34567\n"
    assert headers.find_headers("#include <a.h>\n", name, ()).own == ()  # not in this folder
    monkeypatch.setattr(headers, "MAX_HEADER_BYTES", 7)
    with pytest.raises(UsageError, match="of 8 bytes: a header has at most 7"):
        headers.find_headers(source, name, ())


def test_comments_without_an_include_are_scanned_in_linear_time():
    line = "#" + "/**/" * 60 + "define VALUE 3\n"
    assert value("k.cu", line + KERNEL) == 3


def test_headers_that_include_each_other_compile(tmp_path):
    (tmp_path / "a.h").write_text('#pragma once\n#include "b.h"\n')
    (tmp_path / "b.h").write_text('#pragma once\n#include "a.h"\n#define VALUE 5\n')
    assert value(tmp_path / "k.cu", '#include "a.h"\n' + KERNEL) == 5


def ways_to_damage(data):
    yield b""
    yield data[: len(data) // 2]
    yield data.replace(b"\n", b"", 1)
    yield data[:-1] + bytes([data[-1] ^ 1])
    yield b'{"sizes": [1, 2], "sha256": 3}\n'
    yield b"[" * 100_000


def test_a_damaged_cache_file_causes_a_new_compilation(cache, runs):
    source = KERNEL.replace("VALUE", "3")
    assert value("k.cu", source) == 3
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    for count, damaged in enumerate(ways_to_damage(whole), 2):
        path.write_bytes(damaged)
        assert value("k.cu", source) == 3
        assert len(runs) == count
        assert path.read_bytes() == whole


def test_the_key_depends_on_all_inputs_of_the_compilation(cache, runs):
    def compiled(source="__global__ void k(int* p) { *p = 1; }", name="k.cu", **options):
        return compiler.compile_kernel(TranslationUnit(source, name, HOPPER, **options), "_Z1kPi")

    compiled()
    compiled(source="__global__ void k(int* p) { *p = 2; }")
    compiled(name="other.cu")
    compiled(options=("-DA=1",))
    compiled(options=("-DA=1", "-DB=1"))
    compiled(name_expression="k")
    assert len(runs) == len(list(cache.iterdir())) == 6
    compiled(options=("-DA=1",))
    assert len(runs) == 6


def test_the_key_depends_on_the_versions_of_compiler_and_headers():
    unit = TranslationUnit("source", "k.cu", HOPPER)

    def key(packages=("a==1",), own=(("a.h", b"1"),), compilers=("13.0", "13.0.1"), unit=unit):
        included = headers.IncludedHeaders(packages=packages, own=own)
        return compile_cache.cache_key(unit, included, compilers)

    keys = [
        key(),
        key(packages=("a==2",)),
        key(packages=("a==1", "b==1")),
        key(packages=()),
        key(own=(("b.h", b"1"),)),
        key(own=(("a.h", b"2"),)),
        key(own=(("a.h", b""), ("1", b""))),
        key(own=()),
        key(compilers=("13.1", "13.0.1")),
        key(compilers=("13.0", "13.0.2")),
        key(compilers=("13.0", "13.0.1", "source"), unit=replace(unit, source="")),
    ]
    assert len(set(keys)) == len(keys)
    assert key() == keys[0]


def test_errors_are_not_cached(cache):
    for _ in range(2):
        with pytest.raises(CompileError):
            compiler.compile_unit(TranslationUnit("wrong", "wrong.cu", HOPPER))
    assert not cache.exists()


def test_compilation_works_without_a_cache_folder(tmp_path, monkeypatch):
    source = KERNEL.replace("VALUE", "4")
    (tmp_path / "file").write_text("")
    for place in ("off", str(tmp_path / "file"), str(tmp_path / "file/below"), "/proc/none"):
        monkeypatch.setenv("MEMLAB_CACHE", place)
        assert value("k.cu", source) == 4
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_the_least_recently_used_file_is_removed_first(cache, monkeypatch):
    output = CompilerOutput("ptx", b"x" * 1000, "", "", "")
    cache.mkdir()
    (cache / "mine.txt").write_text("y" * 5000)
    monkeypatch.setattr(compile_cache, "MAX_CACHE_BYTES", 3600)
    for number, name in enumerate("abc"):
        compile_cache.store_output(name, output)
        os.utime(cache / f"{name}.memlab-compiled", (number, number))
    assert compile_cache.load_output("a") == output  # It is used now.
    compile_cache.store_output("d", output)
    assert [compile_cache.load_output(name) is not None for name in "abcd"] == [
        True,
        False,
        True,
        True,
    ]
    assert (cache / "mine.txt").exists()


USED = """using namespace std;
constexpr float least = -INFINITY;
template <class T> struct Least { static constexpr T value = std::numeric_limits<T>::lowest(); };
static_assert(INT_MAX == 2147483647 && LLONG_MIN < -9223372036854775807LL && CHAR_BIT == 8, "");
static_assert(UINT32_MAX == 4294967295U && sizeof(std::uint64_t) == 8 && sizeof(int16_t) == 2, "");
static_assert(std::is_same<uint, unsigned int>::value && sizeof(ushort) == 2, "");
static_assert(offsetof(int2, y) == 4 && std::is_same<int*, intptr_t>::value == false, "");
__constant__ double values[] = {  // its initialisers must be constants
  M_PI, M_E, FLT_MAX, FLT_MIN, FLT_EPSILON, DBL_MAX, DBL_MIN, DBL_EPSILON, HUGE_VAL, least,
  Least<float>::value, std::min(3.0, 2.0), std::max(2.5, 3.5), std::clamp(5.0, 1.0, 4.0), -NAN};
extern "C" __global__ void k(float* in, size_t n, std::ptrdiff_t m) {
  std::swap(in[0], in[1]);
  in[2] = fmaxf(in[2], std::sqrt(in[3])) + sqrtf(abs(in[4])) + std::pow(in[5], 2) + min(n, n);
  in[3] = std::isnan(in[6]) + isinf(in[7]) + max(1, 2) + std::abs(in[8]) + floor(in[9]) + m;
  std::pair<int, float> both{1, 2.0f};
  std::array<int, 3> three{1, 2, 3};
  memset(in, three[0], both.first);
  assert(in[4] > 0);
  printf("%f", in[4]);
}
"""


@pytest.mark.slow
def test_host_headers_match_c_and_work_with_libcudacxx():
    names = [
        str(path.relative_to(headers.HOST_HEADERS))
        for path in sorted(headers.HOST_HEADERS.rglob("*"))
        if path.is_file()
    ]
    assert {"cmath", "stdint.h", "vector", "sys/types.h"} < set(names)
    cuda = ["cuda.h", "cuda_runtime.h", "cooperative_groups.h", "cuda/atomic", "cuda/std/cmath"]
    for order in (cuda + names, names[::-1] + cuda):
        source = "".join(f"#include <{name}>\n" for name in order) + USED
        ptx = compiler.compile_unit(TranslationUnit(source, "k.cu", HOPPER)).ptx
    given = re.search(r"values\[\d+\] = \{(.*?)\}", ptx)[1].split(", ")
    *numbers, last = struct.unpack("<15d", bytes(map(int, given)))
    single, double, infinity = np.finfo(np.float32), np.finfo(np.float64), math.inf
    expected = [math.pi, math.e]
    for limits in (single, double):
        expected += [limits.max, limits.tiny, limits.eps]
    assert numbers == [*expected, infinity, -infinity, single.min, 2, 3.5, 4]
    assert math.isnan(last)


def test_host_headers_compile_as_old_dialects():
    source = "#include <cmath>\n#include <cstdint>\n#include <climits>\n#include <cfloat>\n"
    source += 'static_assert(sizeof(uint8_t) == 1, "");\n' + KERNEL
    assert value("k.cu", source, options=("-std=c++11", "-DVALUE=INT_MAX")) == 2147483647


def test_host_headers_are_searched_last_and_give_access_to_no_other_file(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "vector").write_text("#define VALUE 1\n")
    (tmp_path / "mine/vector").write_text("#define VALUE 2\n")
    name = tmp_path / "k.cu"
    assert value(name, '#include "vector"\n' + KERNEL) == 1
    assert value(name, "#include <vector>\n" + KERNEL, options=(f"-I{tmp_path}/mine",)) == 2
    assert value(name, "#include <vector>\n#define VALUE 3\n" + KERNEL) == 3
    for include in ("<../headers.py>", "<sys/../../headers.py>", f'"{headers.__file__}"'):
        with pytest.raises(UsageError, match="lies outside the folder"):
            value(name, f"#include {include}\n{KERNEL}")


def test_assert_is_switched_off_each_time_it_is_included():
    source = "#define NDEBUG\n#include <cassert>\n" + KERNEL.replace("*p =", "assert(*p); *p =")
    assert value("k.cu", source, options=("-DVALUE=3",)) == 3
    unit = TranslationUnit(source, "k.cu", HOPPER, {"VALUE": "3"})
    assert "__assertfail" not in compiler.compile_unit(unit).ptx
