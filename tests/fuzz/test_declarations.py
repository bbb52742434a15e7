"""Sources made of unusual parts: arrays and kernels are read, or one line says why not."""

from __future__ import annotations

from contextlib import suppress

from fuzzing import cases, seldom
from hypothesis import given
from hypothesis import strategies as st

from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info.kernel_lookup import signatures
from memlab.device.debug_info.symbols import layout_of, layouts
from memlab.device.debug_info.variable_layouts import VariableLayout
from memlab.errors import MemlabError
from memlab.kernels.launch import Launch

HOPPER = (9, 0)
TYPES = ["int", "float4", "char*", "S", "S*", "T<3>", "S::E", "volatile short", "F"]
ODD_TYPES = [
    "decltype(nullptr)",
    "long double",
    "auto",
    "absent",
    "int&",
    "const int",
    "T<T<3>::n>*",
    "void",
]
EXTENTS = ["", "[1]", "[2][3]", "[S::last]", "[sizeof(S)]", "[T<3>::n]", "[1]" * 40]
ODD_EXTENTS = ["[]", "[0]", "[-1]", "[x]", "[1u<<31]", "[1<<6000000000]", f"[{'1+' * 3000}1]"]
WORDS = ["__shared__", "__shared__ __align__(8)", "__align__(16) __shared__", "/*__shared__*/"]
ODD_WORDS = ["extern __shared__", "static __shared__", "__constant__", "#if 0\n__shared__"]
ODD_WORDS += ["#undef __shared__\n__shared__", "#define __shared__ int\n", "__shared__ __shared__"]
NAMES = ["a", "a_0", "E1", "_ZZE9", "_ZN" + "9" * 5000, "n" * 3000, "b", "c", "d"]
ODD_NAMES = ["", "é", "9", "p", "k", "*", "(*f)()", "a[1] a", "x(3)"]
HEAD = """
template <int N> struct T { enum { n = N + 1 }; int x[N]; T<N - 1> rest; };
template <> struct T<0> { enum { n = 7 }; };
struct S { enum E { first = -1, last = 5 }; float x; S* next; union { int i; float f[2]; }; };
typedef int (*F)(S, int (*)(S));
"""


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A kernel with variables, mostly valid; rarely an invalid one or a deep nesting."""

    def one_of(usual: list[str], odd: list[str]) -> str:
        return draw(st.sampled_from(odd if seldom(draw, 12) else usual))

    declared = ""
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True)):
        kind, word = one_of(TYPES, ODD_TYPES), one_of(WORDS, ODD_WORDS)
        declared += f"{word} {kind} {one_of([name], ODD_NAMES)}{one_of(EXTENTS, ODD_EXTENTS)};\n"
    deep = 1000 if seldom(draw, 15) else draw(st.integers(0, 3))
    stars = "*" * (2000 if seldom(draw, 15) else draw(st.integers(0, 3)))
    inside = "{ int deep;" * deep + declared + "}" * deep
    kind = one_of(TYPES, ODD_TYPES)
    return f'{HEAD}\nextern "C" __global__ void k({kind}{stars} p) {{ {inside} }}\n'


@given(sources(), st.integers(0, 1 << 40))
@cases(40)
def test_any_source_is_read_or_refused(source: str, size: int) -> None:
    with suppress(MemlabError):
        signatures(TranslationUnit(source, "k.cu", HOPPER))
    launch = Launch(
        kernel="k",
        parameters={},
        source=source,
        source_name="k.cu",
        entry="k",
        defines={},
        grid=(1, 1, 1),
        block=(1, 1, 1),
        dynamic_shared_bytes=0,
        arguments=(),
        flop=None,
        compulsory_bytes=0,
        references={},
        tolerance=0.0,
    )
    known = layouts(launch, HOPPER)
    for symbol in (*known, "a", "_ZZ1kE1a_0"):
        chosen = layout_of(symbol, size, known)
        assert chosen is None or isinstance(chosen, VariableLayout)
