"""Emulated counters against Nsight Compute's, for every kernel of the catalog.

    python -m benchmarks.counters [--recorded] [FOLDER]

Writes three rows per launch to `h200-counters.csv` in the folder (`docs/results`): the hardware's,
the emulated device's, and their relative difference. The date and the machine are written to the
`.json` file, and the differences as a table to the `.md` file. A GPU whose counters may be read is
needed, except with `--recorded`, which keeps the hardware's rows of the last time and renews only
the emulated ones. The hardware's rows are written one by one, so that an interrupted measurement
can be completed with `--recorded`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from memlab.device.compiler.compile import compile_launch
from memlab.device.compiler.translation_unit import Architecture
from memlab.device.datasheets import loader
from memlab.device.devices import launch_limits
from memlab.device.doctor.probes import probe_machine
from memlab.device.emulation.emulated_device import EmulatedDevice
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu.device import measure_launch
from memlab.device.gpu.timing import TimingSettings
from memlab.device.measurement import Measurement, Time
from memlab.device.nvidia_tools import ncu
from memlab.device.properties import DeviceProperties
from memlab.errors import MemlabError
from memlab.kernels.catalog import CATALOG, find_kernel
from memlab.kernels.kernel import Limits
from memlab.kernels.launch import Launch, Scalar

DATASHEET = "h200"
RESULTS = Path(__file__).parents[1] / "docs" / "results"
TABLE = f"{DATASHEET}-counters.csv"
AGREES = 0.001
"""The relative difference up to which figures count as equal."""
SAMPLES = 15
"""Timed launches, cold and warm; the times are only for comparison with ncu's."""

TEXTBOOK = ("naive", "tiled", "tiled-dynamic")
WIDTH, TILES = 2048, (8, 16, 32)
RAGGED = {"m": 1000, "k": 570, "n": 750}
"""Sizes that no tile divides, to include predicated-off lanes and partly filled warps."""

Row = dict[str, Any]

COUNTED = (
    "global_load_requests",
    "global_load_sectors",
    "global_load_sector_hits_l1",
    "global_store_requests",
    "global_store_sectors",
    "local_load_sectors",
    "local_store_sectors",
    "shared_load_instructions",
    "shared_load_wavefronts",
    "shared_store_instructions",
    "shared_store_wavefronts",
    "shared_wavefronts_excessive",
    "l2_read_sectors",
    "l2_read_sector_hits",
    "l2_write_sectors",
    "dram_read_bytes",
    "dram_write_bytes",
    "flop_fp32",
    "flop_fp64",
    "warp_instructions",
    "thread_instructions",
)
"""The columns that are counters, in order."""

RENAMED = {
    "global_load_sector_hits_l1": "l1_read_sector_hits",
    "shared_wavefronts_excessive": "shared_excessive_wavefronts",
}
"""Columns with a different name in `Counters`."""

