"""Runs of real kernels for the tests: counters and times of an NVIDIA H200.

The figures are Nsight Compute's and CUDA events' on an H200 (sm_90, CUDA 13.0), matrix products
of width 2048 and others; requested bytes and passes through the L1 follow from the kernels'
sources: naive's warps of 16 x 2 threads touch two lines of M and one of N in each of 2048 steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from memlab.device.measurement import (
    Counters,
    Coverage,
    DeviceSummary,
    Measurement,
    Occupancy,
    Resources,
    Time,
    Verification,
)
from memlab.device.properties import DeviceProperties
from memlab.roofline.advice.advise import advise
from memlab.roofline.placement import place_measurement
from memlab.roofline.run import Ceiling, Run

if TYPE_CHECKING:
    from memlab.device.measurement import Provenance

WIDTH = 2048
FLOP = 2 * WIDTH**3
MATRIX_BYTES = 4 * WIDTH**2

H200 = DeviceProperties(
    name="NVIDIA H200",
    compute_capability=(9, 0),
    multiprocessor_count=132,
    clock_rate_hz=1_980_000_000,
    memory_clock_rate_hz=3_201_000_000,
    global_memory_bus_width_bits=6016,
    max_threads_per_block=1024,
    max_threads_per_multiprocessor=2048,
    fp32_lanes_per_sm=128,
    fp64_lanes_per_sm=64,
    l1_bytes_per_clock_per_sm=128,
    constant_passes_per_clock_per_sm=0.5,
    blocks_per_clock=0.84,
    l2_bytes_per_clock=5120,
)

CEILINGS = (
    Ceiling("dram", "DRAM", 4.814e12, "bandwidth", "datasheet"),
    Ceiling("l2", "L2", 10.138e12, "bandwidth", "datasheet"),
    Ceiling("l1", "L1 / shared", 33.454e12, "bandwidth", "datasheet"),
    Ceiling("fp32", "FP32", 66.908e12, "compute", "datasheet"),
    Ceiling("fp64", "FP64", 33.454e12, "compute", "datasheet"),
)
"""By hand: 2 x 3201 MHz x 6016 bit / 8; 5120 B and 132 x 128 B at 1980 MHz; 2 x 132 x 128 lanes."""

COUNTERS = {
    "naive": Counters.from_names(
        global_load_requests=536870912,
        global_load_sectors=1073741824,
        global_store_requests=131072,
        global_store_sectors=524288,
        l1_wavefronts=805568512,
        l2_read_sectors=132145814,
        l2_write_sectors=524288,
        dram_read_bytes=33650176,
        dram_write_bytes=12697600,
        requested_load_bytes=8 * WIDTH**3,
        requested_store_bytes=MATRIX_BYTES,
        flop_fp32=FLOP,
    ),
    "tiled8": Counters.from_names(
        global_load_requests=67108864,
        global_load_sectors=268435456,
        global_store_requests=131072,
        global_store_sectors=519599,
        shared_load_instructions=335544320,
        shared_load_wavefronts=402653184,
        shared_store_instructions=67108864,
        shared_store_wavefronts=67108864,
        l1_wavefronts=738721792,
        l2_read_sectors=191249431,
        l2_write_sectors=524288,
        dram_read_bytes=33681920,
        dram_write_bytes=12439040,
        requested_load_bytes=WIDTH**3,
        requested_store_bytes=MATRIX_BYTES,
        flop_fp32=FLOP,
    ),
    "tiled16": Counters.from_names(
        global_load_requests=33554432,
        global_load_sectors=134217728,
        global_store_requests=131072,
        global_store_sectors=524320,
        shared_load_instructions=335544320,
        shared_load_wavefronts=402653184,
        shared_store_instructions=33554432,
        shared_store_wavefronts=33554432,
        l1_wavefronts=503578624,
        l2_read_sectors=113966300,
        l2_write_sectors=524288,
        dram_read_bytes=33575936,
        dram_write_bytes=12285952,
        requested_load_bytes=WIDTH**3 // 2,
        requested_store_bytes=MATRIX_BYTES,
        flop_fp32=FLOP,
    ),
    "tiled32": Counters.from_names(
        global_load_requests=16777216,
        global_load_sectors=67108864,
        global_store_requests=131072,
        global_store_sectors=524288,
        shared_load_instructions=335544320,
        shared_load_wavefronts=402653184,
        shared_store_instructions=16777216,
        shared_store_wavefronts=16777216,
        l1_wavefronts=436338688,
        l2_read_sectors=55271980,
        l2_write_sectors=524288,
        dram_read_bytes=33594624,
        dram_write_bytes=12174336,
        requested_load_bytes=WIDTH**3 // 4,
        requested_store_bytes=MATRIX_BYTES,
        flop_fp32=FLOP,
    ),
    "row_sum": Counters.from_names(
        global_load_requests=2097152,
        global_load_sectors=67108864,
        global_store_requests=256,
        global_store_sectors=1024,
        l1_wavefronts=67109120,
        l2_read_sectors=8388608,
        l2_write_sectors=1024,
        dram_read_bytes=268443136,
        dram_write_bytes=2444544,
        requested_load_bytes=4 * 8192**2,
        requested_store_bytes=4 * 8192,
        flop_fp32=8192**2,
    ),
    "copy": Counters.from_names(
        global_load_requests=131072,
        global_load_sectors=524288,
        global_store_requests=131072,
        global_store_sectors=524288,
        l1_wavefronts=262144,
        l2_read_sectors=524288,
        l2_write_sectors=524288,
        dram_read_bytes=16781568,
        dram_write_bytes=380928,
        requested_load_bytes=4 * 4194304,
        requested_store_bytes=4 * 4194304,
    ),
    "transpose_shared": Counters.from_names(
        global_load_requests=131072,
        global_load_sectors=524288,
        global_store_requests=131072,
        global_store_sectors=524288,
        shared_load_instructions=131072,
        shared_load_wavefronts=4194304,
        shared_store_instructions=131072,
        shared_store_wavefronts=131072,
        shared_excessive_wavefronts=4063232,
        l1_wavefronts=4587520,
        l2_read_sectors=524288,
        l2_write_sectors=524288,
        dram_read_bytes=16781056,
        dram_write_bytes=492544,
        requested_load_bytes=MATRIX_BYTES,
        requested_store_bytes=MATRIX_BYTES,
    ),
}

MEDIAN_S = {
    "naive": 3182.672024e-6,
    "tiled8": 3378.36802e-6,
    "tiled16": 2114.832044e-6,
    "tiled32": 1858.527958e-6,
    "row_sum": 1075.551987e-6,
    "copy": 17.63200015e-6,
    "transpose_shared": 29.10399996e-6,
}
"""Medians of warm launches, CUDA events."""


def measurement(name: str, provenance: Provenance = "measured") -> Measurement:
    """Build the measurement of one of `COUNTERS`."""
    counters = COUNTERS[name]
    edge = {"tiled8": 8, "tiled32": 32}.get(name, 16)
    side = WIDTH // edge
    product = name.startswith(("naive", "tiled"))
    shapes = {
        "row_sum": ((32, 1, 1), (256, 1, 1)),
        "copy": ((16384, 1, 1), (256, 1, 1)),
        "transpose_shared": ((64, 64, 1), (32, 8, 1)),
    }
    grid, block = shapes.get(name, ((side, side, 1), (edge, edge, 1)))
    blocks_per_sm = min(32, 2048 // (block[0] * block[1]))
    return Measurement(
        kernel="tiled" if name.startswith("tiled") else name,
        parameters={"width": WIDTH, "tile": edge} if product else {"n": grid[0] * block[0]},
        tile=edge if product else None,
        flop=counters.flop_fp32,
        compulsory_bytes=3 * MATRIX_BYTES
        if product
        else counters.requested_load_bytes + counters.requested_store_bytes,
        device=DeviceSummary("NVIDIA H200", "emulated", (9, 0), "h200"),
        grid=grid,
        block=block,
        dynamic_shared_bytes=0,
        resources=Resources(32, 8 * edge**2 if name.startswith("tiled") else 0, 0),
        occupancy=Occupancy(blocks_per_sm, 64, 1.0, "warps", {"warps": blocks_per_sm}),
        coverage=Coverage(grid[0] * grid[1], grid[0] * grid[1]),
        counters=counters,
        lines=(),
        time=Time(MEDIAN_S[name], provenance),
        verification=Verification("passed", 1e-6, 1e-4, 100, 100),
    )


def run_of(measured: Measurement) -> Run:
    """Place a measurement and make a run of it."""
    placement = place_measurement(measured, CEILINGS)
    return Run(
        id=None,
        created_at="2026-01-02T03:04:05Z",
        memlab_version="0.1.0",
        measurement=measured,
        placement=placement,
        advice=advise(measured, placement, H200),
    )


def run(name: str, provenance: Provenance = "measured") -> Run:
    """Build the run of one of `COUNTERS`."""
    return run_of(measurement(name, provenance))


def ladder(provenance: Provenance = "modelled") -> list[Run]:
    """Build the runs naive, tiled 8, 16 and 32 at width 2048."""
    return [run(name, provenance) for name in ("naive", "tiled8", "tiled16", "tiled32")]


def timed(measured: Measurement, median_s: float) -> Measurement:
    """Change the time of a measurement."""
    return replace(measured, time=replace(measured.time, median_s=median_s))
