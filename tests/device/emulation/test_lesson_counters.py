"""The counters of the lessons' kernels, against a real H200 and the figures in the lessons."""

import csv
import math
from collections.abc import Mapping

import numpy as np
import pytest
from paths import DATA

from memlab.device.devices import launch_limits, open_device
from memlab.device.inputs import make_inputs
from memlab.device.measurement import Counters, LineCounters, Measurement
from memlab.kernels.catalog import CATALOG
from memlab.kernels.launch import Launch
from memlab.roofline.analysis import bus_utilization

pytestmark = pytest.mark.slow

EMULATED = open_device("h200")
TRUTH = DATA / "h200-counters.csv"
Parameters = dict[str, int | str]

# How the catalog spells the kernels that Nsight Compute counted, by name and integer arguments.
AS_COUNTED: dict[tuple[str, str], tuple[str, Parameters]] = {
    ("naive", "2048"): ("naive", {"width": 2048, "tile": 16}),
    ("tiled8", "2048"): ("tiled", {"width": 2048, "tile": 8}),
    ("tiled16", "2048"): ("tiled", {"width": 2048, "tile": 16}),
    ("tiled32", "2048"): ("tiled", {"width": 2048, "tile": 32}),
    ("row_sum", "8192"): ("row-sum", {"width": 8192}),
    ("column_sum", "8192"): ("column-sum", {"width": 8192}),
    ("copy", "4194304"): ("aligned", {"n": 4194304}),
    ("permuted", "4194304"): ("permuted", {"n": 4194304}),
    ("misaligned", "4194304"): ("misaligned", {"n": 4194304, "offset": 30}),
    ("broadcast", "4194304"): ("broadcast", {"n": 4194304}),
    ("scattered", "4194304"): ("scattered", {"n": 4194304}),
    ("scattered_cg", "4194304"): ("scattered", {"n": 4194304, "cache": "global"}),
    ("strided", "4194304 2"): ("strided", {"n": 4194304, "stride": 2}),
    ("strided", "4194304 8"): ("strided", {"n": 4194304, "stride": 8}),
    ("transpose_naive", "2048"): ("transpose", {"width": 2048}),
    ("transpose_shared", "2048"): ("transpose-shared", {"width": 2048}),
    ("transpose_padded", "2048"): ("transpose-padded", {"width": 2048}),
    ("blur", "2048 2048"): ("blur", {"width": 2048, "height": 2048, "radius": 1}),
    ("bank2", ""): ("bank-stride", {"n": 4194304, "stride": 2}),
    ("bank32", ""): ("bank-stride", {"n": 4194304, "stride": 32}),
}
LARGE = {"naive", "tiled8", "tiled16", "row_sum", "column_sum", "blur"}
"""Kernels that take seconds; `tiled32` and the transposes replace them in a short run."""

with TRUTH.open(newline="", encoding="utf-8") as file:
    COUNTED = {(row["kernel"], row["integer_arguments"]): row for row in csv.DictReader(file)}


def prepare(name: str, parameters: Mapping[str, int | str]) -> Launch:
    return CATALOG[name].prepare(parameters, launch_limits(EMULATED.properties))


def run(name: str, **parameters: int | str) -> Measurement:
    return EMULATED.run(prepare(name, parameters), seed=0)


def line_with(measurement: Measurement, text: str) -> LineCounters:
    (line,) = (line for line in measurement.lines if text in line.text)
    return line


def shares(utilisation: bus_utilization.BusUtilisation | None) -> tuple[float, float]:
    assert utilisation is not None
    return utilisation.of_lines, utilisation.of_sectors


