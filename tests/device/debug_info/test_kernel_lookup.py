"""Signatures of compiled kernels, against the PTX, the catalog and declarations by hand."""

import re
from dataclasses import replace

import pytest

from memlab.device.compiler import compilation
from memlab.device.compiler.compile import compile_kernel, compile_launch
from memlab.device.compiler.diagnostics import CompileError
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info.kernel_lookup import signature_of, signatures
from memlab.device.devices import launch_limits, open_device
from memlab.errors import UsageError
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import TENSOR_MAP_BYTES, Buffer, TensorMap
from memlab.kernels.signature import KernelParameter, LaunchBounds, ModuleVariable

HOPPER = (9, 0)
SHORT_NAMES = {
    "float": "f",
    "bfloat": "bf",
    "int": "i",
    "uint": "u",
}

KERNELS = """
namespace space {
template <int N> __global__ void fill(float* out, const int n) { out[threadIdx.x] = N * n; }
__global__ void inside(int* p) { *p = 1; }
__device__ int counter;
}
__global__ void saxpy(float a, const float* __restrict__ x, float* y, size_t n) { *y = a * *x; }
__global__ void twice(float* p) { *p = 1; }
__global__ void twice(double* p) { *p = 1; }
static __global__ void inner(int* p) { *p = 1; }
namespace { __global__ void hidden(int* p) { *p = 1; } }
__device__ __noinline__ float helper(float x) { return x * x; }
extern "C" __global__ void __launch_bounds__(256, 2) named(int*, float v) { helper(v); }
__constant__ float table[4][5];
template <typename T> __global__ void copy(T* p) { *p = 1; }
"""


def declared_sizes(ptx, entry):
    """Bytes of each parameter, from the `.param` declarations of the PTX."""
    listed = re.search(rf"\.entry {re.escape(entry)}\((.*?)\)", ptx, re.S)[1]
    return [
        int(bits) // 8 * int(count or 1)
        for bits, count in re.findall(
            r"\.param (?:\.align \d+ )?\.[bfsu](\d+) [^,\[]*(?:\[(\d+)\])?", listed
        )
    ]


@pytest.mark.parametrize("name", CATALOG)
def test_signatures_of_catalog_kernels_match_their_declarations(name):
    launch = CATALOG[name].prepare({}, launch_limits(open_device("h200").properties))
    signature = signature_of(TranslationUnit.of(launch, HOPPER), launch.entry)

    assert signature.linkage_name == launch.entry
    assert [item.name for item in signature.parameters] == [item.name for item in launch.arguments]
    ptx = compile_launch(launch, HOPPER).ptx
    assert [item.nbytes for item in signature.parameters] == declared_sizes(ptx, launch.entry)
    for read, given in zip(signature.parameters, launch.arguments, strict=True):
        if isinstance(given, TensorMap):
            assert (read.kind, read.nbytes) == ("structure", TENSOR_MAP_BYTES)
            continue
        kind, bits = re.fullmatch(r"(\D+)(\d+)", given.dtype).groups()
        assert (read.dtype or read.member_dtype) == SHORT_NAMES[kind] + bits
        assert read.kind == ("pointer" if isinstance(given, Buffer) else "scalar")
        if isinstance(given, Buffer):
            assert read.readonly == (given.role == "in")
            assert read.element_bytes % given.element_bytes == 0
    assert {(variable.name, variable.shape) for variable in signature.variables} == {
        (variable.name, variable.shape) for variable in launch.constants
    }


