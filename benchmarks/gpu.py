"""Times of memlab, NVBench and Nsight Compute on this GPU, and memlab's limits.

    python -m benchmarks.gpu [FOLDER]

Prints a table and the limits; with a folder, writes `…-timing.csv`, `…-timing.md`, `…-peaks.json`
and `…-peaks.png` to it. Exits with 1 if a limit is missed. NVBench (`pip install cuda-bench`) and
`ncu` are used if they are installed.

The three tools measure slightly different times, which matters for short kernels. NVBench uses
CUDA events around the launch, after a blocking kernel; it flushes the L2 by writing as much as the
L2 holds, some of which is written back while the kernel runs. memlab does the same but flushes by
reading last. Nsight Compute measures from the kernel's start to its end on the GPU, without the
1.3 us that two events take on an H200, after invalidating L1 and L2.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import gpu_goals
from benchmarks.gpu_cases import Case, cases
from benchmarks.gpu_results import head, prefix
from benchmarks.gpu_tools import ncu_times, nvbench_times
from memlab.device.gpu.device import CudaDevice

if TYPE_CHECKING:
    from memlab.device.measurement import Measurement
    from memlab.device.properties import DeviceProperties


def compare(properties: DeviceProperties) -> list[dict[str, str]]:
    """Time every case with the three tools, twice with memlab, as `memlab run` does.

    Returns:
        One row per case: times in microseconds and differences in percent.
    """
    all_cases = cases(properties)
    first = [CudaDevice(0).run(case.launch, 0) for case in all_cases]
    nvbench, ncu = nvbench_times([case.name for case in all_cases]), ncu_times(all_cases)
    again = [CudaDevice(0).run(case.launch, 0) for case in all_cases]
    return [
        _row(case, first[index], again[index], nvbench.get(case.name, {}), ncu.get(case.name))
        for index, case in enumerate(all_cases)
    ]


def _row(
    case: Case,
    first: Measurement,
    again: Measurement,
    nvbench: Mapping[str, float],
    ncu_s: float | None,
) -> dict[str, str]:
    time = first.time
    nvbench_s = nvbench.get("nv/cold/time/gpu/median", nvbench.get("nv/cold/time/gpu/mean"))
    spread = (time.upper_quartile_s or 0) - (time.lower_quartile_s or 0)
    warm_spread = (time.warm_upper_quartile_s or 0) - (time.warm_lower_quartile_s or 0)
    nvbench_spread = nvbench.get("nv/cold/time/gpu/iqr/relative")
    clock = nvbench.get("nv/cold/sm_clock_rate/mean")
    return {
        "kernel": case.name,
        "verified": first.verification.status,
        "memlab_us": f"{time.median_s * 1e6:.2f}",
        "samples": str(time.samples),
        "iqr_%": f"{100 * spread / time.median_s:.2f}",
        "again_%": _difference(again.time.median_s, time.median_s),
        "events_us": f"{(time.event_pair_s or 0) * 1e6:.2f}",
        "warm_us": f"{(time.warm_median_s or 0) * 1e6:.2f}",
        "warm_iqr_%": f"{100 * warm_spread / (time.warm_median_s or 1):.2f}",
        "clock_MHz": "" if time.clock_hz is None else f"{time.clock_hz / 1e6:.0f}",
        "drift_%": "" if time.clock_drift is None else f"{100 * time.clock_drift:.1f}",
        "nvbench_us": "" if nvbench_s is None else f"{nvbench_s * 1e6:.2f}",
        "nvbench_iqr_%": "" if nvbench_spread is None else f"{100 * nvbench_spread:.2f}",
        "to_nvbench_%": _difference(time.median_s, nvbench_s),
        "nvbench_MHz": "" if clock is None else f"{clock / 1e6:.0f}",
        "ncu_us": "" if ncu_s is None else f"{ncu_s * 1e6:.2f}",
        "to_ncu_%": _difference(time.median_s, ncu_s),
    }


def _difference(value: float, base: float | None) -> str:
    return "" if not base else f"{100 * (value / base - 1):+.2f}"


def _markdown(rows: list[dict[str, str]]) -> str:
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    lines += ["| " + " | ".join(row.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def main(folder: Path | None) -> int:
    """Compare, print the results, and write them to the folder if there is one."""
    properties = CudaDevice(0).properties
    with tempfile.TemporaryDirectory() as temporary:
        target = (folder or Path(temporary)).resolve()
        target.mkdir(parents=True, exist_ok=True)
        name = prefix(properties.name)
        rows = compare(properties)
        with (target / f"{name}-timing.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        figures = [
            *gpu_goals.of_times(rows),
            *gpu_goals.of_commands(),
            *gpu_goals.of_peaks(target / f"{name}-peaks.png"),
        ]
        goals = "\n".join(figure.line() for figure in figures)
        text = f"{head(properties.name)}, clocks as found\n\n{_markdown(rows)}\n```\n{goals}\n```\n"
        print(text)
        (target / f"{name}-timing.md").write_text(text)
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else None))
