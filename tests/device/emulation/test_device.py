"""Whole launches on emulated devices: against an H200's counters, and against NumPy."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from paths import DATA

from memlab.cli.app import main
from memlab.device import budget
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.emulation import counting
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.emulator.machine.memory import KernelFault
from memlab.device.measurement import Counters, Measurement
from memlab.device.properties import DeviceProperties
from memlab.errors import UsageError
from memlab.kernels.catalog import find_kernel
from memlab.kernels.kernel import Kernel
from memlab.kernels.launch import Launch

COUNTERS = DATA / "h200-counters.csv"

H200_RUNS = {
    "naive": ("naive", 16),
    "tiled8": ("tiled", 8),
    "tiled16": ("tiled", 16),
    "tiled32": ("tiled", 32),
}
"""Catalog kernels that were counted on an H200 at width 2048."""

KERNELS_AND_TILES = [("naive", 16), ("tiled", 16), ("tiled", 12), ("tiled-dynamic", 9)]
SIZES = [(1, 1, 1), (31, 31, 31), (33, 33, 33), (100, 57, 75)]


def prepared(kernel: str, tile: int, sizes: tuple[int, int, int], **changes: Any) -> Launch:
    m, k, n = sizes
    parameters = {"m": m, "k": k, "n": n, "tile": tile}
    return replace(
        find_kernel(kernel).prepare(parameters, launch_limits(loader.load_datasheet("h200"))),
        **changes,
    )


def run(launch: Launch, properties: DeviceProperties | None = None) -> Measurement:
    return EmulatedDevice("h200", properties or loader.load_datasheet("h200")).run(launch, seed=5)


@pytest.fixture(scope="module", params=H200_RUNS)
def counted(request: pytest.FixtureRequest) -> tuple[Measurement, dict[str, float]]:
    """A launch at width 2048, and the hardware's counters of it."""
    kernel, tile = H200_RUNS[request.param]
    with COUNTERS.open() as file:
        (row,) = (row_ for row_ in csv.DictReader(file) if row_["kernel"] == request.param)
    truth = {name: float(value) for name, value in row.items() if value.isdecimal()}
    return run(prepared(kernel, tile, (2048, 2048, 2048))), truth


def test_global_accesses_match_the_hardware(
    counted: tuple[Measurement, dict[str, float]],
) -> None:
    measurement, truth = counted
    for name in (
        "global_load_requests",
        "global_load_sectors",
        "global_store_requests",
        "global_store_sectors",
    ):
        assert getattr(measurement.counters, name) == pytest.approx(truth[name], rel=0.01), name


def test_shared_accesses_match_the_hardware(
    counted: tuple[Measurement, dict[str, float]],
) -> None:
    measurement, truth = counted
    for name in (
        "shared_load_instructions",
        "shared_load_wavefronts",
        "shared_store_instructions",
        "shared_store_wavefronts",
    ):
        assert getattr(measurement.counters, name) == pytest.approx(truth[name], rel=0.02), name
    assert measurement.counters.shared_excessive_wavefronts == truth["shared_wavefronts_excessive"]


def test_work_and_resources_match_the_hardware(
    counted: tuple[Measurement, dict[str, float]],
) -> None:
    """The hardware's code came from NVRTC 13.0; later 13.x allocate the same registers."""
    measurement, truth = counted
    assert measurement.counters.flop_fp32 / 2 == truth["ffma_thread_instructions"]
    assert measurement.resources.registers_per_thread == truth["registers_per_thread"]
    assert measurement.occupancy.limits == {
        "blocks": truth["occupancy_limit_blocks"],
        "warps": truth["occupancy_limit_warps"],
        "registers": truth["occupancy_limit_registers"],
        "shared memory": truth["occupancy_limit_shared_mem"],
    }


def test_caches_and_time_are_close_to_the_hardware(
    counted: tuple[Measurement, dict[str, float]],
) -> None:
    """The tolerances are the errors of today's models; `make bench` prints the errors."""
    measurement, truth = counted
    counters = measurement.counters
    assert counters.dram_read_bytes == pytest.approx(truth["dram_read_bytes"], rel=0.03)
    assert measurement.time.median_s == pytest.approx(truth["duration_ns"] * 1e-9, rel=0.15)
    hit_rate = truth["global_load_sector_hits_l1"] / truth["global_load_sectors"]
    found = counters.l1_read_sector_hits / counters.global_load_sectors
    assert found == pytest.approx(hit_rate, abs=0.05)


def test_large_launches_are_sampled_and_the_sample_is_verified(
    counted: tuple[Measurement, dict[str, float]],
) -> None:
    measurement, _ = counted
    assert 0 < measurement.coverage.blocks_emulated < measurement.coverage.blocks_total
    assert measurement.verification.status == "passed"
    threads = measurement.block[0] * measurement.block[1]
    assert measurement.verification.checked == measurement.coverage.blocks_emulated * threads


def test_lines_add_up_to_the_whole(counted: tuple[Measurement, dict[str, float]]) -> None:
    measurement, _ = counted
    lines, counters = measurement.lines, measurement.counters
    assert sum(line.flop for line in lines) == counters.flop_fp32
    (inner,) = (line for line in lines if line.flop)
    assert "sum +=" in inner.text
    assert (
        sum(line.global_requests for line in lines)
        == counters.global_load_requests + counters.global_store_requests
    )