def test_every_row_of_the_hardware_counters_is_used() -> None:
    assert AS_COUNTED.keys() == COUNTED.keys()
    assert len(COUNTED) == 20


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[pytest.mark.slow] if row[0] in LARGE else [], id=" ".join(row))
        for row in COUNTED
    ],
)
def test_counters_match_the_hardware(row: tuple[str, str]) -> None:
    counted = {name: float(text) for name, text in COUNTED[row].items() if _is_number(text)}
    name, parameters = AS_COUNTED[row]

    measurement = run(name, **parameters)

    counters = measurement.counters
    assert measurement.verification.status == "passed"
    for what in ("load_requests", "load_sectors", "store_requests", "store_sectors"):
        emulated = getattr(counters, f"global_{what}")
        assert emulated == pytest.approx(counted[f"global_{what}"], rel=0.01), what
    for what in ("load_instructions", "load_wavefronts", "store_instructions", "store_wavefronts"):
        emulated = getattr(counters, f"shared_{what}")
        assert emulated == pytest.approx(counted[f"shared_{what}"], rel=0.02), what
    excessive = counted["shared_wavefronts_excessive"]
    assert counters.shared_excessive_wavefronts == pytest.approx(excessive, rel=0.02)
    assert counters.flop_fp32 == (
        2 * counted["ffma_thread_instructions"]
        + counted["fadd_thread_instructions"]
        + counted["fmul_thread_instructions"]
    )


@pytest.mark.parametrize(
    ("name", "parameters", "of_lines", "of_sectors"),
    [
        ("aligned", {}, 1, 1),
        ("permuted", {}, 1, 1),
        ("misaligned", {}, 1 / 2, 4 / 5),
        ("misaligned", {"offset": 0}, 1, 1),
        ("misaligned", {"offset": 8}, 1 / 2, 1),  # two lines, but whole sectors of both
        ("broadcast", {}, 4 / 128, 4 / 32),
        ("strided", {"stride": 2}, 1 / 2, 1 / 2),
        ("strided", {"stride": 32}, 128 / (32 * 128), 128 / (32 * 32)),
        ("strided", {"stride": 40}, 128 / (32 * 128), 128 / (32 * 32)),
    ],
)
@pytest.mark.parametrize("cache", ["all", "global"])
def test_bus_utilization_matches_the_lessons(
    name: str, parameters: Parameters, of_lines: float, of_sectors: float, cache: str
) -> None:
    measurement = run(name, n=4096, cache=cache, **parameters)

    assert shares(bus_utilization.load_utilisation(measurement.counters)) == pytest.approx(
        (of_lines, of_sectors)
    )
    assert shares(bus_utilization.store_utilisation(measurement.counters)) == (1, 1)


