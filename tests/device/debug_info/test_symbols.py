"""Names from the symbols that compilers write; dimensions against the declarations."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.debug_info.symbols import layout_of, layouts, source_name
from memlab.kernels.launch import Launch

HOPPER = (9, 0)
SIZES = {"bool": 1, "short": 2, "float": 4, "double": 8, "float4": 16, "int *": 8}
_VARIABLE = re.compile(r"\.(?:shared|const) \.align \d+ \.[bfus](\d+) (\w+)(\[\d*\])?;")


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZZ5tiledE6M_tile", "M_tile"),
        ("_ZZ4tilePKfPfE3buf", "buf"),
        ("_ZZ6kernelE1E", "E"),
        ("_ZZ6kernelE4tile_0", "tile"),
        ("_ZZ6kernelE4pair_$_0", "pair"),  # the compiler took the structure apart
        ("_ZZ1kE4aE1b", "aE1b"),
        ("_ZZ6insideILi7EEffE4tile", "tile"),
        ("_ZZZ3twoENKUliE_clEiE2sh", "sh"),
        ("_ZZE" + "9" * 5000 + "x", "_ZZE" + "9" * 5000 + "x"),  # no compiler's, but a name in C++
        ("tiles", "tiles"),
        ("__local_depot0", "local"),
    ],
)
def test_source_names_of_symbols(symbol: str, name: str) -> None:
    assert source_name(symbol) == name


def launch_of(source: str) -> Launch:
    return Launch(
        kernel="k",
        parameters={},
        source=source,
        source_name="k.cu",
        entry="k",
        defines={"TILE": "16"},
        grid=(1, 1, 1),
        block=(32, 1, 1),
        dynamic_shared_bytes=0,
        arguments=(),
        flop=None,
        compulsory_bytes=0,
        references={},
        tolerance=0.0,
    )


def read(source: str, at_launch: int = 0) -> dict[str, tuple[tuple[int, ...], int] | None]:
    """Shape and bytes per element of the PTX's shared and constant variables, by symbol."""
    launch = launch_of(source)
    known = layouts(launch, HOPPER)
    found = {}
    ptx = compile_unit(TranslationUnit.of(launch, HOPPER)).ptx
    for bits, symbol, elements in _VARIABLE.findall(ptx):
        unsized = elements == "[]"
        count = int(elements.strip("[]") or 1)
        layout = layout_of(symbol, at_launch if unsized else count * int(bits) // 8, known)
        found[symbol] = layout and (layout.shape, layout.element_bytes)
    return found


def test_layouts_that_only_a_compiler_knows() -> None:
    source = """
    #define SHARED(name) __shared__ float name[sizeof(double)][TILE + 1];
    __device__ constexpr int pad(int tile) { return tile < 32 ? 32 / tile : 1; }
    __constant__ float weights[pad(TILE)];
    namespace physics { __constant__ double table[2][TILE]; }
    __shared__ float outside[3][5];
    template <int T> __device__ float inside(float x) {
      __shared__ float tile[T][T + 1];
      tile[threadIdx.x][0] = x; __syncthreads(); return tile[0][threadIdx.x];
    }
    extern "C" __global__ void k(float* p, int n) {
      extern __shared__ double sized_at_launch[][4];
      SHARED(by_macro)
      __shared__ struct { float x, y[4]; } pairs[6], one;
      outside[0][n] = n; by_macro[1][n] = n; pairs[n].x = n;
      one.y[n] = n; __syncthreads();
      { __shared__ float twice[4][8]; twice[0][n] = n; __syncthreads(); p[3] = twice[1][n + 1]; }
      { __shared__ short twice[9]; twice[n] = n; __syncthreads(); p[4] = twice[n + 1]; }
      p[0] = inside<7>(n) + inside<9>(n) + weights[n] + physics::table[1][n] + one.y[n + 1];
      p[1] = outside[1][n + 1] + by_macro[0][n + 1] + pairs[n + 1].x + sized_at_launch[1][n];
    }
    """
    assert read(source, at_launch=96) == {
        "weights": ((2,), 4),
        "_ZN7physics5tableE": ((2, 16), 8),
        "outside": ((3, 5), 4),
        "_ZZ6insideILi7EEffE4tile": ((7, 8), 4),
        "_ZZ6insideILi9EEffE4tile": ((9, 10), 4),
        "sized_at_launch": ((3, 4), 8),
        "_ZZ1kE8by_macro": ((8, 17), 4),
        "_ZZ1kE5pairs": ((6,), 20),
        "_ZZ1kE3one": ((1,), 20),
        "_ZZ1kE5twice": ((4, 8), 4),
        "_ZZ1kE5twice_0": ((9,), 2),
    }


ARRAYS = st.lists(
    st.tuples(st.sampled_from(sorted(SIZES)), st.lists(st.integers(1, 5), max_size=3).map(tuple)),
    min_size=1,
    max_size=12,
)


@given(ARRAYS)
@settings(max_examples=10, deadline=None, derandomize=True)
def test_arrays_are_divided_as_they_were_declared(
    arrays: list[tuple[str, tuple[int, ...]]],
) -> None:
    declared = ""
    expected = {}
    for number, (kind, shape) in enumerate(arrays):
        name = f"array_{number}"  # ends as a namesake would
        extents = "".join(f"[{extent}]" for extent in shape)
        declared += f"__shared__ {kind} {name}{extents}; p[{number}] = &{name};\n"
        expected[f"_ZZ1kE{len(name)}{name}"] = (shape or (1,), SIZES[kind])

    found = read(f'extern "C" __global__ void k(void** p) {{ {declared} }}')

    assert found == expected


HOSTILE = {
    "many declarators": "__shared__ int a[1]" + " a[1]" * 40 + "!",
    "a long sum": "__shared__ int a[" + "1+" * 5000 + "1];",
    "a shift by more than an int": "__shared__ int a[1<<99999999999999999999];",
    "a shift that takes all memory": "__shared__ int a[1<<6000000000];",
    "the word again and again": "__shared__ int " * 5000,
    "extern again and again": "extern " * 20000 + "extern" + " " * 100000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_skipped_text_is_not_read(text: str) -> None:
    kernel = 'extern "C" __global__ void k(void** p) { __shared__ int a[2][3]; p[0] = &a; }'

    assert read(f"#if 0\n{text}\n#endif\n{kernel}") == {"_ZZ1kE1a": ((2, 3), 4)}


@pytest.mark.slow
def test_deeply_nested_types_are_left_without_names() -> None:
    blocks = "{ int a = 1;" * 2000 + "*p = a;" + "}" * 2000

    assert layouts(launch_of(f'extern "C" __global__ void k(int* p) {blocks}'), HOPPER) == {}
