"""Print every figure with its limit; leave with 1 if one is missed."""

from __future__ import annotations

import sys

from benchmarks import accuracy, commands, emulator, own
from benchmarks.report import Figure


def main() -> int:
    """Run all benchmarks, in about a minute and a half."""
    figures: list[Figure] = []
    for title, measure in (
        ("Whole commands", commands.runs),
        ("Start-up", commands.start_up),
        ("Kernels of one's own, 4 million elements", own.runs),
        ("Headers", own.headers),
        ("Emulator, lane-operations a second", emulator.speed),
    ):
        found = measure()
        figures += found
        print(f"{title}\n" + "\n".join(each.line() for each in found) + "\n", flush=True)
    tables, found = accuracy.compare()
    figures += found
    print(f"Models against an NVIDIA H200, width {accuracy.WIDTH}\n{tables}\n")
    print("\n".join(each.line() for each in found))
    return int(any(each.missed for each in figures))


if __name__ == "__main__":
    sys.exit(main())