def test_bus_utilisation_of_scattered_reads() -> None:
    launch = prepare("scattered", {"n": 65536})
    warps = np.sort(make_inputs(launch, 0)["index"].reshape(-1, 32), axis=1)
    words, lines, sectors = (
        sum(len(set(warp)) for warp in (warps // unit).tolist()) for unit in (1, 32, 8)
    )

    measurement = EMULATED.run(launch, seed=0)

    gathered = shares(bus_utilization.line_utilisation(line_with(measurement, "LOAD(a + j)")))
    assert gathered == pytest.approx((words / (32 * lines), words / (8 * sectors)))
    assert shares(bus_utilization.line_utilisation(line_with(measurement, "index[i]"))) == (1, 1)


def test_scattered_reads_of_an_array_in_the_l2_come_from_memory_once() -> None:
    read = run("scattered", n=4194304).counters.dram_read_bytes

    assert read == pytest.approx(float(COUNTED["scattered", "4194304"]["dram_read_bytes"]), rel=0.1)


@pytest.mark.parametrize("stride", range(1, 33))
def test_bank_conflicts_are_the_common_divisor_with_32(stride: int) -> None:
    counters = run("bank-stride", n=1024, stride=stride).counters

    ways = math.gcd(stride, 32)
    assert counters.shared_load_wavefronts == ways * counters.shared_load_instructions
    assert counters.shared_excessive_wavefronts == (ways - 1) * counters.shared_load_instructions


def test_row_sum_moves_eight_times_the_sectors_of_column_sum() -> None:
    rows, columns = run("row-sum", width=512).counters, run("column-sum", width=512).counters

    assert rows.global_load_requests == columns.global_load_requests == 512 * 512 / 32
    assert rows.global_load_sectors == 32 * rows.global_load_requests
    assert columns.global_load_sectors == 4 * columns.global_load_requests


def test_staging_a_blur_reads_each_pixel_once_and_its_border() -> None:
    counters = run("blur-tiled", width=320, height=80, radius=2).counters
    plain = run("blur", width=320, height=80, radius=2).counters

    # 10 x 10 blocks of 36 x 12 pixels, less two rows or columns at each edge of the image.
    assert counters.requested_load_bytes == 4 * (10 * 36 - 4) * (10 * 12 - 4)
    assert plain.requested_load_bytes == 4 * (5 * 320 - 6) * (5 * 80 - 6)
    assert counters.shared_excessive_wavefronts == 0


def test_column_major_matrix_is_read_uncoalesced() -> None:
    measurement = run("matmul-column-major", width=64, tile=32)

    # M is one word for the whole warp, N is 32 words 256 bytes apart.
    line = line_with(measurement, "N[column * k + i]")
    assert line.global_requests == 2 * 64**3 / 32
    assert line.global_sectors == (1 + 32) * line.global_requests / 2


@pytest.mark.parametrize("tile", [8, 16, 32])
def test_corner_turning_is_coalesced_and_free_of_conflicts(tile: int) -> None:
    counters = run("corner-turning", width=64, tile=tile).counters

    assert counters.global_load_requests == 2 * 64**3 / tile / 32
    assert counters.global_load_sectors == 4 * counters.global_load_requests
    assert counters.shared_excessive_wavefronts == 0


def test_filters_differ_in_the_memory_of_the_coefficients() -> None:
    n, taps = 8192, 16
    runs = {
        space: run(f"filter-{space}", n=n)
        for space in ("registers", "local", "shared", "constant", "constant-divergent", "global")
    }
    uses = n // 32 * taps  # warp-level uses of a coefficient

    registers = runs["registers"].counters
    assert runs["global"].counters.global_load_requests == 2 * uses
    assert registers.global_load_requests == uses + n // 16 // 32 * taps
    assert [space for space, run_ in runs.items() if run_.resources.local_bytes_per_thread] == [
        "local"
    ]
    assert runs["local"].counters.local_load_sectors == 4 * uses
    assert runs["shared"].counters.shared_load_wavefronts == uses
    assert runs["constant"].counters.constant_load_requests == uses
    assert runs["constant"].counters.constant_load_passes == uses
    assert runs["constant-divergent"].counters.constant_load_passes == taps * uses
    assert len({measurement.counters.flop_fp32 for measurement in runs.values()}) == 1
    assert registers.flop_fp32 == 2 * taps * n


def test_too_few_registers_spill() -> None:
    free, limited = run("register-pressure", n=256), run("register-pressure", n=256, registers=32)

    assert free.resources.registers_per_thread > 64
    assert free.resources.local_bytes_per_thread == 0
    assert limited.resources.registers_per_thread <= 32
    assert limited.resources.local_bytes_per_thread >= 4 * 32
    assert limited.occupancy.theoretical > free.occupancy.theoretical


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace("e+", "").isdigit()


def bytes_moved_l1(counters: Counters) -> int:
    sectors = counters.global_load_sectors + counters.global_store_sectors
    sectors += counters.local_load_sectors + counters.local_store_sectors
    return 32 * sectors + 128 * (counters.shared_load_wavefronts + counters.shared_store_wavefronts)


def test_local_memory_takes_the_port_and_its_stores_reach_the_l2() -> None:
    """An H200 counted 1,048,576 sectors written to the L2: as many local ones as those of `out`."""
    measurement = run("filter-local", n=4194304)

    counters = measurement.counters
    assert counters.l2_write_sectors == 1_048_576
    assert counters.local_store_sectors == counters.global_store_sectors == 524_288
    # No pass moves more than a line, so the port's bound holds the bytes that pass it.
    small: tuple[tuple[str, Parameters], ...] = (
        ("row-sum", {"width": 256}),
        ("naive", {"width": 64}),
        ("transpose-shared", {"width": 64}),
        ("misaligned", {"n": 4096}),
    )
    others = [run(name, **parameters).counters for name, parameters in small]
    for counts in (counters, *others):
        assert 128 * counts.l1_wavefronts >= bytes_moved_l1(counts)
