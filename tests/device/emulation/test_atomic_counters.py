"""Atomics in the counters, the bytes and the time, against a count from the addresses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import launches
import pytest

from memlab.device.compiler.compile import compile_launch
from memlab.device.datasheets import loader
from memlab.device.emulation.device import _mean_latencies, emulate
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.inputs import make_inputs
from memlab.device.measurement import Counters, LineCounters, Measurement
from memlab.device.properties import peak_bandwidth_bytes_per_s
from memlab.kernels.launch import Buffer, Launch, Scalar, SingleValue, Uniform
from memlab.roofline.analysis.boundary import edge_case
from memlab.roofline.placement import bytes_moved

H200 = loader.load_datasheet("h200")
THREADS = 256
launch_of = partial(launches.launch_of, blocks=4, threads=THREADS)

STRIDED = """extern "C" __global__ void k(float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&out[i * 8], 1.0f);
}
"""
COUNTING = """extern "C" __global__ void k(const int *keys, unsigned *bins, unsigned *rank)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned before = atomicAdd(&bins[keys[i]], 1u);
    rank[i] = before;
}
"""
SWAPPING = """extern "C" __global__ void k(unsigned *flags)
{
    atomicExch(&flags[threadIdx.x], 1u);
    asm volatile("red.global.add.u32 [%0], 1;" :: "l"(flags + threadIdx.x) : "memory");
}
"""
AGGREGATED = """extern "C" __global__ void k(int *of_all)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(of_all, 10);
    atomicMax(of_all + 1, i);
    atomicAnd(of_all + 2, i);
    atomicAdd(of_all, 20);
    atomicExch(of_all + 3, i);
}
"""
SHARED = """extern "C" __global__ void k(unsigned *out)
{
    __shared__ unsigned mine[1024];
    mine[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&mine[threadIdx.x * 4], 1u);
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = mine[threadIdx.x];
}
"""


def strided(threads: int) -> Launch:
    out = Buffer("out", (8 * threads,), "float32", "inout", SingleValue(0))
    return launch_of(STRIDED, out, Scalar("n", "int32", threads), blocks=threads // THREADS)


def run(launch: Launch) -> Measurement:
    return EmulatedDevice("h200", H200).run(launch, seed=3)


def test_an_atomic_without_a_used_result_is_a_reduction_in_the_l2() -> None:
    """One sector per thread: 32 per request, and DRAM reads each once."""
    threads = 1 << 20

    measured = run(strided(threads))

    counters = measured.counters
    assert counters.global_reduction_requests == threads // 32
    assert counters.global_reduction_sectors == threads
    assert counters.global_atomic_requests == 0
    assert counters.requested_atomic_bytes == 4 * threads
    assert counters.l2_read_sectors == counters.l2_write_sectors == 0
    moved = bytes_moved(measured)
    assert moved["requested"] == 4 * threads
    assert moved["l1"] == moved["l2"] == 32 * threads
    # All of the array comes into the L2; two sectors of four in a line are read together.
    assert counters.dram_read_bytes == pytest.approx(32 * threads, rel=0.01)
    bandwidth = peak_bandwidth_bytes_per_s(H200)
    assert bandwidth is not None
    assert measured.time.median_s >= counters.dram_read_bytes / bandwidth
    # A line a lane's sector and its three neighbours': eight lines a request.
    assert counters.l1_wavefronts == 8 * threads // 32


def test_lines_and_totals_agree_on_atomics() -> None:
    launch = strided(4096)
    emulation = emulate(launch, compile_launch(launch, H200.compute_capability), H200, seed=0)

    assert sum(line.global_sectors for line in emulation.lines) == 4096
    (access,) = emulation.accesses
    assert (access.space, access.direction, access.array) == ("global", "reduction", "out")
    assert access.counters.global_requests == 4096 // 32
    assert edge_case(launch, emulation.counters).sectors == 4096


def test_atomics_whose_result_is_read_count_the_sectors_of_their_addresses() -> None:
    threads, bins = 1024, 5000
    keys = Buffer("keys", (threads,), "int32", "in", Uniform(0, bins))
    launch = launch_of(
        COUNTING,
        keys,
        Buffer("bins", (bins,), "uint32", "inout", SingleValue(0)),
        Buffer("rank", (threads,), "uint32", "out"),
    )
    warps = make_inputs(launch, 3)["keys"].reshape(-1, 32)
    sectors = sum(len(set(warp)) for warp in (warps // 8).tolist())
    assert sectors > threads // 2  # scattered

    counters = run(launch).counters

    assert counters.global_atomic_requests == threads // 32
    assert counters.global_atomic_sectors == sectors
    assert counters.global_reduction_requests == 0
    assert counters.global_load_requests == counters.global_store_requests == threads // 32
    assert counters.l2_write_sectors == threads // 8  # of the store alone


def test_an_exchange_stays_an_atomic() -> None:
    """There is no reduction instruction for an exchange."""
    counters = run(launch_of(SWAPPING, Buffer("flags", (256,), "uint32", "inout"))).counters

    assert counters.global_atomic_requests == counters.global_reduction_requests == 4 * 8
    assert counters.global_atomic_sectors == 4 * 256 // 8


def test_shared_atomics_take_the_port_for_their_banks() -> None:
    """Four words apart, 32 lanes share 8 banks: four wavefronts where one is ideal."""
    counters = run(launch_of(SHARED, Buffer("out", (1024,), "uint32", "out"))).counters

    warps = 4 * 8
    assert counters.shared_atomic_instructions == warps
    assert counters.shared_atomic_wavefronts == 4 * warps
    assert counters.shared_excessive_wavefronts == 3 * warps
    # A store and a load of shared memory, the atomic, and one line per store of a warp.
    assert counters.l1_wavefronts == (1 + 1 + 4 + 1) * warps


def test_generic_accesses_count_in_the_space_of_their_addresses() -> None:
    """The compiler cannot know which memory the pointer refers to; its address shows it."""
    source = """__device__ __noinline__ float at(const float *where) { return *where; }