# Each line: what the source says, then what must be read: kind, short name, spelling, bytes, and
# bytes of an element, read-only, type of the members where they are not 0, False and nothing.
PARAMETERS = [
    ("bool a", "scalar", "bool", "bool", 1),
    ("char b", "scalar", "i8", "char", 1),
    ("unsigned char c", "scalar", "u8", "unsigned char", 1),
    ("short d", "scalar", "i16", "short", 2),
    ("uint16_t e", "scalar", "u16", "uint16_t", 2),
    ("const int f", "scalar", "i32", "const int", 4),
    ("unsigned g", "scalar", "u32", "unsigned int", 4),
    ("long h", "scalar", "i64", "long", 8),
    ("unsigned long long i", "scalar", "u64", "unsigned long long", 8),
    ("size_t j", "scalar", "u64", "size_t", 8),
    ("float k", "scalar", "f32", "float", 4),
    ("double l", "scalar", "f64", "double", 8),
    ("__half m", "scalar", "f16", "__half", 2),
    ("half n", "scalar", "f16", "half", 2),
    ("nv_bfloat16 o", "scalar", "bf16", "nv_bfloat16", 2),
    ("Small p", "scalar", "u8", "Small", 1),
    ("Signed q", "scalar", "i32", "Signed", 4),
    ("const float* __restrict__ r", "pointer", "f32", "const float *", 8, 4, True),
    ("volatile double* s", "pointer", "f64", "volatile double *", 8, 8),
    ("const volatile int* t", "pointer", "i32", "const volatile int *", 8, 4, True),
    ("const __nv_bfloat16* u", "pointer", "bf16", "const __nv_bfloat16 *", 8, 2, True),
    ("float* const v", "pointer", "f32", "float *const", 8, 4),
    ("const void* w", "pointer", "", "const void *", 8, 0, True),
    ("void* x", "pointer", "", "void *", 8),
    ("int (*y)[8]", "pointer", "i32", "int (*)[8]", 8, 4),
    ("float** z", "pointer", "", "float **", 8, 8),
    ("const float* const* aa", "pointer", "", "const float *const *", 8, 8, True),
    ("const float4* ab", "pointer", "", "const float4 *", 8, 16, True, "f32"),
    ("__half2* ac", "pointer", "", "__half2 *", 8, 4, False, "f16"),
    ("Body* ad", "pointer", "", "Body *", 8, 12, False, "f32"),
    ("const Body& ae", "pointer", "", "const Body &", 8, 12, True, "f32"),
    ("Body af", "structure", "", "Body", 12, 0, False, "f32"),
    ("Mixed ag", "structure", "", "Mixed", 32),
    ("float3 ah", "structure", "", "float3", 12, 0, False, "f32"),
    ("Gap ai", "structure", "", "Gap", 16),
    ("void (*aj)(int, float*)", "structure", "", "void (*)(int, float *)", 8),
    ("Function ak", "structure", "", "Function", 8),
    ("space::Pair* al", "pointer", "", "Pair *", 8, 16, False, "f64"),
    ("space::Inner::Deep* am", "pointer", "", "Deep *", 8),  # Nothing looks into it.
]

TYPES = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda/std/cstdint>
enum Small : unsigned char { kSmall };
enum class Signed { kMinus = -1 };
struct Body { float position[3]; };
struct __align__(16) Mixed { float4 where; int count; };
struct __align__(16) Gap { float x; float y; float z; };
using Function = void (*)(int);
namespace space { struct Pair { double a, b; }; struct Inner { struct Deep; }; }
"""


@pytest.mark.parametrize("architecture", [(7, 5), (9, 0), (12, 1)])
def test_types_are_spelled_as_in_the_source(architecture):
    listed = ", ".join(parameter[0] for parameter in PARAMETERS)
    source = TYPES + f"__global__ void k({listed}) {{ al->a = 1; }}"
    signature = signature_of(TranslationUnit(source, "k.cu", architecture), "k")

    for expected, read in zip(PARAMETERS, signature.parameters, strict=True):
        name = re.search(r"(\w+)(?:\)[\[(].*)?$", expected[0])[1]
        assert replace(read, parts=None, alignment_bytes=1) == KernelParameter(name, *expected[1:])
    ptx = compile_kernel(TranslationUnit(source, "k.cu", architecture), signature.linkage_name).ptx
    assert [parameter.nbytes for parameter in signature.parameters] == declared_sizes(
        ptx, signature.linkage_name
    )
    assert signature.variables == ()  # The headers have hundreds.


PASSED = """
struct Empty {};
struct Base { int b; static const int kOne = 1; };
struct Derived : Base { float c[2][2]; struct { short s; double d; } in; Empty e; bool last; };
struct __align__(16) Aligned { char a; };
struct Held { const Base* base; int n; };
union Either { int i; float f; };
struct Bits { int low : 3; int high : 5; };
struct Deep { int n; Either either; };
__global__ void k(Derived, Empty, Aligned, Held, Either, Bits, Deep, int, const float*) {}
"""


@pytest.mark.parametrize("architecture", [(7, 5), (9, 0), (12, 1)])
def test_structures_are_divided_into_members(architecture):
    """Offsets and alignments by hand, from C's rules."""
    parameters = signature_of(TranslationUnit(PASSED, "k.cu", architecture), "k").parameters
    found = [
        parameter.parts and [(one.name, one.dtype, one.offset_bytes) for one in parameter.parts]
        for parameter in parameters
    ]

    assert found[0] == [
        ("b", "i32", 0),
        ("c[0][0]", "f32", 4),
        ("c[0][1]", "f32", 8),
        ("c[1][0]", "f32", 12),
        ("c[1][1]", "f32", 16),
        ("in.s", "i16", 24),
        ("in.d", "f64", 32),
        ("last", "bool", 41),
    ]
    assert found[1:4] == [(), [("a", "i8", 0)], [("base", "", 0), ("n", "i32", 8)]]
    assert found[4:] == [
        [("i", "i32", 0)],
        [("low", "i32", 0), ("high", "i32", 0)],
        [("n", "i32", 0), ("either.i", "i32", 4)],
        None,
        None,
    ]
    assert [part.bits for part in parameters[5].parts] == [(0, 3), (3, 5)]
    assert parameters[3].parts[0].spelling == "const Base *"
    assert [parameter.alignment_bytes for parameter in parameters[:7]] == [8, 1, 16, 8, 4, 4, 4]


