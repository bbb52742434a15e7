"""Which programs do to memory what data tells them to: judged by reading the source."""

from __future__ import annotations

import ptx
import pytest

from memlab.device.compiler.compile import compile_unit
from memlab.device.compiler.translation_unit import TranslationUnit
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulator.program.program import (
    Program,
    load_program,
)
from memlab.device.emulator.ptx.parser import parse_ptx
from memlab.device.emulator.sampling.data_dependence import (
    atomics_decide_paths,
    data_decided_writes,
    decision_sources,
    depends_on_data,
    has_global_atomics,
    sign_only_registers,
)
from memlab.kernels.catalog import CATALOG

HEAD = 'extern "C" __global__ void k(float *x, float *y, int *p, int n)'
THREAD = "int i = blockIdx.x * blockDim.x + threadIdx.x;"

DEPENDENT = {
    "a gather": "y[i] = x[p[i]];",
    "a scatter": "y[p[i] & 255] = x[i];",
    "a histogram": "atomicAdd(&p[(int)x[i]], 1);",
    "a loop as long as data says": "float s = 0; for (int j = p[i]; j < p[i + 1]; j++) s += x[j];"
    "y[i] = s;",
    "a store if data says so": "if (x[i] > 0) y[i] = 1;",
    "a pointer from memory": "y[i] = *((float **)x)[i];",
    "an index that went through shared memory": "__shared__ int s[64]; s[threadIdx.x] = p[i];"
    "__syncthreads(); y[i] = x[s[63 - threadIdx.x]];",
    "an index from another lane": "y[i] = x[__shfl_xor_sync(~0u, p[i], 1)];",
    "an index that an atomic added up": "__shared__ int s[64]; s[threadIdx.x] = 0;"
    "__syncthreads(); atomicAdd(&s[0], p[i]); __syncthreads(); y[i] = x[s[0]];",
    "the last block to be done": "if (atomicAdd(p, 1) == gridDim.x - 1) y[0] = x[0];",
    "waiting for a flag": "while (((volatile int *)p)[0] == 0); y[i] = 1;",
}
INDEPENDENT = {
    "a copy": "y[i] = x[i];",
    "a guard by the arguments": "if (i < n) y[i] = x[i] * n;",
    "a choice between values": "y[i] = x[i] > 0 ? x[i] : 0;",
    "a loop by the arguments": "float s = 0; for (int j = 0; j < n; j++) s += x[i * n + j];"
    "y[i] = s;",
    "a sum over a block": "__shared__ float s[64]; s[threadIdx.x] = x[i];"
    "for (int d = 32; d; d /= 2) { __syncthreads();"
    "if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d]; } y[i] = s[0];",
    "a sum over the grid": "atomicAdd(y, x[i]);",
    "an index kept in shared memory": "__shared__ int s[64]; s[threadIdx.x] = n + i;"
    "__syncthreads(); y[i] = x[s[63 - threadIdx.x]];",
    "a sum over a warp": "float v = x[i]; for (int d = 16; d; d /= 2)"
    "v += __shfl_down_sync(~0u, v, d); if (threadIdx.x % 32 == 0) y[i / 32] = v;",
}


def program(body: str) -> Program:
    text = compile_unit(TranslationUnit(f"{HEAD} {{ {THREAD} {body} }}", "k.cu", (9, 0))).ptx
    return load_program(parse_ptx(text), "k")


@pytest.mark.parametrize("what", DEPENDENT)
def test_decisions_by_data_are_found(what: str) -> None:
    assert depends_on_data(program(DEPENDENT[what]))


@pytest.mark.parametrize("what", INDEPENDENT)
def test_data_that_decides_nothing_is_no_dependence(what: str) -> None:
    assert not depends_on_data(program(INDEPENDENT[what]))


def test_sources_of_branches_and_addresses_are_found() -> None:
    """All but the values that go through memory."""
    found = program("float v = x[i]; v = v * v + 1; if (i < n) y[i] = v;")
    registers, spaces = decision_sources(found)

    floats = {name for name, ptx_type in found.registers.items() if ptx_type == "f32"}
    used = {
        name for step in found.steps for name in (*step.registers_read, *step.registers_written)
    }
    assert registers.isdisjoint(floats)
    assert registers >= {name for name in used - floats if name.startswith("%r")}
    assert not spaces
    kept = "__shared__ int s[64]; s[threadIdx.x] = i; __syncthreads(); y[s[0]] = 1;"
    assert decision_sources(program(kept))[1] == {"shared"}