extern "C" __global__ void k(float *out)
{
    __shared__ float mine[256];
    mine[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = at(&mine[threadIdx.x]);
}
"""
    counters = run(launch_of(source, Buffer("out", (1024,), "float32", "out"))).counters

    assert counters.global_load_requests == counters.requested_load_bytes == 0
    assert counters.shared_load_wavefronts == 4 * 8


def test_the_counts_of_a_line_are_divided_among_its_accesses() -> None:
    launch = launch_of(
        COUNTING,
        Buffer("keys", (1024,), "int32", "in", Uniform(0, 99)),
        Buffer("bins", (99,), "uint32", "inout", SingleValue(0)),
        Buffer("rank", (1024,), "uint32", "out"),
    )
    emulation = emulate(launch, compile_launch(launch, H200.compute_capability), H200, seed=0)

    of_memory = [
        name
        for name in LineCounters.names()
        if name.startswith(("global", "shared", "local", "constant", "requested"))
    ]
    for line in emulation.lines:
        mine = [
            access.counters for access in emulation.accesses if access.counters.line == line.line
        ]
        for name in of_memory:
            assert sum(getattr(access, name) for access in mine) == getattr(line, name), name
    told = [(access.direction, access.array) for access in emulation.accesses]
    assert told == [("load", "keys"), ("atomic", "bins"), ("store", "rank")]


def test_atomics_wait_for_the_dram_as_often_as_they_read_it() -> None:
    """The cache models give the sectors that the L2 reads from the DRAM for atomics."""
    l1, l2, dram = H200.l1_latency_clocks, H200.l2_latency_clocks, H200.dram_latency_clocks
    assert l1
    assert l2
    assert dram
    atomics = Counters().replace_named(global_atomic_sectors=60, global_reduction_sectors=40)
    # Of 200 loaded sectors, 50 hit the L1 and 120 the L2: 30 are read from the DRAM.
    loads = replace(
        atomics.replace_named(global_load_sectors=200),
        l1_read_sector_hits=50,
        l2_read_sectors=150,
        l2_read_sector_hits=120,
        dram_read_bytes=32 * (30 + 25),
    )
    latencies = _mean_latencies(loads, H200)
    assert latencies.global_atomic == pytest.approx(0.75 * l2 + 0.25 * dram)
    assert latencies.global_load == pytest.approx(0.25 * l1 + 0.75 * (0.8 * l2 + 0.2 * dram))
    # More sectors read than atomics have: all miss.
    all_missing = _mean_latencies(replace(atomics, dram_read_bytes=32 * 101), H200)
    assert all_missing.global_atomic == pytest.approx(dram)
    # Without accesses nothing misses.
    idle = _mean_latencies(Counters(), H200)
    assert (idle.global_load, idle.global_atomic) == (l1, l2)


def test_one_lane_operates_for_its_warp_but_where_each_lane_has_a_result_of_its_own() -> None:
    """On one sector: a pass of each sum, maximum and conjunction of a warp, 32 of its exchange."""
    of_all = Buffer("of_all", (8,), "int32", "inout", SingleValue(0))
    launch = launch_of(AGGREGATED, of_all)
    compiled = compile_launch(launch, H200.compute_capability)

    counters = emulate(launch, compiled, H200, 0).counters

    warps = 4 * THREADS // 32
    assert counters.global_atomic_slice_passes == warps * (4 * 1 + 32)
