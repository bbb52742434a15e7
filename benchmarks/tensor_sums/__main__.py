"""The command `python -m benchmarks.tensor_sums`: those of a GPU, and of the emulator.

    python -m benchmarks.tensor_sums measure FOLDER
    python -m benchmarks.tensor_sums compare FILE [--only TEXT ...]

`measure` computes the products of all kernels on the first GPU, and writes to the folder
`…-sums.npz`, their results by the name of the kernel, and `…-products.npz`, some of them with their
matrices: that of an H100 is `tests/data/h100-products.npz`. `compare` computes the same products
on an emulated H100 and prints how many of the measured results differ in any bit. Inputs are random
and always the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.tensor_sums.products import compare, measure


def main() -> int:
    """Read the command line and run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tensor_sums",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("measure").add_argument("folder", type=Path)
    compared = commands.add_parser("compare")
    compared.add_argument("file", type=Path)
    compared.add_argument("--only", nargs="+", default=[], metavar="TEXT")
    options = parser.parse_args()
    if options.command == "measure":
        return measure(options.folder)
    return compare(options.file, options.only)


if __name__ == "__main__":
    sys.exit(main())