HARDWARE_ONLY = {
    "shared_wavefronts": "memory_l1_wavefronts_shared",
    "shared_wavefronts_ideal": "memory_l1_wavefronts_shared_ideal",
    "l2_theoretical_sectors_global": "memory_l2_theoretical_sectors_global",
    "l2_theoretical_sectors_global_ideal": "memory_l2_theoretical_sectors_global_ideal",
    "ffma_thread_instructions": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "fadd_thread_instructions": "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum",
    "fmul_thread_instructions": "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum",
    "dfma_thread_instructions": "smsp__sass_thread_inst_executed_op_dfma_pred_on.sum",
    "sm_cycles": "sm__cycles_elapsed.max",
    "achieved_occupancy_pct": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
"""Columns of metrics that the emulated device does not have."""

LAUNCHED: Mapping[str, tuple[str, Callable[[Measurement, DeviceProperties], float]]] = {
    "registers_per_thread": (
        "launch__registers_per_thread",
        lambda measured, _: measured.resources.registers_per_thread,
    ),
    "occupancy_limit_blocks": (
        "launch__occupancy_limit_blocks",
        lambda measured, _: measured.occupancy.limits["blocks"],
    ),
    "occupancy_limit_registers": (
        "launch__occupancy_limit_registers",
        lambda measured, _: measured.occupancy.limits["registers"],
    ),
    "occupancy_limit_shared_mem": (
        "launch__occupancy_limit_shared_mem",
        lambda measured, _: measured.occupancy.limits["shared memory"],
    ),
    "occupancy_limit_warps": (
        "launch__occupancy_limit_warps",
        lambda measured, _: measured.occupancy.limits["warps"],
    ),
    "waves": (
        "launch__waves_per_multiprocessor",
        lambda measured, properties: (
            math.prod(measured.grid)
            / (measured.occupancy.blocks_per_sm * (properties.multiprocessor_count or 1))
        ),
    ),
}
"""Columns of the launch: ncu's metric, and its value from the emulated device's measurement."""

IDENTITY = ("kernel", "parameters", "grid", "block", "integer_arguments", "source")
COLUMNS = (
    *IDENTITY,
    "warm_median_us",
    "cold_median_us",
    "duration_ns",
    *COUNTED,
    *HARDWARE_ONLY,
    *LAUNCHED,
)


def launches(allowed: Limits) -> list[Launch]:
    """All kernels of the catalog, and the textbook's with several tiles and on ragged sizes."""
    selected: list[tuple[str, Mapping[str, int | str]]] = []
    for kernel in CATALOG.values():
        if kernel.name in TEXTBOOK:
            selected += [(kernel.name, {"width": WIDTH, "tile": tile}) for tile in TILES]
            selected.append((kernel.name, RAGGED))
        else:
            matmul = {"width", "m"} <= {parameter.name for parameter in kernel.parameters}
            selected.append((kernel.name, {"width": WIDTH} if matmul else {}))
    return [find_kernel(name).prepare(parameters, allowed) for name, parameters in selected]


def emulated_rows(launches_to_run: Sequence[Launch]) -> Iterator[Row]:
    """Run launches on the emulated device, several at a time, each in a separate process."""
    properties = loader.load_datasheet(DATASHEET)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        pending = [
            pool.submit(emulate, launch.kernel, dict(launch.parameters))
            for launch in launches_to_run
        ]
        for launch, emulation in zip(launches_to_run, pending, strict=True):
            try:
                yield emulated_row(emulation.result(), properties)
            except MemlabError as error:  # the row stays empty
                print(f"{launch.kernel}: not emulated: {error}", file=sys.stderr)
                yield {"source": "emulated"}


def emulate(kernel: str, parameters: Mapping[str, int | str]) -> Measurement:
    """Run a launch on the emulated device."""
    device = EmulatedDevice(DATASHEET, loader.load_datasheet(DATASHEET))
    return device.run(
        find_kernel(kernel).prepare(parameters, launch_limits(device.properties)), seed=0
    )


def hardware_rows(launches_to_run: Iterable[Launch]) -> Iterator[Row]:
    """Run launches on the GPU: under Nsight Compute, and without it for their times."""
    more = [*HARDWARE_ONLY.values(), *(metric for metric, _ in LAUNCHED.values())]
    architecture = gpu_query.query_properties(0).compute_capability
    for launch in launches_to_run:
        print(launch.kernel, dict(launch.parameters), file=sys.stderr)
        try:
            yield _measured(launch, more, architecture)
        except MemlabError as error:  # a failure must not end the measurement of the others
            print(f"  not measured: {error}", file=sys.stderr)
            yield {"source": "hardware"}


def _measured(launch: Launch, more: Iterable[str], architecture: Architecture) -> Row:
    metrics = ncu.profile(launch, more=more)
    compiled = compile_launch(launch, architecture)
    settings = TimingSettings(samples=SAMPLES)
    time, verification, _, _ = measure_launch(
        0, launch, compiled, 0, settings, None, meanwhile=lambda: None
    )
    if verification.status == "failed":
        raise MemlabError("its result is wrong")
    return hardware_row(metrics, time)


def hardware_row(metrics: Mapping[str, float], time: Time) -> Row:
    """The row of the GPU: its counters under ncu, and the times that memlab measured without."""
    counted, warm_s = ncu.counters_from_metrics(metrics), time.warm_median_s
    return {
        "source": "hardware",
        "warm_median_us": None if warm_s is None else 1e6 * warm_s,
        "cold_median_us": 1e6 * time.median_s,
        "duration_ns": 1e9 * counted["duration_s"],
        **{column: counted.get(RENAMED.get(column, column)) for column in COUNTED},
        **{column: metrics.get(metric) for column, metric in HARDWARE_ONLY.items()},
        **{column: metrics.get(metric) for column, (metric, _) in LAUNCHED.items()},
    }


def emulated_row(measured: Measurement, properties: DeviceProperties) -> Row:
    """The row of the emulated device, with the same columns."""
    counters = measured.counters
    return {
        "source": "emulated",
        "duration_ns": 1e9 * measured.time.median_s,
        **{column: getattr(counters, RENAMED.get(column, column)) for column in COUNTED},
        "shared_wavefronts": counters.shared_load_wavefronts + counters.shared_store_wavefronts,
        **{column: value(measured, properties) for column, (_, value) in LAUNCHED.items()},
    }


def difference_row(hardware: Row, emulated: Row) -> Row:
    """The difference emulated minus hardware, relative to hardware, if both have a figure."""
    row: Row = {"source": "difference"}
    for column in COLUMNS[len(IDENTITY) :]:
        count, true_count = emulated.get(column), hardware.get(column)
        if count is not None and true_count is not None and (true_count or not count):
            row[column] = (count - true_count) / true_count if true_count else 0.0
    return row


def identity(launch: Launch) -> Row:
    """The columns that identify a launch."""
    scalars = [argument for argument in launch.arguments if isinstance(argument, Scalar)]
    return {
        "kernel": launch.kernel,
        "parameters": " ".join(f"{name}={value}" for name, value in launch.parameters.items()),
        "grid": str(launch.grid),
        "block": str(launch.block),
        "integer_arguments": " ".join(str(scalar.value) for scalar in scalars),
    }


def markdown(rows: list[Row]) -> str:
    """A report: the columns that agree for every launch, and the differences of the others."""
    shown = [row for row in rows if row["source"] == "difference"]
    counted = [row for row in rows if row["source"] == "hardware"]
    columns = [name for name in (*COUNTED, "duration_ns") if any(row.get(name) for row in counted)]
    differing = [name for name in columns if any(abs(row.get(name, 0)) > AGREES for row in shown)]
    agreeing = ", ".join(f"`{name}`" for name in columns if name not in differing)
    lines = [
        "# Emulated counters against Nsight Compute's on an H200",
        "",
        "The difference of the emulated figure from the hardware's, measured by `python -m "
        "benchmarks.counters`; empty if either is missing. These agree within "
        f"{100 * AGREES:g}% for all launches: {agreeing}.",
        "",
        "| launch | " + " | ".join(name.replace("_", " ") for name in differing) + " |",
        "| --- |" + " ---: |" * len(differing),
    ]
    for row in shown:
        cells = ["" if name not in row else f"{100 * row[name]:+.1f}%" for name in differing]
        lines.append(f"| {row['kernel']} {row['parameters']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def recorded_rows(launches_to_run: Iterable[Launch], table: Path) -> Iterator[Row]:
    """The hardware's rows in a table; a launch without one gets an empty row."""
    with table.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "hardware"]
    held = {(row["kernel"], row["parameters"]): row for row in rows}
    for launch in launches_to_run:
        named = identity(launch)
        row = held.get((named["kernel"], named["parameters"]), {})
        figures = {key: float(row[key]) for key in COLUMNS[len(IDENTITY) :] if row.get(key)}
        yield {"source": "hardware"} | figures


def circumstances() -> Row:
    """The date and the machine of the hardware's rows."""
    machine = probe_machine()
    gpu = next(iter(machine.gpus), None)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "memlab_version": version("memlab"),
        "driver": machine.driver,
        "driver_cuda": machine.driver_cuda,
        "nvrtc": machine.nvrtc,
        "pycuda": machine.pycuda,
        "gpu": None if gpu is None else gpu.name,
        "sm_clock_hz": None if gpu is None else gpu.sm_clock_hz,
        "memory_clock_hz": None if gpu is None else gpu.memory_clock_hz,
        "slowdowns": () if gpu is None else gpu.slowdowns,
    }


