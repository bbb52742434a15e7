"""Micro-benchmarks of the time model's constants.

    python -m benchmarks.microbenchmarks FOLDER [NAME...]

Compiles the programs of these names, or all, with nvcc, runs them on the first GPU, those of
`COUNTED` under Nsight Compute, and writes a table for each to the folder: `issue.cu` gives
`issue.csv`. Those of an H200 are `h200-*.csv` in `tests/data` and `docs/results`, where names have
`-` for `_`, `h200-copies.csv` is that of `shared_copies.cu`, tables of one kernel leave out its
name, and there is none of `cluster_bandwidth.cu`. What does not fit into
the columns, such as the GPCs, is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import atomics, coalescer

HERE = Path(__file__).parent
TIMED = (
    "issue",
    "neighbours",
    "loaded",
    "block_ends",
    "warp_ends",
    "active_clusters",
    "cluster_times",
    "cluster_messages",
    "cluster_bandwidth",
    "row_stores",
    "tensor_stores",
    "load_clock",
    "barrier_waits",
    "product_issue",
    "dependent",
    "random_atomics",
    "idle_accesses",
    "block_paces",
    "constant_walks",
    "block_places",
    "shared_streams",
    "shared_ends",
    "replaced_lines",
    "contended_words",
    "missed_loads",
    "stored_again",
    "common_stores",
    "load_results",
    "scattered_loads",
)
"""Programs that print their table."""


@dataclass(frozen=True)
class Counted:
    """What Nsight Compute counts of a program.

    Attributes:
        kernels: A regular expression of the kernels.
        metrics: Its metrics, by the columns that they fill.
        cache_control: `all` where it flushes the caches before each launch, or `none`.
    """

    kernels: str
    metrics: Mapping[str, str]
    cache_control: str = "all"


COUNTED = {
    "launches": Counted(
        "nothing|one_store",
        {
            "duration_ns": "gpu__time_duration.sum",
            "sm_active_clocks": "sm__cycles_active.max",
        },
    ),
    "shared_copies": Counted(
        "copies",
        {
            "wavefronts": "memory_l1_wavefronts_shared",
            "ideal_wavefronts": "memory_l1_wavefronts_shared_ideal",
        },
    ),
    "shared_floats": Counted(
        "floats",
        {
            "compare_and_swaps": "smsp__inst_executed_op_shared_atom_dot_cas.sum",
            "sm_active_clocks": "sm__cycles_active.max",
        },
        cache_control="none",
    ),
    "shared_additions": Counted(
        "floats|doubles",
        {
            "compare_and_swaps": "smsp__inst_executed_op_shared_atom_dot_cas.sum",
            "load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
            "swap_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum",
            "load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            "instrumented_load_wavefronts": (
                "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
            ),
            "sm_active_clocks": "sm__cycles_active.max",
        },
        cache_control="none",
    ),
    "tile_reads": Counted(
        "tiles",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "wave_reads": Counted(
        "waves",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "l2_hits": "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "joins": Counted(
        "joins",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "l2_misses": "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "kept_lines": Counted(
        "beside_stream|rows_twice|stored_rows",
        {
            "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            "l1_hits": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "l2_hits": "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
            "dram_bytes": "dram__bytes_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "hinted_lines": Counted(
        "hinted",
        {
            "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            "l1_hits": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "stored_parts": Counted(
        "local_parts|global_parts",
        {
            "local_load_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
            "local_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
            "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
            "l1_hits": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "l2_writes": "lts__t_sectors_srcunit_tex_op_write.sum",
        },
    ),
    "short_tiles": Counted(
        "tiles",
        {
            "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            "l1_hits": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "l2_hits": "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
            "dram_bytes": "dram__bytes_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "few_blocks": Counted(
        "tiles|walk|pairs|strips",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "l2_hits": "lts__t_sectors_srcunit_tex_op_read_lookup_hit.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "product_reads": Counted(
        "products",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "l2_misses": "lts__t_sectors_srcunit_tex_op_read_lookup_miss.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "copied_rows": Counted(
        "copied|halves|turns",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l1_requests": "lrc__xbar2lrc_requests_op_read.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "l2_requests": "lts__t_requests_srcunit_tex_op_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "column_reads": Counted(
        "columns",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
        cache_control="none",
    ),
    "random_gathers": Counted(
        "gathers",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
        cache_control="none",
    ),
    "cas_loops": Counted(
        "swaps|halves|firsts",
        {
            "warp_tries": "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum",
            "lane_tries": "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
            "l2_sectors": "lts__t_sectors_op_atom.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "row_updates": Counted(
        "updates",
        {
            "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "dram_sectors": "dram__sectors_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "merged_stores": Counted(
        "stores|bursts",
        {
            "stored_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
            "left_sectors": "l1tex__m_l1tex2xbar_write_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_write.sum",
            "l2_requests": "lts__t_requests_srcunit_tex_op_write.sum",
            "sm_active_clocks": "sm__cycles_active.max",
        },
    ),
    "line_loads": Counted(
        "timed",
        {
            "wavefronts": "l1tex__data_pipe_lsu_wavefronts.sum",
            "tag_passes": "l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ld.sum",
        },
        cache_control="none",
    ),
    "row_reads": Counted(
        "rows",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "runtime_calls": Counted(
        "calls",
        {
            "warp_instructions": "smsp__inst_executed.sum",
            "thread_instructions": "smsp__thread_inst_executed.sum",
            "l2_read_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "dram_read_bytes": "dram__bytes_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
    "merged_copies": Counted(
        "timed|rings",
        {
            "l1_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
            "l2_sectors": "lts__t_sectors_srcunit_tex_op_read.sum",
            "dram_bytes": "dram__bytes_read.sum",
            "duration_ns": "gpu__time_duration.sum",
        },
    ),
}
"""Programs that print a row for each launch, and what is counted of them."""


def measure(name: str, folder: Path) -> int:
    """Run one of the programs; return 0, or 1 where it failed."""
    source = HERE / f"{name}.cu"
    counted = COUNTED.get(name)
    if counted is None:
        return atomics.measure(source, folder)
    return coalescer.measure(
        source, counted.kernels, counted.metrics, folder, cache_control=counted.cache_control
    )


def main(folder: Path, names: Sequence[str]) -> int:
    """Run the programs of some names, or all; return 1 where one failed, 2 for an unknown name."""
    known = (*TIMED, *COUNTED)
    if unknown := [name for name in names if name not in known]:
        print(f"no such program: {unknown[0]}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    return max(measure(name, folder) for name in names or known)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.microbenchmarks")
    parser.add_argument("folder", type=Path, help="where the tables are written")
    parser.add_argument("names", nargs="*", help="programs to run; all if there are none")
    options = parser.parse_args()
    sys.exit(main(options.folder, options.names))
