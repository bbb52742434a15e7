"""Print every figure with its limit; exit with 1 if one is missed."""

from __future__ import annotations

import sys

from benchmarks import accuracy, commands, emulator, user_kernels
from benchmarks.report import Figure


def main() -> int:
    """Run all benchmarks, in a few minutes."""
    figures: list[Figure] = []
    for title, measure in (
        ("Whole commands", commands.runs),
        ("Start-up", commands.start_up),
        ("User kernels, 4 million elements", user_kernels.runs),
        ("Headers", user_kernels.headers),
        ("Emulator, lane-operations per second", emulator.speed),
    ):
        measured = measure()
        figures += measured
        print(f"{title}\n" + "\n".join(figure.line() for figure in measured) + "\n", flush=True)
    tables, measured = accuracy.compare()
    figures += measured
    print(f"Models against an NVIDIA H200, width {accuracy.WIDTH}\n{tables}\n")
    print("\n".join(figure.line() for figure in measured))
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
