"""The modelled time of contended atomics, against what an H200 took (`h200-atomics.csv`)."""

import csv

import pytest
from paths import REPOSITORY

import memlab
from memlab.device.emulation import device as emulated_device
from memlab.device.machine_code.disassembly import DisassemblyError

SOURCE = """extern "C" __global__ void add(TYPE *words, int distinct, int stride, int trips)
{
    TYPE *word = words + threadIdx.x % 32 % distinct * stride;
    for (int trip = 0; trip < trips; ++trip) atomicAdd(word, TYPE(1));
}"""
BLOCKS, THREADS, TRIPS = 264, 256, (8, 40)
MEASURED = {
    (row["type"], int(row["addresses"]), int(row["stride_bytes"])): float(row["ns_per_request"])
    for row in csv.DictReader((REPOSITORY / "docs/results/h200-atomics.csv").open())
    if (row["kernel"], row["lanes"], row["block_stride_bytes"]) == ("add", "32", "0")
}
TYPES = {"u32": "unsigned", "f32": "float"}


@pytest.mark.parametrize(
    ("case", "tolerance"),
    [
        (("u32", 1, 4), 0.02),  # one address
        (("u32", 4, 4), 0.02),  # words of a sector are added to at once
        (("u32", 4, 32), 0.02),  # sectors of a line one after the other
        (("u32", 32, 128), 0.05),  # four lines of 4 KiB fall to a slice
        (("f32", 1, 4), 0.02),
        (("f32", 8, 4), 0.02),  # at once too, at the interval of floats
        (("f32", 8, 32), 0.02),  # meanwhile a slice adds to other sectors
        (("u32", 8, 4), 0.3),  # whole sectors are 20% faster, which the model does not know
    ],
)
def test_contended_atomics_take_the_measured_time(tmp_path, case, tolerance):
    kind, addresses, stride_bytes = case
    (tmp_path / "add.cu").write_text(SOURCE)
    words = max(addresses * stride_bytes // 4, 8)

    def seconds(trips):
        args = [f"inout:{kind}[{words}]=zeros", f"i32={addresses}", f"i32={stride_bytes // 4}"]
        return memlab.run(
            f"{tmp_path}/add.cu:add",
            device="h200",
            grid=BLOCKS,
            block=THREADS,
            args=[*args, f"i32={trips}"],
            defines={"TYPE": TYPES[kind]},
        ).measurement.time.median_s

    few, many = TRIPS
    requests = BLOCKS * THREADS // 32 * (many - few)
    modelled_ns = 1e9 * (seconds(many) - seconds(few)) / requests
    assert modelled_ns == pytest.approx(MEASURED[case], rel=tolerance)


UNIFORM = """extern "C" __global__ void add(TYPE *sum, const TYPE *x)
{
    atomicAdd(sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
}"""


@pytest.mark.parametrize(("kind", "lanes"), [("u32", 1), ("f32", 32)])
def test_a_lane_operates_for_its_warp_where_ptxas_adds_it_up(tmp_path, kind, lanes):
    """ptxas knows that the lanes share an address, and adds up integers."""
    (tmp_path / "add.cu").write_text(UNIFORM)
    blocks = 1024
    measured = memlab.run(
        f"{tmp_path}/add.cu:add",
        device="h200",
        grid=blocks,
        block=THREADS,
        args=[f"inout:{kind}[1]=zeros", f"{kind}[{blocks * THREADS}]"],
        defines={"TYPE": TYPES[kind]},
    ).measurement
    passes = blocks * THREADS // 32 * lanes
    assert measured.counters.global_atomic_slice_passes == passes
    assert measured.counters.global_atomic_float_passes == (passes if kind == "f32" else 0)
    interval_s = {"u32": 0.73e-9, "f32": 1.754e-9}[kind]
    assert measured.time.bounds_s["atomics"] == pytest.approx(passes * interval_s)
    assert measured.time.median_s == pytest.approx(passes * interval_s, abs=4e-6)


def test_without_machine_code_no_time_is_below_that_of_atomics(tmp_path, monkeypatch):
    def refuse(*_):
        raise DisassemblyError("no disassembler")

    monkeypatch.setattr(emulated_device, "read_flow_graph", refuse)
    (tmp_path / "add.cu").write_text(SOURCE)
    run = memlab.run(
        f"{tmp_path}/add.cu:add",
        device="h200",
        grid=BLOCKS,
        block=THREADS,
        args=["inout:u32[32]=zeros", "i32=2", "i32=1", "i32=40"],
        defines={"TYPE": "unsigned"},
    )
    least_s = BLOCKS * THREADS // 32 * 40 * 16 * 0.73e-9  # 16 lanes on each of two words
    assert run.measurement.time.median_s == pytest.approx(least_s)
    assert run.placement.bound == "atomics"
    assert (
        "Atomics wait for one another: 1.35 M passes in one slice of the L2 take" in run.advice[0]
    )
