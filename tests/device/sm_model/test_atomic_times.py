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


SHARED = """extern "C" __global__ void add(TYPE *out, const int *key, int bins)
{
    __shared__ TYPE sum[64];
    if (threadIdx.x < 64) sum[threadIdx.x] = 0;
    __syncthreads();
    for (int j = 0; j < 16; j++) atomicAdd(&sum[key[threadIdx.x + j * 256] % bins], TYPE(AMOUNT));
    __syncthreads();
    if (threadIdx.x < 64) out[blockIdx.x * 64 + threadIdx.x] = sum[threadIdx.x];
}"""


def shared_run(folder, kind, amount, bins):
    (folder / "add.cu").write_text(SHARED)
    blocks = 8 * 132
    return memlab.run(
        f"{folder}/add.cu:add",
        device="h200",
        grid=blocks,
        block=THREADS,
        args=[f"out:{kind}[{64 * blocks}]", "i32[4096]=randint:0:1000", f"i32={bins}"],
        defines={"TYPE": TYPES[kind], "AMOUNT": amount},
    )


def test_lanes_at_one_address_of_shared_memory_follow_one_another(tmp_path):
    """An H200 took 19.7 us for one address, 5.3 for 64, and 5.0 for ones, which it counts."""
    one = shared_run(tmp_path, "u32", "bins", 1).measurement
    spread = shared_run(tmp_path, "u32", "bins", 64).measurement
    ones = shared_run(tmp_path, "u32", "1", 1).measurement
    assert one.time.median_s == pytest.approx(19.7e-6, rel=0.1)
    assert spread.time.median_s == pytest.approx(5.3e-6, rel=0.3)
    assert ones.time.median_s == pytest.approx(5.0e-6, rel=0.3)
    assert one.counters.shared_atomic_wavefronts == 32 * ones.counters.shared_atomic_wavefronts


def test_floats_at_one_address_of_shared_memory_try_again(tmp_path):
    """An H200 took 224 us; the last blocks of the model run alone for longer."""
    alone = shared_run(tmp_path, "f32", "1", 1)
    assert alone.measurement.time.median_s == pytest.approx(224e-6, rel=0.4)
    assert "retries" not in memlab.report(alone)


def test_a_report_names_the_retries_that_its_time_leaves_out(tmp_path, monkeypatch):
    """Without machine code; of 32 lanes on one address 31 meet another."""

    def refuse(*_):
        raise DisassemblyError("no disassembler")

    monkeypatch.setattr(emulated_device, "read_flow_graph", refuse)
    alone = shared_run(tmp_path, "f32", "1", 1)
    requests = 8 * 132 * 8 * 16
    assert alone.measurement.counters.shared_atomic_float_conflicts == 31 * requests
    assert "retries of floating-point atomics in shared memory: 4.19 M" in memlab.report(alone)
    assert "retries" not in memlab.report(shared_run(tmp_path, "u32", "bins", 1))
    assert "left out" not in memlab.report(memlab.run("aligned", n=64, device="h200"))