def check_whole(measurement: Measurement, arrays: dict[str, Any]) -> None:
    output = arrays["P"]
    expected = arrays["M"].astype(np.float64) @ arrays["N"].astype(np.float64)
    np.testing.assert_allclose(output, expected, rtol=1e-5)
    assert len(np.unique(arrays["M"])) > 0.99 * arrays["M"].size
    assert measurement.verification.status == "passed"
    assert measurement.verification.checked == output.size
    assert measurement.coverage.blocks_emulated == measurement.coverage.blocks_total


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("kernel", "tile"), KERNELS_AND_TILES)
def test_products_of_odd_sizes_match_numpy(
    kernel: str, tile: int, sizes: tuple[int, int, int], arrays: dict[str, Any]
) -> None:
    check_whole(run(prepared(kernel, tile, sizes)), arrays)


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 6), (12, 0)])
@pytest.mark.parametrize(("kernel", "tile"), KERNELS_AND_TILES)
def test_code_for_every_architecture_computes_the_same(
    kernel: str, tile: int, capability: tuple[int, int], arrays: dict[str, Any]
) -> None:
    properties = replace(loader.load_datasheet("rtx3070"), compute_capability=capability)
    check_whole(run(prepared(kernel, tile, (100, 57, 75)), properties), arrays)


def without_lines(counters: Counters) -> Counters:
    return counters.replace_named(global_load_lines=0, global_store_lines=0)


@pytest.mark.parametrize(("kernel", "tile"), [("naive", 8), ("tiled", 16), ("tiled-dynamic", 8)])
def test_a_sample_gives_the_counts_of_the_whole_launch(
    kernel: str, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = prepared(kernel, tile, (150, 57, 131))
    whole = run(launch)
    monkeypatch.setattr(counting, "WHOLE_GRID_LANE_INSTRUCTIONS", 0)
    sampled = run(launch)

    assert sampled.coverage.blocks_emulated < whole.coverage.blocks_emulated
    # How a block lies to the 128-byte lines depends on its place, so these are estimated.
    assert without_lines(sampled.counters) == without_lines(whole.counters)
    assert [line.replace_named(global_lines=0) for line in sampled.lines] == [
        line.replace_named(global_lines=0) for line in whole.lines
    ]
    assert sampled.counters.global_load_lines == pytest.approx(
        whole.counters.global_load_lines, rel=0.01
    )
    assert sampled.time.median_s == pytest.approx(whole.time.median_s, rel=0.01)


BREAKS = {
    "a wrong index": ("N[i * n + column]", "N[i * n + row]"),
    "an integer accumulator": ("float sum = 0.0f;", "int sum = 0;"),
    "an element left out": ("P[row * n + column]", "if (row + column) P[row * n + column]"),
    "a sum that stops early": ("i < k;", "i < k - 1;"),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_wrong_result_fails_verification(broken: str) -> None:
    launch = prepared("naive", 16, (40, 40, 40))
    source = launch.source.replace(*BREAKS[broken])
    assert source != launch.source

    assert run(replace(launch, source=source)).verification.status == "failed"


@pytest.fixture
def without_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the bounds check out of the naive kernel."""
    source = find_kernel("naive").source.replace("if (row < m && column < n)", "")
    monkeypatch.setattr(Kernel, "source", source)


@pytest.mark.usefixtures("without_guard")
def test_an_access_outside_an_array_names_line_block_and_thread() -> None:
    with pytest.raises(KernelFault) as fault:
        run(prepared("naive", 16, (33, 33, 33)))

    message = str(fault.value)
    assert "\n" not in message
    assert "line 17: sum += M[row * k + i] * N[i * n + column];" in message
    # M has 33 rows; row 33 is the second of the blocks that begin with row 32.
    assert ", 2, 0) thread (0, 1, 0)" in message


@pytest.mark.usefixtures("without_guard")
def test_a_fault_is_one_line_and_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "naive", "--width", "33", "--no-store"]) == 1

    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("memlab: error: ")
    assert err.count("\n") == 1


def test_a_wrong_result_is_shown_and_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = find_kernel("naive").source.replace(*BREAKS["a wrong index"])
    monkeypatch.setattr(Kernel, "source", source)

    assert main(["run", "naive", "--width", "33", "--no-store"]) == 1

    out, err = capsys.readouterr()
    assert "FAILED" in out.upper()
    assert err.startswith("memlab: verification failed: ")


def test_the_same_seed_gives_the_same_run() -> None:
    launch = prepared("tiled", 8, (40, 30, 20))
    device = EmulatedDevice("h200", loader.load_datasheet("h200"))

    assert device.run(launch, seed=1) == device.run(launch, seed=1)
    assert (
        device.run(launch, seed=1).verification.relative_error
        != device.run(launch, seed=2).verification.relative_error
    )


def test_progress_ends_at_one() -> None:
    told: list[tuple[str, float | None]] = []
    EmulatedDevice("h200", loader.load_datasheet("h200")).run(
        prepared("naive", 16, (100, 40, 100)), 0, lambda what, done: told.append((what, done))
    )

    shares = [done for what, done in told if what == "emulating"]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_arrays_beyond_the_hosts_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "available_memory_bytes", lambda: budget.RESERVED_BYTES + 4096)

    with pytest.raises(UsageError, match=r"needs \d+ bytes .* 4096 are free"):
        run(prepared("naive", 16, (32, 32, 32)))