def test_registers_tested_only_for_their_sign_are_found() -> None:
    both = sign_only_registers(program("if ((i | n) < 0) y[0] = 1;"))
    stored = sign_only_registers(program("int j = i | n; if (j < 0) p[0] = j;"))

    assert len(both) == 3  # both sources too, which nothing else reads
    assert not stored


def test_in_the_catalog_only_the_scattered_access_depends_on_data() -> None:
    """All others are matrix products, stencils, sums and copies, whose traffic geometry decides."""
    found = set()
    for name, kernel in CATALOG.items():
        launch = kernel.prepare({}, launch_limits(loader.load_datasheet("h200")))
        text = compile_unit(TranslationUnit.of(launch, (9, 0))).ptx
        if depends_on_data(load_program(parse_ptx(text), launch.entry)):
            found.add(name)
    assert found == {"scattered"}


@pytest.mark.parametrize(
    ("body", "decides"),
    [
        ("while (atomicCAS(&p[i & 7], 0, i) != 0) i++;", True),
        ("if (atomicAdd(p, 1) == gridDim.x - 1) y[0] = x[0];", True),
        ("p[64 + atomicAdd(p, 1)] = i;", False),  # where it stores, not whether
        ("atomicAdd(p, 1); if (p[i] > 0) y[i] = 1;", False),
        ("__shared__ int s; if (atomicAdd(&s, 1) == 3) y[i] = 1;", False),
    ],
)
def test_branches_that_results_of_atomics_decide(body: str, decides: bool) -> None:
    assert atomics_decide_paths(program(body)) == decides


def test_atomics_on_global_memory_are_found() -> None:
    assert has_global_atomics(program("atomicAdd(y, x[i]);"))
    assert not has_global_atomics(
        program("__shared__ int s; s = 0; __syncthreads(); atomicAdd(&s, 1); y[i] = s;")
    )


@pytest.mark.parametrize(
    ("comparison", "by_sign"),
    [
        ("lt.s32 %p1, %r1, 0", True),
        ("ge.s32 %p1, %r1, 0", True),
        ("gt.s32 %p1, %r1, -1", True),
        ("le.s32 %p1, %r1, -1", True),
        ("lt.s32 %p1, %r1, -1", False),
        ("ge.s32 %p1, %r1, -1", False),
        ("gt.s32 %p1, %r1, 0", False),
        ("le.s32 %p1, %r1, 0", False),
        ("le.s32 %p1, %r1, -2", False),
        ("gt.s32 %p1, %r1, 1", False),
        ("eq.s32 %p1, %r1, 0", False),
        ("ge.u32 %p1, %r1, 0", False),
        ("lt.s32 %p1, %r1, %r9", False),
    ],
)
def test_comparisons_that_ask_for_the_sign_alone(comparison: str, by_sign: bool) -> None:
    text = ptx.kernel(
        ".reg .pred %p<9>; .reg .b32 %r<32>;\n"
        f"mov.u32 %r2, %tid.x; mov.u32 %r9, 4; or.b32 %r1, %r2, %r2; setp.{comparison};"
        "@%p1 bra done; done: ret;"
    )
    found = sign_only_registers(load_program(parse_ptx(text), "k"))
    assert ({"%r1", "%r2"} <= found) == by_sign


WRITES = {
    "y[i] = x[i];": False,
    "if (i < n) y[i] = x[i];": False,
    "float s = 0; for (int j = p[i]; j < p[i + 1]; j++) s += x[j]; y[i] = s;": False,
    "float s = 0; if (x[i] > 0) s = 1; else s = x[i + 1]; y[i] = s;": False,
    "while (*(volatile int *)p == 0) ; y[i] = x[i];": False,
    "y[p[i]] = x[i];": True,
    "y[atomicAdd(p, 1)] = x[i];": True,
    "if (x[i] > 0) y[i] = 1;": True,
    "if (x[i] > 0) return; y[i] = 1;": True,
    "for (int j = i; j < p[0]; j += 32) y[j] = 1;": True,
    # The branch of the data is over; what it computed decides.
    "int c = 0; for (int j = 0; j < n; j++) if (x[j] > 0) c++; if (i < c) y[i] = 1;": True,
    "__shared__ int c; if (i == 0) c = p[0]; __syncthreads(); if (i < c) y[i] = 1;": True,
}


@pytest.mark.parametrize("body", WRITES)
def test_which_writes_data_decides(body: str) -> None:
    compiled = program(body)
    rows = [compiled.steps[index].row for index in data_decided_writes(compiled)]
    assert any(row.kind == "store" and row.space == "global" for row in rows) == WRITES[body]
