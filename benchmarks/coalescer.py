"""The reach of the L2 request coalescer: which reads of one sector are merged before the L2.

    python -m benchmarks.coalescer FOLDER

Compiles `coalescer.cu` with nvcc, runs it under Nsight Compute, and writes `coalescer.csv` to the
folder: a row for each launch, with what it does and the counters. `l1_sectors` are the sectors that
the L1s ask for, `l2_sectors` those that the L2 is asked for; their ratio is what the coalescer
saves. `lrc` metrics of this version of Nsight Compute are listed in `coalescer-metrics.txt`.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.truth.metrics import COALESCER, known_names, listed_metrics
from memlab.device.nvidia_tools.ncu import find_ncu

SOURCE = Path(__file__).with_name("coalescer.cu")
METRICS = {
    "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_requests": "lts__t_requests_srcunit_tex_op_read.sum",
    "l2_hits": "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
    "l2_misses": "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
    "lts2lrc_sectors": "lrc__lts2lrc_sectors_op_read.sum",
    "xbar2gpc_sectors": "lrc__xbar2gpc_sectors_op_read.sum",
    "dram_bytes": "dram__bytes_read.sum",
    "duration_ns": "gpu__time_duration.sum",
    "sm_clocks": "sm__cycles_elapsed.max",
}
"""Nsight Compute's metrics by the columns that they fill."""
DERIVED = "memory_"
"""How metrics begin that Nsight Compute computes from others, and does not list."""


def compiled(source: Path, folder: Path) -> Path:
    """Compile a program for the GPU of this machine, with nvcc."""
    program = folder / source.stem
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    options = ["-O2", "-std=c++17", "-arch=native", str(source), "-o", str(program)]
    subprocess.run([nvcc, *options], check=True)
    return program


def known_metrics(ncu: Path, folder: Path, metrics: Mapping[str, str]) -> dict[str, str]:
    """Those of some metrics that this Nsight Compute knows; it lists the coalescer's in a file."""
    listing = listed_metrics(ncu)
    lines = [line for line in listing.splitlines() if line.startswith(COALESCER)]
    (folder / "coalescer-metrics.txt").write_text("\n".join(lines) + "\n")
    names = known_names(listing)
    return {
        column: name
        for column, name in metrics.items()
        if name.split(".")[0] in names or name.startswith(DERIVED)
    }


def measure(
    source: Path,
    kernels: str,
    metrics: Mapping[str, str],
    folder: Path,
    *,
    cache_control: str = "all",
) -> int:
    """Compile a program, run it under Nsight Compute, and write a row for each of its launches.

    The program prints a header and a row for each launch of one of the kernels, as CSV.

    Args:
        source: The program.
        kernels: A regular expression of the kernels to count.
        metrics: Nsight Compute's metrics by the columns that they fill.
        folder: Where the files are written, by the name of the program.
        cache_control: `all` flushes the caches before each launch, `none` does not.

    Returns:
        0, or 1 where nothing was measured.
    """
    ncu, name = find_ncu(), source.stem
    if ncu is None:
        print("Nsight Compute (ncu) is not installed", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    program = compiled(source, folder)
    metrics = known_metrics(ncu, folder, metrics)
    report = folder / f"{name}-ncu.csv"
    words = [str(ncu), "--clock-control", "none", "--cache-control", cache_control, "--csv",
             "--page", "raw", "--print-units", "base", "--log-file", str(report), "--metrics",
             ",".join(metrics.values()), "-k", f"regex:^({kernels})$", str(program)]  # fmt: skip
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    (folder / f"{name}-messages.txt").write_text(done.stderr)
    program.unlink()
    printed = done.stdout.splitlines()
    first = next((n for n, line in enumerate(printed) if line.startswith("kernel,")), len(printed))
    columns = printed[first].count(",") if printed[first:] else 0
    cases = list(csv.DictReader(x for x in printed[first:] if x.count(",") == columns))
    lines = report.read_text().splitlines() if report.exists() else []
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if done.returncode or start is None:
        print(*lines[-5:], *done.stderr.splitlines()[-5:], sep="\n", file=sys.stderr)
        return 1
    rows = list(csv.DictReader(lines[start:]))[1:]  # the first holds units
    if len(rows) != len(cases):
        print(f"{len(rows)} launches were profiled, {len(cases)} ran", file=sys.stderr)
        return 1
    counted = {column: metric for column, metric in metrics.items() if metric in rows[0]}
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*cases[0], *counted])
        writer.writeheader()
        for case, row in zip(cases, rows, strict=True):
            values = {column: row[metric].replace(",", "") for column, metric in counted.items()}
            writer.writerow({**case, **values})
    report.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(measure(SOURCE, "timed|free_running", METRICS, Path(sys.argv[1])))
