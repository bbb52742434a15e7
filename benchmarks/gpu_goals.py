"""The limits that memlab must reach on an H200.

The limits of the ceilings are the best published figures for this GPU; those of times are the
differences between two established tools.
"""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.commands import MEMLAB, cost
from benchmarks.report import Figure

RUN = "run tiled --width 4096 --tile 32"
RUN_MOST_S, PEAKS_MOST_S = 15.0, 90.0
AGREEMENT_PERCENT = 1.0
SHORT_US = 20.0

LEAST_FRACTIONS = {
    "dram_write": 0.97,
    "dram_read": 0.958,
    "dram_triad": 0.909,
    "fp32_fma": 0.94,
    "l1_read": 0.98,
    "shared_read": 0.97,
}
"""The least fractions of the datasheet's limits, by the rates' keys; none may exceed 1."""
L2_LEAST_BYTES_PER_S = 9.7e12


def of_times(rows: list[dict[str, str]]) -> list[Figure]:
    """The differences in the rows of the table, in percent.

    Every kernel of more than 20 us must be close to one of the two tools, vary little and repeat.
    Of the shorter kernels, whose times vary if they wait for memory, only one must.
    """
    long = [row for row in rows if float(row["memlab_us"]) >= SHORT_US]
    short = {row["kernel"]: max(_apart(row)) for row in rows if row not in long}
    whats = ("to NVBench or ncu", "interquartile range", "second call")
    furthest = map(max, zip(*map(_apart, long), strict=True))
    return [
        *(
            Figure(f"{len(long)} longer kernels: {what}", value, "%", AGREEMENT_PERCENT)
            for what, value in zip(whats, furthest, strict=True)
        ),
        *(Figure(f"{name}: largest of the three", value, "%") for name, value in short.items()),
        Figure(f"best kernel under {SHORT_US:g} us", min(short.values()), "%", AGREEMENT_PERCENT),
    ]


def _apart(row: dict[str, str]) -> tuple[float, float, float]:
    others = [abs(float(row[key])) for key in ("to_nvbench_%", "to_ncu_%") if row[key]]
    return min(others, default=math.inf), float(row["iqr_%"]), abs(float(row["again_%"]))


def of_commands() -> list[Figure]:
    """Time a whole command, and compare two calls of it."""
    walls, medians = [], []
    with tempfile.TemporaryDirectory() as folder:
        command = [*MEMLAB, *RUN.split(), "--json", "--store", f"{folder}/runs.sqlite3"]
        for _ in range(2):
            started = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            walls.append(time.perf_counter() - started)
            medians.append(json.loads(done.stdout)["time"]["median_s"])
    apart = 100 * (max(medians) / min(medians) - 1)
    return [
        Figure(f"{RUN}: wall", max(walls), "s", RUN_MOST_S),
        Figure(f"{RUN}: two calls", apart, "%", AGREEMENT_PERCENT),
    ]


def of_peaks(image: Path) -> list[Figure]:
    """Measure the ceilings, draw them to a file, and compare them with the limits."""
    command_cost = cost([*MEMLAB, "peaks", "--quiet", "--overwrite", "--output", str(image)])
    document = json.loads(image.with_suffix(".json").read_text())
    rates = {rate["key"]: rate for rate in document["rates"]}
    figures = [Figure("peaks: wall", command_cost.wall_s, "s", PEAKS_MOST_S)]
    for key, least in LEAST_FRACTIONS.items():
        fraction = rates[key]["fraction"]
        figures.append(Figure(f"{rates[key]['label']}: of the peak", fraction, "", 1.0, least))
    l2 = max(rates[key]["value"] for key in ("l2_read", "l2_shared_read"))
    return [*figures, Figure("L2: read", l2 / 1e12, "TB/s", least=L2_LEAST_BYTES_PER_S / 1e12)]