def measured_rows(launches_to_run: Sequence[Launch], table: Path) -> list[Row]:
    """Measure the hardware's rows and write them one by one.

    Raises:
        SystemExit: No launch was measured; the table is not overwritten.
    """
    rows: list[Row] = []
    for row in hardware_rows(launches_to_run):
        rows.append(row)
        if len(row) > 1:
            write(
                table,
                [
                    identity(launch) | row
                    for launch, row in zip(launches_to_run, rows, strict=False)
                ],
            )
    if not any(len(row) > 1 for row in rows):
        sys.exit("no launch was measured, so nothing is written")
    table.with_suffix(".json").write_text(json.dumps(circumstances(), indent=2) + "\n")
    return rows


def main() -> None:
    """Measure, compare and write."""
    arguments = argparse.ArgumentParser(description="Emulated counters against Nsight Compute's.")
    arguments.add_argument("--recorded", action="store_true", help="keep the hardware's rows")
    arguments.add_argument("folder", type=Path, nargs="?", default=RESULTS, help="for the results")
    options = arguments.parse_args()

    options.folder.mkdir(parents=True, exist_ok=True)
    table = options.folder / TABLE
    launches_to_run = launches(launch_limits(loader.load_datasheet(DATASHEET)))
    hardware = list((recorded_rows if options.recorded else measured_rows)(launches_to_run, table))
    rows: list[Row] = []
    for launch, measured, emulated in zip(
        launches_to_run, hardware, emulated_rows(launches_to_run), strict=True
    ):
        for row in (measured, emulated, difference_row(measured, emulated)):
            rows.append(identity(launch) | row)
    write(table, rows)
    table.with_suffix(".md").write_text(markdown(rows) + "\n")


def write(table: Path, rows: Iterable[Row]) -> None:
    """Write rows as CSV."""
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    """Format counts as whole numbers, other figures with six digits."""
    if isinstance(value, float):
        return round(value) if abs(value) >= 1e5 or value.is_integer() else f"{value:.6g}"
    return value


if __name__ == "__main__":
    main()
