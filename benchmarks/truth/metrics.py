"""Nsight Compute's metrics that are measured, by name; what a release does not know is left out."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.counters import HARDWARE_ONLY, LAUNCHED
from benchmarks.truth import operations
from memlab.device.nvidia_tools import ncu

CHIP = "gh100"
"""The chip of the H100 and the H200 in Nsight Compute's list of metrics."""
UNLISTED = ("launch__", "memory_")
"""Prefixes of metrics that Nsight Compute gives although its list lacks them."""

TRAFFIC = (
    "sm__cycles_active.avg",
    "gpc__cycles_elapsed.max",
    "smsp__thread_inst_executed_pred_on.sum",
    "smsp__inst_issued.sum",
    "smsp__warps_launched.sum",
    "l1tex__m_xbar2l1tex_read_sectors.sum",
    "l1tex__m_l1tex2xbar_write_sectors.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    "l1tex__data_bank_conflicts_pipe_lsu.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_read_lookup_hit.sum",
    "lts__t_sectors_op_write.sum",
    "lts__t_sectors_op_atom.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_requests_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_srcunit_tex_lookup_miss.sum",
    "lts__t_sectors_srcunit_ltcfabric.sum",
    "lts__t_sectors_srcnode_gpc_op_read.sum",
    "dram__sectors_read.sum",
    "dram__cycles_elapsed.avg.per_second",
    "sm__cycles_elapsed.avg.per_second",
)
"""Metrics of traffic and clocks besides those of `memlab run --counters ncu`."""

COALESCER = "lrc__"
"""The prefix of the metrics of the L2 request coalescer."""
DETAILS = (
    "sm__inst_executed_pipe_",
    "smsp__inst_executed_op_",
    "smsp__sass_inst_executed_op_",
    "smsp__sass_thread_inst_executed_op",
)
"""Prefixes of the metrics of instructions by pipe, by kind of memory and by operation."""
STALLED, STALLED_SUFFIX = "smsp__average_warps_issue_stalled_", "_per_issue_active"
"""The ends of the names of metrics of stall reasons: waiting warps per issued instruction."""


def listed_metrics(program: Path) -> str:
    """The list of metrics as Nsight Compute prints it: a name and a description a line."""
    words = [str(program), "--query-metrics", "--chips", CHIP]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False).stdout


def known_names(listing: str) -> list[str]:
    """The names in such a list, without duplicates."""
    names = (line.split()[0] for line in listing.splitlines() if line.strip())
    return list(dict.fromkeys(name for name in names if "__" in name))


def traffic_metrics(known: Sequence[str]) -> list[str]:
    """The metrics that every launch is measured by first.

    Those that `memlab run --counters ncu`, `benchmarks.counters` and `OPERATIONS` ask for are known
    to be there.
    """
    columns = (*HARDWARE_ONLY.values(), *(metric for metric, _ in LAUNCHED.values()))
    listed = set(known)
    more = (metric for metric in TRAFFIC if metric.partition(".")[0] in listed)
    coalescer = (f"{name}.sum" for name in known if name.startswith(COALESCER))
    arithmetic = operations.required_metrics()
    return list(dict.fromkeys((*ncu.required_metrics(), *columns, *arithmetic, *more, *coalescer)))


def detail_metrics(known: Sequence[str]) -> list[str]:
    """The metrics of instructions and stalls."""
    counts = [f"{name}.sum" for name in known if name.startswith(DETAILS)]
    stalls = [name for name in known if name.startswith(STALLED) and name.endswith(STALLED_SUFFIX)]
    return [*counts, *(f"{name}.ratio" for name in stalls)]
