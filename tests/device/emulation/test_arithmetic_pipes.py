"""FLOPs of 16-bit numbers outside the tensor cores, and integer operations, counted by hand."""

from __future__ import annotations

from functools import partial

import launches
import pytest

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation import device as emulated_device
from memlab.device.emulation.device import Emulation, emulate
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.machine_code.disassembly import DisassemblyError
from memlab.device.measurement import flop_by_pipe, integer_op_by_pipe
from memlab.kernels.launch import Buffer, Launch, Scalar

THREADS = 128
launch_of = partial(launches.launch_of, blocks=1, threads=THREADS)

HALVES = """#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void k(const __half *x, __half *y, __half2 *z, const __nv_bfloat16 *u,
                             __nv_bfloat162 *v)
{
    int i = threadIdx.x;
    y[i] = __hfma(x[i], x[i], y[i]);
    z[i] = __hmul2(__hfma2(z[i], z[i], z[i]), z[i]);
    v[i] = __hfma2(v[i], v[i], __halves2bfloat162(u[i], __hfma(u[i], u[i], u[i])));
}
"""
HASH = """extern "C" __global__ void k(unsigned *x, int rounds)
{
    unsigned h = x[threadIdx.x];
#pragma unroll 1
    for (int k = 0; k < rounds; ++k) {
        h ^= h >> 16;
        h *= 0x85ebca6bu;
        h += __popc(h);
    }
    x[threadIdx.x] = h;
}
"""
ROUNDS = 50


def counted(launch: Launch, name: str = "h200") -> Emulation:
    properties = loader.load_datasheet(name)
    compiled = compile_launch(launch, properties.compute_capability)
    return emulate(launch, compiled, properties, seed=0)


def hashing() -> Launch:
    words = Buffer("x", (THREADS,), "uint32", "inout")
    return launch_of(HASH, words, Scalar("rounds", "int32", ROUNDS))


def test_a_packed_fma_is_four_flop_and_lines_agree() -> None:
    found = counted(
        launch_of(
            HALVES,
            Buffer("x", (THREADS,), "float16", "in"),
            Buffer("y", (THREADS,), "float16", "inout"),
            Buffer("z", (2 * THREADS,), "float16", "inout"),
            Buffer("u", (THREADS,), "bfloat16", "in"),
            Buffer("v", (2 * THREADS,), "bfloat16", "inout"),
        )
    )

    assert flop_by_pipe(found.counters) == {
        "fp32": 0,
        "fp64": 0,
        "fp16_fma": (2 + 4 + 2) * THREADS,
        "bf16_fma": (4 + 2) * THREADS,
    }
    assert {line.line: line.flop for line in found.lines if line.flop} == {
        7: 2 * THREADS,
        8: 6 * THREADS,
        9: 6 * THREADS,
    }


def test_integer_operations_are_those_of_the_machine_code_by_pipe_and_line() -> None:
    found = counted(hashing())

    lines = {line.line: line.iop for line in found.lines}
    assert lines[6] == 2 * ROUNDS * THREADS  # a shift and an exclusive or
    assert lines[7] == ROUNDS * THREADS
    assert lines[8] == 2 * ROUNDS * THREADS  # a count and a sum
    totals = integer_op_by_pipe(found.counters)
    assert totals["int_xu"] == ROUNDS * THREADS
    assert sum(totals.values()) == sum(lines.values())
    # Beside the loop: a comparison with 0 and an address for each thread.
    assert totals["int_fma"] - ROUNDS * THREADS in (THREADS, (1 + ROUNDS) * THREADS)


def test_without_machine_code_the_ptx_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = integer_op_by_pipe(counted(hashing()).counters)

    def refuse(*_: object) -> None:
        raise DisassemblyError("no disassembler")

    monkeypatch.setattr(emulated_device, "read_flow_graph", refuse)
    found = integer_op_by_pipe(counted(hashing()).counters)
    assert found["int_xu"] == exact["int_xu"]
    assert sum(found.values()) == pytest.approx(sum(exact.values()), rel=0.2)


def test_a_time_is_never_below_what_the_integer_pipes_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch = launches.launch_of(
        HASH.replace("h += __popc(h);", "h ^= h >> 13; h ^= h >> 7; h ^= h >> 3;"),
        Buffer("x", (1024,), "uint32", "inout"),
        Scalar("rounds", "int32", 2000),
        blocks=2 * 132,
        threads=1024,
    )

    def refuse(*_: object) -> None:
        raise DisassemblyError("no disassembler")

    for by_counters in (False, True):
        if by_counters:
            monkeypatch.setattr(emulated_device, "read_flow_graph", refuse)
        properties = loader.load_datasheet("h200")
        measured = EmulatedDevice("h200", properties).run(launch, seed=0)
        least_s = measured.counters.iop_alu / (64 * 132 * 1.98e9)
        assert least_s <= measured.time.median_s < 1.6 * least_s
        assert measured.time.bounds_s["int_alu"] == pytest.approx(least_s)


@pytest.mark.parametrize(
    ("line", "kind", "per_thread"),
    [
        ("if (i < n) atomicAdd(c, 1);", "int", 4),
        ("atomicAdd(c, x[i]);", "int", 3),
        ("atomicMax(c, x[i]);", "int", 3),
        ("atomicAdd(c, x[i]);", "float", 2),
        ("y[i] = atomicAdd(c, 1);", "int", 8),
    ],
)
def test_integer_operations_are_those_that_an_h200_counted(
    line: str, kind: str, per_thread: int
) -> None:
    """`smsp__sass_thread_inst_executed_op_integer_pred_on.sum`, of 4096 blocks of 256 threads."""
    source = (
        f"__global__ void k({kind} *c, const {kind} *x, {kind} *y, int n)\n"
        f"{{ int i = blockIdx.x * blockDim.x + threadIdx.x; {line} }}"
    )
    number = {"int": "int32", "float": "float32"}[kind]
    found = counted(
        launches.launch_of(
            f'extern "C" {source}',
            Buffer("c", (1,), number, "inout"),
            Buffer("x", (2048,), number, "in"),
            Buffer("y", (2048,), number, "inout"),
            Scalar("n", "int32", 2048),
            blocks=8,
            threads=256,
        )
    )
    assert sum(integer_op_by_pipe(found.counters).values()) == per_thread * 2048