def test_variables_that_can_be_filled_are_listed(tmp_path):
    (tmp_path / "own.h").write_text("__constant__ float weights[2][3][4];\n")
    source = """#include "own.h"
#include <cuda/std/limits>
struct Point { float x, y; };
constexpr int kTile = 16;
__constant__ const float kernel[2] = {1, 2};
__device__ double sums[7];
__device__ Point points[5];
__constant__ unsigned char flag;
namespace space { __device__ int counter; }
__shared__ float shared[kTile];
extern __shared__ float dynamic[];
__global__ void k(float* p) {
  static __device__ int calls;
  shared[0] = dynamic[0] = kernel[0] + weights[0][1][calls++] + sums[0] + points[0].x + flag;
  *p = shared[space::counter];
}"""
    signature = signature_of(TranslationUnit(source, str(tmp_path / "k.cu"), HOPPER), "")
    assert signature.variables == (
        ModuleVariable("weights", "weights", "const", "f32", (2, 3, 4), 96),
        ModuleVariable("sums", "sums", "global", "f64", (7,), 56),
        ModuleVariable("points", "points", "global", "", (5,), 40, "f32"),
        ModuleVariable("flag", "flag", "const", "u8", (), 1),
        ModuleVariable("space::counter", "_ZN5space7counterE", "global", "i32", (), 4),
    )


def test_kernels_are_listed_and_helpers_are_not():
    found = signatures(TranslationUnit(KERNELS, "k.cu", HOPPER))
    assert {signature.name for signature in found} == {
        "space::inside",
        "saxpy",
        "twice",
        "inner",
        "hidden",
        "named",
    }
    assert [signature.name for signature in found].count("twice") == 2


@pytest.mark.parametrize(
    ("entry", "name", "first"),
    [
        ("saxpy", "saxpy", "float"),
        ("::saxpy", "saxpy", "float"),
        ("space::fill<32>", "space::fill<32>", "float *"),
        ("copy<double>", "copy<double>", "double *"),
        ("inside", "space::inside", "int *"),
        ("fill<32>", "space::fill<32>", "float *"),
        ("(void (*)(double*))twice", "twice", "double *"),
        ("_Z5twicePd", "twice", "double *"),
        ("inner", "inner", "int *"),
        ("hidden", "hidden", "int *"),
        ("named", "named", "int *"),
    ],
)
def test_a_kernel_is_found_by_name_and_can_be_compiled(entry, name, first):
    found = signature_of(TranslationUnit(KERNELS, "k.cu", HOPPER), entry)
    assert (found.name, found.parameters[0].spelling) == (name, first)
    compiled = compile_kernel(
        TranslationUnit(KERNELS, "k.cu", HOPPER, name_expression=found.name_expression),
        found.linkage_name,
    )
    assert f".entry {found.linkage_name}(" in compiled.ptx


