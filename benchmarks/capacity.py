"""What the L1s and the L2 keep: hits of arrays of growing size that are read again and again.

    python -m benchmarks.capacity FOLDER

Compiles `capacity.cu` with nvcc, runs it under Nsight Compute, and writes `capacity.csv` to the
folder: a row for each launch, with what it does and the counters. `bytes` are those of each
multiprocessor, or for random reads those of all.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.coalescer import METRICS, measure

SOURCE = Path(__file__).with_name("capacity.cu")
COUNTED = {
    **METRICS,
    "l1_hits": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    "l2_writes": "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram_written_bytes": "dram__bytes_write.sum",
}


if __name__ == "__main__":
    sys.exit(measure(SOURCE, "again|random_reads", COUNTED, Path(sys.argv[1])))
