"""How long atomics on few addresses take: by lanes, addresses, and the distance between these.

    python -m benchmarks.atomics FOLDER

Compiles `atomics.cu` with nvcc, runs it on the first GPU, and writes `atomics.csv` to the folder: a
row for each case. `ns_per_request` is the time by which a warp's request lengthens a launch of all
SMs, from launches of two lengths.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.coalescer import compiled

SOURCE = Path(__file__).with_name("atomics.cu")


def measure(source: Path, folder: Path) -> int:
    """Compile and run a program that prints its table; return 0, or 1 where a launch failed."""
    folder.mkdir(parents=True, exist_ok=True)
    program = compiled(source, folder)
    done = subprocess.run([program], check=False, capture_output=True, text=True)
    program.unlink()
    sys.stderr.write(done.stderr)
    if done.returncode == 0:
        (folder / f"{source.stem}.csv").write_text(done.stdout)
    return min(done.returncode, 1)


if __name__ == "__main__":
    sys.exit(measure(SOURCE, Path(sys.argv[1])))