NESTED = """
namespace space {
__global__ void both(int* p) { *p = 1; }
template <int N> __global__ void several(int* p) { *p = N; }
namespace in {
__global__ void both(int* p) { *p = 2; }
template <int N> __global__ void several(int* p) { *p = -N; }
template <int N, class T>
__launch_bounds__(N, sizeof(T) < 8 ? int(2) : 1)
__global__ void bound(T* p) { *p = N; }
}
}
"""


@pytest.mark.parametrize("entry", ["bound<32,float>", "in::bound<32, float>"])
def test_the_namespaces_of_the_only_kernel_of_a_name_may_be_left_out(entry):
    found = signature_of(TranslationUnit(NESTED, "k.cu", HOPPER), entry)
    assert found.name.replace(" ", "") == "space::in::bound<32,float>"


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("both", "no kernel 'both': did you mean 'space::in::both', 'space::both'?"),
        ("several<2>", "'several' in a namespace: name the namespace too, space::several<2>"),
        ("bound", "'space::in::bound' is declared template <int N, class T>: give its arguments"),
        ("out::bound<32,float>", "'out::bound'"),
    ],
)
def test_a_name_that_several_namespaces_have_needs_them(entry, said):
    with pytest.raises(UsageError) as caught:
        signature_of(TranslationUnit(NESTED, "k.cu", HOPPER), entry)
    assert said in str(caught.value)


def test_a_parameter_without_a_name_is_numbered():
    found = signature_of(TranslationUnit(KERNELS, "k.cu", HOPPER), "named")
    assert [parameter.name for parameter in found.parameters] == ["argument 0", "v"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("sxpy", "k.cu has no kernel 'sxpy': did you mean 'saxpy'?"),
        ("zzz", "known: copy, fill, hidden, inner, named, saxpy, space::inside, twice"),
        ("", "k.cu has 8 kernels, .*'saxpy'.*: name one"),
        ("copy", "'copy' is declared template <typename T>: .*k.cu:'copy<...>'"),
        ("space::fill", "'space::fill' is declared template <int N>: "),
        ("space::fill<2.5>", "'space::fill<2.5>' does not fit template <int N>: "),
        ("copy<absent>", "not 'copy<absent>' .identifier \"absent\" is undefined"),
        ("twice", r"_Z5twicePf \(float \*\) or _Z5twicePd \(double \*\)"),
        ("helper", "is a function of k.cu, but not a kernel: declare it __global__"),
        ("table", "variable 'table', but no such kernel"),
        ("1 + 1", "k.cu has no kernel '1 . 1'"),
        ("saxpy\n", "line break"),
    ],
)
def test_a_wrong_kernel_name_gets_one_line_of_help(entry, said):
    with pytest.raises(UsageError, match=said) as caught:
        signature_of(TranslationUnit(KERNELS, "k.cu", HOPPER), entry)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "k.cu has no kernel: define one"),
        ("__device__ int f() { return 1; }", "k.cu has no kernel: define one"),
        ("template <class T> __global__ void t(T*) {}", "only templates, 't': .*template <class"),
    ],
)
def test_without_a_name_the_source_must_have_one_kernel(source, said):
    with pytest.raises(UsageError, match=said):
        signature_of(TranslationUnit(source, "k.cu", HOPPER), "")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("// __global__ void old()\n__global__ void only(int*) {}", "only"),
        ("static __global__ void only(int*) {}", "only"),
        ("__global__ void only(int*);\n__global__ void only(int*) {}", "only"),
        ("template <int N> __global__ void t() {}\ntemplate __global__ void t<3>();", "t<3>"),
    ],
)
def test_the_only_kernel_needs_no_name(source, name):
    assert signature_of(TranslationUnit(source, "k.cu", HOPPER), "").name == name


