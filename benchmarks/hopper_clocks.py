"""Clocks of the SMs, the L2 and DRAM while tensor cores multiply: `wgmma` kernels under ncu.

    python -m benchmarks.hopper_clocks FOLDER [REPEATS [TABLE]]

Runs each kernel under Nsight Compute with caches flushed and clocks as found, all of them REPEATS
times (2), and writes `…-hopper-clocks.csv` to the folder, a row as soon as it is counted: the
clocks of each domain that this Nsight Compute counts, the duration, and the sectors that the L2 and
the SMs were asked for. `sm_clocks` over `duration_ns` is the SM clock, which falls the more and the
longer the tensor cores multiply.

With a TABLE, such as `docs/results/h200-hopper-stalls.csv`, its launches are counted again, and its
columns: those above, and any that have the name of a metric of Nsight Compute.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bars import Sizes, prepared
from benchmarks.gpu_results import head, prefix
from benchmarks.truth.metrics import known_names, listed_metrics
from memlab.device.gpu import query as gpu_query
from memlab.device.gpu.device import with_datasheet
from memlab.device.nvidia_tools import ncu
from memlab.device.nvidia_tools.launch_request import launch_command, run_tool
from memlab.errors import MemlabError

if TYPE_CHECKING:
    from memlab.kernels.launch import Launch

REPEATS = 2
SEED = 0
TIMEOUT_S = 120.0  # of a launch under Nsight Compute
METRICS = {
    "duration_ns": "gpu__time_duration.sum",
    "sm_clocks": "sm__cycles_elapsed.max",
    "l2_clocks": "lts__cycles_elapsed.max",
    "dram_clocks": "dram__cycles_elapsed.max",
    "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
    "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
}
"""Nsight Compute's metrics by the columns that they fill."""
KERNELS = (
    *("wgmma", "wgmma-pipelined", "wgmma-specialized", "wgmma-persistent", "wgmma-cluster"),
    *("wgmma-pingpong", "wgmma-overlapped", "wgmma-tf32"),
)
LAUNCHES: tuple[tuple[str, Sizes], ...] = (
    *((name, {"width": width}) for width in (2048, 4096) for name in KERNELS),
    *((name, {"width": 8192}) for name in ("wgmma-persistent", "wgmma-pingpong")),
    *(
        ("attention-wgmma", {"tokens": tokens, "heads": heads, "head_size": size})
        for tokens, heads, size in (
            (4096, 16, 128),
            (4096, 64, 128),
            (2048, 16, 128),
            (4096, 16, 64),
        )
    ),
)


SIZES = {1: ("width",), 3: ("m", "k", "n")}
ATTENTION_SIZES = {3: ("tokens", "heads", "head_size")}
"""The parameters of products and of attention, by how many of them a launch names."""


def launch_text(name: str, sizes: Sizes) -> str:
    """A launch in a table: `wgmma 2048`."""
    return f"{name} {'x'.join(map(str, sizes.values()))}"


def launch_of(text: str) -> tuple[str, Sizes]:
    """The launch of a table."""
    name, _, sizes = text.partition(" ")
    numbers = [int(number) for number in sizes.split("x")]
    parameters = ATTENTION_SIZES if name.startswith("attention") else SIZES
    return name, dict(zip(parameters[len(numbers)], numbers, strict=True))


def table_of(path: Path) -> tuple[list[tuple[str, Sizes]], dict[str, str]]:
    """The launches of a table, each once, and the metrics by its columns."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        launches = [launch_of(text) for text in dict.fromkeys(row["launch"] for row in rows)]
        columns = (rows.fieldnames or ())[2:]
    return launches, {column: METRICS.get(column, column) for column in columns}


def profile(program: Path, launch: Launch, metrics: Iterable[str]) -> dict[str, float]:
    """Run a launch once under Nsight Compute and count these metrics alone.

    Raises:
        ProfilerError: It failed; the message says why.
    """
    with launch_command(launch, 0, SEED) as words:
        command = ncu.ncu_command(program, metrics, launch.entry, words)
        return ncu.parse_metrics(run_tool(command, TIMEOUT_S))


def main(folder: Path, repeats: int = REPEATS, table: Path | None = None) -> int:
    """Write the table; gives 1 where a launch could not be counted."""
    found = ncu.find_ncu()
    if found is None:
        print("Nsight Compute (ncu) is not installed", file=sys.stderr)
        return 1
    names = known_names(listed_metrics(found))
    launches, metrics = table_of(table) if table else (LAUNCHES, METRICS)
    counted = {name: of for name, of in metrics.items() if of.split(".")[0] in names}
    properties = with_datasheet(gpu_query.query_properties(0))
    print(head(properties.name))
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    ending = table.name.partition("-")[2] if table else "hopper-clocks.csv"
    path = folder / f"{prefix(properties.name)}-{ending}"
    with path.open("w", buffering=1, encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("launch", "repeat", *counted))
        for repeat in range(repeats):
            for name, sizes in launches:
                launch = launch_text(name, sizes)
                try:
                    values = profile(found, prepared(name, sizes, properties), counted.values())
                except MemlabError as error:
                    print(f"{launch}: {error}", file=sys.stderr)
                    failed = True
                    continue
                figures = {column: values[metric] for column, metric in counted.items()}
                if "duration_ns" in figures:
                    figures["duration_ns"] *= 1e9
                writer.writerow((launch, repeat, *(f"{value:.12g}" for value in figures.values())))
    return int(failed)


if __name__ == "__main__":
    _, into, *rest = sys.argv
    sys.exit(main(Path(into), int(rest[0]) if rest else REPEATS, *map(Path, rest[1:2])))
