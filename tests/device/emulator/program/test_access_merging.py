"""Merged shared accesses against the machine code that ptxas makes of the same source."""

from __future__ import annotations

from collections import Counter

import pytest
from machine_code import accesses

from memlab.device.compiler.compile import compile_kernel, compile_launch
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.emulator.program import program
from memlab.device.emulator.ptx import parser
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Limits

KERNEL = """extern "C" __global__ void {entry}(const {type}* in, {type}* out, int m) {{
  __shared__ {type} s[1024];
  int t = threadIdx.x;
  {body}
}}
"""

READ = "s[t] = in[t]; __syncthreads(); {type} v = 0; {body} out[t] = v;"
"""Fills the array, then accumulates `v`."""

# What lies between neighbouring accesses decides whether they may be joined.
BETWEEN = {
    "nothing": READ.format(
        type="float", body="for (int i = 0; i < 4; ++i) v += s[(t & 7) * 4 + i];"
    ),
    "global_store": READ.format(
        type="float",
        body="for (int i = 0; i < 4; ++i) { v += s[(t & 7) * 4 + i]; out[t + i * m] = v; }",
    ),
    "shared_store": READ.format(
        type="float",
        body="for (int i = 0; i < 4; ++i) { v += s[(t & 7) * 4 + i]; s[t + 512] = v; }",
    ),
    "barrier": READ.format(
        type="float",
        body="for (int i = 0; i < 4; ++i) { v += s[(t & 7) * 4 + i]; __syncthreads(); }",
    ),
    "branch": READ.format(
        type="float", body="for (int i = 0; i < 4; ++i) if (m > i) v += s[(t & 7) * 4 + i];"
    ),
    "odd_rows": READ.format(
        type="float", body="for (int i = 0; i < 8; ++i) v += s[(t & 7) * 17 + i];"
    ),
    "read_between_stores": (
        "for (int i = 0; i < 4; ++i) { s[t * 4 + i] = in[t + i * m]; out[i * m] = s[t & m]; } "
        "__syncthreads(); out[t] = s[m];"
    ),
    "volatile": (
        "volatile float* x = s; for (int i = 0; i < 4; ++i) x[t * 4 + i] = in[t + i * m]; "
        "__syncthreads(); out[t] = s[m];"
    ),
}


def widths_of_machine_code(code: bytes, entry: str) -> dict[str, Counter[int | None]]:
    found = accesses(code, entry)
    return {
        kind: Counter(width_bytes for what, width_bytes in found if what == f"shared_{kind}")
        for kind in ("load", "store")
    }


def widths_counted(ptx: str, entry: str) -> dict[str, Counter[int]]:
    steps = program.load_program(parser.parse_ptx(ptx), entry).steps
    return {
        kind: Counter(
            step.counted_bytes
            for step in steps
            if step.row.kind == kind and step.row.space == "shared" and step.counted_bytes
        )
        for kind in ("load", "store")
    }


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [(7, 5), (8, 0), (8, 6), (9, 0)])
@pytest.mark.parametrize("tile", [4, 8, 9, 10, 12, 16, 24, 32])
def test_tiled_counts_the_shared_accesses_of_its_machine_code(
    tile: int, architecture: tuple[int, int]
) -> None:
    launch = find_kernel("tiled").prepare({"tile": tile}, Limits("any"))
    compiled = compile_launch(launch, architecture)

    counted = widths_counted(compiled.ptx, launch.entry)

    assert counted == widths_of_machine_code(compiled.cubin, launch.entry)
    assert counted["load"].total() > tile


@pytest.mark.parametrize(
    ("element", "span"),
    [
        pytest.param("float", 6, marks=pytest.mark.slow),
        ("double", 4),
        ("unsigned char", 4),
    ],
)
@pytest.mark.parametrize("kind", ["load", "store"])
def test_every_choice_of_neighbours_is_merged_as_by_ptxas(
    kind: str, element: str, span: int
) -> None:
    chosen = {
        f"k{mask}": [place for place in range(span) if mask >> place & 1]
        for mask in range(1, 1 << span)
    }
    row = 1 << (span - 1).bit_length()  # of elements, so that rows are aligned
    bodies = {
        entry: READ.format(
            type=element, body="".join(f"v += s[(t & 7) * {row} + {place}];" for place in places)
        )
        if kind == "load"
        else "".join(f"s[t * {row} + {place}] = in[t + {place} * m];" for place in places)
        + " __syncthreads(); out[t] = s[t ^ 1];"
        for entry, places in chosen.items()
    }
    source = "".join(
        KERNEL.format(entry=entry, type=element, body=body) for entry, body in bodies.items()
    )
    compiled = compile_kernel(TranslationUnit(source, "all.cu", (9, 0)), "k1")

    wrong = {
        str(places)
        for entry, places in chosen.items()
        if widths_counted(compiled.ptx, entry) != widths_of_machine_code(compiled.cubin, entry)
    }

    assert not wrong


@pytest.mark.parametrize("between", BETWEEN)
def test_instructions_between_accesses_may_prevent_merging(between: str) -> None:
    source = KERNEL.format(entry="kernel", type="float", body=BETWEEN[between])
    compiled = compile_kernel(TranslationUnit(source, "between.cu", (9, 0)), "kernel")

    assert widths_counted(compiled.ptx, "kernel") == widths_of_machine_code(
        compiled.cubin, "kernel"
    )