@pytest.mark.parametrize("entry", ["", "only"])
def test_a_kernel_without_a_stable_name_is_refused(entry):
    source = "namespace { __global__ void only(int* p) { *p = 1; } }"
    with pytest.raises(UsageError, match="its compiled name changes with every compilation"):
        signature_of(TranslationUnit(source, "k.cu", HOPPER), entry)


@pytest.mark.parametrize("entry", ["", "saxpy", "absent"])
def test_a_source_that_does_not_compile_gives_the_compilers_error_for_any_name(entry):
    with pytest.raises(CompileError, match=r"k.cu\(16\): error: expected a declaration"):
        signature_of(TranslationUnit(KERNELS + "}", "k.cu", HOPPER), entry)


@pytest.mark.slow
def test_nested_structures_are_read_once():
    """Each holds two of the one before: by every path, there would be 134 million visits."""
    doubled = "".join(f"struct S{i} {{ S{i - 1} a, b; }};" for i in range(1, 28))
    source = (
        f"struct S0 {{ float x; }}; {doubled} __global__ void k(S27* p) {{ p->a.a = p[1].a.a; }}"
    )

    assert (
        signature_of(TranslationUnit(source, "k.cu", HOPPER), "k").parameters[0].member_dtype
        == "f32"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        f"__global__ void k(int {'*' * 3000}p) {{}}",
        f"__global__ void k(int* p) {{ {'{ int a = 1;' * 2000} *p = a; {'}' * 2000} }}",
    ],
)
def test_deep_nesting_is_refused_in_one_line(source):
    with pytest.raises(UsageError, match=r"nests blocks or types too deeply .*: nest them less"):
        signature_of(TranslationUnit(source, "k.cu", HOPPER), "k")


@pytest.mark.parametrize("architecture", [(7, 5), (9, 0)])
def test_signatures_are_read_where_nvrtc_refuses_debug_information(architecture, monkeypatch):
    source = """
    __global__ void dots(const int* x, unsigned* y, int n) {
      y[0] = __dp4a((unsigned)x[0], (unsigned)x[1], 2u) + __dp2a_lo(x[2], x[3], n);
      y[1] = __dp2a_hi(x[4], x[5], __dp4a(x[6], x[7], n));
    }"""

    (found,) = signatures(TranslationUnit(source, "dots.cu", architecture))

    assert [(parameter.name, parameter.dtype) for parameter in found.parameters] == [
        ("x", "i32"),
        ("y", "u32"),
        ("n", "i32"),
    ]
    # The next time, nothing is compiled in vain first.
    monkeypatch.setattr(compilation, "compile_source", pytest.fail)
    assert signatures(TranslationUnit(source, "dots.cu", architecture)) == (found,)


def test_other_compile_errors_are_unchanged():
    source = "__global__ void dots(int* x) {\n  x[0] = __dp4a(x[1], x[2]);\n}"
    with pytest.raises(CompileError, match=r"dots.cu\(2\).*__dp4a"):
        signatures(TranslationUnit(source, "dots.cu", HOPPER))


def test_launch_bounds_are_read():
    source = """
    __global__ void __launch_bounds__(96, 4) most(int* p) { *p = 1; }
    __global__ void __block_size__((8, 4, 2)) exactly(int* p) { *p = 1; }
    __global__ void __cluster_dims__(2, 4) clustered(int* p) { *p = 1; }
    __global__ void any(int* p) { *p = 1; }
    """

    found = {
        signature.name: signature.bounds
        for signature in signatures(TranslationUnit(source, "k.cu", HOPPER))
    }

    assert found == {
        "most": LaunchBounds(max_threads=96),
        "exactly": LaunchBounds(block=(8, 4, 2), cluster=(1, 1, 1)),  # as nvcc writes it
        "clustered": LaunchBounds(cluster=(2, 4, 1)),
        "any": LaunchBounds(),
    }


def test_headers_that_a_template_may_need_are_named_with_its_arguments():
    source = "#include <tiles/of_a_library.h>\ntemplate <class T> __global__ void k(T* p) {}\n"
    unit = TranslationUnit(source, "k.cu", (9, 0))
    with pytest.raises(UsageError, match=r"tiles/of_a_library\.h not found .*-I DIR.*'k<\.\.\.>'"):
        signature_of(unit, "k")
